"""Plans `catch-up` and `drain`, which remove copies that must not be delivered. Pure."""

from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.drafts.quiesce import lifts_planned, while_serving
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.continuity import copies
from dr_ctl.topologies.continuity.view import ContinuitySeen


def catch_up(rules: Rules, step: RunbookStep, seen: ContinuitySeen, move: Move) -> Draft:
    views = seen.views(move.target)
    when = f"it lies in the queue of {move.target} as well"
    return Draft(
        move.source,
        f"{while_serving(seen, move)}all bridges connected, the outflow small, nothing left to deliver from staging; "
        f"what lies at {move.target} twice removed by id",
        calls=tuple(copies.may_remove(view, flow.in_mirror, when) for view in views for flow in view.flows),
        limits={"within": step.limits.get("within", rules.patience.catch_up_s)},
    )


def drain(rules: Rules, step: RunbookStep, seen: ContinuitySeen, move: Move) -> Draft:
    del step
    removals = [call for view in seen.views(move.target) for call in copies.planned(view, move.source)]
    return Draft(
        move.target,
        "everything shipped and applied, in both directions; copies that must not be delivered removed by id; "
        "pauses lifted beside it",
        calls=(*lifts_planned(rules, seen, move), *removals),
        limits={"within": rules.within(move), "stall": rules.drain.stall},
    )
