"""Nothing is removed because the serving site lacks it: without the consumers' store of ids, counters of one start of
both brokers cover every message, or the messages stay and a person is told how many may come twice."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import pytest

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Outcome
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.common.sender import Sender
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.classic.fanout.broker import ID_HEADER
from dr_ctl_lab.twin.messages import Message
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.patience import impatient
from tests.topologies.fanout.test_moves import Q, at, consume, found, lose_london, lying, send, without
from tests.twin.test_crashes import Died

SWAPOVER = ("swapover", "--to", "paris", "--yes")


def of(ended: Ended, finding: str) -> dict[str, str]:
    return next(each for each in ended.document["findings"] if each["id"] == finding)


def restarted(twin: PlayedTwin, site: str) -> None:
    twin.kill(site)
    twin.start(site)
    twin.open_clients(site)


@pytest.fixture
def counted(twin: PlayedTwin) -> PlayedTwin:
    """A twin whose settings name no store of ids."""
    without(twin, "ids")
    return twin


def test_counters_of_one_start_that_cover_every_message_prove_what_was_consumed(
    counted: PlayedTwin, dr_ctl: Command
) -> None:
    send(counted, "a", "b", "c")
    consume(counted, "london", "a")

    there = dr_ctl(*SWAPOVER)
    after = lying(counted, "paris")
    consume(counted, "paris", "b")
    back = dr_ctl("swapover", "--to", "london", "--yes")

    assert (there.code, back.code) == (0, 0), (there.told, back.told)
    assert (after, lying(counted, "london"), lying(counted, "paris")) == (["b", "c"], ["c"], ["c"])


def test_after_a_restart_nothing_is_removed_and_a_move_asks_before(counted: PlayedTwin, dr_ctl: Command) -> None:
    send(counted, *"abcdef")
    consume(counted, "london", "a", "b", "c")
    restarted(counted, "london")
    consume(counted, "london", "d")

    ready = dr_ctl("validate", "--to", "paris")
    trimmed = dr_ctl("trim", "paris", "--yes")
    refused = dr_ctl(*SWAPOVER)
    stayed = lying(counted, "paris")
    remedy = of(refused, "DR-FAN-007")["remedy"]
    options = shlex.split(remedy[remedy.index("--accept-duplicates") :])[:2]
    moved = dr_ctl(*SWAPOVER, *options)

    assert (ready.code, refused.code) == (10, 10), ready.told
    assert "4 message(s) at paris may come as duplicates" in of(refused, "DR-FAN-007")["text"]
    assert ready.document["data"]["operations"]["swapover"]["needs"] == ["--accept-duplicates 4"]
    assert (trimmed.code, of(trimmed, "DR-FAN-007")["severity"]) == (0, "warning")
    assert "no more copies" not in trimmed.told
    assert stayed == [*"abcdef"]
    assert options == ["--accept-duplicates", "4"]
    assert (moved.code, of(moved, "DR-FAN-007")["severity"]) == (0, "warning"), moved.told
    assert lying(counted, "paris") == [*"abcdef"]


def test_a_message_at_one_site_alone_costs_a_persons_word_before_the_fence_and_the_next_move_none(
    counted: PlayedTwin, dr_ctl: Command
) -> None:
    """Without it nobody could tell it from one that was consumed. From the move on counters tell again."""
    send(counted, *"abcdef")
    send(counted, "alone", to=("paris",))
    consume(counted, "london", "a")

    ready = dr_ctl("validate", "--to", "paris")
    refused = dr_ctl(*SWAPOVER)
    too_few = dr_ctl(*SWAPOVER, "--accept-duplicates", "1")
    moved = dr_ctl(*SWAPOVER, "--accept-duplicates", "2")
    at_paris = lying(counted, "paris")
    consume(counted, "paris", "a", "b")
    back = dr_ctl("swapover", "--to", "london", "--yes")

    needs = ready.document["data"]["operations"]["swapover"]["needs"]
    assert (ready.code, needs) == (10, ["--accept-duplicates 2"]), ready.told
    assert "a message came to one site alone" in of(refused, "DR-FAN-007")["text"]
    assert [each.code for each in (refused, too_few, moved)] == [10, 10, 0], moved.told
    assert at_paris == [*"abcdef", "alone"]
    assert (back.code, "DR-FAN-007" in found(back)) == (0, False), back.told
    assert lying(counted, "london") == [*"cdef", "alone"]


def test_trim_from_a_timer_keeps_small_what_one_such_message_costs(counted: PlayedTwin, dr_ctl: Command) -> None:
    send(counted, *"abcdef")
    consume(counted, "london", "a", "b")
    first = dr_ctl("trim", "paris", "--yes")
    send(counted, "alone", to=("paris",))
    consume(counted, "london", "c")
    second = dr_ctl("trim", "paris", "--yes")
    consume(counted, "london", "d")
    shown = dr_ctl("trim", "paris", "--dry-run")
    untouched = lying(counted, "paris")
    third = dr_ctl("trim", "paris", "--yes")
    moved = dr_ctl(*SWAPOVER, "--accept-duplicates", "2")

    assert ("DR-FAN-007" in found(first), lying(counted, "paris")) == (False, ["c", "e", "f", "alone"])
    assert "2 message(s) at paris" in of(second, "DR-FAN-007")["text"]
    assert "1 consumed messages could be removed at paris" in shown.document["summary"]
    assert untouched == ["c", "d", "e", "f", "alone"]
    for each in (shown, third):
        assert "known by their ids to lie there alone" in of(each, "DR-FAN-007")["text"]
    assert moved.code == 0, moved.told


def test_a_restart_since_both_were_compared_ends_what_counters_tell(counted: PlayedTwin, dr_ctl: Command) -> None:
    send(counted, *"abcd")
    assert dr_ctl("trim", "paris", "--yes").code == 0
    restarted(counted, "london")
    consume(counted, "london", "a")

    trimmed = dr_ctl("trim", "paris", "--yes")

    assert "a broker was restarted since both were compared" in of(trimmed, "DR-FAN-007")["text"]
    assert lying(counted, "paris") == [*"abcd"]


def test_a_return_says_before_it_begins_what_may_come_as_duplicates(counted: PlayedTwin, dr_ctl: Command) -> None:
    send(counted, *"abcd")
    lose_london(counted, dr_ctl)
    consume(counted, "paris", "a", "b")
    send(counted, *"klm", to=("paris",))
    counted.start("london")

    ready = dr_ctl("validate", "--to", "london")
    calls = len(counted.changes())
    refused = dr_ctl("failback", "--to", "london", "--yes")
    made = len(counted.changes()) - calls
    moved = dr_ctl("failback", "--to", "london", "--yes", "--accept-duplicates", "2")

    verdict = ready.document["data"]["operations"]["failback"]
    assert (verdict["exit_code"], verdict["needs"]) == (10, ["--accept-duplicates 2"]), ready.told
    assert (refused.code, made) == (10, 0), refused.told
    assert moved.code == 0, moved.told
    assert {*lying(counted, "london")} == {*"abcdklm"}
    assert dr_ctl("status").document["debts"] == []


def test_a_plan_names_what_may_come_twice(counted: PlayedTwin, dr_ctl: Command) -> None:
    send(counted, "a", "b")
    consume(counted, "london", "a")
    restarted(counted, "london")

    planned = dr_ctl("plan", "swapover", "--to", "paris")

    assert "DR-FAN-007" in found(planned)


def test_messages_that_one_site_alone_confirmed_are_never_taken_for_consumed(
    counted: PlayedTwin, dr_ctl: Command
) -> None:
    """London is lost, Paris serves alone; Paris is lost, and clients of London consume more than Paris lacks."""
    send(counted, *"abcd")
    lose_london(counted, dr_ctl)
    send(counted, "alone-1", "alone-2", to=("paris",))
    counted.kill("paris")
    counted.start("london")
    assert (
        dr_ctl("failover", "--to", "london", "--accept-loss", "unknown", "--accept-duplicates", "unknown", "--yes").code
        == 0
    )
    send(counted, *"klmnopqr", to=("london",))
    consume(counted, "london", *"abcdklmnopqr")
    counted.start("paris")
    counted.close_clients("paris")

    ended = dr_ctl("failback", "--to", "paris", "--yes")

    assert (ended.code, "DR-FAN-007" in found(ended)) == (10, True), ended.told
    assert {"alone-1", "alone-2"} <= {*lying(counted, "paris")}


def test_a_store_that_came_back_empty_empties_no_other(counted: PlayedTwin, dr_ctl: Command) -> None:
    send(counted, "a", "b", "c")
    counted.kill("london")
    with counted.still():
        at(counted, "london").queues.clear()
    counted.start("london")
    counted.open_clients("london")
    send(counted, *"klmn")
    consume(counted, "london", *"klmn")

    trimmed = dr_ctl("trim", "paris", "--yes")

    assert "DR-FAN-007" in found(trimmed)
    assert {"a", "b", "c"} <= {*lying(counted, "paris")}


def test_a_purge_at_the_serving_site_proves_no_message_to_be_consumed(counted: PlayedTwin, dr_ctl: Command) -> None:
    send(counted, "a", "b", "c")
    with counted.still():
        london = at(counted, "london")
        for message in list(london.queues[Q].live()):
            london.remove(london.queues[Q], message)

    trimmed = dr_ctl("trim", "paris", "--yes")

    assert (trimmed.code, lying(counted, "paris")) == (0, ["a", "b", "c"]), trimmed.told
    assert "DR-FAN-007" in found(trimmed)


@pytest.mark.parametrize("stored", [True, False])
def test_a_return_from_a_listing_that_is_cut_is_refused_and_owed_still(
    twin: PlayedTwin, dr_ctl: Command, *, stored: bool
) -> None:
    if not stored:
        without(twin, "ids")
    lose_london(twin, dr_ctl)
    send(twin, *"abcdefgh", to=("paris",))
    twin.start("london")
    at(twin, "paris").browse_page = 5

    ended = dr_ctl("reinstate", "london", "--yes")

    assert ended.code not in (0, 1), ended.told
    assert "limits what a listing shows" in ended.told
    assert dr_ctl("status").document["debts"]


def test_messages_that_a_client_is_not_shown_are_no_consumed_ones(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dr_ctl.topologies.fanout import access  # noqa: PLC0415

    lose_london(twin, dr_ctl)
    send(twin, "a", "b", to=("paris",))
    twin.start("london")
    monkeypatch.setattr(access, "read", lambda *_: {})

    ended = dr_ctl("reinstate", "london", "--yes")

    assert (ended.code, "shows them to no client" in ended.told) == (10, True), ended.told
    assert dr_ctl("status").document["debts"]


def test_what_stomp_cannot_carry_whole_is_named_and_never_copied(twin: PlayedTwin, dr_ctl: Command) -> None:
    lose_london(twin, dr_ctl)
    send(twin, "text", to=("paris",))
    with twin.still():
        paris = at(twin, "paris")
        told = {ID_HEADER: "counted"}
        paris.route(Message(paris.next_number(), Q, b"body", text=True, headers=told, longs={"amount": 7}))
    twin.start("london")

    ended = dr_ctl("failback", "--to", "london", "--yes")

    assert ended.code == 20, ended.told
    assert f"{Q}: 1 (counted)" in of(ended, "DR-FAN-008")["text"]
    assert (lying(twin, "london"), at(twin, "london").serves) == (["text"], False)


def test_all_queues_wait_together_for_what_lies_at_one_site_alone(
    counted: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = impatient(monkeypatch, differs_s=1.0)
    queues = [f"orders.{number}" for number in range(9)]
    for queue in queues:
        send(counted, "alone", to=("paris",), queue=queue)

    ended = dr_ctl(*SWAPOVER, "--accept-duplicates", "9")

    assert ended.code == 0, ended.told
    assert ended.document["data"]["outage_s"] < 3 * patience.differs_s


def test_a_run_that_dies_just_after_it_has_opened_the_target_goes_on_whatever_clients_have_done_since(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(twin, *"abcdef")
    post = Sender._post

    def mortal(sender: Sender, calls: Sequence[Call]) -> Sequence[Outcome]:
        outcomes = post(sender, calls)
        if any(call.goal is Goal.OPEN and call.site == "paris" for call in calls):
            raise Died
        return outcomes

    with monkeypatch.context() as patch:
        patch.setattr(Sender, "_post", mortal)
        with pytest.raises(Died):
            dr_ctl(*SWAPOVER)
    assert at(twin, "paris").serves
    consume(twin, "paris", "a", "b", "c")

    ended = dr_ctl("resume", "--yes")

    assert (ended.code, ended.document["data"]["pairs"][0]["serving"]) == (0, "paris"), ended.told
    assert dr_ctl("status").document["data"]["open_run"] is None
