"""A view is a broker as one reading has shown it, with its link and its fence: frozen values, and conclusions from them
without another reading. A residue is what a returned broker still holds for its peer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, Generic, TypeVar, final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import Json, Role, total
from dr_ctl.core.system import stamp
from dr_ctl.engine.plan import ALL, Call, Goal
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.artemis import ClientRoles, LastingFence
from dr_ctl.stomp_io.address import Address
from dr_ctl.topologies.common.calls import MQTT_RETAINED, OURS, Requests, queues_of, switch_listener
from dr_ctl.topologies.topology import LinkSnapshot, Node, NodeReading, Obstacle, Stake


@dataclass(frozen=True, slots=True)
class Queue:
    name: str
    address: str
    routing: str
    bean: str
    depth: int
    delivering: int
    scheduled: int
    consumers: int
    paused: bool
    added: int
    acked: int
    removed: int
    durable: bool = True
    temporary: bool = False
    internal: bool = False
    ring: bool = False
    last_value: bool = False
    dead_letter_address: str | None = None
    expiry_address: str | None = None

    @property
    def depth_known(self) -> bool:
        """Say whether the figures are valid: brokers sometimes report counts below zero."""
        return self.depth >= 0 and self.delivering >= 0

    @property
    def known_depth(self) -> int | None:
        return self.depth if self.depth_known else None

    @property
    def business(self) -> bool:
        return not self.internal and not self.name.startswith(OURS) and not self.retained

    @property
    def retained(self) -> bool:
        return self.name.startswith(MQTT_RETAINED)

    def row(self, broker: Broker, at: datetime, *, acked: int | None = None) -> Row:
        """Return the queue's row for the history. `acked` is known for a queue of clients only."""
        return Row(
            ts=at,
            site=broker.site,
            pair=broker.pair,
            kind="queue",
            name=self.name,
            start=broker.start,
            depth=self.depth,
            delivering=self.delivering,
            added=self.added,
            removed=self.removed,
            acked=acked,
        )


@dataclass(frozen=True, slots=True)
class Acceptor:
    """A listener of a broker. `port` is None where the broker does not show it."""

    name: str
    bean: str
    started: bool
    port: int | None
    protocols: frozenset[str]
    opens_at_boot: bool


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection that came in through an acceptor's `port`, or went out. Before it has a session, the broker shows
    neither its user nor its client id."""

    id: str
    port: int | None
    remote: str
    client: str
    user: str
    protocol: str
    has_session: bool = True


@dataclass(frozen=True, slots=True)
class Consumer:
    """`holds` counts the messages that the consumer has not acknowledged, None where the broker does not show that."""

    queue: str
    port: int | None
    client: str
    remote: str
    user: str
    holds: int | None

    @property
    def who(self) -> str:
        remote = self.remote or "an unknown address"
        return f"client {self.client or '(no client id)'} (user {self.user or 'none'}, from {remote})"


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one broker: the names of acceptors by purpose (`agent`: dr-ctl's own), and the port for a test
    login. `id_cache` is how many message ids the broker remembers for an address, if the settings name it. `peer` is
    the peer's site, for messages to people. `mirrored` is the address to which the mirror of the peer sends."""

    clients: tuple[str, ...]
    mirror: tuple[str, ...] | None
    link: str | None
    lasting: LastingFence | ClientRoles | None = None
    id_cache: int | None = None
    stomp_port: int | None = None
    peer: str = "the other site"
    cluster: tuple[str, ...] = ()
    mirrored: str = ""
    agent: str | None = None


class PeerState(Enum):
    DRAINED = "drained"  # the run's gate has shown that no message of the peer is missing
    CLOSED = "closed"  # the peer lets nobody in, but may still ship messages
    NOT_DRAINED = "not drained"  # an undo opens the site that served before
    AWAY = "away"  # no message can arrive any more


# The rights of each role, in the broker's own words and in the order in which the broker takes them.
Grants = Mapping[str, Sequence[str]]


