"""What one look at a mirrored pair told: frozen values, and what follows from them without asking again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from dr_ctl.core.model import Role
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.artemis.broker import ArtemisBroker
from dr_ctl.topologies.common.evidence import total
from dr_ctl.topologies.common.names import OUTFLOW_PREFIX
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.topology import LinkSeen, Stake, drain_s


@dataclass(frozen=True, slots=True)
class Link:
    """One broker connection."""

    name: str
    started: bool
    connected: bool
    protocol: str


@dataclass(frozen=True, slots=True)
class BrokerView(ArtemisBroker):
    """One mirrored broker as it answered."""

    active: bool
    pending_acks: int
    links: tuple[Link, ...]
    lock_coordinators: tuple[str, ...]

    @property
    def takes_beginnings(self) -> bool:
        """The console executes by pattern since 2.50. What the mirror needs begins as nothing of a client's does."""
        found = re.match(r"(\d+)\.(\d+)", self.version)
        return found is not None and (int(found[1]), int(found[2])) >= (2, 50)

    @property
    def link(self) -> Link | None:
        """The broker connection that mirrors to the peer: as set, else the only AMQP one that has an outflow."""
        if self.config.link is not None:
            return next((each for each in self.links if each.name == self.config.link), None)
        amqp = [each for each in self.links if each.protocol.upper() == "AMQP"]
        outflows = [(each, self.named.get(f"{OUTFLOW_PREFIX}{each.name}")) for each in amqp]
        found = [each for each, queue in outflows if queue is not None and queue.internal] or amqp
        return found[0] if len(found) == 1 else None

    @property
    def outflow(self) -> Queue | None:
        """The store-and-forward queue of the link: what this broker still has to ship to its peer."""
        link = self.link
        return self.named.get(f"{OUTFLOW_PREFIX}{link.name}") if link is not None else None

    @property
    def attached(self) -> bool:
        """Say whether the link ships now: connected by its flag, and its outflow has the link as consumer."""
        link, outflow = self.link, self.outflow
        return link is not None and link.connected and outflow is not None and outflow.consumers > 0

    @property
    def role(self) -> Role:
        """Serving as soon as one client door is open; a door that the broker does not have leaves it unknown."""
        if self.active and self.open:
            return Role.SERVING
        return Role.UNKNOWN if self.missing_doors or not self.active else Role.STANDBY

    @property
    def to_ship(self) -> int | None:
        return self.outflow.depth if self.outflow is not None and self.outflow.counted else None

    @property
    def unapplied(self) -> int | None:
        return self.pending_acks if self.pending_acks >= 0 else None

    def unsettled(self) -> Iterator[str]:
        link, outflow = self.link, self.outflow
        if link is None or outflow is None:
            yield f"{self.site}: the link or its outflow is not there"
            return
        if not link.started:
            yield f"{self.site}: link {link.name} is not started"
        elif not self.attached:
            yield f"{self.site}: link {link.name} is not attached"
        if outflow.depth or outflow.delivering:
            yield f"{self.site}: {outflow.depth} to ship"
        if self.unapplied != 0:
            yield f"{self.site}: {self.pending_acks} acknowledgement(s) not applied yet"

    @property
    def ships(self) -> Mapping[str, bool]:
        return {self.link.name: self.link.started} if self.link is not None else {}

    def linked(self, before: BrokerView | None, took_s: float) -> LinkSeen:
        named, outflow = self.link, self.outflow
        was = before.outflow if before is not None and before.start == self.start else None
        rate = (outflow.removed - was.removed) / took_s if outflow is not None and was is not None else None
        name, started = (named.name, named.started) if named is not None else (None, None)
        state = "attached" if self.attached else "started, not attached" if started else "not started"
        left_s = drain_s(self.to_ship, rate)
        left = f", {duration(left_s)} to drain" if left_s is not None else ", time to drain not known"
        speed = f" at {round(rate, 1)}/s" if rate is not None else ""
        line = f"link {name} {state}; {self.to_ship} to ship{speed}{left}"
        return LinkSeen(self.site, self.pair, name, started, self.attached, self.to_ship, self.unapplied, rate, (line,))

    def outflow_rows(self, peer: BrokerView | None, at: datetime) -> Iterator[Row]:
        """A single stream carries messages and acknowledgements for all queues."""
        if self.outflow is not None and self.outflow.counted and self.link is not None:
            pending = peer.unapplied if peer is not None else None
            row = self.outflow.row(self, at)
            yield replace(row, kind="mixed", name="*", pending=pending, link=self.attached)

    def stake(self, peer: BrokerView | None) -> Stake:
        """Its outflow holds both, and does not say of which queue."""
        return Stake(self.to_ship, total((self.to_ship, peer.unapplied if peer is not None else None)), None)


MirrorSeen = Seen[BrokerView]
