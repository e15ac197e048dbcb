"""Adds workloads to any topology. Workloads stop before dispatch does, and start once clients are in."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Generic

from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Json, Role, Severity, brief
from dr_ctl.core.notation import if_known
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine import ports
from dr_ctl.engine.holding import Lease
from dr_ctl.engine.operations import FAILOVER
from dr_ctl.engine.plan import Call, Goal, PlannedStep
from dr_ctl.engine.ports import Done, Failed, Move, NotNeeded, Outcome, StepContext, Unknown
from dr_ctl.engine.roles import part_of
from dr_ctl.settings.model import Installation
from dr_ctl.topologies.common.snapshot import starting
from dr_ctl.topologies.common.topology import PairTopology, S
from dr_ctl.topologies.topology import WorkloadSnapshot
from dr_ctl.topologies.workloads import recipe
from dr_ctl.topologies.workloads.sites import WorkloadSites, WorkloadTimeouts

# Workloads stop before these steps, and a workload that does not stop ends the run.
STOP_FIRST: Final = ("quiesce", "residue")


class DriverWithWorkloads(Generic[S]):
    def __init__(
        self,
        bare: ports.Driver[S],
        recipe_: recipe.RecipeWithWorkloads[S],
        sites: WorkloadSites,
        timeouts: Timeouts,
        lease: Lease | None,
    ) -> None:
        self._bare, self._recipe, self._sites, self._timeouts, self._lease = bare, recipe_, sites, timeouts, lease
        self.by_hand = bare.by_hand
        self._cut_off = False  # a hook has shown that no client is left at the lost site
        self._may_stop_late: set[tuple[str, str]] = set()  # workloads, by site and name, whose stop showed no effect

    def observe(self) -> S:
        return replace(self._bare.observe(), workloads=self._sites.read(min_timeout_s=self._timeouts.last_reading_s))

    def apply(self, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        calls = recipe.workload_calls(step.calls)
        stops, starts = ([call for call in calls if call.goal is goal] for goal in (Goal.STOP, Goal.START))
        early, late = (stops, []) if step.verb in STOP_FIRST else ([], stops)
        if (failed := self._stop(early, context) or self._check_source(step, move)) is not None:
            return failed
        outcome = self._bare.apply(recipe.without_workload_calls(step), move, context)
        if isinstance(outcome, Done | NotNeeded):
            self._cut_off = self._cut_off or step.cut_off
            outcome = _with_states(self._check_again(step, move, outcome), early, "stopped")
        is_incomplete = isinstance(outcome, Failed) and outcome.code is ExitCode.INCOMPLETE
        if not (is_incomplete or isinstance(outcome, Done | NotNeeded)):
            return outcome  # no client is let in
        outcome = self._stop_late(late, outcome, context)
        return self._start(starts, outcome, move, context) if starts else outcome

    def undo(self, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        """Undo the brokers first, so that workloads start at brokers that are as before."""
        bare = recipe.without_workload_calls(step)
        brokers = self._bare.undo(bare, move, context) if bare.inverse else NotNeeded("as it was")
        outcomes = (brokers, self._undo_calls(recipe.workload_calls(step.inverse), move, context))
        if failed := [outcome for outcome in outcomes if not isinstance(outcome, Done | NotNeeded)]:
            return replace(failed[0], text="; ".join(outcome.text for outcome in failed), evidence=brokers.evidence)
        return outcomes[1] if isinstance(brokers, NotNeeded) else brokers

    def _stop(self, calls: Sequence[Call], context: StepContext) -> Failed | Unknown | None:
        """Stop one after the other, up to the first that does not stop; return its failure."""
        for call in calls:
            snapshot, why = self._bring_about(call, context)
            if why is not None:
                self._may_stop_late.add((call.site, call.resource))
                finding = found("DR-WORK-003", workload=snapshot, why=why)
                worked = Unknown if snapshot.runs is None else Failed
                return worked(finding.text, findings=(finding,))
        return None

    def _check_source(self, step: PlannedStep, move: Move) -> Failed | None:
        """Check before the gate that no workload runs at the source: a person may have started one again. While the
        source serves clients, workloads may run."""
        if step.verb != "verify":
            return None
        units = self._bare.observe().units if move.spec.units is not None else ()
        at_source = [(key, workload) for key, workload in self._sites.workloads.items() if key[0] == move.source]
        keys = [key for key, workload in at_source if recipe.is_moved(workload, move.spec, units)]
        running = [workload for workload in self._sites.read_at(*keys) if workload.runs is not False]
        if not running or part_of(self._bare.observe(), move.spec).roles[move.source] is Role.SERVING:
            return None
        workloads = brief([f"{workload.name} is {workload.state} at {workload.site}" for workload in running])
        return Failed.of(found("DR-WORK-008", workloads=workloads, source=move.source))

    def _check_again(self, step: PlannedStep, move: Move, outcome: Done | NotNeeded) -> Outcome:
        if step.verb != "check":
            return outcome
        findings = self._recipe.against(replace(self._bare.observe(), workloads=self._sites.read()), move)
        errors = tuple(finding for finding in findings if finding.severity is Severity.ERROR)
        return Failed(errors[0].text, findings=errors, code=ExitCode.PRECHECK_FAILED) if errors else outcome

    def _stop_late(self, calls: Sequence[Call], outcome: Outcome, context: StepContext) -> Outcome:
        """Stop the others at a closed or lost site. If one does not stop, that is only a warning."""
        readings = [self._bring_about(call, context) for call in calls]
        warning = partial(found, "DR-WORK-003", severity=Severity.WARNING)
        findings = [warning(workload=workload, why=why) for workload, why in readings if why is not None]
        if not findings:
            return _with_states(outcome, calls, "stopped")
        text = f"{outcome.text}; {brief([finding.text for finding in findings])}"
        return replace(outcome, text=text, findings=(*outcome.findings, *findings))

    def _start(self, calls: Sequence[Call], outcome: Outcome, move: Move, context: StepContext) -> Outcome:
        """Start all of them, even if one fails: clients are served, and nothing is undone."""
        results = [self._bring_about(call, context, partial(self._why_not_beside, move=move)) for call in calls]
        failed = [(state, why) for state, why in results if why is not None]
        findings = [found("DR-WORK-004", workload=state, why=why, starting=starting(state)) for state, why in failed]
        if not findings:
            return _with_states(outcome, calls, "running")
        texts = brief([finding.text for finding in findings])
        text = f"{outcome.text}; {texts}" if isinstance(outcome, Failed) else f"{calls[0].site} serves, but {texts}"
        return Failed(text, outcome.evidence, (*outcome.findings, *findings), code=ExitCode.INCOMPLETE)

    def _why_not_beside(self, call: Call, move: Move, *, undoing: bool = False) -> str | None:
        """Return the reason why a singleton is not started: it runs at the other site, or may run there. An undo starts
        it unless it is read as running there, because this run has not started it there."""
        starts = call.goal is Goal.START and self._sites.is_singleton(call.resource)
        for other in self._sites.others(call.site, call.resource) if starts else ():
            if other.runs:
                return f"it is a singleton, and it runs at {other.site}"
            fails_over = move.spec.operation == FAILOVER
            if undoing or other.runs is not None or (fails_over and self._cut_off):
                continue
            if not (fails_over and recipe.is_gone(other, move, self._bare.observe().roles[move.source])):
                why = f"cannot be determined: {if_known(other.silent)}"
                return f"it is a singleton, and whether it runs at {other.site} {why}"
        return None

    def _bring_about(
        self, call: Call, context: StepContext, why_not: Callable[[Call], str | None] = lambda _: None
    ) -> tuple[WorkloadSnapshot, str | None]:
        """Send a call and wait for its effect. Return the last reading, and the reason why there was no effect."""
        snapshot = self._read_now(call)
        if recipe.holds(call, snapshot) and not self._may_stop_later(call):
            return snapshot, None
        if (reason := why_not(call)) is not None:
            return snapshot, reason
        if call.goal is Goal.START:
            self._may_stop_late.discard((call.site, call.resource))
        ends_s = context.monotonic() + self._sites.workloads[call.site, call.resource].timeout
        [outcome] = context.change([call], lambda calls: [self._sites.send(call, self._lease) for call in calls])
        waited = context.until(
            lambda: self._read_now(call),
            holds=lambda snapshot: recipe.holds(call, snapshot),
            hopeless=lambda _: isinstance(outcome, Failed),
            within_s=ends_s - context.monotonic(),
            poll_s=self._timeouts.of(WorkloadTimeouts).poll_s,
            meanwhile=lambda now: context.report_waiting(f"{call.resource} at {call.site}", None, f"it is {now.state}"),
        )
        return waited.reading, None if waited.satisfied else _why_no_effect(outcome, waited.reading)

    def _undo_calls(self, calls: Sequence[Call], move: Move, context: StepContext) -> Outcome:
        """Repeat the calls of an undo until all have had their effect, or until the time limit. Start no workload at a
        site that stays closed because the other site was opened."""
        missing = [call for call in calls if self._may_stop_later(call) or not recipe.holds(call, self._read_now(call))]
        if not missing:
            return NotNeeded("as it was")
        starts = [call.resource for call in missing if call.goal is Goal.START and call.site == move.source]
        if starts and part_of(self._bare.observe(), move.spec).roles[move.target] is Role.SERVING:
            return Failed(f"{move.target} is open: {brief(starts)} not started at {move.source}")

        beside = partial(self._why_not_beside, move=move, undoing=True)

        def attempt() -> dict[Call, str]:
            """Send again the calls without an effect so far. Return the reason for each call that still has none."""
            why_not = {call: self._bring_about(call, context, beside)[1] for call in missing}
            missing[:] = [call for call, why in why_not.items() if why is not None]
            return {call: why for call, why in why_not.items() if why is not None}

        waited = context.until(
            attempt,
            holds=lambda why_not: not why_not,
            within_s=self._timeouts.undo_s,
            poll_s=self._timeouts.undo_poll_s,
            max_s=self._timeouts.undo_max_poll_s,
        )
        if waited.satisfied:
            return Done("as it was")
        return Failed(brief([f"{call.resource} at {call.site}: {why}" for call, why in waited.reading.items()]))

    def _may_stop_later(self, call: Call) -> bool:
        """Say whether a stop of this run may still have an effect: then a start is sent although the workload runs."""
        return call.goal is Goal.START and (call.site, call.resource) in self._may_stop_late

    def _read_now(self, call: Call) -> WorkloadSnapshot:
        [snapshot] = self._sites.read_at((call.site, call.resource))
        return snapshot


def _why_no_effect(outcome: Outcome, snapshot: WorkloadSnapshot) -> str:
    if snapshot.silent is not None:
        return f"whether it runs cannot be determined: {snapshot.silent}"
    reason = "" if isinstance(outcome, Done | NotNeeded) else f"{outcome.text}; "
    detail = f", {snapshot.detail}" if snapshot.detail else ""
    return f"{reason}it is {snapshot.state}{detail}"


def _with_states(outcome: Outcome, calls: Sequence[Call], state: str) -> Outcome:
    if not calls:
        return outcome
    names = list(dict.fromkeys(call.resource for call in calls))
    now: Json = {**dict.fromkeys(names, state)}
    text, evidence = f"{outcome.text}; {', '.join(names)} {state}", {**outcome.evidence, "workloads": now}
    if isinstance(outcome, NotNeeded):
        return Done(text, evidence, outcome.findings)
    return replace(outcome, text=text, evidence=evidence)


def with_workloads(topology: PairTopology[Any], installation: Installation, timeouts: Timeouts) -> PairTopology[Any]:
    sites = WorkloadSites(installation, timeouts)
    recipe_ = recipe.RecipeWithWorkloads(topology.recipe, sites.workloads)

    def driver(lease: Lease | None = None) -> DriverWithWorkloads[Any]:
        return DriverWithWorkloads(topology.driver(lease), recipe_, sites, timeouts, lease)

    return replace(topology, recipe=recipe_, driver=driver, companion=sites)
