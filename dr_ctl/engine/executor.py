"""Carries out a plan: writes down, acts through the driver, undoes on failure. Decides nothing about brokers.

The exit code follows from three facts only: whether the wanted state was verified, whether anything was changed, and
whether what was changed was undone and the undo verified.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, assert_never

from dr_ctl.core.clock import Clock
from dr_ctl.core.errors import Stopped
from dr_ctl.core.model import ExitCode, Finding, Json, Role, Severity
from dr_ctl.engine.journal import History, Journal, outage_s
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused, Unknown, word
from dr_ctl.engine.plan import Call, Plan, PlannedStep
from dr_ctl.engine.ports import Driver, Estimator, Move, Observation, PairSeen
from dr_ctl.engine.states import StepEvent
from dr_ctl.engine.stopping import StopRequest
from dr_ctl.telemetry.events import Listener, Notice, StepEnded, StepStarted, WaitProgress

O = TypeVar("O", bound=Observation)  # noqa: E741 - the observation of one topology

ESTIMATE_WITHIN_S = 30.0
ACTIVATING = "activate"
NO_RETURN = "point-of-no-return"
CLOSED = (Role.STANDBY, Role.DOWN)
_RATE_OVER_S = 2.0
_SHOW_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended. `text` is the summary line for people and the envelope."""

    code: ExitCode
    text: str
    findings: tuple[Finding, ...]
    pairs: tuple[PairSeen, ...]
    undone: bool | None = None
    outage_s: float | None = None


def execute(
    plan: Plan,
    driver: Driver[O],
    journal: Journal,
    *,
    estimator: Estimator,
    stop: StopRequest,
    clock: Clock,
    listener: Listener,
    by: Mapping[str, Json],
) -> RunResult:
    """Carry out every step in order; on the first that fails, undo all that was started if that is still safe."""
    run = _Run(plan.ask.target, plan.source, driver, journal, stop, clock, listener, plan.findings)
    journal.run(plan, by)
    estimator.begin()
    try:
        return run.forward(plan, estimator)
    finally:
        estimator.abandon()


def undo(past: History, driver: Driver[O], journal: Journal, *, clock: Clock, listener: Listener) -> RunResult:
    """Put back everything an interrupted run changed: the same way back as after a failure."""
    run = _Run(past.ask.target, past.source, driver, journal, StopRequest(), clock, listener, ())
    move = Move(past.ask, past.source, past.baseline)
    return run.back(move, Refused("aborted", code=ExitCode.OK))


