"""Acts that are the same at all Classic brokers, beside the acts for all brokers."""

from __future__ import annotations

from typing import Any

from dr_ctl.engine.outcome import Done, Outcome
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.classic.operations import PAUSES
from dr_ctl.topologies.common import acts
from dr_ctl.topologies.common.findings import COME_AGAIN
from dr_ctl.topologies.common.tools import Tools


def quiesce(tools: Tools[Any], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Where queues may not be paused, count the messages that clients hold: a cut brings them again."""
    views = tools.observer.look_at(move.source)
    if not any(PAUSES in view.denied for view in views):
        return acts.quiesce.act(tools, step, move, hand)
    held = sum(queue.delivering for view in views for queue in view.business.values())
    text = f"{held} message(s) in delivery are cut and will come again: the console of {move.source} refuses to pause"
    found = COME_AGAIN(text, "The clients must recognise what they have done.")
    return Done(text, {"come_again": held}, (found,))
