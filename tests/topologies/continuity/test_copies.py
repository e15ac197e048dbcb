"""What must be removed before a site is activated, what would be lost, and what is done about neither."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from dr_ctl.jolokia.client import Answer, Ask, Listing
from dr_ctl.jolokia.errors import BadValue
from dr_ctl.topologies.common.consumed import NotWhole
from dr_ctl.topologies.console.requests import change
from dr_ctl.topologies.continuity.copies import (
    BATCH,
    CALLS,
    IDS_UP_TO,
    Compared,
    batches,
    chosen,
    compare,
    echoes,
    ids,
    removals,
)
from tests.topologies.continuity.views import bridge, broker, flow, queue


def told(here: str, there: str, staged: str, behind: str = "") -> Compared:
    sets = (frozenset(each) for each in (here, behind, there, staged))
    return Compared("orders", *sets, counted=2)


@pytest.mark.parametrize(
    ("here", "there", "staged", "missing", "done", "surplus"),
    [
        ("abc", "", "abc", "", "", ""),
        ("abc", "a", "bc", "", "", ""),
        ("abc", "", "ab", "c", "", ""),  # a rollback deleted the copy of c
        ("ab", "", "abc", "", "", "c"),  # the acknowledgement of c was lost
        ("ab", "abc", "", "", "c", ""),  # the same, where c had been delivered before
        ("abc", "ab", "abc", "", "", "ab"),  # a and b came back to where they were written
        ("", "a", "ab", "", "a", "ab"),
    ],
)
def test_the_ids_say_what_to_do(here: str, there: str, staged: str, missing: str, done: str, surplus: str) -> None:
    compared = told(here, there, staged)

    assert (compared.missing, compared.done, compared.surplus) == (
        frozenset(missing),
        frozenset(done),
        frozenset(surplus),
    )
    left = (compared.there or frozenset()) - compared.done, (compared.staged or frozenset()) - compared.surplus
    assert left[0] | left[1] == frozenset(here) - compared.missing
    assert not left[0] & left[1]


@pytest.mark.parametrize(("there", "staged"), [("ab", ""), ("", "ab"), ("a", "b"), ("a", "ab")])
def test_what_the_site_that_is_left_has_not_delivered_is_never_removed(there: str, staged: str) -> None:
    compared = told("", there, staged, behind="abc")
    assert compared.undelivered == frozenset("ab")
    left = (compared.there or frozenset()) - compared.done | (compared.staged or frozenset()) - compared.surplus
    assert left == frozenset("ab")


class Console:
    """Answers the listings of queues by the ids that lie in them: plain, scheduled."""

    url = "http://here"

    def __init__(self, **queues: tuple[list[str], list[str]]) -> None:
        self._queues = queues

    def look(self, requests: list[Ask], **_: Any) -> list[Answer]:
        return [Answer(None, json.dumps(self._told(each))) for each in requests]

    def _told(self, ask: Ask) -> Any:
        plain, scheduled = self._queues[ask.bean.split('queue="')[1].rstrip('"').replace(".", "_")]
        if ask.listing is Listing.COUNT_BY:
            return {name: plain.count(name) for name in plain}
        return [{"_AMQ_DUPL_ID": name} for name in scheduled]


def test_what_is_scheduled_is_there_too() -> None:
    """Left out, it would look as if it had been acknowledged, and its copy would be removed."""
    console: Any = Console(orders=(["a"], ["b"]))
    assert ids(console, [queue("orders", 2)]) == [frozenset("ab")]


@pytest.mark.parametrize(("plain", "depth"), [(["a"], 2), (["a", "b"], 1), (["a", "null"], 2), (["a", "a"], 2)])
def test_a_queue_that_could_not_be_read_as_a_whole_is_not_known(plain: list[str], depth: int) -> None:
    console: Any = Console(orders=(plain, []))
    assert ids(console, [queue("orders", depth)]) == [None]


def test_an_answer_that_is_no_list_of_ids_is_an_error() -> None:
    class Odd(Console):
        def _told(self, ask: Ask) -> Any:
            return 3

    console: Any = Odd()

    with pytest.raises(BadValue):
        ids(console, [queue("orders", 2)])


def sites(plain: str, there: str, staged: str, *, depth: int, acked: int) -> tuple[Any, Any, Any, Any]:
    """Two consoles by what is listed of `orders`, here and there and staged there, and both views."""
    london = replace(broker("london"), queues=(queue("orders", depth, acked=acked),))
    paris = broker("paris", flow("orders", staged=len(staged)), depths={"orders": len(there)})
    here, other = (
        Console(orders=([*plain], []), orders_in_mirror=([], [])),
        Console(orders=([*there], []), orders_in_mirror=([*staged], [])),
    )
    return here, other, london, paris


def test_nothing_is_removed_of_what_is_not_known() -> None:
    here, there, london, paris = sites("a", "", "abc", depth=2, acked=0)
    [compared] = compare(here, there, london, paris)
    assert not compared.known
    assert list(removals(london, paris, [compared])) == []


@pytest.mark.parametrize(
    ("there", "acked", "unproven", "gone"),
    [
        # Each message is removed where it lies.
        ("c", 2, "", [('orders.in.mirror"', "('b')"), ('orders"', "('c')")]),
        # What the counters of the site that is left do not cover stays: a store that came back empty holds none of the
        # messages whose last copies wait at the other site.
        *(("ac", acked, "bc", [('orders.in.mirror"', "('a')")]) for acked in (0, 1)),
    ],
)
def test_what_was_consumed_is_removed_where_it_lies(there: str, acked: int, unproven: str, gone: Any) -> None:
    here, other, london, paris = sites("a", there, "ab", depth=1, acked=acked)
    compared = compare(here, other, london, paris)
    calls = list(removals(london, paris, compared))
    assert [each.unproven for each in compared] == [frozenset(unproven)]
    told = [(change(call).bean.split('queue="')[1], change(call).arguments) for call in calls]
    assert told == [(bean, (f"_AMQ_DUPL_ID IN {ids}",)) for bean, ids in gone]


def test_nothing_is_removed_by_a_listing_of_a_queue_that_moves() -> None:
    here, there, london, paris = sites("a", "", "b", depth=1, acked=2)
    compared = compare(here, there, london, paris)
    with pytest.raises(NotWhole):
        list(removals(broker("london"), paris, compared))


def test_an_echo_is_staged_and_in_the_queue_of_the_same_site() -> None:
    """Whatever else is staged there may be the only copy, whether its queue has it at the other site or not."""
    paris = broker("paris", flow("orders", staged=3), depths={"orders": 2})
    there: Any = Console(orders=(["a", "b"], []), orders_in_mirror=(["b", "null"], ["c"]))
    assert {name: gone.ids for name, gone in echoes(there, paris).items()} == {"orders": frozenset("b")}


@pytest.mark.parametrize(
    ("staged", "depth", "delivers"),
    [(1, 0, False), (0, 1, False), (1, 1, True), (1, IDS_UP_TO, False)],
    ids=["nothing in the queue", "nothing staged", "its bridge has taken it", "too deep"],
)
def test_nobody_is_asked_for_echoes_where_none_can_be_removed(staged: int, depth: int, delivers: bool) -> None:
    delivering = bridge("orders.in.mirror.bridge", started=delivers)
    paris = broker("paris", flow("orders", staged=staged, target_bridge=delivering), depths={"orders": depth})
    assert echoes(cast("Any", None), paris) == {}


def test_many_are_removed_in_batches_and_quotes_stay_inside() -> None:
    paris = broker("paris", flow("orders", staged=BATCH + 1))
    names = frozenset(f"it's-{n}" for n in range(BATCH + 1))
    many = Compared("orders", frozenset(), frozenset(), frozenset(), names, counted=len(names))
    assert len(list(removals(broker("london"), paris, [many]))) == 2
    assert chosen(["it's"]) == "_AMQ_DUPL_ID IN ('it''s')"


@pytest.mark.parametrize("number", [1, BATCH * CALLS, BATCH * CALLS + 1, 500_000])
def test_however_many_are_removed_the_calls_are_few_and_each_is_removed_once(number: int) -> None:
    names = {f"{n}" for n in range(number)}
    made = batches(names)
    assert len(made) <= CALLS
    assert sorted(name for some in made for name in some) == sorted(names)
