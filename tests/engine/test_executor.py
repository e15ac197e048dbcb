"""The executor on a machine that fails at every call and is stopped at every moment: where it ends, what is undone."""

import itertools
import os
import signal
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import get_args

import pytest

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.model import ExitCode, Role
from dr_ctl.engine import journal as journal_module
from dr_ctl.engine.entries import read
from dr_ctl.engine.executor import _EVENTS, Answer
from dr_ctl.engine.hand import JournalHand
from dr_ctl.engine.journal import Journal
from dr_ctl.engine.outage import Outage
from dr_ctl.engine.outcome import NotNeeded, Outcome, Refused, Unknown
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.stopping import StopAtOnce, StopRequest, stoppable
from dr_ctl.telemetry.events import Event, StepEnded, StepStarted, WaitProgress, nobody
from tests.engine.desk import (
    AFTER,
    BEFORE,
    DEBTS,
    EFFECTS,
    FAILBACK,
    MOVED,
    OPEN_PARIS,
    OPENING,
    REVERTIBLE,
    START,
    Clock,
    Desk,
    a_plan,
    at_the,
)
from tests.engine.machine import Fault, Machine, back, paris


def test_every_outcome_is_an_end_of_a_step() -> None:
    assert {*_EVENTS} == {*get_args(Outcome)}


def test_an_undisturbed_run_moves_the_service_with_each_call_once(tmp_path: Path) -> None:
    at = Desk(tmp_path)

    ended = at.go()

    assert (ended.code, ended.undone) == (ExitCode.OK, None)
    assert ended.text == (
        "moved from london to paris; verified: paris serves; nothing is under way; clients were out for 0.38 s"
    )
    assert at.machine.dump() == MOVED
    assert at.machine.effects == EFFECTS
    assert at.machine.calls == len(REVERTIBLE) + len(OPENING), "the tests of this file go through every call"
    assert at.lines("step")[::2] == [f"{n:02d}-{verb} started" for n, verb in enumerate(BEFORE + AFTER, start=1)]
    assert at.estimates.told == ["begin", "end within 30 s", "abandon"]


def breaking(number: int) -> Callable[[int], None]:
    """A driver with a defect, at that call."""

    def during(call: int) -> None:
        if call == number:
            raise KeyError("auto.q")

    return during


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST, Fault.BLIND, None], ids=str)
@pytest.mark.parametrize("number", REVERTIBLE)
def test_a_call_that_fails_before_the_point_of_no_return_is_undone_with_all_before_it(
    tmp_path: Path, number: int, fault: Fault | None
) -> None:
    at = Desk(tmp_path, Machine({number: fault} if fault is not None else {}))
    if fault is None:
        at.machine.during = breaking(number)
    ended = at.go()
    assert (ended.code, ended.undone) == (ExitCode.REVERTED, True)
    assert ended.text.endswith("; undone: london serves again")
    assert at.machine.dump() == START
    assert not OPEN_PARIS & set(at.machine.effects)
    assert at.estimates.told[-1] == "abandon"
    if fault is None:
        assert "a defect in dr-ctl: KeyError: 'auto.q'" in ended.text
        assert any("Traceback" in str(entry.evidence.get("traceback")) for entry in at.entries())


@pytest.mark.parametrize("number", [*REVERTIBLE, *OPENING])
def test_a_call_without_an_answer_that_is_seen_to_have_worked_is_not_repeated(tmp_path: Path, number: int) -> None:
    at = Desk(tmp_path, Machine({number: Fault.UNANSWERED}))
    ended = at.go()
    assert ended.code is ExitCode.OK
    assert at.machine.effects == EFFECTS
    assert at.machine.calls == len(EFFECTS)
    assert [line for line in at.lines("result") if line.endswith("unknown")]


