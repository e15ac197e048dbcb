"""The network connector of one broker, and the copies that wait for it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.common.evidence import total
from dr_ctl.topologies.common.link import Link
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.common.view import Acceptor
from dr_ctl.topologies.topology import LinkSeen, Stake, drain_s

if TYPE_CHECKING:
    from dr_ctl.topologies.brokersync.view import BrokerView


class SyncLink(Link["BrokerView"]):
    @property
    def attached(self) -> bool | None:
        """Say whether it ships: connected, and a consumer at each of the copy queues that hold something."""
        view = self.view
        if view.network is None:
            return False if view.copying else None
        return view.network.to is not None and all(each.consumers for each in view.copying.values() if each.depth)

    @property
    def to_ship(self) -> int | None:
        return total(each.depth if each.counted else None for each in self.view.copying.values())

    @property
    def unapplied(self) -> int | None:
        """Always zero: the agent removes copies at the broker itself."""
        return 0

    def unsettled(self) -> Iterator[str]:
        for name, copies in self.view.copying.items():
            if copies.depth:
                yield f"{self.view.site}: {copies.depth} to ship of {name}"

    @property
    def ships(self) -> Mapping[str, bool]:
        view = self.view
        return {view.network.name: view.network.to is not None} if view.network is not None else {}

    @property
    def captures(self) -> bool:
        """Copies lie in their queue until they can be shipped, whatever the connector does; where nothing is copied
        back, a check has said so."""
        return True

    @property
    def doors(self) -> tuple[Acceptor, ...]:
        return self.only_door(lambda each: "OPENWIRE" in each.protocols)

    @property
    def reserved(self) -> Collection[str]:
        """The agent's own door, too."""
        return {*super().reserved, *filter(None, [self.view.config.agent])}

    def holds(self, call: Call) -> bool | None:
        if call.goal not in (Goal.LINK_UP, Goal.LINK_DOWN):
            return None
        return self.ships.get(call.thing, False) is (call.goal is Goal.LINK_UP)

    def linked(self, before: BrokerView | None, took_s: float) -> LinkSeen:
        view = self.view
        rate = self._rate(before, took_s)
        name = view.network.name if view.network is not None else None
        return LinkSeen(
            view.site, view.pair, name, self.attached, self.attached, self.to_ship, self.unapplied, rate,
            (self._line(drain_s(self.to_ship, rate)),),
            {"queues": {queue: each.depth for queue, each in view.copying.items()}},
        )  # fmt: skip

    def _line(self, even_s: float | None) -> str:
        view = self.view
        if view.network is None:
            return "no network connector to the other site: nothing is copied there"
        state = f"connected to {view.network.to}" if view.network.to is not None else "not connected"
        left = f", {duration(even_s)} to drain" if even_s is not None else ""
        return f"network connector {view.network.name} {state}; {self.to_ship} message(s) to ship{left}"

    def _rate(self, before: BrokerView | None, took_s: float) -> float | None:
        view = self.view
        if before is None or before.start != view.start or before.copying.keys() != view.copying.keys():
            return None
        return sum(each.removed - before.copying[name].removed for name, each in view.copying.items()) / took_s

    def ahead(self, peer: BrokerView | None) -> dict[str, int | None]:
        """By queue, how many copies of messages consumed here the peer holds, shipped or not: clients there would get
        them again. An unread count is None."""
        return {name: self._ahead(name, peer) for name in self.view.copying}

    def _ahead(self, name: str, peer: BrokerView | None) -> int | None:
        here, there, copies = self.view.named.get(name), peer.named.get(name) if peer else None, self.view.copying[name]
        if peer is None or (here is not None and not here.counted) or not copies.counted:
            return None
        depths = (there.depth if there is not None else 0) + copies.depth
        return max(0, depths - (here.depth if here is not None else 0))

    def rows(self, peer: BrokerView | None, at: datetime) -> Iterator[Row]:
        """Messages by queue, as their copies lie here; while it serves, also what was consumed and whose copy is not
        removed at the peer yet, as the peer's own queue counts what left it, and what lies there."""
        view = self.view
        for name, copies in view.copying.items():
            yield replace(copies.row(view, at), kind="mirror", name=name, link=self.attached)
            here, there = view.named.get(name), peer.named.get(name) if peer is not None else None
            count = self._ahead(name, peer)
            if not view.open or count is None or here is None or there is None:
                continue
            row = replace(here.row(view, at), delivering=None, added=None, removed=None, oldest_ms=None)
            yield replace(row, kind="staged", depth=there.depth)
            yield replace(row, kind="acks", depth=count, added=here.removed, removed=there.removed, link=self.attached)

    def stake(self, peer: BrokerView | None) -> Stake:
        twice = self.ahead(peer)
        lost = {name: each.depth for name, each in self.view.copying.items()}
        return Stake(self.to_ship, total(twice.values()), {name: (lost[name], twice[name]) for name in lost})

    @property
    def residue(self) -> Residue | None:
        """Ids alone tell which messages were consumed there, and the return compares them."""
        return Residue(self.to_ship, 0) if self.to_ship is not None else None
