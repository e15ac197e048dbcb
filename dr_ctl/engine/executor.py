"""Carries out a plan: writes down, acts through the driver, undoes on failure. Decides nothing about brokers.

The exit code follows from three facts only: whether the wanted state was verified, whether anything was changed, and
whether what was changed was undone and the undo verified.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, assert_never

from dr_ctl.core.clock import Clock
from dr_ctl.core.errors import Stopped
from dr_ctl.core.model import ExitCode, Finding, Json, Role
from dr_ctl.engine import ending
from dr_ctl.engine.debts import Debt
from dr_ctl.engine.ending import Facts, price_text
from dr_ctl.engine.journal import History, Journal, outage_s
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused, Unknown, word
from dr_ctl.engine.plan import Ask, Call, Plan, PlannedStep
from dr_ctl.engine.planner import FAILOVER, KEEPS
from dr_ctl.engine.ports import Driver, Estimator, Move, Observation, PairSeen, Price
from dr_ctl.engine.states import StepEvent
from dr_ctl.engine.stopping import StopRequest
from dr_ctl.telemetry.events import Listener, Notice, StepEnded, StepStarted, WaitProgress

O = TypeVar("O", bound=Observation)  # noqa: E741 - the observation of one topology

ESTIMATE_WITHIN_S = 60.0
ACTIVATING = "activate"
NO_RETURN = "point-of-no-return"
QUESTION = "ask"
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
    roles: Mapping[str, Role] = field(default_factory=dict)
    debts: tuple[Debt, ...] = ()
    bounds: Mapping[str, Json] | None = None


def _nobody(sentence: str) -> bool:
    """Answer for a person who is not there."""
    del sentence
    return False


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
    price: Price | None = None,
    asker: Callable[[str], bool] = _nobody,
) -> RunResult:
    """Carry out every step in order; on the first that fails, undo all that was started if that is still safe."""
    run = _Run(plan.ask, plan.source, driver, journal, stop, clock, listener, plan.findings, price=price, asker=asker)
    journal.run(plan, by)
    estimator.begin()
    try:
        return run.forward(plan, estimator)
    finally:
        estimator.abandon()


def undo(past: History, driver: Driver[O], journal: Journal, *, clock: Clock, listener: Listener) -> RunResult:
    """Put back everything an interrupted run changed: the same way back as after a failure."""
    run = _Run(past.ask, past.source, driver, journal, StopRequest(), clock, listener, ())
    move = Move(past.ask, past.source, past.baseline)
    return run.back(move, Refused("aborted", code=ExitCode.OK))


def to_undo(past: History) -> list[PlannedStep]:
    """The steps that an undo puts back, in its order: begun, with something to put back, and not wanted for itself."""
    kept = max((each.step.number for each in past.steps if each.step.verb == KEEPS and each.succeeded), default=0)
    return [step for step in past.started() if step.inverse and step.number > kept]


class _Run:
    def __init__(
        self,
        ask: Ask,
        source: str,
        driver: Driver[Any],
        journal: Journal,
        stop: StopRequest,
        clock: Clock,
        listener: Listener,
        findings: Sequence[Finding],
        *,
        price: Price | None = None,
        asker: Callable[[str], bool] = _nobody,
    ) -> None:
        self._asker = asker
        self._ask, self._source, self._price = ask, source, price
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
                case Refused() if step.verb == QUESTION:
                    return self._ended(outcome.code, outcome.text)
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
        if step.verb == NO_RETURN:
            return self._revertible
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
                outcome = self._past_no_return()
            elif step.verb == QUESTION:
                outcome = self._asked(step)
            elif step.verb == "snapshot":
                outcome = self._snapshot()
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

    def _past_no_return(self) -> Outcome:
        """What was accepted is asked once more: the price of a failover grows while it waits."""
        dear = self._price.too_high(self._ask) if self._price is not None and self._revertible else None
        if dear is not None:
            return Refused(dear.text, findings=(dear,), code=ExitCode.LOSS_REFUSED)
        return Done("passed")

    def _asked(self, step: PlannedStep) -> Outcome:
        """A no is the end, and undoes nothing: what stands before the question was wanted for itself."""
        if self._asker(step.about):
            return Done("yes")
        return Refused("a person said no, or nobody could be asked", code=ExitCode.DECLINED)

    def _snapshot(self) -> Outcome:
        if self._price is None:
            return NotNeeded("nothing is lost in a planned move")
        bounds = dict(self._price.bounds())
        return Done(price_text(bounds), {"bounds": bounds}, tuple(self._price.findings()))

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
        for step in to_undo(self._journal.history()):
            self._journal.step(step, StepEvent.UNDO_STARTED, {})
            hand = _Hand(self._journal, step, None, self._clock, self._listener)
            outcome = self._driver.undo(step, move, hand)
            undone = isinstance(outcome, Done | NotNeeded)
            self._journal.step(step, StepEvent.UNDONE if undone else StepEvent.UNDO_FAILED, {"text": outcome.text})
            self._listener(StepEnded(step.number, f"undo {step.verb}", word(outcome), outcome.text, 0.0))
            self._findings += outcome.findings
            if not undone:
                failed.append(f"{step.verb}: {outcome.text}")
        before_anything = cause.code in (ExitCode.PRECHECK_FAILED, ExitCode.LOSS_REFUSED)
        code = ExitCode.REVERTED if before_anything else cause.code
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
        # After a failover clients were out since the site was lost, which nobody wrote down.
        outage = None if self._ask.operation == FAILOVER else outage_s(list(self._journal.entries()))
        bounds = self._bounds()
        facts = Facts(self._ask, self._source, seen.roles, undone, self._changed(), outage, bounds)
        told = ending.of(facts, code, text or "")
        return RunResult(
            told.code,
            told.text,
            (*self._findings, *told.findings),
            tuple(seen.pairs),
            told.undone,
            outage,
            seen.roles,
            tuple(seen.debts),
            bounds,
        )

    def _bounds(self) -> Mapping[str, Json] | None:
        """What was said of the loss, also by the process that a resumed run goes on from."""
        told: list[Any] = [entry.evidence["bounds"] for entry in self._journal.entries() if "bounds" in entry.evidence]
        return told[-1] if told else None


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