def test_undoing_goes_backwards(tmp_path: Path) -> None:
    at = Desk(tmp_path, Machine({6: Fault.REFUSED}))

    at.go()

    assert at.machine.effects[5:] == ["open clients at london", "open legacy at london", "resume bills at london"]
    assert at.lines("step")[-4:] == [
        "06-fence undo-started",
        "06-fence undone",
        "05-quiesce undo-started",
        "05-quiesce undone",
    ]


def test_an_inverse_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    at = Desk(tmp_path, Machine({5: Fault.REFUSED, 6: Fault.REFUSED}, frozenset({"open legacy at london"})))
    ended = at.go()
    assert (ended.code, ended.undone) == (ExitCode.STRANDED, False)
    assert "not everything could be undone: fence: could not open legacy at london" in ended.text
    assert at.machine.dump()["london"]["paused"] == START["london"]["paused"]
    assert at.lines("step")[-3:] == ["06-fence undo-failed", "05-quiesce undo-started", "05-quiesce undone"]
    assert ended.findings[-1].text == "london serves, but not everything is as it was"


def test_a_source_is_not_opened_again_beside_a_target_that_somebody_opened(tmp_path: Path) -> None:
    at = Desk(tmp_path, Machine({6: Fault.REFUSED}))

    def open_by_hand(number: int) -> None:
        if number == 6:
            at.machine.sites["paris"].doors["clients"] = True

    at.machine.during = open_by_hand

    ended = at.go()

    assert (ended.code, ended.undone) == (ExitCode.INCOMPLETE, False)
    assert not at.machine.sites["london"].open
    assert ended.findings[-1].text == "paris was found open, so london was not opened again"


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST, Fault.BLIND])
@pytest.mark.parametrize("number", OPENING)
def test_a_target_that_opens_only_some_of_its_doors_is_incomplete_and_where_nobody_can_vouch_for_it_unknown(
    tmp_path: Path, number: int, fault: Fault
) -> None:
    at = Desk(tmp_path, Machine({number: fault}))
    ended = at.go()
    blind = fault is Fault.BLIND
    assert (ended.code, ended.undone) == (ExitCode.UNKNOWN if blind else ExitCode.INCOMPLETE, None)
    assert ended.text.endswith(": look at paris first") if blind else ended.seen.units[0].serving == "paris"
    assert not at.machine.sites["london"].open


@pytest.mark.parametrize(
    ("verb", "outcome", "code", "undone"),
    [
        ("check", Refused("no", code=ExitCode.PRECHECK_FAILED), ExitCode.PRECHECK_FAILED, True),
        ("catch-up", Refused("it grows"), ExitCode.PRECHECK_FAILED, True),
        ("catch-up", Unknown("silence"), ExitCode.PRECHECK_FAILED, True),
        ("fence", Refused("no"), ExitCode.REVERTED, True),
        ("fence", Refused("no", code=ExitCode.PRECHECK_FAILED), ExitCode.REVERTED, True),
        ("drain", Refused("too slow", code=ExitCode.DRAIN_TIMEOUT), ExitCode.DRAIN_TIMEOUT, True),
        ("verify", Refused("they differ"), ExitCode.REVERTED, True),
        ("verify", Unknown("silence"), ExitCode.REVERTED, True),
        ("activate", Refused("london is open"), ExitCode.REVERTED, True),
        ("activate", Unknown("silence before any call"), ExitCode.REVERTED, True),
        ("probe", Refused("nothing came back"), ExitCode.INCOMPLETE, None),
        ("probe", Unknown("silence"), ExitCode.INCOMPLETE, None),
    ],
)
def test_how_a_step_ends_says_how_the_run_ends(
    tmp_path: Path, verb: str, outcome: Outcome, code: ExitCode, undone: bool | None
) -> None:
    at = Desk(tmp_path)
    ended = at.go(answers={verb: outcome})
    assert (ended.code, ended.undone) == (code, undone)
    assert ended.text.startswith(outcome.text)
    assert at.machine.dump() == (MOVED if undone is None else START)
    if code is ExitCode.PRECHECK_FAILED:
        assert (at.machine.calls, ended.text) == (0, f"{outcome.text}; nothing was changed")


