"""How a returned site is taken in again: it is closed, compared by id, and evened out."""

from collections.abc import Iterator
from typing import Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Severity, some
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Done, Move, NotNeeded, Outcome, Refused, StepContext
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.verbs.plain import closed_first
from dr_ctl.topologies.common.wants import PAID, SOURCE, TARGET, debts, pauses, planning
from dr_ctl.topologies.fanout.checks import nothing_owed, of_untold
from dr_ctl.topologies.fanout.ids import Pace
from dr_ctl.topologies.fanout.reconciling import COPIED, REMOVED, at_rest, even_all, resting
from dr_ctl.topologies.fanout.tools import Evened, FanoutTools

# Messages stay copied and removed when it is undone: copies lie at both sites, and the rest was consumed.
draft: Final = planning(
    TARGET,
    "compared by id: what was consumed since is removed at {target}, what came since is copied there",
    *(*resting(SOURCE, REMOVED, COPIED), *PAID),
    limits=Rules.while_moving,
)
draft_reconcile: Final = planning(TARGET, "what was consumed meanwhile removed; both sites compared", REMOVED, COPIED)


def residue(tools: FanoutTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Close the returned site to clients where it is open, and count its messages. Producers may still write to it:
    their messages lie at the other site as well."""
    findings = closed_first(tools, step, move, context)
    if isinstance(findings, Refused):
        return findings
    views = tools.views(move.target)
    count = sum(queue.depth for view in views for queue in view.business.values())
    return Done(f"{count} message(s) lie there", {"messages": count}, tuple(findings))


def act(tools: FanoutTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Even it out while clients work; then once more while they rest, so that counters tell from then on what is
    consumed."""
    if nothing_owed(tools.observer.observe(), move):
        return NotNeeded(f"{move.target} is taken in already")
    ways = tools.observer.between(move.source, move.target)
    tools.evened = Evened()
    refused = even_all(tools, ways, move, context, copied=True) or at_rest(
        tools, step, move, context, lambda: even_all(tools, ways, move, context, copied=True, pace=Pace.RESTING)
    )
    if refused is not None:
        return refused
    if (refused := tools.reach(PAID, move, context)) is not None:
        return refused
    return Done(tools.evened.text, tools.evened.as_json(), tuple(_alone(tools, move)))


def reconcile(tools: FanoutTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Even it out once more; what may come as duplicates is judged as by every check: the gate proves what counters
    tell, once clients are out."""
    del step
    tools.evened = Evened()
    if (
        refused := even_all(tools, tools.observer.between(move.source, move.target), move, context, copied=True)
    ) is not None:
        return refused
    snapshot = tools.observer.observe()
    pairs = [(view, there) for view in snapshot.views(move.source) if (there := snapshot.view(move.target, view.pair))]
    untold = [found for here, there in pairs for found in of_untold(move, here, there)]
    if any(each.severity is Severity.ERROR for each in untold):
        return Refused(untold[0].text, tools.evened.as_json(), tuple(untold))
    return Done(tools.evened.text, tools.evened.as_json(), tuple(untold))


def _alone(tools: FanoutTools, move: Move) -> Iterator[Finding]:
    if alone := {queue: ids for queue, ids in tools.evened.alone.items() if ids}:
        count = sum(map(len, alone.values()))
        yield found(
            "DR-FAN-006",
            count=count,
            target=move.target,
            items=some([f"{queue} {ident}" for queue, ids in alone.items() for ident in sorted(ids)]),
        )


UNDO: Final = Undo(source=(pauses, debts))