class _Run:
    def __init__(
        self,
        target: str,
        source: str,
        driver: Driver[Any],
        journal: Journal,
        stop: StopRequest,
        clock: Clock,
        listener: Listener,
        findings: Sequence[Finding],
    ) -> None:
        self._target, self._source = target, source
        self._driver, self._journal, self._stop = driver, journal, stop
        self._clock, self._listener = clock, listener
        self._findings = list(findings)
        self._revertible = True

    def forward(self, plan: Plan, estimator: Estimator) -> RunResult:
        move = Move(plan.ask, plan.source, plan.baseline)
        last = plan.steps[-1].number
        # A plan that only finishes a move has no way back at all: the target serves already.
        self._revertible = any(step.undoable for step in plan.steps)
        for step in plan.steps:
            # Asked once more right before the point of no return: a step that does not wait has not heard the signal.
            may_stop = step.undoable or (step.verb == NO_RETURN and self._revertible)
            if may_stop and self._stop.asked():
                return self._interrupted(move)
            try:
                outcome = self._apply(step, move, estimator, last)
            except Stopped:
                return self._interrupted(move)
            self._findings += outcome.findings
            match outcome:
                case Done() | NotNeeded():
                    continue
                case Refused():
                    if self._may_go_back(step, outcome):
                        return self.back(move, outcome)
                    return self._ended(ExitCode.INCOMPLETE, outcome.text)
                case Unknown():
                    if self._may_go_back(step, outcome):
                        return self.back(move, Refused(outcome.text, findings=outcome.findings))
                    code = ExitCode.UNKNOWN if step.verb == ACTIVATING else ExitCode.INCOMPLETE
                    return self._ended(code, outcome.text)
                case _:
                    assert_never(outcome)
        return self._ended(ExitCode.OK, None)

    def _may_go_back(self, step: PlannedStep, outcome: Refused | Unknown) -> bool:
        """Say whether undoing is still safe: no activating call went out, or it is proven to have had no effect."""
        if step.undoable or step.verb != ACTIVATING:
            return step.undoable
        if isinstance(outcome, Refused):
            return self._revertible and outcome.code is not ExitCode.INCOMPLETE
        return self._revertible and not self._journal.history().activation

    def _apply(self, step: PlannedStep, move: Move, estimator: Estimator, last: int) -> Outcome:
        self._listener(StepStarted(step.number, last, step.verb, step.about, step.undoable))
        self._journal.step(step, StepEvent.STARTED, {"about": step.about})
        began = self._clock.monotonic()
        hand = _Hand(self._journal, step, self._stop if step.undoable else None, self._clock, self._listener)
        try:
            if step.verb == "estimate":
                within = step.limits.get("within", ESTIMATE_WITHIN_S)
                outcome = estimator.end(within_s=within, wait=hand.wait)
            elif step.verb == NO_RETURN:
                outcome = Done("passed")
            else:
                outcome = self._driver.apply(step, move, hand)
        except Stopped:
            self._journal.step(step, StepEvent.FAILED, {"text": "stopped by a signal"})
            raise
        took = self._clock.monotonic() - began
        event = {
            "done": StepEvent.SUCCEEDED,
            "not needed": StepEvent.UNNEEDED,
            "refused": StepEvent.FAILED,
            "unknown": StepEvent.LOST,
        }[word(outcome)]
        findings: list[Json] = [finding.as_json() for finding in outcome.findings]
        evidence = {"text": outcome.text, "took_s": round(took, 4), "findings": findings, **outcome.evidence}
        self._journal.step(step, event, evidence)
        self._listener(StepEnded(step.number, step.verb, word(outcome), outcome.text, took))
        return outcome

    def _interrupted(self, move: Move) -> RunResult:
        signum = self._stop.signum
        assert signum is not None
        code = ExitCode(128 + signum)
        self._journal.signal(code.name.lower())
        return self.back(move, Refused("stopped by a signal", code=code))

    def back(self, move: Move, cause: Refused) -> RunResult:
        """Undo all that was started, the last first; one that fails does not stop the others."""
        if not self._changed():
            code = cause.code
            if code in (ExitCode.REVERTED, ExitCode.DRAIN_TIMEOUT):
                code = ExitCode.PRECHECK_FAILED
            return self._ended(code, f"{cause.text}; nothing was changed", undone=True)
        self._listener(Notice(f"{cause.text}: undoing"))
        failed: list[str] = []
        for step in self._journal.history().started():
            if not step.inverse:
                continue
            self._journal.step(step, StepEvent.UNDO_STARTED, {})
            hand = _Hand(self._journal, step, None, self._clock, self._listener)
            outcome = self._driver.undo(step, move, hand)
            undone = isinstance(outcome, Done | NotNeeded)
            self._journal.step(step, StepEvent.UNDONE if undone else StepEvent.UNDO_FAILED, {"text": outcome.text})
            self._listener(StepEnded(step.number, f"undo {step.verb}", word(outcome), outcome.text, 0.0))
            self._findings += outcome.findings
            if not undone:
                failed.append(f"{step.verb}: {outcome.text}")
        code = ExitCode.REVERTED if cause.code is ExitCode.PRECHECK_FAILED else cause.code
        code = ExitCode.STRANDED if failed else code
        text = (
            f"{cause.text}; not everything could be undone: {'; '.join(failed)}" if failed else f"{cause.text}; undone"
        )
        return self._ended(code, text, undone=not failed)

    def _changed(self) -> bool:
        return any(entry.kind == "intent" for entry in self._journal.entries())

    def _ended(self, code: ExitCode, text: str | None, *, undone: bool | None = None) -> RunResult:
        """Look once more: what is said of the end is what was seen after it, not what was intended."""
        seen = self._driver.observe()
        outage = outage_s(list(self._journal.entries()))
        roles = seen.roles
        serving = [site for site, role in roles.items() if role is Role.SERVING]
        source, target = self._source, self._target
        if code is ExitCode.OK and undone is None:
            if serving != [target] or roles[source] not in CLOSED:
                first = source if serving == [target] else target
                code, text = ExitCode.UNKNOWN, f"every step succeeded, but {_told(roles)}: look at {first} first"
            else:
                out = f"; clients were out for {outage:.2f} s" if outage is not None else ""
                text = f"{target} serves; nothing is under way{out}"
        elif undone and self._changed():
            if serving == [source]:
                text = f"{text}: {source} serves again"
            else:
                code, undone = ExitCode.STRANDED, False
                text = f"{text}, but {_told(roles)}"
        elif code is ExitCode.OK and serving != [source]:
            code, text = ExitCode.UNKNOWN, f"{text}, but {_told(roles)}: look at {source} first"
        elif code is ExitCode.INCOMPLETE and serving != [target]:
            code = ExitCode.UNKNOWN if serving else ExitCode.STRANDED
            text = f"{text}; {_told(roles)}: look at {target} first"
        if code is ExitCode.STRANDED:
            self._findings.append(_by_hand(source, target, serving, roles))
            if serving == [target]:
                # The worst word is kept for when nobody serves; here the target does, opened by someone else.
                code = ExitCode.INCOMPLETE
        return RunResult(code, text or "", tuple(self._findings), tuple(seen.pairs), undone, outage)