def link_figures(readings: Iterable[tuple[str, AnyLink | BrokerError]]) -> dict[str, Json]:
    """Return the figures of links by site. A broker that was not read makes its site's figures unknown."""
    links: dict[str, list[AnyLink]] = {}
    silent: dict[str, Json] = {}
    for site, reading in readings:
        links.setdefault(site, [])
        if isinstance(reading, BrokerError):
            silent.setdefault(site, {"unknown": str(reading)})
        else:
            links[site].append(reading)
    figures: dict[str, Json] = {
        site: {
            "outflow": total(link.to_ship for link in several),
            "pending": total(link.unapplied for link in several),
            "attached": all_known(link.attached for link in several),
        }
        for site, several in links.items()
    }
    return figures | silent


def count_text(count: int | None) -> str:
    return "an unknown number of" if count is None else str(count)


def all_known(flags: Iterable[bool | None]) -> bool | None:
    """Return None if a flag was not read and no other is False."""
    listed = list(flags)
    return None if None in listed and False not in listed else all(listed)


@dataclass(frozen=True, slots=True)
class Residue:
    """Messages and acknowledgements that a returned broker still holds for its peer. `duplicates` is the
    highest number of its messages that clients there may have processed without leaving an acknowledgement. `acked`
    names, by queue, the messages acknowledged there that are missing in the outflow. `consumed` names every message
    acknowledged there, `since` only those since the broker's last start. A figure of None is not known."""

    messages: int
    acks: int
    duplicates: int | None = None
    acked: Mapping[str, frozenset[tuple[str, int]]] | None = None
    consumed: Mapping[str, frozenset[tuple[str, int]]] | None = None
    since: Mapping[str, frozenset[tuple[str, int]]] = field(default_factory=dict)

    @classmethod
    def sum_of(cls, several: Collection[Residue]) -> Residue:
        messages, acks = sum(residue.messages for residue in several), sum(residue.acks for residue in several)
        return cls(messages, acks, total(residue.duplicates for residue in several))

    def figures(self) -> dict[str, Json]:
        figures: dict[str, Json] = {"messages": self.messages, "acknowledgements": self.acks}
        return figures if self.duplicates is None else {**figures, "duplicates_at_most": self.duplicates}


V = TypeVar("V", bound="Broker")


class ReplicationScope(Enum):
    """How much of a new queue the link replicates to the peer without further configuration."""

    ALL = "messages and acknowledgements"
    MESSAGES = "messages"
    NOTHING = "nothing"


