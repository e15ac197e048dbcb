"""What is done for `activate` where the plugin opens the doors: a delivery that is about to begin is waited for."""

from __future__ import annotations

from dr_ctl.engine.operations import FAILOVER
from dr_ctl.engine.outcome import Outcome
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common.acts import activate
from dr_ctl.topologies.common.view import Peer
from dr_ctl.topologies.continuity.tools import ContinuityTools
from dr_ctl.topologies.continuity.view import WAITS_MS


def act(tools: ContinuityTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    _let_begin(tools, step, move, hand)
    return activate.act(tools, step, move, hand)


def _let_begin(tools: ContinuityTools, step: PlannedStep, move: Move, hand: Hand) -> None:
    """Wait for a delivery that is about to begin: an activation that went out before a crash is not sent again, for
    each tells the other site to stop. Where no client is let in it has failed, and nothing is to be waited for."""
    peer = Peer.AWAY if move.ask.operation == FAILOVER else Peer.DRAINED
    within_s = WAITS_MS[peer] / 1000 if step.part("doors") else 0.0
    until = hand.monotonic() + within_s + tools.patience.watch_poll_s
    while any(view.half_open for view in tools.observer.look_at(move.target)) and hand.monotonic() < until:
        if not tools.doors.let_in(tools.observer.at(move.target)):
            return
        hand.wait(tools.patience.watch_poll_s)