def test_a_drain_timeout_before_anything_was_changed_is_no_drain_timeout(tmp_path: Path) -> None:
    at = Desk(tmp_path)
    late = Refused("too slow", code=ExitCode.DRAIN_TIMEOUT)
    ended = at.go(answers={"quiesce": NotNeeded("closed"), "fence": NotNeeded("closed"), "drain": late})
    assert (ended.code, ended.text) == (ExitCode.PRECHECK_FAILED, "too slow; nothing was changed")


@pytest.mark.parametrize("outcome", [Refused("no door opens"), Unknown("silence before any call")])
def test_a_run_that_only_finishes_is_never_undone(tmp_path: Path, outcome: Outcome) -> None:
    at = Desk(tmp_path, Machine({5: Fault.KILLED_BEFORE}))
    assert at.killed()
    at.machine.sites["paris"].doors["clients"] = True  # by hand

    ended = at.go(answers={"activate": outcome})

    assert (ended.code, ended.undone) == (
        ExitCode.INCOMPLETE if isinstance(outcome, Refused) else ExitCode.UNKNOWN,
        None,
    )
    assert at.machine.calls == 5


def both_open(machine: Machine) -> None:
    machine.sites["london"].doors["clients"] = True


def target_closed(machine: Machine) -> None:
    machine.sites["paris"] = paris()


@pytest.mark.parametrize(
    ("meanwhile", "code", "told"),
    [
        (both_open, ExitCode.UNKNOWN, "london is serving, paris is serving: look at paris first"),
        (target_closed, ExitCode.STRANDED, "london is standby, paris is standby: look at paris first"),
    ],
)
def test_what_somebody_does_during_the_probe_is_seen_at_the_end(
    tmp_path: Path, meanwhile: Callable[[Machine], None], code: ExitCode, told: str
) -> None:
    at = Desk(tmp_path)
    act = at_the(StepStarted, "probe", lambda: meanwhile(at.machine))
    ended = at.go(listener=act, answers={"probe": Refused("nothing came back")})
    assert (ended.code, ended.text) == (code, f"nothing came back; {told}")


def silent_from(at: Desk, *calls: int) -> None:
    def silence(number: int) -> None:
        at.machine.sites["london"].silent = number in calls

    at.machine.during = silence


def test_an_end_is_not_believed_where_it_is_not_seen(tmp_path: Path) -> None:
    undone, moved, closed = (Desk(tmp_path / name) for name in ("undone", "moved", "closed"))
    for desk in (undone, moved, closed):
        desk.folder.mkdir()
    undone.machine.faults = {6: Fault.REFUSED}
    moved.machine.stuck = OPEN_PARIS
    silent_from(closed, *OPENING)
    london = undone.machine.sites["london"]
    says_so = {"activate": NotNeeded("it says so"), "probe": NotNeeded("it says so")}

    ended = undone.go(listener=at_the(StepEnded, "undo quiesce", lambda: setattr(london, "silent", True)))
    assert (ended.code, ended.undone) == (ExitCode.STRANDED, False)
    assert ended.text.endswith("undone, but london is unknown, paris is standby")
    ended = moved.go(answers=says_so)
    assert ended.code is ExitCode.UNKNOWN
    assert ended.text == "every step succeeded, but london is standby, paris is standby: look at paris first"
    ended = closed.go()
    assert ended.code is ExitCode.UNKNOWN
    assert ended.text == "every step succeeded, but london is unknown, paris is serving: look at london first"


