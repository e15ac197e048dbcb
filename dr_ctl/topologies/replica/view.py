"""A broker with the replication plugin as one look has shown it: frozen values, and facts that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, field

from dr_ctl.topologies.classic.broker import ClassicBroker
from dr_ctl.topologies.common.evidence import total
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.replica import beans
from dr_ctl.topologies.replica.fence import Part
from dr_ctl.topologies.replica.link import ReplicaLink


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    """Beside the settings of any broker. `lag_s`: how far the replica may be behind for a planned move to keep clients
    out."""

    lag_s: float


@dataclass(frozen=True, slots=True)
class Plugin:
    """The plugin's answer. `part` is `source` or `replica`; `lag_ms` is the age of the replica's last event, and
    `wait_ms` how long the next one waits, or None until measured."""

    part: str
    lag_ms: int | None
    wait_ms: int | None


@dataclass(frozen=True, slots=True)
class Peer:
    """The peer of a broker, where both answered."""

    site: str
    broker: str


@dataclass(frozen=True, slots=True)
class BrokerView(ClassicBroker):
    """A broker as it answered. `plugin` is None where the broker has none, or gives no answer. `events` are the queues
    of events that its replica lacks: events to be put together, and events that are."""

    own: ReplicaConfig = field(kw_only=True)
    plugin: Plugin | None = field(default=None, kw_only=True)
    events: tuple[Queue, ...] = field(default=(), kw_only=True)
    peer: Peer | None = field(default=None, kw_only=True)

    @property
    def link(self) -> ReplicaLink:
        return ReplicaLink(self)

    @property
    def fence(self) -> Part:
        return Part(self)

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
    def backlog(self) -> int | None:
        """The number of events in the queues, at a source or a replica."""
        return total(each.depth if each.counted else None for each in self.events) if self.main is not None else None
