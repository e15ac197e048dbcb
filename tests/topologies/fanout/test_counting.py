"""What counters of both sites prove, from a moment at which both were compared, while producers go on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from dr_ctl.topologies.fanout.counting import CHECKPOINTS, At, Checkpoints, Counters, Mark, Since
from dr_ctl.topologies.fanout.ids import Listed, covered
from dr_ctl.topologies.fanout.parity import ONE_SITE_ALONE, counted, untold
from tests.topologies.fanout.test_view import queue, view

START = Since(Mark("london 1"), Mark("paris 1"))


def listed(ids: Iterable[str], *, removed: int = 0, came: int = 0, **more: int) -> Listed:
    """A listing, with so many messages that came while it was made: the counters before it do not have them."""
    shown = {each: {"id": each} for each in ids}
    depth = len(shown) - came
    before = Counters(depth, depth + removed, removed, more.get("expired", 0), more.get("dispatched", removed))
    after = replace(before, depth=len(shown), added=before.added + came)
    return Listed("q", shown, len(shown), before, after)


def proven(here: Listed, there: Listed, since: Since = START) -> set[str]:
    return {*covered(here, there, since).ids}


def test_messages_that_come_to_both_while_they_are_listed_end_no_proof() -> None:
    """London is listed after paris: f and g came in between, and lie at london alone for a moment."""
    there = listed("abcde", came=2)
    here = listed("cdefg", removed=2, came=2)
    assert proven(here, there) == {"a", "b"}


def test_one_message_that_came_to_one_site_alone_proves_nothing() -> None:
    assert proven(listed("cde", removed=2), listed("abcdey")) == set()
    assert proven(listed("cdex", removed=2), listed("abcdey")) == set(), "nor is it made up for by one there alone"


@pytest.mark.parametrize("lost", [{"expired": 1}, {"dispatched": 1}], ids=["expired", "purged"])
def test_what_left_otherwise_than_to_a_client_was_not_consumed(lost: dict[str, int]) -> None:
    assert proven(listed("cde", removed=2, **lost), listed("abcde")) == set()


def test_from_a_comparison_on_what_came_alone_before_it_costs_nothing() -> None:
    """At the comparison y lay at paris alone, and a had been consumed without a proof."""
    since = Since(Mark("london 1", entered=5, removed=1, dispatched=1), Mark("paris 1", 6, alone=frozenset("ay")))
    here, there = listed("cde", removed=2), listed("abcdey")
    assert proven(here, there, since) == {"b"}
    assert proven(here, there) == set()


def test_a_copy_made_since_is_no_message_that_came_alone() -> None:
    """x lay at london alone, and was copied to paris."""
    since = Since(Mark("london 1", entered=4, alone=frozenset("x")), Mark("paris 1", entered=3))
    assert proven(listed("bcx", removed=1), listed("abcx"), since) == {"a"}


@pytest.mark.parametrize(
    ("changed", "goes_on"),
    [
        ({}, True),
        ({"start": "london 2"}, False),
        ({"counters": Counters(1, 2, 1, 0, 1)}, False),
    ],
    ids=["as it was", "a restart", "a queue made again, or statistics reset"],
)
def test_a_comparison_counts_while_both_brokers_and_both_queues_are_the_same(
    changed: dict[str, object], *, goes_on: bool
) -> None:
    marks = {"london": Mark("london 1", 10, 7, dispatched=7), "paris": Mark("paris 1", 10, alone=frozenset("y"))}
    kept = Checkpoints.read({CHECKPOINTS: Checkpoints({"q": marks}).text})
    london = replace(At("london", "london 1", Counters(4, 12, 8, 0, 8)), **changed)  # type: ignore[arg-type]
    paris = At("paris", "paris 1", Counters(12, 13, 0, 0, 0))
    assert kept.queues == {"q": marks}
    assert (kept.since("q", london, paris) == Since(marks["london"], marks["paris"])) is goes_on


def test_a_start_of_both_brokers_is_one_where_all_that_lies_there_came_since() -> None:
    london, paris = At("london", "l", Counters(1, 3, 2, 0, 2)), At("paris", "p", Counters(3, 3, 0, 0, 0))
    loaded = replace(paris, counters=Counters(3, 1, 0, 0, 0))
    assert Checkpoints({}).since("q", london, paris) == Since(Mark("l"), Mark("p"))
    assert Checkpoints({}).since("q", london, loaded) is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"q": {"london": {}}}', '{"q": 1}'])
def test_a_damaged_document_is_none(text: str) -> None:
    assert Checkpoints.read({CHECKPOINTS: text}).queues == {}


def judged(*readings: tuple[int, int]) -> dict[str, str]:
    """What keeps a move back. Clients of london have taken what it lacks."""
    london, paris = view("london", queue("q", 20, added=60)), view("paris", queue("q", 35, added=60, removed=25))
    several = [
        (Counters(here - 40, here, 40, 0, 40), Counters(there - 25, there, 25, 0, 0)) for here, there in readings
    ]
    now = {"q": counted(london, paris, several, 1.0)}
    told = untold(replace(london, counted=now), replace(paris, counted=now))
    return {name: each.why for name, each in told.items()}


@pytest.mark.parametrize(
    ("readings", "why"),
    [
        ([(60, 60), (60, 60)], {}),
        ([(61, 58), (70, 71), (75, 72), (80, 79), (85, 85)], {}),
        ([(61, 64), (70, 72), (75, 76), (80, 83), (85, 87)], {"q": ONE_SITE_ALONE}),
    ],
    ids=["at rest", "busy", "busy, and two came to paris alone"],
)
def test_where_messages_come_all_the_time_only_counts_that_never_meet_refuse(
    readings: list[tuple[int, int]], why: dict[str, str]
) -> None:
    """The gate counts again with clients out: what it may well prove does not keep a move back."""
    assert judged(*readings) == why
