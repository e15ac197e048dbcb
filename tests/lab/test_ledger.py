"""What a ledger makes of what clients saw, and a demo of that."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_ctl.core.document import document
from dr_ctl.core.model import ExitCode
from dr_ctl_lab import demonstration
from dr_ctl_lab.demonstration import _Console, _FailoverResult, _result
from dr_ctl_lab.lab.ledger import Event, Gap, Ledger, Verdict
from tests.clocks import Ticking

Q = "orders.in"
S, SD, R, C, AD = Event.SENT, Event.SEND_IN_DOUBT, Event.RECEIVED, Event.CONSUMED, Event.ACK_IN_DOUBT
REST, RESUME = "rest", "resume"


def noted(ledger: Ledger, ident: str, *events: Event, queue: str = Q) -> Ledger:
    """One message that was sent and then went through `events`."""
    ledger.attempt(queue, ident)
    for event in events:
        ledger.record(event, queue, ident, "london")
    return ledger


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
    verdict = noted(Ledger(), "1", *events).verdict()

    assert tuple(map(len, (verdict.lost, verdict.duplicates, verdict.redelivered))) == (lost, duplicates, redelivered)
    assert (verdict.in_doubt, verdict.in_doubt_arrived, verdict.unexpected) == (in_doubt, arrived, ())
    assert verdict.clean is (not lost and not duplicates)
    data = document(verdict)
    assert (data["lost"], data["clean"]) == (lost, verdict.clean)
    assert json.loads(json.dumps(data)) == data


def test_a_message_is_known_by_queue_and_id() -> None:
    ledger = Ledger()
    for queue, events in (("a", (S, R)), ("b", (S,))):
        noted(ledger, "1", *events, queue=queue)
        ledger.attempt(queue, "1")
    ledger.record(R, Q, "stranger", "london")

    verdict = ledger.verdict()

    assert (verdict.lost, verdict.unexpected) == ((("b", "1"),), ((Q, "stranger"),))
    assert verdict.counts.attempted == 2, "an attempt that is told twice is one"


def test_a_verdict_without_a_drain_is_never_clean() -> None:
    verdict = Ledger().verdict(drained=False)

    assert not verdict.clean
    assert "lost, or in queues that were not seen empty" in verdict.summary


@given(st.lists(st.sampled_from(list(Event)), max_size=8))
def test_awaited_is_what_would_be_lost_now_and_a_message_is_twice_in_one_way_at_most(events: list[Event]) -> None:
    verdict = noted(Ledger(), "1", *events).verdict()

    assert verdict.counts.awaited == len(verdict.lost)
    assert not set(verdict.duplicates) & set(verdict.redelivered)
    assert bool(verdict.duplicates) <= (events.count(C) > 0)


def gaps(*steps: tuple[float, Event | str, str, str]) -> Verdict:
    """At that second: an event of that queue's message, or a word to the ledger."""
    clock = Ticking(datetime(2026, 11, 21, tzinfo=UTC))
    ledger = Ledger()
    for clock.passed_s, what, queue, ident in steps:
        if isinstance(what, Event):
            ledger.record(what, queue, ident, "london")
        else:
            getattr(ledger, what)()
    return ledger.verdict()


@pytest.mark.parametrize(
    ("steps", "receive", "send"),
    [
        # Silence while nobody sends is none; the receipt of one was still under way.
        ([(0, S, Q, "1"), (0, R, Q, "1"), (1, REST, "", ""), (5, S, Q, "2"), (60, RESUME, "", ""), (60, S, Q, "3")],
         {Q: 0.0}, 1.0),
        ([(0, R, Q, "0"), (0, S, Q, "1"), (7, REST, "", "")], {Q: 7.0}, 7.0),  # lasts until the end
        ([(at, R, queue, f"{at}") for at in range(4) for queue in ("busy", "moved") if queue == "busy" or at in (0, 3)],
         {"busy": 1.0, "moved": 3.0}, 0.0),
        # All of one queue's came, another waits.
        ([(0, S, "idle", "0"), (0, R, "idle", "0"), (0, S, "stuck", "0"), (0, R, "stuck", "0"), (0, S, "stuck", "1"),
          (7, REST, "", "")], {"idle": 0.0, "stuck": 7.0}, 7.0),
    ],
)  # fmt: skip
def test_each_queue_has_a_gap_of_its_own(
    steps: list[tuple[float, Event | str, str, str]], receive: dict[str, float], send: float
) -> None:
    verdict = gaps(*steps)

    assert {queue: gap.seconds for queue, gap in verdict.receive_gaps.items()} == receive
    assert verdict.send_gap.seconds == send


def test_the_longest_gap_says_from_when_to_when() -> None:
    verdict = gaps(*((at, R, Q, f"{at}") for at in (1.0, 1.1, 3.5, 3.6)))

    assert verdict.receive_gap == Gap(2.4, "2026-11-21T00:00:01.100Z", "2026-11-21T00:00:03.500Z")


def test_the_files_of_one_lab_read_back_to_one_verdict_without_a_torn_line(tmp_path: Path) -> None:
    whole, (one, two) = Ledger(), (tmp_path / "1.jsonl", tmp_path / "2.jsonl")
    ledgers = Ledger(one), Ledger(two)
    for ident, events in {"1": (S, R, C), "2": (S,), "3": (SD,), 'odd "ü"': (S, R, C, R)}.items():
        for ledger in (whole, ledgers[0]):
            noted(ledger, ident, *events)
    for ledger in (whole, ledgers[1]):
        ledger.record(R, Q, "2", "paris")
    for ledger in ledgers:
        ledger.close()
    with two.open("a") as file:
        file.write('{"id": "2", "que')

    again = Ledger.read(one, two).verdict()

    assert (again.counts, again.duplicates, again.lost) == (whole.counts(), ((Q, 'odd "ü"'),), ())
    assert one.stat().st_mode & 0o777 == 0o600
    assert json.loads(one.read_text().splitlines()[0]).keys() == {"id", "queue", "event", "site", "ts", "at_s"}


NOTHING: Any = {"lost": {"at_most": 0}, "duplicates": {"at_most": 0}}


def drained(*, so: bool = True) -> Verdict:
    return Ledger().verdict(drained=so)


@pytest.fixture
def tell(tmp_path: Path) -> _Console:
    for name in ("1-swapover", "2-failback"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "report.html").touch()
    return _Console(sys.stdout, tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("estimate", "code", "told"),
    [
        (ExitCode.OK, ExitCode.OK, []),
        (ExitCode.UNKNOWN, ExitCode.OK, [demonstration.TOO_SHORT.id]),
        (ExitCode.INTERNAL, ExitCode.INTERNAL, ["DR-DEMO-001"]),
    ],
)
def test_an_estimate_need_not_meet_the_objectives(
    tell: _Console, estimate: ExitCode, code: ExitCode, told: list[str]
) -> None:
    lost = _FailoverResult(NOTHING, drained(so=False), drained())

    ended = _result(drained(), lost, tell, {"estimate": estimate}, [])

    assert (ended.code, [finding.id for finding in ended.findings]) == (code, told)


def test_what_was_not_received_is_lost_only_where_the_queues_were_seen_empty(tell: _Console) -> None:
    ended = _result(drained(), _FailoverResult(NOTHING, drained(so=False), drained(so=False)), tell, {}, [])

    assert ended.code is ExitCode.LOSS_REFUSED
    assert "lie there, or are lost" in ended.summary