class Link(ABC, Generic[V]):
    """A broker's link, by one reading of the broker. `peer` is the other broker of the pair by the same reading."""

    missing = False
    """True if no link to the peer is configured here: nothing is ever shipped, and no run waits for that."""
    attached: bool | None = None
    """True if the broker ships to its peer now; None if unknown."""
    to_ship: int | None = None
    """The number of messages that the broker still has to ship; None if unknown."""
    unapplied: int | None = None
    """The number of the peer's acknowledgements that have arrived and are not applied; None if unknown."""
    shipped: Mapping[str, int] | None = None
    """The number of messages shipped since the broker's start, by part of the link; None if unknown."""
    links_started: Mapping[str, bool] = MappingProxyType({})
    """The connections or bridges that ship, by name, and whether each is started."""
    listeners: tuple[Acceptor, ...] = ()
    """The acceptors that the peer's link uses; a quarantine closes them."""
    rights_revoked: bool | None = None
    """True if rights keep the peer's link out, even by open listeners; None if rights cannot."""
    redelivers = True
    """True if a message that is in delivery here may be delivered at the peer too."""
    tells_consumed = True
    """True if the link ships acknowledgements to the peer."""
    amqp_addresses: Sequence[Address] = ()
    """The addresses at which the link connects to its peer by AMQP without TLS: a broker there is the peer."""
    peer_nodes: Sequence[str] = ()
    """The known addresses at which the link connects to its peer, one for each of its nodes."""
    add_node_advice = "Add the other node to the link's URI, behind `#`"
    """The beginning of the advice on how to add another node of the peer to the link."""
    rehearsal_setup = ""
    """The sentence on how an operator configures the queue of a rehearsal; empty where nothing is needed."""
    keeps_queues = False
    """True if removing a queue would break the link."""

    def __init__(self, view: V) -> None:
        self.view = view

    def unsettled(self) -> Iterator[str]:
        """Yield the topology's reasons why the gate does not hold at this broker."""
        return iter(())

    @property
    def can_be_shut(self) -> bool:
        return bool(self.listeners)

    def rights_calls(self, _goal: Goal) -> list[Call]:
        """Return the calls that keep the peer's link out by rights, or let it in."""
        return []

    @property
    def is_shut(self) -> bool:
        opened = any(listener.started for listener in self.listeners)
        return self.can_be_shut and (not opened or self.rights_revoked is True)

    @abstractmethod
    def to_snapshot(self, before: V | None, took_s: float) -> LinkSnapshot:
        """Return the link as commands show it; `before` is a reading of the broker `took_s` earlier."""

    def rate(self, before: V | None, took_s: float) -> float | None:
        """Return the messages shipped a second since the reading `before`; None if the broker was restarted since."""
        before_counts = before.link.shipped if before is not None and before.start == self.view.start else None
        if self.shipped is None or before_counts is None or not before_counts.keys() >= self.shipped.keys():
            return None
        return sum(count - before_counts[name] for name, count in self.shipped.items()) / took_s

    @abstractmethod
    def rows(self, peer: V | None, at: datetime) -> Iterable[Row]: ...

    @abstractmethod
    def stake(self, peer: V | None) -> Stake:
        """Return the exposure to loss if this closed broker is lost."""

    @property
    def residue(self) -> Residue | None:
        """Return what the broker will ship once it is let in, or None if that is not known."""
        return None

    def foreign_connections(self, _peer: V | None) -> list[Connection]:
        """Return the connections at the link's listeners that are neither the peer's nor of the site's own brokers."""
        return []

    @property
    def records_changes(self) -> bool:
        """Say whether the link will ship to the peer all that clients send here; True without a configured link."""
        return self.missing or (bool(self.links_started) and all(self.links_started.values()))

    @property
    def hears_peer(self) -> bool:
        """Say whether this broker's link to its peer is attached: a sign that the peer lives. Connections from the peer
        do not count: a broker lists them for up to a minute after its peer was killed (53 s)."""
        return bool(self.attached)

    def left_to_ship(self) -> Iterator[str]:
        """Yield a sentence on everything that the peer does not have yet, or that was not read."""
        if self.missing:
            yield f"{self.view.site} has no link to {self.view.config.peer}: the changes of its clients are not shipped"
        elif self.to_ship is None:
            yield f"the outflow of {self.view.site} was not read"
        elif self.to_ship:
            yield f"{self.to_ship} to ship at {self.view.site}"

    @property
    def arrivals(self) -> int | None:
        """Count what has arrived from the peer only since the broker's start; None without such a counter. A count that
        grows between two readings is a sign that the peer lives."""
        return None

    def carries(self, _queue: str) -> ReplicationScope:
        """Say whether a rehearsal's messages of that queue, and their acknowledgements, show at the peer."""
        return ReplicationScope.ALL

    def depth_of(self, queue: str) -> int | None:
        """Count the messages of a queue here, also where they arrive in another queue; None without a count."""
        found = self.view.by_name.get(queue)
        return found.known_depth if found is not None else None

    @property
    def counters(self) -> Iterable[Queue]:
        """Return the queues whose counters a receipt records."""
        return self.view.business.values()

    @property
    def settable(self) -> Mapping[str, Json]:
        """Return the state of the link that runs change, for the plan's baseline."""
        return {}

    @property
    def reserved(self) -> Collection[str]:
        """Return the names of acceptors that no client can use."""
        return {listener.name for listener in self.listeners}

    def holds(self, call: Call) -> bool | None:
        """Say whether the effect of a call to the link is seen; return None for any other call."""
        if call.goal not in (Goal.LINK_UP, Goal.LINK_DOWN):
            return None
        return self.links_started.get(call.resource, False) is (call.goal is Goal.LINK_UP)

    def connections_at_listeners(self) -> list[Connection]:
        """Return the connections at the link's own listeners, but not those of the site's own brokers."""
        ports = {
            listener.port
            for listener in self.listeners
            if listener.port is not None and listener.name not in self.view.config.clients
        }
        return [connection for connection in self.view.outside_connections if connection.port in ports]

    def only_listener(self, matches: Callable[[Acceptor], bool]) -> tuple[Acceptor, ...]:
        """Return the listeners of the link as the settings name them, or else the only listener that fits and is
        neither for clients nor for the site's own brokers."""
        acceptors, config = self.view.acceptors, self.view.config
        if config.mirror is not None:
            return tuple(acceptor for acceptor in acceptors if acceptor.name in config.mirror)
        excluded = {*config.clients, *config.cluster}
        matching = tuple(acceptor for acceptor in acceptors if acceptor.name not in excluded and matches(acceptor))
        return matching if len(matching) == 1 else ()


