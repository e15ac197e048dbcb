"""What is done for `catch-up`: a wait while clients work, until little is under way."""

from __future__ import annotations

from typing import Final

from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.mirror.access import Way
from dr_ctl.topologies.mirror.acts.links import start as undo
from dr_ctl.topologies.mirror.acts.wait import UNDER_WAY, PairWait, until_all
from dr_ctl.topologies.mirror.links import Flows
from dr_ctl.topologies.mirror.look import Flow
from dr_ctl.topologies.mirror.tools import MirrorTools

SMALL: Final = 500

__all__ = ("act", "undo")


def act(tools: MirrorTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """While the source serves: both links attached, and little enough under way that a drain takes a moment."""
    within_s = step.limits["within"]
    waits = [_Small(way, tools, hand, within_s) for way in tools.observer.ways(move)]
    failed = until_all(tools, waits, hand, UNDER_WAY, tools.patience.link_poll_s) if waits else None
    if failed is not None:
        return failed
    left, restarts = sum(each.last or 0 for each in waits), sum(each.mender.restarts for each in waits)
    return Done(f"{left} event(s) under way", {"under_way": left, "restarts": restarts})


class _Small(PairWait):
    """Until little is under way; at the latest then it must have become less."""

    def __init__(self, way: Way, tools: MirrorTools, hand: Hand, within_s: float) -> None:
        super().__init__(way, tools, hand)
        self._within_s = within_s

    def ended(self, now: Flows, hand: Hand) -> Outcome | None:
        attached = all(isinstance(told, Flow) and told.attached for told in now.values())
        total = self.left(now)
        if attached and total is not None and total <= SMALL:
            return Done("little is under way")
        if hand.monotonic() - self.began <= self._within_s:
            return None
        if total is None or not attached:
            return Refused(f"not caught up: {self.why(now, hand)}")
        if self.first is not None and total >= self.first:
            return Refused(f"the outflow grows while clients work: {self.first} event(s), then {total}")
        return Done("less and less is under way")
