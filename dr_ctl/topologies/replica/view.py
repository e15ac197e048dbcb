"""What one look at a broker with the replication plugin told: its part, how far it is behind, and what follows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from dr_ctl.core.model import Json
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.classic.broker import ClassicBroker
from dr_ctl.topologies.common import view as common
from dr_ctl.topologies.common.evidence import total
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.common.view import Acceptor, Config, Queue
from dr_ctl.topologies.replica import beans
from dr_ctl.topologies.replica.calls import ROLE, hands_over, takes_over
from dr_ctl.topologies.topology import LinkSeen, Stake, drain_s


@dataclass(frozen=True, slots=True)
class ReplicaConfig(Config):
    """`lag_s`: how far the replica may be behind for a planned move to keep clients out."""

    lag_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Plugin:
    """What the plugin tells. `part` is `source` or `replica`; `lag_ms` how old the last event is that the replica has,
    and `wait_ms` how long the next one waits: None until something was measured."""

    part: str
    lag_ms: int | None
    wait_ms: int | None


@dataclass(frozen=True, slots=True)
class Peer:
    """The other broker of a pair, where both answered."""

    site: str
    broker: str


@dataclass(frozen=True, slots=True)
class BrokerView(ClassicBroker):
    """One broker as it answered. `plugin` is None where it has none, or does not tell; `events` are the queues of what
    its replica does not have yet: what waits to be put together, and what is put together."""

    config: ReplicaConfig
    plugin: Plugin | None = field(default=None, kw_only=True)
    events: tuple[Queue, ...] = field(default=(), kw_only=True)
    peer: Peer | None = field(default=None, kw_only=True)

    @property
    def is_source(self) -> bool:
        return self.plugin is not None and self.plugin.part == beans.SOURCE

    @property
    def is_replica(self) -> bool:
        return self.plugin is not None and self.plugin.part == beans.REPLICA

    @property
    def main(self) -> Queue | None:
        """The queue that a replica fetches from."""
        return next((each for each in self.events if each.name == beans.EVENTS), None)

    @property
    def attached(self) -> bool | None:
        """Say whether its replica fetches; a replica does not tell whether it is connected."""
        return self.main.consumers > 0 if self.is_source and self.main is not None else None

    @property
    def peer_attached(self) -> bool:
        return any(each.protocol == beans.DOOR for each in (*self.connections, *self.bridges))

    @property
    def backlog(self) -> int | None:
        """What lies in the queues of events, whoever it is."""
        return total(each.depth if each.counted else None for each in self.events) if self.main is not None else None

    @property
    def to_ship(self) -> int | None:
        """A replica ships nothing, whatever an earlier part has left in its queues."""
        return 0 if self.is_replica else self.backlog

    @property
    def unapplied(self) -> int | None:
        """A replica does at once what it fetches."""
        return 0

    def unsettled(self) -> Iterator[str]:
        if self.plugin is None:
            yield f"{self.site}: its replication plugin does not answer"
        elif self.is_source:
            if not self.attached:
                yield f"{self.site}: no replica fetches from it"
            if self.to_ship != 0:
                yield f"{self.site}: {self.to_ship} event(s) that the replica lacks"

    @property
    def ships(self) -> Mapping[str, bool]:
        """A plugin cannot be stopped: whoever is the source writes down what its replica lacks."""
        return {beans.DOOR: True} if self.plugin is not None else {}

    @property
    def settable(self) -> Mapping[str, Json]:
        return {"part": self.plugin.part if self.plugin is not None else None}

    @property
    def boots_closed(self) -> bool | None:
        """The part outlasts a restart: a replica lets nobody in, a source opens what was closed."""
        return self.is_replica if self.plugin is not None else None

    @property
    def mirror_doors(self) -> tuple[Acceptor, ...]:
        """None that has to be closed: nothing comes in but what a replica fetches itself."""
        return ()

    @property
    def other_doors(self) -> tuple[Acceptor, ...]:
        mine = {beans.DOOR, *self.config.clients}
        return tuple(each for each in self.acceptors if each.name not in mine)

    def strangers(self) -> list[str]:
        """Clients at connectors that a fence leaves open."""
        ports = {door.port: door.name for door in self.other_doors if door.port is not None}
        return [
            f"client {each.client or '(no client id)'} from {each.remote} (user {each.user or 'none'}) on connector "
            f"{ports[each.port]}"
            for each in self.connections
            if each.port in ports
        ]

    def opening(self, doors: Iterable[Acceptor], peer: common.Peer, when: str | None = None) -> tuple[Call, ...]:
        """A replica becomes the source, which opens its doors; those of a source are opened one by one."""
        listed = tuple(doors)
        if not listed or not self.is_replica or peer is common.Peer.NOT_DRAINED:
            return ClassicBroker.opening(self, listed, peer, when)
        if peer is common.Peer.AWAY:
            return (takes_over(self),)
        return (hands_over(self, self.peer),) if self.peer is not None else ()

    def holds(self, call: Call) -> bool:
        if call.thing == ROLE:
            return self.is_source if call.goal is Goal.OPEN else self.is_replica
        return ClassicBroker.holds(self, call)

    # What commands and the history take from it.

    def linked(self, before: BrokerView | None, took_s: float) -> LinkSeen:
        rate = self._rate(before, took_s)
        told: dict[str, Json] = {}
        if self.plugin is not None:
            told = {"part": self.plugin.part, "lag_ms": self.plugin.lag_ms, "wait_ms": self.plugin.wait_ms}
        return LinkSeen(
            self.site, self.pair, beans.DOOR, self.is_source if self.plugin is not None else None, self.attached,
            self.to_ship, self.unapplied, rate, (self._told(drain_s(self.to_ship, rate)),), told,
        )  # fmt: skip

    def _told(self, even_s: float | None) -> str:
        if self.plugin is None:
            return "its replication plugin does not answer: nothing is known of what the other site has"
        lag_ms = self.plugin.lag_ms
        lag = f", {duration(lag_ms / 1000)} behind" if lag_ms else ""
        if self.is_replica:
            return f"replica{lag}"
        state = "a replica fetches" if self.attached else "no replica fetches"
        left = f", {duration(even_s)} to drain" if even_s is not None else ""
        return f"{self.plugin.part}: {state}; {self.to_ship} event(s) to ship{lag}{left}"

    def _rate(self, before: BrokerView | None, took_s: float) -> float | None:
        now, was = self.main, before.main if before is not None and before.start == self.start else None
        return (now.removed - was.removed) / took_s if now is not None and was is not None else None

    def outflow_rows(self, peer: BrokerView | None, at: datetime) -> Iterator[Row]:
        """One stream carries messages and acknowledgements of all queues."""
        del peer
        if self.is_source and self.main is not None and self.to_ship is not None:
            row = self.main.row(self, at)
            yield replace(row, kind="mixed", name="*", depth=self.to_ship, pending=0, link=self.attached)

    def stake(self, peer: BrokerView | None) -> Stake:
        """Its events are of both kinds, and do not say of which queue."""
        del peer
        return Stake(self.to_ship, self.to_ship, None)

    @property
    def residue(self) -> Residue | None:
        """Which of it are messages, and which were only consumed there, is told by ids, as the return does."""
        return Residue(self.to_ship, 0) if self.to_ship is not None else None
