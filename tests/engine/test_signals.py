"""Signals: the first asks for a safe end, the second ends at once, and past the point of no return the run finishes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from dr_ctl.core.model import ExitCode, Role
from dr_ctl.engine.executor import Answer
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.stopping import StopAtOnce, StopRequest, stoppable
from dr_ctl.telemetry.events import Event, StepEnded, StepStarted, WaitProgress
from tests.engine.desk import AFTER, BEFORE, EFFECTS, MOVED, OPEN_PARIS, OPENING, REVERTIBLE, START, Desk, at_the
from tests.engine.lost import DEBTS, FAILBACK
from tests.engine.machine import Fault, Machine, back

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