class NoLink(Link[V]):
    """No link joins these brokers, and neither waits for the other."""

    to_ship: int | None = 0
    unapplied: int | None = 0
    records_changes = True
    can_be_shut = True

    def carries(self, _queue: str) -> ReplicationScope:
        return ReplicationScope.NOTHING


AnyLink = Link[Any]


class Fence:
    """How clients are kept out of one broker and let in again, by one reading of it; this class uses listeners only."""

    contending: Sequence[str] = ()
    """The lock coordinators of Artemis that open the broker's acceptors when they get their lock, or hold them open."""
    awaits: Sequence[str] = ()
    """The contending coordinators whose lock another process holds."""
    passive: Sequence[str] = ()
    """The lock coordinators that open the broker only once they are started again."""
    boots_closed: bool | None
    """True if clients stay out when the broker is restarted; None if unknown."""

    def __init__(self, view: Broker) -> None:
        self.view = view
        self.boots_closed = not any(listener.opens_at_boot for listener in view.listeners)

    @property
    def open(self) -> bool:
        return any(listener.started for listener in self.view.listeners)

    def opening(self, listeners: Iterable[Acceptor], _peer: PeerState, when: str | None = None) -> tuple[Call, ...]:
        """Return the calls that let clients in by these listeners; `_peer` is the other site's state at that time."""
        return tuple(switch_listener(self.view, Goal.OPEN, listener, when) for listener in listeners)

    def closing(self, listeners: Iterable[Acceptor], when: str | None = None) -> tuple[Call, ...]:
        return tuple(switch_listener(self.view, Goal.CLOSE, listener, when) for listener in listeners)

    def releasing_locks(self, _when: str | None = None) -> list[Call]:
        """Return the calls after which no lock coordinator opens the broker."""
        return []

    def revoking(self, _when: str | None = None) -> list[Call]:
        """Return the calls that take the clients' rights away. Without `when`, roles without rights get no call."""
        return []

    def granting(self, _when: str | None = None) -> list[Call]:
        """Return the calls that give the rights back. Without `when`, roles that have them get no call."""
        return []

    @property
    def needs_reload(self) -> bool:
        """Say whether rights by other matches keep the roles out until the broker has read its configuration again."""
        return False

    @property
    def roles_revoked(self) -> bool:
        lasting = self.view.config.lasting
        return lasting is not None and not any(self.view.lets_in(match) for match in lasting.matches)

    @property
    def leaves_open(self) -> tuple[Acceptor, ...]:
        """Return the acceptors through which clients may still connect behind a fence."""
        known = {*self.view.config.clients, *self.view.link.reserved}
        return tuple(acceptor for acceptor in self.view.acceptors if acceptor.name not in known)

    def clients_elsewhere(self) -> list[str]:
        """List the clients on listeners that a fence leaves open."""
        others = {listener.port: listener.name for listener in self.leaves_open if listener.port is not None}
        return [
            _client_text(connection, others[connection.port])
            for connection in self.view.outside_connections
            if connection.port in others
        ]

    def clients_at_link(self, peer: Broker | None) -> list[str]:
        """List the clients on the listeners of the peer's link, which a fence leaves open too."""
        names = {listener.port: listener.name for listener in self.view.link.listeners if listener.port is not None}
        foreign = self.view.link.foreign_connections(peer)
        remotes = {connection.remote for connection in foreign}
        return [_client_text(client, names[client.port]) for client in foreign if client.port is not None] + [
            f"consumer of {consumer.queue}: {consumer.who} on acceptor {names[consumer.port]}"
            for consumer in self.view.consumers
            if consumer.port in names and consumer.queue in self.view.business and consumer.remote not in remotes
        ]

    def holds(self, _call: Call) -> bool | None:
        return None


