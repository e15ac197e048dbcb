"""A mirrored broker as one reading has shown it: frozen values, and facts that follow from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from urllib.parse import urlsplit

from dr_ctl.core.model import total
from dr_ctl.core.notation import duration
from dr_ctl.engine.plan import Call, Goal
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.model import Queues
from dr_ctl.stomp_io.address import Address
from dr_ctl.topologies.artemis.broker import LET_IN, REVOKE, ArtemisBroker
from dr_ctl.topologies.common.calls import OUTFLOW_PREFIX, call
from dr_ctl.topologies.common.rules import Counts, at_both
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.view import Connection, Link, Queue
from dr_ctl.topologies.topology import LinkSnapshot, Stake, drain_s


class MirrorLink(Link["BrokerView"]):
    def __init__(self, view: BrokerView) -> None:
        super().__init__(view)
        link, outflow = view.broker_connection, view.outflow
        self.missing = not view.amqp_links
        self.listeners = self.only_listener(lambda acceptor: "AMQP" in acceptor.protocols)
        # A link ships if the broker reports it as connected, and its outflow has a consumer.
        self.attached = link is not None and link.connected and outflow is not None and outflow.consumers > 0
        self.to_ship = outflow.depth if outflow is not None and outflow.depth_known else None
        self.shipped = {outflow.name: outflow.removed} if outflow is not None else None
        self.unapplied = view.pending_acks if view.pending_acks >= 0 else None
        if link is not None:
            self.links_started = {link.name: link.started}
            addresses = [urlsplit(address) for address in link.uri.split("#")]
            self.amqp_addresses = [Address(url.hostname, url.port) for url in addresses if url.hostname and url.port]
            self.peer_nodes = [f"{address.host}:{address.port}" for address in self.amqp_addresses]
        # The broker checks these rights when the peer's link connects: without them no role may send to the mirror.
        if (grants := view.grants.get(view.config.mirrored)) is not None:
            self.rights_revoked = not any("send" in may for may in grants.values())

    def unsettled(self) -> Iterator[str]:
        view = self.view
        link, outflow = view.broker_connection, view.outflow
        if not self.missing:
            if link is None or outflow is None:
                yield f"{view.site}: the link or its outflow is not there"
                return
            if not link.started:
                yield f"{view.site}: link {link.name} is not started"
            elif not self.attached:
                yield f"{view.site}: link {link.name} is not attached"
            if outflow.depth or outflow.delivering:
                yield f"{view.site}: {outflow.depth} to ship"
        if self.unapplied != 0:
            yield f"{view.site}: {view.pending_acks} acknowledgement(s) not applied yet"

    @property
    def hears_peer(self) -> bool:
        """Say whether this link or the peer's link, at this broker's listener, shows that the peer lives."""
        foreign_connections = self.foreign_connections(None)
        return self.attached or any(
            connection not in foreign_connections for connection in self.connections_at_listeners()
        )

    def rights_calls(self, goal: Goal) -> list[Call]:
        if self.rights_revoked is None:
            return []
        match, revokes = self.view.config.mirrored, goal is Goal.REVOKE
        request = self.view.requests.of_server(*(REVOKE, match, *[""] * 10) if revokes else (LET_IN, match))
        text = f"{'keep' if revokes else 'let'} the peer's link {'out' if revokes else 'in'} by rights"
        return [call(self.view, goal, match, request, text)]

    def holds(self, call: Call) -> bool | None:
        if self.rights_revoked is not None and call.resource == self.view.config.mirrored:
            return self.rights_revoked is (call.goal is Goal.REVOKE)
        return super().holds(call)

    def foreign_connections(self, peer: BrokerView | None) -> list[Connection]:
        """A broker is known by its node's id at both ends of a link, and as the broker to which this broker's own link
        is attached. Without either, any AMQP connection may be the peer's."""
        listeners = {listener.port for listener in self.view.acceptors}
        brokers = {
            connection.client
            for connection in self.view.connections
            if connection.protocol == "AMQP" and connection.port not in listeners
        }
        brokers |= {peer.node} if peer is not None else set()
        return [
            connection
            for connection in self.connections_at_listeners()
            if connection.protocol != "AMQP" or (brokers and connection.client not in brokers)
        ]

    def to_snapshot(self, before: BrokerView | None, took_s: float) -> LinkSnapshot:
        view = self.view
        link = view.broker_connection
        if link is None:
            line = f"no link to {view.config.peer}: not configured" if self.missing else "which link it is is unknown"
            return LinkSnapshot(view.site, view.pair, None, None, None, None, self.unapplied, None, (line,))
        rate = self.rate(before, took_s)
        name, started = link.name, link.started
        state = "attached" if self.attached else "started, not attached" if started else "not started"
        drain_time_s = drain_s(self.to_ship, rate)
        time = f", {duration(drain_time_s)} to drain" if drain_time_s is not None else ", time to drain not known"
        speed = f" at {round(rate, 1)}/s" if rate is not None else ""
        to_ship = f"{self.to_ship} to ship" if self.to_ship is not None else "the number to ship was not read"
        line = f"link {name} {state}; {to_ship}{speed}{time}"
        return LinkSnapshot(
            view.site, view.pair, name, started, self.attached, self.to_ship, self.unapplied, rate, (line,)
        )

    def rows(self, peer: BrokerView | None, at: datetime) -> Iterator[Row]:
        """Return one row, because a single stream carries messages and acknowledgements of all queues."""
        view = self.view
        if view.outflow is not None and view.outflow.depth_known and view.broker_connection is not None:
            pending = peer.link.unapplied if peer is not None else None
            row = view.outflow.row(view, at)
            yield replace(row, kind="mixed", name="*", pending=pending, link=self.attached)

    def stake(self, peer: BrokerView | None) -> Stake:
        """Count the whole outflow: it has messages and acknowledgements of all queues together."""
        return Stake(self.to_ship, total((self.to_ship, peer.link.unapplied if peer is not None else None)), None)


