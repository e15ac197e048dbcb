"""What one look at a broker of a BrokerSync pair told: its copy queues, its network connector, and what follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.classic.broker import ClassicBroker, Network
from dr_ctl.topologies.common import seen
from dr_ctl.topologies.common.evidence import total
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.common.view import Acceptor, Config, Queue
from dr_ctl.topologies.topology import LinkSeen, Stake, drain_s

QUEUE = "{queue}"
AGENT = "dr-ctl-sync-"  # how the client ids of the agent begin


@dataclass(frozen=True, slots=True)
class SyncConfig(Config):
    """Beside what is said of any broker: how its copy queues and those of its peer are named, and by which connector
    the agent comes."""

    copies: str = QUEUE
    arrives: str = QUEUE
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerView(ClassicBroker):
    """One broker as it answered. `copying` gives by a queue's name the queue that holds its copies until they are
    shipped; `consumed` how many of its messages the broker's clients consumed since its start whose copies are not
    deleted yet. `held` says who lets no copy be deleted."""

    config: SyncConfig
    copying: Mapping[str, Queue] = field(default_factory=dict, kw_only=True)
    consumed: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    held: str | None = field(default=None, kw_only=True)

    def arrives_by(self, queue: str) -> str:
        """The name by which the peer's copies of a queue arrive."""
        return self.config.arrives.replace(QUEUE, queue)

    @property
    def link(self) -> Network | None:
        """The network connector to the peer: as set, else the only one there is."""
        if self.config.link is not None:
            return next((each for each in self.networks if each.name == self.config.link), None)
        return self.networks[0] if len(self.networks) == 1 else None

    @property
    def attached(self) -> bool | None:
        """Say whether it ships: connected, and a consumer at each of the copy queues that hold something."""
        if self.link is None:
            return False if self.copying else None
        return self.link.to is not None and all(each.consumers for each in self.copying.values() if each.depth)

    @property
    def hears_peer(self) -> bool:
        """Its own connector only: a broker lists its peer's connection for a while after that was killed."""
        return bool(self.attached)

    @property
    def to_ship(self) -> int | None:
        return total(each.depth if each.counted else None for each in self.copying.values())

    @property
    def unapplied(self) -> int | None:
        """The agent removes copies at the broker itself: nothing waits there to be applied."""
        return 0

    def why_kept(self, queue: str, copies: int) -> str | None:
        """Why so many copies of messages that do not lie here may not be removed at the peer; None where they may."""
        if self.held is not None:
            return f"nothing may be deleted: held by {self.held}"
        if (consumed := self.consumed.get(queue, 0)) < copies:
            return f"clients of {self.site} consumed at most {consumed} since its broker started"
        return None

    def unsettled(self) -> Iterator[str]:
        for name, copies in self.copying.items():
            if copies.depth:
                yield f"{self.site}: {copies.depth} to ship of {name}"

    @property
    def ships(self) -> Mapping[str, bool]:
        return {self.link.name: self.link.to is not None} if self.link is not None else {}

    @property
    def captures(self) -> bool:
        """Copies lie in their queue until they can be shipped, whatever the connector does; where nothing is copied
        back, a check has said so."""
        return True

    @property
    def other_doors(self) -> tuple[Acceptor, ...]:
        """Without the agent's own."""
        mine = {each.name for each in (*self.doors, *self.mirror_doors)} | {self.config.agent}
        return tuple(each for each in self.acceptors if each.name not in mine)

    def strangers(self) -> list[str]:
        """Clients at connectors that a fence leaves open."""
        ports = {door.port: door.name for door in (*self.other_doors, *self.mirror_doors) if door.port is not None}
        return [
            f"client {each.client or '(no client id)'} from {each.remote} (user {each.user or 'none'}) on connector "
            f"{ports[each.port]}"
            for each in self.connections
            if each.port in ports
        ]

    def holds(self, call: Call) -> bool:
        if call.goal in (Goal.LINK_UP, Goal.LINK_DOWN):
            return self.ships.get(call.thing, False) is (call.goal is Goal.LINK_UP)
        return ClassicBroker.holds(self, call)

    # What commands and the history take from it.

    def linked(self, before: BrokerView | None, took_s: float) -> LinkSeen:
        rate = self._rate(before, took_s)
        name = self.link.name if self.link is not None else None
        return LinkSeen(
            self.site, self.pair, name, self.attached, self.attached, self.to_ship, self.unapplied, rate,
            (self._told(drain_s(self.to_ship, rate)),),
            {"queues": {queue: each.depth for queue, each in self.copying.items()}},
        )  # fmt: skip

    def _told(self, even_s: float | None) -> str:
        if self.link is None:
            return "no network connector to the other site: nothing is copied there"
        state = f"connected to {self.link.to}" if self.link.to is not None else "not connected"
        left = f", {duration(even_s)} to drain" if even_s is not None else ""
        return f"network connector {self.link.name} {state}; {self.to_ship} message(s) to ship{left}"

    def _rate(self, before: BrokerView | None, took_s: float) -> float | None:
        if before is None or before.start != self.start or before.copying.keys() != self.copying.keys():
            return None
        return sum(each.removed - before.copying[name].removed for name, each in self.copying.items()) / took_s

    def ahead(self, peer: BrokerView | None) -> dict[str, int | None]:
        """By queue, how many copies of what was consumed here the peer holds, shipped or not: they would come twice
        there. None where that was not read."""
        return {name: self._ahead(name, peer) for name in self.copying}

    def _ahead(self, name: str, peer: BrokerView | None) -> int | None:
        here, there, copies = self.named.get(name), peer.named.get(name) if peer else None, self.copying[name]
        if peer is None or (here is not None and not here.counted) or not copies.counted:
            return None
        depths = (there.depth if there is not None else 0) + copies.depth
        return max(0, depths - (here.depth if here is not None else 0))

    def outflow_rows(self, peer: BrokerView | None, at: datetime) -> Iterator[Row]:
        """Messages by queue, as their copies lie here; while it serves, also what was consumed and whose copy is not
        removed at the peer yet, as the peer's own queue counts what left it, and what lies there."""
        for name, copies in self.copying.items():
            yield replace(copies.row(self, at), kind="mirror", name=name, link=self.attached)
            here, there = self.named.get(name), peer.named.get(name) if peer is not None else None
            count = self._ahead(name, peer)
            if not self.open or count is None or here is None or there is None:
                continue
            row = replace(here.row(self, at), delivering=None, added=None, removed=None, oldest_ms=None)
            yield replace(row, kind="staged", depth=there.depth)
            yield replace(row, kind="acks", depth=count, added=here.removed, removed=there.removed, link=self.attached)

    def stake(self, peer: BrokerView | None) -> Stake:
        twice = self.ahead(peer)
        lost = {name: each.depth for name, each in self.copying.items()}
        return Stake(self.to_ship, total(twice.values()), {name: (lost[name], twice[name]) for name in lost})

    @property
    def residue(self) -> Residue | None:
        """Which of it was consumed there is told by ids only, as the return does."""
        return Residue(self.to_ship, 0) if self.to_ship is not None else None


SyncSeen = seen.Seen[BrokerView]
