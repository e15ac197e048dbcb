"""What is done for `drain`: a wait behind the fence until nothing is under way, pauses lifted beside it."""

from __future__ import annotations

from typing import Final

from dr_ctl.core.model import ExitCode
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.common.acts.lift import lifting
from dr_ctl.topologies.mirror.access import Way
from dr_ctl.topologies.mirror.acts.links import start as undo
from dr_ctl.topologies.mirror.acts.wait import UNDER_WAY, PairWait, until_all
from dr_ctl.topologies.mirror.links import Flows
from dr_ctl.topologies.mirror.look import Flow
from dr_ctl.topologies.mirror.tools import MirrorTools

CALM: Final = 2

__all__ = ("act", "undo")


def act(tools: MirrorTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Lift the pauses and wait, side by side, until nothing is under way in either direction."""
    with lifting(tools, move, hand) as lifted:
        waits = [_Empty(way, tools, hand, step) for way in tools.observer.ways(move)]
        failed = until_all(tools, waits, hand, UNDER_WAY, tools.rules.drain.poll) if waits else None
    done = Done("nothing is under way", {"restarts": sum(each.mender.restarts for each in waits)})
    return lifted.judged(failed or done)


class _Empty(PairWait):
    """Until nothing is under way in either direction, several polls in a row."""

    def __init__(self, way: Way, tools: MirrorTools, hand: Hand, step: PlannedStep) -> None:
        super().__init__(way, tools, hand)
        self._limits = step.limits
        self._calm = 0

    def ended(self, now: Flows, hand: Hand) -> Outcome | None:
        if opened := [site for site, told in now.items() if isinstance(told, Flow) and told.doors_open]:
            return Refused(f"{opened[0]} was opened to clients during the drain")
        empty = all(isinstance(told, Flow) and told.attached and told.empty for told in now.values())
        self._calm = self._calm + 1 if empty else 0
        if self._calm >= CALM:
            return Done("nothing is under way")
        why, took = self.why(now, hand), hand.monotonic() - self.began
        left = f"{self.last if self.last is not None else 'an unknown number of'} event(s) under way"
        if took > self._limits["within"]:
            reason = why or "they move too slowly"
            return Refused(f"not drained after {duration(took)}: {left}; {reason}", code=ExitCode.DRAIN_TIMEOUT)
        if self.stalled_s(hand) > self._limits["stall"]:
            text = f"nothing moved for {duration(self._limits['stall'])}: {left}; {why or 'nothing says why'}"
            return Refused(text, code=ExitCode.DRAIN_TIMEOUT)
        return None
