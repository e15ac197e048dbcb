"""Waits for the links of all pairs side by side, and restarts one that hangs instead of waiting it out.

A poll asks every broker; every pair ends for itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.engine.outcome import Done, Outcome
from dr_ctl.engine.ports import Hand
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.common.evidence import evidence, total
from dr_ctl.topologies.mirror.access import Access, Way
from dr_ctl.topologies.mirror.drafts.shipping import LINK_RESTARTS, restarts
from dr_ctl.topologies.mirror.look import Flow
from dr_ctl.topologies.mirror.tools import MirrorTools

UNDER_WAY: Final = "events under way between the sites"
Flows = Mapping[str, Flow | BrokerError]


def flows(tools: MirrorTools, brokers: Sequence[Access]) -> dict[tuple[str, str], Flow | BrokerError]:
    """The gate's numbers of several brokers, by site and pair, asked at the same time."""

    def ask(access: Access) -> tuple[tuple[str, str], Flow | BrokerError]:
        try:
            return (access.site, access.pair), access.flow(timeout_s=tools.waits.look_s)
        except BrokerError as error:
            return (access.site, access.pair), error

    return dict(tools.observer.together(ask, brokers))


class Movement:
    """Since when each link that is attached has shipped nothing of what it has."""

    def __init__(self) -> None:
        self._shipped: dict[str, tuple[int, float]] = {}

    def note(self, now: Flows, at_s: float) -> None:
        for site, flow in now.items():
            if isinstance(flow, BrokerError):
                continue
            shipped = flow.outflow_added - flow.to_ship
            was, _ = self._shipped.get(site, (None, at_s))
            if shipped != was or not flow.to_ship or not flow.attached:
                self._shipped[site] = shipped, at_s

    def idle_s(self, site: str, at_s: float) -> float:
        """Zero where it ships, has nothing to ship, or was never seen."""
        return at_s - self._shipped.get(site, (0, at_s))[1]

    def begin_anew(self, site: str) -> None:
        self._shipped.pop(site, None)


class Mender:
    """Restarts a link that stays unattached, or ships nothing, although its peer answers and lets links in."""

    def __init__(self, tools: MirrorTools, brokers: Sequence[Access], movement: Movement) -> None:
        self._tools, self._movement = tools, movement
        self._brokers = {access.site: access for access in brokers}
        self._since: dict[str, float] = {}
        self._restarted: dict[str, int] = dict.fromkeys(self._brokers, 0)

    def tend(self, now: Flows, hand: Hand) -> None:
        """Look at one poll, whose movement is noted; restart what hangs, a bounded number of times."""
        for site, access in self._brokers.items():
            mine = now[site]
            peer = next(flow for other, flow in now.items() if other != site)
            idle = self._movement.idle_s(site, hand.monotonic()) > self._tools.waits.hung_s
            hangs = isinstance(mine, Flow) and mine.link_started and (idle or not mine.attached)
            if not (hangs and isinstance(peer, Flow) and peer.mirror_open):
                self._since.pop(site, None)
                continue
            since = self._since.setdefault(site, hand.monotonic())
            patient = not idle and hand.monotonic() - since < self._tools.patience.link_lost_s
            if patient or self._restarted[site] >= LINK_RESTARTS:
                continue
            self._since[site] = (
                hand.monotonic()
                + self._tools.patience.link_between_s * 2 ** self._restarted[site]
                - self._tools.patience.link_lost_s
            )
            self._restarted[site] += 1
            self._movement.begin_anew(site)
            what = "ships nothing" if idle else "is not attached"
            hand.notice(f"{site}: the link {what} although the peer answers: restarting it")
            # Stop and start travel in one POST, so no call comes between and leaves the link stopped.
            self._tools.change(restarts([access.names()]), hand)

    @property
    def restarts(self) -> int:
        return sum(self._restarted.values())


def why_not_moving(now: Flows) -> str | None:
    """Say why the outflows do not empty, or None if no reason is seen."""
    for site, flow in now.items():
        if isinstance(flow, BrokerError):
            return f"{site} does not answer: {flow}"
        if not flow.linked:
            continue
        if not flow.link_started:
            return f"the link of {site} is not started"
        if not flow.attached:
            return f"the link of {site} is not attached"
    pending = {site: flow.unapplied for site, flow in now.items() if isinstance(flow, Flow) and flow.unapplied}
    shipping = any(isinstance(flow, Flow) and flow.to_ship for flow in now.values())
    if pending and not shipping:
        return "acknowledgements wait to be applied at " + ", ".join(f"{site} ({n})" for site, n in pending.items())
    return None


def depth(now: Flows) -> int | None:
    """The number under way in both directions, or None if a broker did not answer."""
    return total(None if isinstance(flow, BrokerError) else flow.to_ship + flow.unapplied for flow in now.values())


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
        reason = why_not_moving(now)
        idle = {site: self._movement.idle_s(site, hand.monotonic()) for site in now}
        hung = (
            f"the peer has taken nothing from {site} for {seconds:.0f} s: its link hangs"
            for site, seconds in idle.items()
            if seconds > self._tools.waits.idle_s
        )
        return reason if reason is not None else next(hung, None)

    def stalled_s(self, hand: Hand) -> float:
        return hand.monotonic() - self._moved_at

    def left(self, now: Flows) -> int | None:
        """The number still to come, or None if unknown."""
        return depth(now)

    @abstractmethod
    def ended(self, now: Flows, hand: Hand) -> Outcome | None:
        """Say how the wait ended, or None while it goes on."""


def until_all(tools: MirrorTools, waits: Sequence[PairWait], hand: Hand, about: str, poll_s: float) -> Outcome | None:
    """Poll until every wait has ended; the first that did not end well ends all, and is returned."""

    def look() -> Mapping[str, Flows]:
        going_on = [wait for wait in waits if wait.outcome is None]
        looks = flows(tools, [access for wait in going_on for access in wait.way])
        now = {wait.pair: {access.site: looks[access.site, wait.pair] for access in wait.way} for wait in going_on}
        for wait in going_on:
            wait.look(now[wait.pair], hand)
        reasons = [why for wait in going_on if wait.outcome is None and (why := wait.why(now[wait.pair], hand))]
        hand.waiting(about, total(wait.left(now[wait.pair]) for wait in going_on), next(iter(reasons), None))
        hand.sample(evidence((site, flow) for flows in now.values() for site, flow in flows.items()))
        return now

    def failed() -> Outcome | None:
        for wait in waits:
            if wait.outcome is not None and not isinstance(wait.outcome, Done):
                named = f"{wait.pair}: " if len(waits) > 1 else ""
                return replace(wait.outcome, text=f"{named}{wait.outcome.text}")
        return None

    def tend(now: Mapping[str, Flows]) -> None:
        for wait in waits:
            if wait.outcome is None:
                wait.mender.tend(now[wait.pair], hand)

    until(
        hand,
        look,
        holds=lambda _: all(isinstance(wait.outcome, Done) for wait in waits),
        hopeless=lambda _: failed() is not None,
        within_s=None,  # a pair ends by its own deadline
        poll_s=poll_s,
        meanwhile=tend,
    )
    return failed()
