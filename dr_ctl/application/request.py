"""The request of a command as a value: checked against settings and topology, narrowed to its units, with its loss
bound. It can be decided several times, each time by a given reading.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from dr_ctl.application import plans
from dr_ctl.application.installation import OpenInstallation, shared_addresses
from dr_ctl.application.loss_bound import LossBound
from dr_ctl.application.lost_site import already_moved, another_served_last, reword_refusal, with_cause_of_silence
from dr_ctl.application.standing import agent_findings
from dr_ctl.core.errors import BrokerError, UsageError
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json, Severity
from dr_ctl.core.notation import matches
from dr_ctl.core.system import system
from dr_ctl.engine import operations
from dr_ctl.engine.journal import RunState
from dr_ctl.engine.plan import AlreadyThere, Decision, Plan, Refusal, Spec, plan_of
from dr_ctl.engine.planner import plan
from dr_ctl.engine.ports import NO_SIGNS
from dr_ctl.engine.roles import units_divided, with_queues
from dr_ctl.engine.runs import RunFiles
from dr_ctl.topologies.registry import Snapshot

LOST_S: Final = 5.0
READINGS: Final = 3
_PASSWORDS: Final = {"__all__": {"password"}}


@dataclass(frozen=True, slots=True)
class Request:
    """A resume has the `past` of its run. The plan must equal a `saved` one, and may replace an open run."""

    spec: Spec
    opened: OpenInstallation
    exposure: LossBound | None = None
    past: RunState | None = None
    saved: plans.Saved | None = None
    replaces_run: bool = False

    @classmethod
    def of(
        cls, spec: Spec, opened: OpenInstallation, *, past: RunState | None = None, saved: plans.Saved | None = None
    ) -> Request:
        """Make a request, and limit the waits for a lost site; raises `UsageError` for unknown names."""
        opened.installation.must_know(spec.target, spec.expect_serving, spec.presume_down)
        _must_be_able(spec, opened)
        exposure = None
        if spec.operation == operations.FAILOVER:
            lost = opened.other(spec.target)
            steps = opened.runbook(spec.operation).steps
            observe = next((step.limits for step in steps if step.verb == "observe"), {})
            opened.topology.spend_at_most(observe.get("lost", LOST_S), lost)
            exposure = LossBound(opened, lost, spec.silent_since, begun=past is not None)
        return cls(spec, opened, exposure, past, saved)

    @property
    def site(self) -> str:
        """The site that the command names, which may be the site that clients leave."""
        target = self.spec.target
        return self.opened.other(target) if self.spec.operation in operations.AT_SOURCE else target

    @property
    def title(self) -> str:
        """The title of the operation, for people who find its lock."""
        if self.past is not None:
            return f"resume of {self.spec.operation} to {self.spec.target}"
        return f"{self.spec.operation} {'of' if self.spec.operation in operations.AT_SOURCE else 'to'} {self.site}"

    def may_replace(self, run: RunFiles | None) -> bool:
        """A failover with a reason replaces an interrupted run, and an unfence with a reason an unfence of the same
        site, which moves nothing."""
        if run is None or self.spec.reason is None:
            return False
        began = run.name.partition("-")[2].rpartition("-")[0]  # a name has time, operation, site and a number
        is_same_unfence = began == f"{operations.UNFENCE}-{self.site}" and self.spec.operation == operations.UNFENCE
        return is_same_unfence or self.spec.operation == operations.FAILOVER

    def may_begin_beside(self, run: RunFiles) -> bool:
        """A fence is safe beside any open run, and needed while both sites are open."""
        return self.spec.operation == operations.FENCE or self.may_replace(run)

    def read(self) -> Snapshot:
        """Read both sites, and update the bounds of a failover. A late site that has to answer is read again, because
        the console of a broker that has just started is slow."""
        at_one_site = self.spec.operation in (operations.FAILOVER, operations.FENCE, operations.QUIESCE)
        must_answer = {self.site} if at_one_site else {*self.opened.installation.settings.sites}
        for _ in range(READINGS):
            snapshot: Snapshot = self.opened.topology.observe()
            if not any(snapshot.signs_of_life.get(site, NO_SIGNS).late for site in must_answer):
                break
        if self.exposure is not None:
            self.exposure.saw(snapshot)
        return snapshot

    def narrowed(self, snapshot: Snapshot) -> Request:
        """Add the units of the pattern, or, if both sites serve, those that the target does not serve."""
        spec = self.spec
        if spec.units is not None or not self.opened.topology.recipe.moves_parts:
            return self
        if spec.queues is not None:
            units = tuple(unit.name for unit in snapshot.units if matches((spec.queues,), unit.name))
        elif spec.operation in (operations.QUIESCE, operations.FENCE, operations.UNFENCE) and units_divided(snapshot):
            units = tuple(unit.name for unit in snapshot.units if unit.serving != spec.target)
        else:
            return self
        return replace(self, spec=replace(spec, units=units))

    def decide(self, snapshot: Snapshot) -> Decision:
        spec, opened, under_way = self.spec, self.opened, self.past is not None
        book = opened.runbook(spec.operation)
        recipe, replaces = opened.topology.recipe, self.replaces_run
        decided = plan(book, recipe, snapshot, spec, self.past, self.exposure, replaces_run=replaces)
        if spec.operation == operations.FAILOVER:
            decided = reword_refusal(decided, spec, snapshot, opened, under_way=under_way)
            if self.exposure is not None and not under_way and plan_of(decided) is not None:
                # The operator's `--silent-since` must not contradict a reading that saw the lost site serve later.
                contradiction = self.exposure.contradiction()
                decided = decided if contradiction is None else Refusal((contradiction,))
            decided = decided if under_way else already_moved(decided, spec, snapshot, opened)
        if isinstance(decided, Refusal):
            decided = with_cause_of_silence(decided, spec, snapshot)
        if not under_way and spec.operation in (operations.SWAPOVER, operations.FAILBACK, operations.FAILOVER):
            decided = self._without_mistakes(decided, snapshot)
        planned = plan_of(decided)
        differences = self.exposure.differ() if self.exposure is not None and planned is not None else ()
        last = another_served_last(spec, snapshot, opened)
        further = (*differences, *last, *opened.unverified(), *agent_findings(opened, snapshot))
        planned = None if planned is None else self._based(planned, with_queues((*planned.findings, *further), spec))
        if isinstance(decided, Plan) and planned is not None:
            return planned if self.saved is None else plans.same(self.saved.plan, planned, self.saved.path)
        decided = replace(decided, findings=with_queues((*decided.findings, *further), spec))
        return replace(decided, plan=planned) if isinstance(decided, Refusal) else decided

    def _without_mistakes(self, decided: Decision, snapshot: Snapshot) -> Decision:
        """Refuse for mistakes of the settings, and for accepted differences of unknown queues (a store shows more
        queues than its broker). A failover, which cannot wait, only reports these."""
        mistakes, accepted = shared_addresses(self.opened.installation), self.spec.accept_difference
        if accepted and not snapshot.one_store and all(broker.silent is None for broker in snapshot.brokers):
            known = {row.name for row in snapshot.rows(system().now()) if row.kind == "queue"}
            mistakes += [found("DR-PARITY-006", queue=queue) for queue in accepted if queue not in known]
        if isinstance(decided, AlreadyThere) or not mistakes:
            return decided
        if self.spec.operation == operations.FAILOVER:
            milder = (replace(mistake, severity=Severity.WARNING) for mistake in mistakes)
            return replace(decided, findings=(*decided.findings, *milder))
        return Refusal((*(decided.findings if isinstance(decided, Refusal) else ()), *mistakes))

    def _based(self, decided: Plan, findings: tuple[Finding, ...]) -> Plan:
        secret = {"sites": {"__all__": {"brokers": _PASSWORDS, "workloads": _PASSWORDS}}}
        settings = self.opened.installation.settings.model_dump_json(exclude=secret)
        basis = {**decided.basis, "settings": hashlib.sha256(settings.encode()).hexdigest()}
        return replace(decided, findings=findings, basis=basis)

    def residue(self, snapshot: Snapshot) -> Mapping[str, Json] | None:
        """Count the messages that a lost site brings back, and the duplicates; None if they cannot be counted."""
        return (snapshot.residue(self.spec.target) or None) if self.spec.operation in operations.REINSTATING else None

    def why_not_so(self) -> str | None:
        """Test by a connection whether the state that a reading shows holds, because flags can be wrong."""
        if self.spec.operation == operations.REINSTATE:
            return None  # the brokers have answered with their messages and debts
        serving = self.spec.operation not in (operations.QUIESCE, operations.FENCE)
        try:
            why = self.opened.topology.why_not_so(self.site, serving=serving)
        except BrokerError as error:
            why = f"it does not answer any more: {error}"
        return f"{why}: look at {self.site} first" if why is not None else None


_INSTEAD: Final = {
    operations.RESTART: "The links of that topology connect by themselves; its brokers' console stops and starts them.",
    operations.TRIM: "With classic-brokersync `dr-ctl sync` removes copies of what was consumed, and "
    "`dr-ctl sync --settle` those that are left without evidence; `dr-ctl --help` has the others.",
}


def _must_be_able(spec: Spec, opened: OpenInstallation) -> None:
    """Raise `UsageError` where this topology has no such step, or moves whole sites and queues were named."""
    recipe, kind = opened.topology.recipe, opened.installation.settings.topology
    own = operations.single_step(spec.operation).steps if spec.operation in operations.SINGLE_STEPS else ()
    if {step.verb for step in own} - recipe.verbs() - operations.ENGINE_VERBS:
        text = f"{spec.operation}: {kind} has nothing that dr-ctl could do this with"
        raise UsageError(text, remedy=_INSTEAD.get(spec.operation, "`dr-ctl --help` has the others."))
    moves_pairs = not recipe.moves_parts and spec.operation not in (operations.KEEP_ASIDE, operations.PUT_BACK)
    if spec.queues is not None and moves_pairs:
        text = f"--queues {spec.queues}: with {kind} all queues of a pair move together"
        raise UsageError(text, remedy="Leave --queues out: the link does not distinguish queues.")
