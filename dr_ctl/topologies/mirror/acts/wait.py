"""Waits for the links of all pairs side by side: one poll asks every broker, each pair ends for itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dr_ctl.engine.outcome import Done, Outcome
from dr_ctl.engine.ports import Hand
from dr_ctl.topologies.common.evidence import evidence, total
from dr_ctl.topologies.mirror.access import Way
from dr_ctl.topologies.mirror.links import Flows, Mender, Movement, depth, flows, why_not_moving
from dr_ctl.topologies.mirror.tools import MirrorTools

UNDER_WAY: Final = "events under way between the sites"


class PairWait(ABC):
    """The wait of one pair. `outcome` is None until it has ended."""

    def __init__(self, way: Way, tools: MirrorTools, hand: Hand) -> None:
        self.way, self.pair, self._tools = way, way[0].pair, tools
        self.outcome: Outcome | None = None
        self.began = self._moved_at = hand.monotonic()
        self.first: int | None = None
        self.last: int | None = None
        self._movement = Movement()
        self.mender = Mender(tools, way, self._movement)

    def look(self, now: Flows, hand: Hand) -> None:
        """Note one poll, and whether the wait has ended with it."""
        self._movement.note(now, hand.monotonic())
        left = self.left(now)
        if left is not None:
            if left != self.last:
                self._moved_at = hand.monotonic()
            self.first = left if self.first is None else self.first
            self.last = left
        self.outcome = self.ended(now, hand)

    def why(self, now: Flows, hand: Hand) -> str | None:
        """Say what keeps it from ending: by the links' state, or because the peer takes nothing."""
        told = why_not_moving(now)
        idle = {site: self._movement.idle_s(site, hand.monotonic()) for site in now}
        hung = (
            f"the peer has taken nothing from {site} for {seconds:.0f} s: its link hangs"
            for site, seconds in idle.items()
            if seconds > self._tools.patience.link_idle_s
        )
        return told if told is not None else next(hung, None)

    def stalled_s(self, hand: Hand) -> float:
        return hand.monotonic() - self._moved_at

    def left(self, now: Flows) -> int | None:
        """How much is still to come; None where it is not known."""
        return depth(now)

    @abstractmethod
    def ended(self, now: Flows, hand: Hand) -> Outcome | None:
        """Say how it ended; None while it has not."""


def until_all(tools: MirrorTools, waits: Sequence[PairWait], hand: Hand, about: str, poll_s: float) -> Outcome | None:
    """Poll until every wait has ended; the first that did not end well ends all. None when all did."""
    while True:
        going_on = [each for each in waits if each.outcome is None]
        looks = flows(tools, [access for each in going_on for access in each.way])
        now = {each.pair: {access.site: looks[access.site, each.pair] for access in each.way} for each in going_on}
        for each in going_on:
            each.look(now[each.pair], hand)
        reasons = [why for each in going_on if each.outcome is None and (why := each.why(now[each.pair], hand))]
        left = [each.left(now[each.pair]) for each in going_on]
        hand.waiting(about, total(left), next(iter(reasons), None))
        hand.sample(evidence((site, each) for flows in now.values() for site, each in flows.items()))
        for each in going_on:
            if each.outcome is not None and not isinstance(each.outcome, Done):
                named = f"{each.pair}: " if len(waits) > 1 else ""
                return replace(each.outcome, text=f"{named}{each.outcome.text}")
        if all(each.outcome is not None for each in going_on):
            return None
        for each in going_on:
            if each.outcome is None:
                each.mender.tend(now[each.pair], hand)
        hand.wait(poll_s)
