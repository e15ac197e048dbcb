"""Executes a plan: records each step, acts through the driver, and undoes on failure. Only the driver knows what a step
does at brokers, and how that is proven.

The exit code follows from three facts only: whether the wanted state was verified, whether anything was changed, and
whether what was changed was undone and the undo verified.
"""

import signal
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

from dr_ctl.core.document import document
from dr_ctl.core.errors import DrCtlError, Stopped
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, Severity
from dr_ctl.core.system import stamp, system
from dr_ctl.engine import ending, operations, ports
from dr_ctl.engine.context import STOPPED, JournalledStep, Outage, OutageTooLong, StopAtOnce, StopRequest
from dr_ctl.engine.ending import Facts, bounds_text
from dr_ctl.engine.journal import LET_IN_AT, Journal, PastStep, RunState, StepEvent, outage_s
from dr_ctl.engine.operations import DRAIN, FAILOVER
from dr_ctl.engine.plan import Plan, PlannedStep
from dr_ctl.engine.roles import part_of, with_queues
from dr_ctl.telemetry.events import EventSink, Notice, StepEnded, StepStarted

O = TypeVar("O", bound=ports.Observation)  # noqa: E741 - the observation of one topology

ESTIMATE_WITHIN_S: Final = 30.0  # the step `estimate` (of the loss, from the history) is given up after this
MAX_DRAINS: Final = 3  # a run drains this often: it drains again if the proof is outdated before the activation


@dataclass(frozen=True, slots=True)
class RunResult(Generic[O]):
    """The end of a run, with the observation after it. `text` is the summary on the screen and in the JSON document.
    `left` is the evidence of the undone steps, such as messages that a reinstatement left over, `evidence` that of the
    failed step, such as message ids by queue."""

    code: ExitCode
    text: str
    findings: tuple[Finding, ...]
    snapshot: O
    undone: bool | None = None
    outage_s: float | None = None
    bounds: Mapping[str, Json] | None = None
    left: Mapping[str, Json] = field(default_factory=dict)
    evidence: Mapping[str, Json] = field(default_factory=dict)


