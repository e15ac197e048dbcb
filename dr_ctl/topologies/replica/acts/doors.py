"""Acts of clients' doors at one site, `fence` undone and `unfence`: the plugin alone opens the doors of a replica."""

from __future__ import annotations

from collections.abc import Sequence

from dr_ctl.core.model import ExitCode
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Outcome, Refused
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common import acts
from dr_ctl.topologies.replica.tools import ReplicaTools


def undo_fence(tools: ReplicaTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    return _would_open_replica(tools, step.inverse, move) or acts.fence.undo(tools, step, move, hand)


def undo_fence_by_itself(tools: ReplicaTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    return _would_open_replica(tools, step.inverse, move) or acts.fence.undo_by_itself(tools, step, move, hand)


def unfence(tools: ReplicaTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    return _would_open_replica(tools, step.calls, move) or acts.unfence.act(tools, step, move, hand)


def _would_open_replica(tools: ReplicaTools, calls: Sequence[Call], move: Move) -> Refused | None:
    opens = {call.unit for call in calls if (call.site, call.goal) == (move.source, Goal.OPEN)}
    replicas = [view.pair for view in tools.observer.answering(move.source) if view.is_replica and view.pair in opens]
    if not replicas:
        return None
    text = f"{move.source} is a replica: its clients' doors stay closed until it is the source"
    return Refused(text, code=ExitCode.STRANDED)