def test_a_call_whose_intent_cannot_be_written_does_not_go_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = Desk(tmp_path)
    append = journal_module.Journal._append

    def full(journal: journal_module.Journal, rows: list[tuple[str, ...]], **more: bool) -> int:
        if rows[0][0] == "intent":
            raise EnvironmentFault("the disk is full")
        return append(journal, rows, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(journal_module.Journal, "_append", full)

    with pytest.raises(EnvironmentFault):
        at.go()

    assert (at.machine.calls, at.machine.dump()) == (0, START)


def test_an_undo_that_breaks_does_not_stop_the_others_from_being_undone(tmp_path: Path) -> None:
    at = Desk(tmp_path, Machine({REVERTIBLE[-1]: Fault.REFUSED}))
    broken: list[int] = []

    def during(call: int) -> None:
        if call > REVERTIBLE[-1] and not broken:
            broken.append(call)
            raise ValueError("no such thing")

    at.machine.during = during
    ended = at.go()

    assert broken
    assert ended.undone is False
    assert "a defect in dr-ctl: ValueError: no such thing" in ended.text
    undone = [line for line in at.lines("step") if "undone" in line]
    assert undone, at.lines("step")


class Slow(Clock):
    """A tenth of a second for each look at it."""

    def monotonic(self) -> float:
        self._at += 0.1
        return self._at


def test_a_long_wait_is_sampled_once_a_second_after_its_first_minute(tmp_path: Path) -> None:
    path, clock, step = tmp_path / "journal.jsonl", Slow(), a_plan().steps[0]
    with closing(Journal(path, clock)) as journal:
        journal.run(a_plan(), {})
        hand = JournalHand(journal, step, None, clock, nobody, Outage(clock, journal, None, known=False))
        while clock.monotonic() < 120:
            hand.sample({"outflow": 1})

    times = [datetime.fromisoformat(entry.time) for entry in read(path) if entry.kind == "sample"]
    gaps = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(times)]
    began = next(number for number, gap in enumerate(gaps) if gap >= 1.0)
    assert max(gaps[:began]) < 0.5
    assert 59 <= (times[began] - times[0]).total_seconds() <= 61
    assert all(1.0 <= gap <= 1.5 for gap in gaps[began:])


INTERRUPTED, TERMINATED = ExitCode.INTERRUPTED, ExitCode.TERMINATED
SIGNALS = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}


@pytest.mark.parametrize("signum", SIGNALS)
@pytest.mark.parametrize("number", [*REVERTIBLE, *OPENING])
def test_a_signal_during_a_call_undoes_everything_before_the_point_of_no_return_and_nothing_after_it(
    tmp_path: Path, number: int, signum: signal.Signals
) -> None:
    at, stop = Desk(tmp_path), StopRequest()
    at.machine.during = lambda now: stop.ask(signum) if now == number else None
    ended = at.go(stop=stop)
    if number in OPENING:
        assert (ended.code, at.machine.dump()) == (ExitCode.OK, MOVED)
        return
    assert (ended.code, ended.undone) == (SIGNALS[signum], True)
    assert ended.text == "stopped by a signal; undone: london serves again"
    assert at.lines("signal") == [f" {SIGNALS[signum].name.lower()}"]
    assert at.machine.dump() == START
    assert not OPEN_PARIS & set(at.machine.effects)


@pytest.mark.parametrize("verb", [*BEFORE, *AFTER])
@pytest.mark.parametrize("moment", [StepStarted, StepEnded])
def test_a_signal_beside_a_step_undoes_everything_before_the_point_of_no_return_and_nothing_after_it(
    tmp_path: Path, verb: str, moment: type[StepStarted | StepEnded]
) -> None:
    at, stop = Desk(tmp_path), StopRequest()
    ended = at.go(stop=stop, listener=at_the(moment, verb, lambda: stop.ask(signal.SIGTERM)))
    if verb in AFTER:
        assert (ended.code, at.machine.dump()) == (ExitCode.OK, MOVED)
        return
    assert (ended.code, ended.undone, at.machine.dump()) == (TERMINATED, True, START)
    assert moment is StepEnded or verb not in {line[3:] for line in at.lines("intent")}