@dataclass(frozen=True, slots=True)
class BrokerConnection:
    """A broker connection. `uri` names its peer, and other nodes of the peer behind `#`. After a failure it tries
    `retries` times to connect, -1 for ever."""

    name: str
    started: bool
    connected: bool
    protocol: str
    uri: str = ""
    retries: int = -1


@dataclass(frozen=True, slots=True)
class BrokerView(ArtemisBroker):
    pending_acks: int
    links: tuple[BrokerConnection, ...]

    @cached_property
    def link(self) -> MirrorLink:
        return MirrorLink(self)

    @property
    def pauses_by_prefix(self) -> bool:
        """True since 2.50, whose management accepts patterns. No client's queue has the mirror's prefix."""
        return self.is_since(2, 50)

    @property
    def broker_connection(self) -> BrokerConnection | None:
        """Return the broker connection to the peer: the one in the settings, or the only AMQP one with an outflow."""
        if self.config.link is not None:
            return next((link for link in self.links if link.name == self.config.link), None)
        outflows = [(link, self.by_name.get(f"{OUTFLOW_PREFIX}{link.name}")) for link in self.amqp_links]
        candidates = [link for link, queue in outflows if queue is not None and queue.internal] or self.amqp_links
        return candidates[0] if len(candidates) == 1 else None

    @property
    def amqp_links(self) -> list[BrokerConnection]:
        return [link for link in self.links if link.protocol.upper() == "AMQP"]

    @property
    def outflow(self) -> Queue | None:
        """Return the store-and-forward queue of the link, with the events still to ship to the peer."""
        link = self.broker_connection
        return self.by_name.get(f"{OUTFLOW_PREFIX}{link.name}") if link is not None else None

    @property
    def under_way(self) -> int | None:
        """Count the events that the link has to ship or is shipping: 0 without a link, None if unread."""
        if self.link.missing:
            return 0
        outflow = self.outflow
        return max(outflow.depth, outflow.delivering) if outflow is not None and outflow.depth_known else None


MirrorSnapshot = Snapshot[BrokerView]


ORIGINS_UP_TO = 1000


def differences(source: BrokerView, target: BrokerView, queues: Queues, *, block: bool = True) -> list[Counts]:
    """Return the queues whose counts differ: those that block a move, or those that are allowed to differ."""
    may_differ = source.differing | target.differing
    differing = [counts for counts in at_both(source, target, queues) if counts.difference]
    addresses = [next(queue.address for queue in counts.at if queue is not None) for counts in differing]
    return [
        counts
        for counts, address in zip(differing, addresses, strict=True)
        if may_differ.isdisjoint({counts.queue, address}) is block
    ]


def under_way(source: BrokerView, target: BrokerView) -> int | None:
    """Count the events between the sites now; return None if an outflow was not read."""
    return total(
        figure
        for view in (source, target)
        for figure in (0 if view.link.missing else view.link.to_ship, view.link.unapplied)
    )


def unexplained(source: BrokerView, target: BrokerView, queues: Queues, traffic: Mapping[str, int]) -> list[Counts]:
    """Return the blocking differences that are larger than the events under way and each queue's `traffic` between the
    last two readings: two brokers are never read at the same moment."""
    events = under_way(source, target)
    return [
        difference
        for difference in differences(source, target, queues)
        if events is None or difference.size > events + traffic.get(difference.queue, 0)
    ]
