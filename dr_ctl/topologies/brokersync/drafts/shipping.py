"""Plans the waits on copies, and the removal of consumed messages that still lie at the other site. Pure."""

from typing import Final

from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.brokersync.calls import CONSUMED, may_remove, restarts, starts, stops
from dr_ctl.topologies.brokersync.view import SyncSeen
from dr_ctl.topologies.common.drafts.quiesce import lifts_planned, while_serving
from dr_ctl.topologies.common.rules import Rules

ATTACH_S: Final = 30.0  # a network connector that lost its peer tries again after up to half a minute


def catch_up(rules: Rules, step: RunbookStep, seen: SyncSeen, move: Move) -> Draft:
    views = seen.views(move.source)
    about = f"{while_serving(seen, move)}the network connector connected, the copy queues small"
    limits = {"within": step.limits.get("within", rules.patience.catch_up_s)}
    return Draft(move.source, about, tuple(restarts(views)), tuple(starts(views)), limits)


def drain(rules: Rules, step: RunbookStep, seen: SyncSeen, move: Move) -> Draft:
    """Consumed messages are removed by id: the removal needs no undo, whoever serves afterwards."""
    del step
    views = seen.views(move.source)
    limits = {"within": rules.within(move), "stall": rules.drain.stall}
    about = "all copies shipped; copies of what was consumed removed; pauses lifted beside it"
    return Draft(
        move.target,
        about,
        (*lifts_planned(rules, seen, move), *restarts(views), *_removes(seen, move)),
        tuple(starts(views)),
        limits,
    )


def _removes(seen: SyncSeen, move: Move) -> list[Call]:
    return [
        may_remove(there, there.named[name], CONSUMED)
        for here in seen.views(move.source)
        if (there := seen.view(move.target, here.pair)) is not None
        for name in here.copying
        if name in there.named
    ]


def restart(rules: Rules, step: RunbookStep, seen: SyncSeen, move: Move) -> Draft:
    """Restart a connected connector too: a hanging connector may say that it is connected."""
    del rules, step
    views = seen.views(move.source)
    return Draft(
        move.source,
        f"stop and start the network connector of {move.source}, until it is connected; clients stay where they are",
        (*stops(views), *starts(views, None)),
        tuple(starts(views)),
        {"within": move.ask.timeout_s or ATTACH_S},
    )
