"""A recipe decides: it finds the reasons against a move, and drafts each step by the topology's table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role, brief
from dr_ctl.engine.operations import FAILOVER, MOVING, REINSTATE, REINSTATING, SINGLE_STEPS
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Check, Move, Outcome, StepContext, StepPlan
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common import checks, reasons
from dr_ctl.topologies.common import snapshot as snapshots
from dr_ctl.topologies.common.rules import Rules, selects
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.view import V
from dr_ctl.topologies.common.wants import AtBroker, Want

if TYPE_CHECKING:
    from dr_ctl.topologies.common.topology import TopologyDefinition

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Undo:
    """The states from before the run that an undo restores at each site; `by`, if set, undoes instead."""

    source: tuple[Want, ...] = ()
    target: tuple[Want, ...] = ()
    by: Callable[[Any, PlannedStep, Move, StepContext], Outcome] | None = None

    def of(self, rules: Rules, snapshot: Snapshot[Any], move: Move, draft: StepPlan) -> StepPlan:
        inverse = [*draft.inverse]
        for site, wants in ((move.source, self.source), (move.target, self.target)):
            for view in snapshot.views(site):
                at = AtBroker.of(rules, move, view, draft.calls)
                inverse += (call for want in wants for call in want(at))
        return replace(draft, inverse=tuple(inverse))


@dataclass(frozen=True, slots=True)
class VerbHandler(Generic[S, T]):
    draft: Callable[[Rules, RunbookStep, S, Move], StepPlan]
    act: Callable[[T, PlannedStep, Move, StepContext], Outcome]
    undo: Undo | None = None


Procedure = Mapping[str, VerbHandler[S, T]]


class Recipe(Generic[V]):
    baseline = staticmethod(snapshots.baseline)
    basis = staticmethod(snapshots.basis)

    def __init__(self, rules: Rules, kind: TopologyDefinition[V]) -> None:
        self.rules, self._kind, self._checks = rules, kind, kind.checks
        self.moves_parts = kind.reads.moves_parts

    def verbs(self) -> frozenset[str]:
        return frozenset(self._kind.procedure)

    def draft(self, step: RunbookStep, snapshot: Snapshot[V], move: Move) -> StepPlan:
        row = self._kind.procedure[step.verb]
        draft = row.draft(self.rules, step, snapshot, move)
        draft = row.undo.of(self.rules, snapshot, move, draft) if row.undo is not None else draft
        if step.verb != "reinstate" or not self._checks.is_reinstated(snapshot, move):
            return draft
        when = f"{move.target} is no longer reinstated"  # the step reads this again, first
        return replace(draft, calls=tuple(replace(call, when=call.when or when) for call in draft.calls))

    def why_not(self, snapshot: Snapshot[V], move: Move) -> Sequence[Finding]:
        suite, case = self._checks, checks.Case(self.rules, snapshot, move)
        if move.spec.units is not None and not self.moves_parts:
            return [found("DR-UNIT-002")]
        if move.spec.operation == FAILOVER:
            findings = [*reasons.against_failover(snapshot, move, suite.of_broker), *suite.of_failover(case)]
        elif move.spec.operation in REINSTATING:
            findings = [*dict.fromkeys(suite.of_return(case))]
        elif move.spec.operation in SINGLE_STEPS:
            findings = [*reasons.against_step(case, suite), *reasons.surplus_at_closed_sites(case, suite.surplus)]
        else:
            findings = [*reasons.not_taken_in(snapshot, move), *suite.of_move(case)]
        return checks.errors_first(checks.explain_quarantined_links(snapshot, findings))

    def checks(self, snapshot: Snapshot[V], move: Move) -> Sequence[Check]:
        suite, case = self._checks, checks.Case(self.rules, snapshot, move)

        def of_one(view: V) -> Iterable[Finding]:
            waiting = checks.standby_findings(view) if view.role is not Role.SERVING else ()
            return checks.weigh_for_move([*suite.of_broker(view), *waiting], view, snapshot.peer(view), move)

        return [
            *checks.broker_checks(snapshot, (*checks.OF_BROKER, *suite.by_broker), of_one),
            *checks.pair_checks(case, (*checks.OF_PAIR, *suite.by_pair), suite.of_both),
        ]

    def holds_already(self, snapshot: Snapshot[V], move: Move) -> str | None:
        if move.spec.operation == REINSTATE:
            return f"{move.target} is reinstated already" if self._checks.is_reinstated(snapshot, move) else None
        if move.spec.operation == FAILOVER:
            return f"what {move.source} holds is kept out" if reasons.is_kept_out(snapshot, move) else None
        return reasons.holds_already(snapshot, move)

    def not_replicated(self, snapshot: Snapshot[V], move: Move) -> Sequence[str]:
        if move.spec.operation not in MOVING:
            return ()
        missing = [
            "pauses, address settings, security settings, diverts and bridges: each site has its own",
            "temporary queues and their messages",
            "open transactions: they are rolled back when the clients' listeners close",
            *self._kind.not_replicated_by_link,
        ]
        for view in snapshot.views(move.source):
            missing += view.stays
            kinds = {
                "non-durable queues": [queue.name for queue in view.business.values() if not queue.durable],
                "queues left out of quiesce and parity by the settings (they move too)": [
                    queue.name for queue in view.business.values() if not selects(self.rules.queues, queue.name)
                ],
            }
            missing += [f"{kind}: {brief(sorted(names))}" for kind, names in kinds.items() if names]
        return missing

    def cannot_know(self, move: Move) -> Sequence[str]:
        if move.spec.operation not in MOVING:
            return ()
        return (
            "whether clients reconnect to the target: they need its address",
            "how long the clients need to finish what they hold",
            "what a client sent whose receipt it never saw",
            *self._kind.unreadable,
        )
