"""Waits for the links of all pairs side by side: one poll asks every broker, each pair ends for itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import Json
from dr_ctl.engine.outcome import Done, Outcome
from dr_ctl.engine.ports import Hand
from dr_ctl.topologies.artemis.sending import Sender
from dr_ctl.topologies.mirror.access import Observer, Way
from dr_ctl.topologies.mirror.links import Flows, Mender, Movement, depth, flows, why_not_moving
from dr_ctl.topologies.mirror.look import Flow
from dr_ctl.topologies.mirror.recipe import MirrorRecipe

_IDLE_S: Final = 1.0  # said to a person; the link is restarted later


class PairWait(ABC):
    """The wait of one pair. `outcome` is None until it has ended."""

    def __init__(self, way: Way, recipe: MirrorRecipe, sender: Sender, hand: Hand) -> None:
        self.way, self.pair = way, way[0].pair
        self.outcome: Outcome | None = None
        self.began = self._moved_at = hand.monotonic()
        self.first: int | None = None
        self.last: int | None = None
        self._movement = Movement()
        self.mender = Mender(recipe, sender, way, self._movement)

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
            if seconds > _IDLE_S
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


def until_all(observer: Observer, waits: Sequence[PairWait], hand: Hand, about: str, poll_s: float) -> Outcome | None:
    """Poll until every wait has ended; the first that did not end well ends all. None when all did."""
    while True:
        going_on = [each for each in waits if each.outcome is None]
        told = flows(observer, [access for each in going_on for access in each.way])
        now = {each.pair: {access.site: told[access.site, each.pair] for access in each.way} for each in going_on}
        for each in going_on:
            each.look(now[each.pair], hand)
        reasons = [why for each in going_on if each.outcome is None and (why := each.why(now[each.pair], hand))]
        left = [each.left(now[each.pair]) for each in going_on]
        hand.waiting(about, None if None in left else sum(each or 0 for each in left), next(iter(reasons), None))
        hand.sample(_evidence(list(now.values())))
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


def _evidence(pairs: Sequence[Flows]) -> Mapping[str, Json]:
    """The figures of one poll by site, of all pairs together; one that did not answer makes its site's unknown."""
    told: dict[str, Json] = {}
    for site in dict.fromkeys(site for now in pairs for site in now):
        mine = [now[site] for now in pairs]
        silent = [each for each in mine if isinstance(each, BrokerError)]
        there = [each for each in mine if isinstance(each, Flow)]
        told[site] = (
            {"unknown": str(silent[0])}
            if silent
            else {
                "outflow": sum(each.outflow for each in there),
                "pending": sum(each.pending_acks for each in there),
                "attached": all(each.attached for each in there),
            }
        )
    return told
