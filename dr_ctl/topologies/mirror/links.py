"""Watches the links while something waits for them, and restarts one that hangs instead of waiting it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.engine.outcome import Outcome
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Hand
from dr_ctl.topologies.mirror.access import Access, Observer
from dr_ctl.topologies.mirror.look import Flow
from dr_ctl.topologies.mirror.recipe import LINK_RESTARTS, MirrorRecipe
from dr_ctl.topologies.mirror.sending import Sender

# A link that lost its peer for a moment comes back by itself within one retry; a hung handshake takes a minute.
PATIENCE_S: Final = 2.0
BETWEEN_S: Final = 3.0
# A link can be flagged as connected, with its consumer, and ship nothing for ever; a large message may take a moment.
IDLE_S: Final = 8.0
LOOK_S: Final = 2.0

Flows = Mapping[str, Flow | BrokerError]


def flows(observer: Observer, brokers: Sequence[Access]) -> dict[str, Flow | BrokerError]:
    """The gate's numbers of both brokers of a pair, by site, asked at the same time."""

    def ask(access: Access) -> Flow | BrokerError:
        try:
            return access.flow(timeout_s=LOOK_S)
        except BrokerError as error:
            return error

    return {access.site: told for access, told in zip(brokers, observer.together(ask, brokers), strict=True)}


class Mender:
    """Restarts a link that stays unattached, or ships nothing, although its peer answers and lets links in."""

    def __init__(self, recipe: MirrorRecipe, sender: Sender, brokers: Sequence[Access]) -> None:
        self._recipe, self._sender = recipe, sender
        self._brokers = {access.site: access for access in brokers}
        self._since: dict[str, float] = {}
        self._shipped: dict[str, tuple[int, float]] = {}
        self._restarted: dict[str, int] = dict.fromkeys(self._brokers, 0)

    def tend(self, now: Flows, hand: Hand) -> None:
        """Look at one poll; restart what hangs, a bounded number of times."""
        for site, access in self._brokers.items():
            mine = now[site]
            peer = next(told for other, told in now.items() if other != site)
            idle = isinstance(mine, Flow) and self._idle(site, mine, hand.monotonic())
            hangs = isinstance(mine, Flow) and mine.link_started and (idle or not mine.attached)
            if not (hangs and isinstance(peer, Flow) and peer.mirror_open):
                self._since.pop(site, None)
                continue
            since = self._since.setdefault(site, hand.monotonic())
            patient = not idle and hand.monotonic() - since < PATIENCE_S
            if patient or self._restarted[site] >= LINK_RESTARTS:
                continue
            self._restarted[site] += 1
            self._since[site] = hand.monotonic() + BETWEEN_S - PATIENCE_S
            self._shipped.pop(site, None)
            what = "ships nothing" if idle else "is not attached"
            hand.notice(f"{site}: the link {what} although the peer answers: restarting it")
            self._restart(self._recipe.restart_link(access.names()), hand)

    def _idle(self, site: str, now: Flow, at_s: float) -> bool:
        """Say whether a link that is attached has shipped nothing of what it has for too long."""
        shipped = now.outflow_added - now.outflow
        was, since = self._shipped.get(site, (None, at_s))
        if shipped != was or not now.outflow or not now.attached:
            self._shipped[site] = shipped, at_s
            return False
        return at_s - since > IDLE_S

    def _restart(self, calls: Sequence[Call], hand: Hand) -> list[Outcome]:
        # Stop and start travel in one POST: nothing can come between them and leave the link stopped.
        return hand.change(calls, self._sender.send)

    @property
    def restarts(self) -> int:
        return sum(self._restarted.values())


def why_not_moving(now: Flows) -> str | None:
    """Say what keeps the outflows from emptying; None while nothing seems to."""
    for site, told in now.items():
        if isinstance(told, BrokerError):
            return f"{site} does not answer: {told}"
        if not told.link_started:
            return f"the link of {site} is not started"
        if not told.attached:
            return f"the link of {site} is not attached"
    pending = {site: told.pending_acks for site, told in now.items() if isinstance(told, Flow) and told.pending_acks}
    shipping = any(isinstance(told, Flow) and told.outflow for told in now.values())
    if pending and not shipping:
        return "acknowledgements wait to be applied at " + ", ".join(f"{site} ({n})" for site, n in pending.items())
    return None


def depth(now: Flows) -> int | None:
    """All that is under way in both directions; None where a broker did not answer."""
    total = 0
    for told in now.values():
        if isinstance(told, BrokerError):
            return None
        total += told.outflow + told.pending_acks
    return total