def _client_text(connection: Connection, listener: str) -> str:
    return (
        f"{connection.protocol} connection from {connection.remote} (user {connection.user or 'none'}, client "
        f"{connection.client or '(no client id)'}) on acceptor {listener}"
    )


@dataclass(frozen=True)
class Broker(ABC):
    """A broker as it answered. `grants`, by match, and `users` with their roles are read only if the settings name a
    lasting fence; `users` is None if the broker cannot show them. `usual` are the rights of the broker's configuration
    file, None if not read. `serves_no_role` says that no role may send or consume at any address that was read.
    `forged` are queues with the name of a document that a client may have made: dr-ctl ignores them. Only a whole
    reading has `obstacles` at addresses. `nodes` are the nodes that the settings name, where they name several."""

    pair: str
    site: str
    config: Config
    broker: str
    version: str
    node: str
    start: str
    now_ms: int
    acceptors: tuple[Acceptor, ...]
    queues: tuple[Queue, ...]
    connections: tuple[Connection, ...]
    consumers: tuple[Consumer, ...]
    prepared: tuple[str, ...]
    documents: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    forged: tuple[str, ...] = field(default=(), kw_only=True)
    grants: Mapping[str, Grants] = field(default_factory=dict, kw_only=True)
    users: Mapping[str, frozenset[str]] | None = field(default=None, kw_only=True)
    usual: Grants | None = field(default=None, kw_only=True)
    serves_no_role: bool = field(default=False, kw_only=True)
    disk_used: float | None = field(default=None, kw_only=True)
    obstacles: tuple[Obstacle, ...] = field(default=(), kw_only=True)
    nodes: tuple[NodeReading, ...] = field(default=(), kw_only=True)
    # Both are made once: a broker may have ten thousand queues.
    by_name: Mapping[str, Queue] = field(init=False, repr=False, compare=False)
    business: Mapping[str, Queue] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        named = {queue.name: queue for queue in self.queues}
        object.__setattr__(self, "by_name", named)
        object.__setattr__(self, "business", {name: queue for name, queue in named.items() if queue.business})

    def __str__(self) -> str:
        return f"{self.site}/{self.pair}"

    @property
    def clock(self) -> str:
        return stamp(datetime.fromtimestamp(self.now_ms / 1000, UTC))

    @property
    def answered(self) -> bool:
        """Return False for a view of a passive broker, which is made from other signs."""
        return True

    @property
    def can_try_login(self) -> bool:
        return self.config.stomp_port is not None

    @property
    def may_pause(self) -> bool:
        """Say whether the console's policy permits pausing queues."""
        return True

    @property
    def may_remove_queues(self) -> bool:
        return True

    @property
    def units(self) -> Mapping[str, bool]:
        """Return whether each unit is open; empty while the role is not known."""
        return {self.pair: self.role is Role.SERVING} if self.role in (Role.SERVING, Role.STANDBY) else {}

    def unit_of(self, _queue: str) -> str | None:
        """Return the unit that a queue moves with, or None if the queue stays where it is."""
        return self.pair

    @property
    def pauses_by_prefix(self) -> bool:
        """Say whether one call can pause all queues with a common prefix, including those created meanwhile."""
        return False

    @property
    def inner_ports(self) -> frozenset[int]:
        """Return the ports to which other nodes of the broker, and other brokers of its site, connect."""
        return frozenset()

    @property
    def replicates(self) -> bool:
        """Say whether another node replicates the store through an inner port; without it both would become active."""
        return False

    @property
    def is_clustered(self) -> bool:
        """Say whether messages are under way between the broker and other brokers of its site."""
        return False

    @property
    def outside_connections(self) -> Sequence[Connection]:
        """Return the connections that are not of another broker of the site or another node of the broker."""
        return self.connections

    @property
    def unnamed(self) -> Sequence[Node]:
        """Return the nodes that the broker shows and the settings do not name."""
        return ()

    @property
    def paused(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, queue in self.business.items() if queue.paused))

    @property
    def differing(self) -> frozenset[str]:
        """Return the addresses and queues whose content may differ from the peer's without a fault: those of dead
        letters and expired messages, and queues that drop messages or lose them at a restart."""
        dead = {address for queue in self.queues for address in (queue.dead_letter_address, queue.expiry_address)}
        names = {
            name
            for name, queue in self.business.items()
            if queue.address in dead or queue.ring or queue.last_value or queue.temporary or not queue.durable
        }
        return frozenset({*names, *filter(None, dead)})

    @property
    def stays(self) -> Sequence[str]:
        """Describe the messages and sessions of the broker that no link replicates."""
        return ()

    @property
    @abstractmethod
    def link(self) -> AnyLink: ...

    @property
    @abstractmethod
    def fence(self) -> Fence: ...

    @property
    @abstractmethod
    def requests(self) -> Requests: ...

    @property
    def role(self) -> Role:
        return self.by_listeners

    @property
    @final
    def by_listeners(self) -> Role:
        """The broker serves once one client listener is open; a listener that is missing makes the role unknown."""
        if self.open:
            return Role.SERVING
        return Role.UNKNOWN if self.missing_listeners else Role.STANDBY

    @final
    def holds(self, call: Call) -> bool:
        """Say whether a call's effect is seen; raises KeyError for a call whose effect cannot be read here."""
        for part in (self.link, self.fence):
            if (holds := part.holds(call)) is not None:
                return holds
        match call.goal:
            case Goal.OPEN | Goal.CLOSE:
                listener = next((acceptor for acceptor in self.acceptors if acceptor.name == call.resource), None)
                return listener is not None and listener.started is (call.goal is Goal.OPEN)
            case Goal.PAUSE | Goal.RESUME:
                queues = [self.by_name.get(name) for name in queues_of(call, self)]
                return all((queue is not None and queue.paused) is (call.goal is Goal.PAUSE) for queue in queues)
            case Goal.REVOKE | Goal.GRANT:
                let_in = self.lets_in(call.resource) if call.resource != ALL else not self.fence.roles_revoked
                return let_in is (call.goal is Goal.GRANT)
            case Goal.CREATE | Goal.DELETE:
                return (call.resource in self.documents) is (call.goal is Goal.CREATE)
        raise KeyError(call.goal)

    @property
    @final
    def listeners(self) -> tuple[Acceptor, ...]:
        return tuple(acceptor for acceptor in self.acceptors if acceptor.name in self.config.clients)

    @property
    @final
    def missing_listeners(self) -> tuple[str, ...]:
        return tuple(name for name in self.config.clients if name not in {acceptor.name for acceptor in self.acceptors})

    @property
    @final
    def open(self) -> bool:
        return self.fence.open

    @final
    def lets_in(self, match: str) -> bool:
        """Say whether a role that the lasting fence keeps out may send or consume there."""
        return self.lets_in_by(self.grants.get(match, {}))

    @final
    def lets_in_by(self, grants: Grants) -> bool:
        """Say whether these rights let such a role send or consume."""
        lasting = self.config.lasting
        return lasting is not None and any({"send", "consume"} & {*grants.get(role, ())} for role in lasting.roles)