class Answer(Enum):
    YES = "yes"
    UNDO = "undo"
    STOP = "stop here"


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The person who is asked during a run, and the hooks, the installation's own commands. By default every question
    is answered no, and no step asks first. `stepper` is called before each step, with a flag whether the run may still
    be undone. `on_begun` is called once the run is in the journal, before any step."""

    asker: Callable[[str], bool] = lambda _: False
    stepper: Callable[[PlannedStep, bool], Answer] = lambda _, __: Answer.YES
    on_begun: Callable[[], None] = lambda: None
    hooks: Callable[[str, Mapping[str, Json]], ports.Outcome] | None = None


def steps_to_undo(run: RunState) -> list[PlannedStep]:
    """List the started steps that have an inverse, the last first, without those of a finished reinstatement."""
    last_kept = max((done.step.number for done in run.steps if _is_reinstated(done)), default=0)
    return [step for step in run.started() if step.inverse and step.number > last_kept]


def _is_reinstated(done: PastStep) -> bool:
    return done.step.verb == operations.RECONCILE and done.succeeded  # the last step of a reinstatement


_EVENTS: Final[Mapping[type[ports.Outcome], StepEvent]] = {
    ports.Done: StepEvent.SUCCEEDED,
    ports.NotNeeded: StepEvent.UNNEEDED,
    ports.Failed: StepEvent.FAILED,
    ports.Unknown: StepEvent.UNKNOWN,
}


def _defect(error: Exception) -> ports.Outcome:
    text = f"a defect in dr-ctl: {type(error).__name__}: {error}"
    return ports.Unknown(text, {"traceback": "".join(traceback.format_exception(error))})


@dataclass
class Execution(Generic[O]):
    """The part of a run that one process executes or undoes; a resumed run has several."""

    plan: Plan
    driver: ports.Driver[O]
    journal: Journal
    listener: EventSink
    stop: StopRequest = field(default_factory=StopRequest)
    exposure: ports.LossExposure | None = None
    callbacks: Callbacks = field(default_factory=Callbacks)
    _findings: list[Finding] = field(default_factory=list)
    _left: dict[str, Json] = field(default_factory=dict)
    _evidence: Mapping[str, Json] = field(default_factory=dict)
    _can_undo: bool = True

    def __post_init__(self) -> None:
        self._spec = spec = self.plan.spec
        self._outage = Outage(self.journal, spec.max_outage_s, start_known=spec.operation != FAILOVER)

    @cached_property
    def _move(self) -> ports.Move:
        """The move of this plan, with the activation by an earlier process, if any."""
        plan, activation_sent = self.plan, self.journal.replay().activation_sent
        return ports.Move(plan.spec, plan.source, plan.baseline, plan.already_moved, activation_sent)

    def execute(self, estimator: ports.Estimator, started_by: Mapping[str, Json]) -> RunResult[O]:
        """Execute every step in order; after the first failure undo all started steps, if that is still safe."""
        self.journal.run(self.plan, started_by)
        self.callbacks.on_begun()
        if any(step.verb == operations.ESTIMATE for step in self.plan.steps):
            estimator.begin()
        try:
            return self._forward(estimator)
        finally:
            estimator.abandon()

    def undo(self) -> RunResult[O]:
        """Undo all changes of an interrupted run, as after a failed step."""
        return self._undo_all(ports.Failed("aborted", code=ExitCode.OK))

    def _forward(self, estimator: ports.Estimator) -> RunResult[O]:
        plan = self.plan
        self._findings += plan.findings
        # A plan that only finishes a move has no step to undo: the target serves already.
        self._can_undo = any(step.undoable for step in plan.steps)
        steps, drains = deque(plan.steps), 1
        while steps:
            step = steps.popleft()
            if (ended := self._ended_before(step)) is not None:
                return ended
            try:
                outcome = self._apply(step, estimator, plan.steps[-1].number)
            except Stopped:
                return self._interrupted()
            except OutageTooLong:
                limit_s = self._outage.limit_s or 0
                return self._undo_all(ports.Failed(f"clients would be out for longer than {limit_s:g} s"))
            self._findings += outcome.findings
            if isinstance(outcome, ports.Failed | ports.Unknown):
                outdated = isinstance(outcome, ports.Failed) and outcome.proof_outdated
                repeated = self._steps_to_prove_again(step) if outdated else []
                if not repeated or drains == MAX_DRAINS:
                    return self._failed(step, outcome)
                self.listener(Notice(f"{outcome.text}: back to the {repeated[0].verb}"))
                steps.extendleft(reversed(repeated))
                drains += 1
        return self._result(ExitCode.OK, None)

    def _steps_to_prove_again(self, step: PlannedStep) -> list[PlannedStep]:
        """Return the steps from the drain up to this one, which prove the source empty; none without a drain."""
        verbs = operations.DRAIN_TO_ACTIVATE
        steps = [done for done in self.plan.steps if done.verb in verbs and done.number <= step.number]
        return steps if steps and steps[0].verb == verbs[0] else []

    def _ended_before(self, step: PlannedStep) -> RunResult[O] | None:
        """End the run on a signal, or if the person who is asked before each step says so."""
        # A step without a wait has not seen a signal yet; at the point of no return this is the last check.
        may_stop = step.undoable or (step.verb == operations.NO_RETURN and self._can_undo)
        if may_stop and self.stop.asked():
            return self._interrupted()
        try:
            with self.stop.interruptible():
                answer = self.callbacks.stepper(step, may_stop)
        except Stopped:
            if may_stop:
                return self._interrupted()
            answer = Answer.STOP
        match answer:
            case Answer.UNDO:
                return self._undo_all(ports.Failed("a person said no", code=ExitCode.DECLINED))
            case Answer.STOP:
                raise StopAtOnce(signal.SIGINT, f"before {step.verb}, as asked")
            case Answer.YES:
                return None

    def _failed(self, step: PlannedStep, outcome: ports.Failed | ports.Unknown) -> RunResult[O]:
        code = outcome.code if isinstance(outcome, ports.Failed) else ExitCode.REVERTED
        self._evidence = outcome.evidence if isinstance(outcome, ports.Failed) else {}
        if step.verb == operations.QUESTION:
            return self._answered_no(step, outcome.text)
        if self._spec.operation == DRAIN and code is ExitCode.DRAIN_TIMEOUT:
            return self._result(code, f"{outcome.text}; nothing was undone")
        if self._may_undo(step, outcome):
            return self._undo_all(ports.Failed(outcome.text, findings=outcome.findings, code=code))
        if isinstance(outcome, ports.Unknown) and step.verb == operations.ACTIVATE:
            # The text of a broker that stops answering lacks the advice.
            advice = f"look at {self._move.target} first"
            text = outcome.text if advice in outcome.text else f"{outcome.text}: {advice}"
            return self._result(ExitCode.UNKNOWN, text)
        return self._result(ExitCode.INCOMPLETE, outcome.text)

    def _answered_no(self, step: PlannedStep, text: str) -> RunResult[O]:
        """Undo the steps before the question; a site that the run has reinstated stays reinstated."""
        if not step.undoable:
            return self._result(ExitCode.INCOMPLETE, text)
        if not steps_to_undo(self.journal.replay()):
            if stays := self._reinstated_text():
                text += f"{stays}: `dr-ctl swapover --to {self._move.target}` moves the service when it is wanted"
            return self._result(ExitCode.DECLINED, text)
        return self._undo_all(ports.Failed(text, code=ExitCode.DECLINED))

    def _reinstated_text(self) -> str:
        is_in = any(_is_reinstated(done) for done in self.journal.replay().steps)
        return f"; {self._move.target} stays reinstated" if is_in else ""

    def _may_undo(self, step: PlannedStep, outcome: ports.Failed | ports.Unknown) -> bool:
        """Say whether undoing is still safe: no activating call went out, or it is proven to have had no effect. The
        step point-of-no-return comes before the first activating call, and is the last at which a signal undoes."""
        if step.verb == operations.NO_RETURN:
            return self._can_undo
        if isinstance(outcome, ports.Failed) and outcome.code is ExitCode.INCOMPLETE:
            return False  # the target serves clients, and only a lesser part of the step failed
        if step.undoable or step.verb != operations.ACTIVATE:
            return step.undoable
        if isinstance(outcome, ports.Failed):
            return self._can_undo
        return self._can_undo and not self.journal.replay().activation_sent

    def _apply(self, step: PlannedStep, estimator: ports.Estimator, step_count: int) -> ports.Outcome:
        self.listener(StepStarted(step.number, step_count, step.verb, step.summary, step.undoable))
        self.journal.step(step, StepEvent.STARTED, {"about": step.summary})
        began = system().monotonic()
        context = self._context(step, self.stop if step.undoable else None)
        try:
            match step.verb:
                case operations.ESTIMATE:
                    within = step.limits.get("within", ESTIMATE_WITHIN_S)
                    about = f"estimating from the history (given up after {within:g} s)"
                    outcome = estimator.end(within_s=within, wait=context.counting(about, within))
                case operations.NO_RETURN:
                    outcome = self._pass_no_return()
                case operations.QUESTION:
                    outcome = self._ask(step)
                case operations.SNAPSHOT:
                    outcome = self._snapshot()
                case operations.HOOK:
                    outcome = self._run_hook(step, context)
                case operations.HOLD:
                    context.hold(step.limits["for"], step.summary)
                    outcome = ports.Done(f"waited {step.limits['for']:g} s")
                case _:
                    outcome = self.driver.apply(step, self._move, context)
        except (Stopped, OutageTooLong) as ended:
            text = STOPPED if isinstance(ended, Stopped) else "clients were out for too long"
            self.journal.step(step, StepEvent.FAILED, {"text": text})
            raise
        except DrCtlError:
            raise  # the journal itself fails: no further step could be recorded
        except Exception as error:  # noqa: BLE001 - clients may be out: a defect is undone like a failure
            outcome = _defect(error)
        if step.verb == operations.ACTIVATE and isinstance(outcome, ports.Done | ports.NotNeeded):
            self._outage.ends()
        let_in: dict[str, Json] = {} if context.let_in_at is None else {LET_IN_AT: stamp(context.let_in_at)}
        took = system().monotonic() - began
        findings: list[Json] = document(outcome.findings)
        evidence = {"text": outcome.text, "took_s": round(took, 4), "findings": findings, **let_in, **outcome.evidence}
        self.journal.step(step, _EVENTS[type(outcome)], evidence)
        self.listener(StepEnded(step.verb, outcome.word, outcome.text, took))
        return outcome

    def _context(self, step: PlannedStep, stop: StopRequest | None) -> JournalledStep:
        return JournalledStep(self.journal, step, stop, self.listener, self._outage, self._findings)

    def _pass_no_return(self) -> ports.Outcome:
        """Compare the bounds with the accepted loss once more: the bounds of a failover grow while the run waits."""
        too_high = self.exposure.too_high(self._spec) if self.exposure is not None and self._can_undo else None
        return ports.Done("passed") if too_high is None else ports.Failed.of(too_high, code=ExitCode.LOSS_REFUSED)

    def _ask(self, step: PlannedStep) -> ports.Outcome:
        """Ask a person. A signal counts as a no while the run can be undone; later it does not end the question."""
        with self.stop.interruptible() if step.undoable else nullcontext():
            agreed = self.callbacks.asker(step.summary)
        if agreed:
            return ports.Done("yes")
        return ports.Failed("a person said no, or nobody could be asked", code=ExitCode.DECLINED)

    def _snapshot(self) -> ports.Outcome:
        if self.exposure is None:
            return ports.NotNeeded("nothing is lost in a planned move")
        bounds = self._bounds() if self.journal.replay().activation_sent else None
        if bounds is not None:
            return ports.Done(bounds_text(bounds), {"bounds": dict(bounds)})  # clients have worked at the target since
        bounds = dict(self.exposure.bounds())
        return ports.Done(bounds_text(bounds), {"bounds": bounds}, tuple(self.exposure.findings()))

    def _run_hook(self, step: PlannedStep, context: JournalledStep) -> ports.Outcome:
        """Run a hook. A failure ends a run that can still be undone; past that it is only a warning."""
        [call] = step.calls
        assert self.callbacks.hooks is not None  # a plan names only hooks of the settings
        hooks = self.callbacks.hooks
        facts: dict[str, Json] = {
            "operation": self._spec.operation,
            "source": self._move.source,
            "target": self._move.target,
            "step": step.id,
            "undoable": step.undoable,
        }
        [outcome] = context.change([call], lambda calls: [hooks(call.resource, facts) for _ in calls])
        if step.undoable or isinstance(outcome, ports.Done | ports.NotNeeded):
            return outcome
        return ports.Done.of(found("DR-HOOK-001", what=outcome.text), evidence=outcome.evidence)

    def _interrupted(self) -> RunResult[O]:
        signum = self.stop.signum
        assert signum is not None
        code = ExitCode(128 + signum)
        self.journal.signal(code.name.lower())
        return self._undo_all(ports.Failed(STOPPED, code=code))

    def _undo_all(self, cause: ports.Failed) -> RunResult[O]:
        """Undo all steps that were started, the last first; a step that cannot be undone does not stop the others."""
        if not self.journal.changed:
            code_claims_undo = cause.code in (ExitCode.REVERTED, ExitCode.DRAIN_TIMEOUT)
            code = ExitCode.PRECHECK_FAILED if code_claims_undo else cause.code
            return self._result(code, f"{cause.text}; nothing was changed", undone=True)
        self.listener(Notice(f"{cause.text}: undoing"))
        failed: dict[str, list[str]] = {}
        stranded_by = ""
        steps = steps_to_undo(self.journal.replay())
        stays = not steps and self._spec.operation in operations.IN_PLACE  # messages that were removed or moved
        for step in steps:
            self.journal.step(step, StepEvent.UNDO_STARTED, {})
            context = self._context(step, None)
            try:
                outcome = self.driver.undo(step, self._move, context)
            except DrCtlError:
                raise
            except Exception as error:  # noqa: BLE001 - a step that breaks does not stop the others from being undone
                outcome = _defect(error)
            undone = isinstance(outcome, ports.Done | ports.NotNeeded)
            evidence: dict[str, Json] = {"text": outcome.text, **outcome.evidence}
            self._left |= outcome.evidence
            self.journal.step(step, StepEvent.UNDONE if undone else StepEvent.UNDO_FAILED, evidence)
            self.listener(StepEnded(f"undo {step.verb}", outcome.word, outcome.text, 0.0))
            self._findings += [finding for finding in outcome.findings if finding not in self._findings]
            if not undone:
                failed.setdefault(outcome.text, []).append(step.verb)
                if isinstance(outcome, ports.Failed) and outcome.code is ExitCode.STRANDED:
                    stranded_by = outcome.text
        refused = cause.code in (ExitCode.PRECHECK_FAILED, ExitCode.LOSS_REFUSED, ExitCode.DECLINED)
        code = ExitCode.STRANDED if failed else ExitCode.REVERTED if refused else cause.code
        left = "; ".join(f"{', '.join(verbs)}: {why}" for why, verbs in failed.items())
        end = "; what it did stays so" if stays else f"{self._reinstated_text()}; undone"
        end = f"; not everything could be undone: {left}" if failed else end
        text = f"{cause.text}{end}"
        if stranded_by and len(failed) == 1:  # the other failures are consequences
            text = f"{stranded_by}; so not undone: {', '.join(failed[stranded_by])}; before that: {cause.text}"
            if self.plan.serving == (self._move.target,):  # the target served before the run too: the cause comes first
                text = f"{cause.text}; {stranded_by}"
        return self._result(code, text, undone=not failed and not stays)

    def _result(self, code: ExitCode, text: str | None, *, undone: bool | None = None) -> RunResult[O]:
        """Read both sites once more: the result is the state after the run, not the run's intention."""
        snapshot = self.driver.observe()
        part = part_of(snapshot, self._spec)
        entries = self.journal.entries()
        outage = None if self._spec.operation == FAILOVER else outage_s(entries)
        bounds = self._bounds()
        done = [str(entry.evidence.get("text", "")) for entry in entries if entry.kind == "step"]
        facts = Facts(
            spec=self._spec,
            source=self._move.source,
            roles=part.roles,
            units=tuple(part.units),
            before=self.plan.serving,
            undone=undone,
            changed=self.journal.changed,
            cut_off=any(entry.evidence.get("proof") == operations.HOOK for entry in entries),
            outage_s=outage,
            bounds=bounds,
            by_hand=self.driver.by_hand(self._move.source),
            unserved=ending.unserved_units(snapshot.units, self.plan.served),
            others=tuple(unit for unit in snapshot.units if not self._spec.includes(unit.name)),
            outcome=done[-1] if done else "",
            opened_unseen=self.plan.already_moved != self.journal.replay().plan.already_moved,
        )
        end = ending.judged(facts, code, text or "")
        findings = (*self._findings, *end.findings)
        if end.code is ExitCode.INCOMPLETE and all(finding.severity is not Severity.ERROR for finding in findings):
            findings = (*findings, found("DR-RUN-008", what=end.text))  # no error finding says what to do
        findings = with_queues(findings, self._spec)
        return RunResult(end.code, end.text, findings, snapshot, end.undone, outage, bounds, self._left, self._evidence)

    def _bounds(self) -> Mapping[str, Json] | None:
        """Return the last bounds on the loss in the journal, which an earlier process may have written."""
        known: list[Any] = [entry.evidence["bounds"] for entry in self.journal.entries() if "bounds" in entry.evidence]
        return known[-1] if known else None