@pytest.mark.parametrize("verb", ["drain", "activate"])
def test_a_signal_is_an_answer_to_the_question_before_a_step(tmp_path: Path, verb: str) -> None:
    stop = StopRequest()

    def stepper(step: PlannedStep, may_undo: bool) -> Answer:
        if step.verb == verb:
            stop.ask(signal.SIGINT)
        return Answer.YES

    at = Desk(tmp_path, stepper=stepper)
    if verb == "activate":  # past the point of no return it stops there
        with pytest.raises(StopAtOnce, match="2"):
            at.go(stop=stop)
        assert Desk(tmp_path, machine=at.machine).go().code is ExitCode.OK
        return
    ended = at.go(stop=stop)
    assert (ended.code, ended.undone, at.machine.dump()) == (INTERRUPTED, True, START)
    assert "drain" not in {line[3:8] for line in at.lines("step")}


def test_a_signal_is_an_answer_to_the_question_of_a_runbook(tmp_path: Path) -> None:
    stop = StopRequest()

    def asker(sentence: str) -> bool:
        stop.ask(signal.SIGTERM)
        return True

    at = Desk(tmp_path, ask=FAILBACK, machine=Machine(sites=back(), debts=DEBTS), asker=asker)
    ended = at.go(stop=stop)
    assert (ended.code, ended.seen.roles["paris"]) == (TERMINATED, Role.SERVING)
    assert ended.seen.debts == (), "what stands before the question was wanted for itself"


def test_a_run_that_only_finishes_does_so_whatever_signal_comes(tmp_path: Path) -> None:
    at, stop = Desk(tmp_path, Machine({8: Fault.KILLED_BEFORE})), StopRequest()
    assert at.killed()
    ended = at.go(stop=stop, listener=at_the(StepStarted, "observe", lambda: stop.ask(signal.SIGINT)))
    assert (ended.code, at.machine.dump()) == (ExitCode.OK, MOVED)


def test_a_signal_ends_a_wait(tmp_path: Path) -> None:
    at, stop = Desk(tmp_path, Machine(cut=True)), StopRequest()

    def listener(event: Event) -> None:
        if isinstance(event, WaitProgress):
            stop.ask(signal.SIGINT)

    assert at.go(stop=stop, listener=listener).code is INTERRUPTED
    assert at.machine.dump() == START
    assert len(at.lines("sample")) == 1


@pytest.mark.parametrize("number", [*REVERTIBLE, *OPENING])
def test_the_second_signal_stops_at_once_and_the_run_can_be_gone_on_with(tmp_path: Path, number: int) -> None:
    at, stop = Desk(tmp_path), StopRequest()

    def twice(now: int) -> None:
        if now == number:
            stop.ask(signal.SIGINT)
            stop.ask(signal.SIGTERM)

    at.machine.during = twice
    with pytest.raises(StopAtOnce) as stopped:
        at.go(stop=stop)
    assert stopped.value.signum == signal.SIGTERM
    assert (at.machine.effects, at.estimates.told[-1]) == (EFFECTS[: number - 1], "abandon")
    assert (at.go().code, at.machine.dump()) == (ExitCode.OK, MOVED)


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_to_the_process_reaches_the_run_as_long_as_it_lasts(signum: signal.Signals) -> None:
    before = signal.getsignal(signum)
    with stoppable() as stop:
        os.kill(os.getpid(), signum)
        assert stop.wait(5)
        assert stop.signum == signum
        with pytest.raises(StopAtOnce):
            signal.raise_signal(signum)
    assert signal.getsignal(signum) is before


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGPIPE])
def test_a_lost_terminal_or_a_closed_pipe_does_not_stop_a_run(signum: signal.Signals) -> None:
    with stoppable() as stop:
        signal.raise_signal(signum)
        assert not stop.asked()