def _told(roles: Mapping[str, Role]) -> str:
    return ", ".join(f"{site} is {role.value}" for site, role in roles.items())


def _by_hand(source: str, target: str, serving: Sequence[str], roles: Mapping[str, Role]) -> Finding:
    if serving == [source]:
        text, remedy = f"{source} serves, but not everything is as it was", "See the step that could not be undone."
    elif serving == [target]:
        text = f"{target} was found open, so {source} was not opened again"
        remedy = "Decide which site serves; only then lift by hand what stands open under `dr-ctl status`."
    else:
        text = f"no site could be shown to serve: {_told(roles)}"
        remedy = (
            f"By hand: look at {target}; if its client acceptors are closed, start those of {source} in its console "
            "and resume its paused queues."
        )
    return Finding("DR-RUN-001", Severity.ERROR, text, remedy)


class _Hand:
    """The executor's side of what a driver may do: everything is written down first."""

    def __init__(
        self, journal: Journal, step: PlannedStep, stop: StopRequest | None, clock: Clock, listener: Listener
    ) -> None:
        """`stop` is None where a signal must wait: past the point of no return, and while undoing."""
        self._journal, self._step, self._stop = journal, step, stop
        self._clock, self._listener = clock, listener
        self._trail: list[tuple[float, int]] = []
        self._shown = float("-inf")

    def change(self, calls: Sequence[Call], send: Callable[[Sequence[Call]], Sequence[Outcome]]) -> list[Outcome]:
        if not calls:
            return []
        if self._stop is not None and self._stop.asked():
            raise Stopped(self._stop.signum or 0)
        intents = self._journal.intents(self._step, calls)
        outcomes = list(send(calls))
        told = [
            (seq, word(outcome), {"text": outcome.text, **outcome.evidence})
            for seq, outcome in zip(intents, outcomes, strict=True)
        ]
        self._journal.results(self._step, told)
        return outcomes

    def sample(self, evidence: Mapping[str, Json]) -> None:
        self._journal.sample(self._step, evidence)

    def waiting(self, about: str, depth: int, why_not_moving: str | None) -> None:
        now = self.monotonic()
        self._trail = [(at, was) for at, was in self._trail if now - at <= _RATE_OVER_S] + [(now, depth)]
        if now - self._shown < _SHOW_EVERY_S:
            return
        self._shown = now
        since, was = self._trail[0]
        rate = (was - depth) / (now - since) if now > since else None
        left = depth / rate if rate is not None and rate > 0 else None
        self._listener(WaitProgress(about, depth, rate, left, why_not_moving))

    def notice(self, text: str) -> None:
        self._listener(Notice(text))

    def wait(self, seconds: float) -> None:
        if self._stop is None:
            time.sleep(seconds)
        elif self._stop.wait(seconds):
            raise Stopped(self._stop.signum or 0)

    def monotonic(self) -> float:
        return self._clock.monotonic()
