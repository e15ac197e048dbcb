"""What a ledger makes of what clients saw."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_ctl_lab.lab.ledger import Event, Gap, Ledger, Verdict

if TYPE_CHECKING:
    from pathlib import Path

Q = "orders.in"
S, SD, R, C, AD = Event.SENT, Event.SEND_IN_DOUBT, Event.RECEIVED, Event.CONSUMED, Event.ACK_IN_DOUBT


@dataclass
class Hand:
    """A clock that is moved by hand."""

    at: float = 0.0
    epoch: datetime = field(default=datetime(2026, 11, 21, tzinfo=UTC))

    def now(self) -> datetime:
        return self.epoch + timedelta(seconds=self.at)

    def monotonic(self) -> float:
        return self.at


def judged(*events: Event) -> Verdict:
    """The verdict on one message that was sent and then went through `events`."""
    ledger = Ledger()
    ledger.attempt(Q, "1")
    for event in events:
        ledger.record(event, Q, "1", "london")
    return ledger.verdict()


@pytest.mark.parametrize(
    ("events", "lost", "duplicates", "redelivered", "in_doubt", "arrived"),
    [
        ((S, R, C), 0, 0, 0, 0, 0),
        ((R, C, S), 0, 0, 0, 0, 0),  # the consumer was quicker than the receipt
        ((S,), 1, 0, 0, 0, 0),
        ((SD,), 0, 0, 0, 1, 0),
        ((SD, R, C), 0, 0, 0, 1, 1),
        ((), 0, 0, 0, 0, 0),
        ((S, R, AD), 0, 0, 0, 0, 0),
        ((S, R, AD, R, C), 0, 0, 1, 0, 0),  # allowed: the first acknowledgement was cut
        ((S, R, R, C, AD), 0, 0, 1, 0, 0),
        ((S, R, C, R), 0, 1, 0, 0, 0),  # came again after a confirmed acknowledgement
        ((S, R, C, R, C), 0, 1, 0, 0, 0),
        ((S, R, R, C, C), 0, 1, 0, 0, 0),  # two sites confirmed it
        ((SD, R, C, R, C), 0, 1, 0, 1, 1),
    ],
)
def test_what_became_of_a_message(
    events: tuple[Event, ...], lost: int, duplicates: int, redelivered: int, in_doubt: int, arrived: int
) -> None:
    verdict = judged(*events)

    assert len(verdict.lost) == lost
    assert len(verdict.duplicates) == duplicates
    assert len(verdict.redelivered) == redelivered
    assert (verdict.in_doubt, verdict.in_doubt_arrived) == (in_doubt, arrived)
    assert verdict.unexpected == ()
    assert verdict.clean is (not lost and not duplicates)


def test_a_message_nobody_sent_is_unexpected() -> None:
    ledger = Ledger()
    ledger.record(R, Q, "stranger", "london")

    assert ledger.verdict().unexpected == ((Q, "stranger"),)


def test_the_same_id_in_two_queues_is_two_messages() -> None:
    ledger = Ledger()
    for queue in ("a", "b"):
        ledger.attempt(queue, "1")
        ledger.record(S, queue, "1", "london")
    ledger.record(R, "a", "1", "london")

    assert ledger.verdict().lost == (("b", "1"),)


def test_a_verdict_without_a_drain_is_never_clean() -> None:
    verdict = Ledger().verdict(drained=False)

    assert not verdict.clean
    assert "lost, or in queues that were not seen empty" in verdict.told


@given(st.lists(st.sampled_from(list(Event)), max_size=8))
def test_awaited_is_what_would_be_lost_now(events: list[Event]) -> None:
    verdict = judged(*events)

    assert verdict.counts.awaited == len(verdict.lost)


@given(st.lists(st.sampled_from(list(Event)), max_size=8))
def test_a_message_is_twice_in_one_way_at_most(events: list[Event]) -> None:
    verdict = judged(*events)

    assert not set(verdict.duplicates) & set(verdict.redelivered)
    assert bool(verdict.duplicates) <= (events.count(C) > 0)


def test_the_longest_gap_says_from_when_to_when() -> None:
    clock = Hand()
    ledger = Ledger(clock=clock)
    for number, at in enumerate((1.0, 1.1, 3.5, 3.6)):
        clock.at = at
        ledger.record(R, Q, str(number), "london")

    assert ledger.verdict().receive_gap == Gap(2.4, "2026-11-21T00:00:01.100Z", "2026-11-21T00:00:03.500Z")


def test_silence_while_nobody_sends_is_no_gap() -> None:
    clock = Hand()
    ledger = Ledger(clock=clock)
    ledger.record(S, Q, "1", "london")
    ledger.record(R, Q, "1", "london")
    clock.at = 1.0
    ledger.rest()
    clock.at = 5.0
    ledger.record(S, Q, "2", "london")  # its receipt was still under way
    clock.at = 60.0
    ledger.resume()
    ledger.record(S, Q, "3", "london")

    verdict = ledger.verdict()

    assert verdict.send_gap.seconds == 1.0
    assert verdict.receive_gap.seconds == 0.0


def test_a_gap_that_lasts_until_the_end_counts() -> None:
    clock = Hand()
    ledger = Ledger(clock=clock)
    ledger.record(R, Q, "0", "london")
    ledger.record(S, Q, "1", "london")
    clock.at = 7.0
    ledger.rest()

    assert ledger.verdict().receive_gap.seconds == 7.0


def test_each_queue_has_a_gap_of_its_own() -> None:
    clock = Hand()
    ledger = Ledger(clock=clock)
    for number, at in enumerate((0.0, 1.0, 2.0, 3.0)):
        clock.at = at
        ledger.record(R, "busy", str(number), "london")
        if number in {0, 3}:
            ledger.record(R, "moved", str(number), "london")

    verdict = ledger.verdict()

    assert {queue: gap.seconds for queue, gap in verdict.receive_gaps.items()} == {"busy": 1.0, "moved": 3.0}
    assert verdict.receive_gap.seconds == 1.0


def test_a_queue_whose_messages_all_came_has_no_gap_while_another_waits() -> None:
    clock = Hand()
    ledger = Ledger(clock=clock)
    for queue in ("idle", "stuck"):
        ledger.record(S, queue, "0", "london")
        ledger.record(R, queue, "0", "london")
    ledger.record(S, "stuck", "1", "london")
    clock.at = 7.0
    ledger.rest()

    assert {queue: gap.seconds for queue, gap in ledger.verdict().receive_gaps.items()} == {"idle": 0.0, "stuck": 7.0}


def test_an_attempt_that_is_told_twice_is_one() -> None:
    ledger = Ledger()
    ledger.attempt(Q, "1")
    ledger.attempt(Q, "1")

    assert ledger.counts().attempted == 1


def test_the_file_reads_back_to_the_same_verdict(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    for ident, events in {"1": (S, R, C), "2": (S,), "3": (SD,), 'odd "ü"': (S, R, C, R)}.items():
        ledger.attempt(Q, ident)
        for event in events:
            ledger.record(event, Q, ident, "london")
    ledger.close()

    again = Ledger.read(path).verdict()

    assert again == ledger.verdict()
    assert path.stat().st_mode & 0o777 == 0o600
    first = json.loads(path.read_text().splitlines()[0])
    assert first.keys() == {"id", "queue", "event", "site", "ts", "at_s"}


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.attempt(Q, "1")
    ledger.record(S, Q, "1", "london")
    ledger.close()
    path.write_text(path.read_text() + '{"id": "2", "que')

    assert Ledger.read(path).counts().sent == 1


def test_two_ledgers_of_one_lab_are_judged_as_one(tmp_path: Path) -> None:
    before, after = Ledger(tmp_path / "1.jsonl"), Ledger(tmp_path / "2.jsonl")
    before.attempt(Q, "1")
    before.record(S, Q, "1", "london")
    after.record(R, Q, "1", "paris")
    before.close()
    after.close()

    verdict = Ledger.read(tmp_path / "1.jsonl", tmp_path / "2.jsonl").verdict()

    assert (verdict.lost, verdict.unexpected) == ((), ())


def test_the_document_holds_numbers_and_no_ids() -> None:
    told = judged(S).as_json()

    assert told["lost"] == 1
    assert told["clean"] is False
    assert json.loads(json.dumps(told)) == told
