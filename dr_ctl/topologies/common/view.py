"""A broker as one reading has shown it, with its link to its peer and the fence around it: frozen values, and what
follows from them without another question. Beside it, what a returned broker still holds for its peer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, Generic, TypeVar, final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import Json, Role, total
from dr_ctl.engine.plan import ALL, Call, Goal
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.artemis import ClientRoles, LastingFence
from dr_ctl.stomp_io.address import Address
from dr_ctl.topologies.common.calls import (
    MQTT_RETAINED,
    OURS,
    Requests,
    close_listener,
    open_listener,
    queues_of,
)
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
    oldest_ms: int | None = None  # age of the oldest in an outflow, where the broker can tell

    @property
    def counted(self) -> bool:
        """Whether its figures can be believed: brokers count below zero at times."""
        return self.depth >= 0 and self.delivering >= 0

    @property
    def known_depth(self) -> int | None:
        return self.depth if self.counted else None

    @property
    def business(self) -> bool:
        return not self.internal and not self.name.startswith(OURS) and not self.retained

    @property
    def retained(self) -> bool:
        return self.name.startswith(MQTT_RETAINED)

    def row(self, broker: Broker, at: datetime, *, acked: int | None = None) -> Row:
        """The queue as the history keeps it. `acked` is only known for a queue of clients."""
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
            oldest_ms=self.oldest_ms,
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
    """It came in through an acceptor's port, or went out (`port` of no acceptor); without a session little is known."""

    id: str
    port: int | None
    remote: str
    client: str
    user: str
    protocol: str
    has_session: bool = True


@dataclass(frozen=True, slots=True)
class Consumer:
    """`holds` counts messages that it has not acknowledged, None where the broker does not show that."""

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
    """The settings of one broker: the owners of acceptors, names that are set, and the port where a client is greeted.
    `id_cache` is how many message ids the broker remembers for an address, if the settings have to say it. `peer` is
    the site of the broker's peer, for people. `mirrored` are the addresses to which the peer's mirror sends."""

    clients: tuple[str, ...]
    mirror: tuple[str, ...] | None
    link: str | None
    lasting: LastingFence | ClientRoles | None = None
    id_cache: int | None = None
    stomp_port: int | None = None
    peer: str = "the other site"
    cluster: tuple[str, ...] = ()
    mirrored: str = ""


class PeerState(Enum):
    DRAINED = "drained"  # the run's gate has shown that no message of the peer is missing
    CLOSED = "closed"  # the peer lets nobody in, but may still ship messages
    NOT_DRAINED = "not drained"  # the site goes on where it was, or once more
    AWAY = "away"  # no message can come any more


# The rights of each role, by the broker's own words, in the order in which they are set.
Grants = Mapping[str, Sequence[str]]


def evidence(readings: Iterable[tuple[str, AnyLink | BrokerError]]) -> dict[str, Json]:
    """By site; A broker that did not answer, or was not read, makes the figure of its site unknown."""
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
            "outflow": total(link.to_ship for link in of),
            "pending": total(link.unapplied for link in of),
            "attached": all_known(link.attached for link in of),
        }
        for site, of in links.items()
    }
    return figures | silent


def count_text(count: int | None) -> str:
    return "an unknown number of" if count is None else str(count)


def all_known(flags: Iterable[bool | None]) -> bool | None:
    """None where a flag was not read and no other is False."""
    listed = list(flags)
    return None if None in listed and False not in listed else all(listed)


@dataclass(frozen=True, slots=True)
class Residue:
    """Messages and acknowledgements that a returned broker still holds for its peer.
    `duplicates`: at most so many of its messages were done by a client there without leaving an acknowledgement.
    `acked` names messages by queue that were acknowledged there and are not in the outflow too. `consumed` names every
    message acknowledged there, `since` only those since its last start. A figure of None is not known."""

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
    """What a link brings to the peer by itself of a queue that somebody makes."""

    ALL = "messages and acknowledgements"
    MESSAGES = "messages"
    NOTHING = "nothing"


class Link(ABC, Generic[V]):
    """A broker's link, by one reading of the broker: a topology says what is plain of it when the link is made. `peer`
    is the other broker of the pair by the same reading."""

    missing = False
    """No link to the peer is configured here: nothing is ever shipped, and nobody waits for it."""
    attached: bool | None = None
    """Whether the broker ships to its peer now, or None if unknown."""
    to_ship: int | None = None
    """How much the broker still has to ship, or None if unknown."""
    unapplied: int | None = None
    """How many acknowledgements of the peer have arrived and are not applied, or None if unknown."""
    shipped: Mapping[str, int] | None = None
    """How much has left for the peer since the broker's start, by its parts, or None if unknown."""
    ships: Mapping[str, bool] = MappingProxyType({})
    """The connections or bridges that ship, by name, and whether each is started."""
    listeners: tuple[Acceptor, ...] = ()
    """The acceptors that the peer's link uses; a quarantine closes them."""
    rights_revoked: bool | None = None
    """Whether rights keep the peer's link out, whatever listeners are open; None where there are none to."""
    redelivers = True
    """Whether a client may get at the peer what one has in delivery here."""
    tells_consumed = True
    """Whether the peer gets to know by the link itself what clients consume here."""
    speaks_amqp_to: Sequence[Address] = ()
    """Where it looks for its peer by AMQP without TLS: whoever answers there as a broker is one."""
    peer_nodes: Sequence[str] = ()
    """The addresses at which it looks for its peer, as far as they are told: as many nodes has the peer."""
    adds_node = "Add the other node to the link's URI, behind `#`"
    """What lets it look for another node of its peer, as words that begin a sentence."""
    needs = ""
    """What an operator has to configure for the queue of a rehearsal, as a sentence; empty where nothing."""
    keeps = False
    """Whether a queue that the link carries stays, because removing it would break the link."""

    def __init__(self, view: V) -> None:
        self.view = view

    @abstractmethod
    def unsettled(self) -> Iterator[str]:
        """The reasons for which the gate stays shut at this broker."""

    @property
    def can_be_shut(self) -> bool:
        return bool(self.listeners)

    def rights_calls(self, _goal: Goal) -> list[Call]:
        """The calls that keep the peer's link out by rights, or let it in."""
        return []

    @property
    def is_shut(self) -> bool:
        opened = any(listener.started for listener in self.listeners)
        return self.can_be_shut and (not opened or self.rights_revoked is True)

    @abstractmethod
    def linked(self, before: V | None, took_s: float) -> LinkSnapshot:
        """The link as commands show it; `before` is an earlier reading of the broker, so many seconds ago."""

    def rate(self, before: V | None, took_s: float) -> float | None:
        """How much a second was shipped since a reading of the same start of the broker."""
        was = before.link.shipped if before is not None and before.start == self.view.start else None
        if self.shipped is None or was is None or not was.keys() >= self.shipped.keys():
            return None
        return sum(count - was[name] for name, count in self.shipped.items()) / took_s

    @abstractmethod
    def rows(self, peer: V | None, at: datetime) -> Iterable[Row]: ...

    @abstractmethod
    def stake(self, peer: V | None) -> Stake:
        """How much the broker holds for its peer, if it is closed."""

    @property
    def residue(self) -> Residue | None:
        """How much comes in when the broker is let in, or None if unknown before."""
        return None

    def foreign_connections(self, _peer: V | None) -> list[Connection]:
        """The connections at the listeners of the link that are neither the peer's nor of the site's own brokers."""
        return []

    @property
    def records_changes(self) -> bool:
        """Whether the peer gets all that clients send here once they are let in, now or later, by a configured link."""
        return self.missing or (bool(self.ships) and all(self.ships.values()))

    @property
    def hears_peer(self) -> bool:
        """Say whether a link between the two is attached, in either direction: a sign that the peer lives. By its own
        link only: a broker lists its peer's connection for up to a minute after the peer was killed (seen for 53 s)."""
        return bool(self.attached)

    def left_to_ship(self) -> Iterator[str]:
        """Say what the peer does not have yet, one sentence each; what was not read is said too."""
        if self.missing:
            yield f"{self.view.site} has no link to {self.view.config.peer}: what its clients did is not there"
        elif self.to_ship is None:
            yield f"the outflow of {self.view.site} was not read"
        elif self.to_ship:
            yield f"{self.to_ship} to ship at {self.view.site}"

    @property
    def arrivals(self) -> int | None:
        """How much has arrived from the peer since the broker's start, and from nobody else; None where no counter
        tells that. A count that grows between two readings is a sign that the peer lives."""
        return None

    def carries(self, _queue: str) -> ReplicationScope:
        """What of a rehearsal's messages in that queue can be seen at the peer."""
        return ReplicationScope.ALL

    def holds_of(self, queue: str) -> int | None:
        """How many messages of a queue lie here, wherever they arrive; None without that queue, or uncounted."""
        lying = self.view.by_name.get(queue)
        return lying.known_depth if lying is not None else None

    @property
    def counters(self) -> Iterable[Queue]:
        """The queues whose counters a receipt rests on."""
        return self.view.business.values()

    @property
    def settable(self) -> Mapping[str, Json]:
        return {}

    @property
    def reserved(self) -> Collection[str]:
        """The names of acceptors that neither clients use nor anybody who may be a client."""
        return {listener.name for listener in self.listeners}

    def holds(self, call: Call) -> bool | None:
        """Whether the effect of a call to the link is seen, or None for any other call."""
        if call.goal not in (Goal.LINK_UP, Goal.LINK_DOWN):
            return None
        return self.ships.get(call.thing, False) is (call.goal is Goal.LINK_UP)

    def at_listeners(self) -> list[Connection]:
        """The connections at the listeners that are the link's alone, but those of the site's own brokers."""
        ports = {
            listener.port
            for listener in self.listeners
            if listener.port is not None and listener.name not in self.view.config.clients
        }
        return [connection for connection in self.view.from_outside if connection.port in ports]

    def only_listener(self, fits: Callable[[Acceptor], bool]) -> tuple[Acceptor, ...]:
        """The listeners of the link as the settings name them, else the only one that fits and is neither for clients
        nor for the site's own brokers."""
        acceptors, config = self.view.acceptors, self.view.config
        if config.mirror is not None:
            return tuple(acceptor for acceptor in acceptors if acceptor.name in config.mirror)
        aside = {*config.clients, *config.cluster}
        others = tuple(acceptor for acceptor in acceptors if acceptor.name not in aside and fits(acceptor))
        return others if len(others) == 1 else ()


class NoLink(Link[V]):
    """Brokers that nothing joins: neither ships, and neither waits for the other."""

    to_ship: int | None = 0
    unapplied: int | None = 0
    records_changes = True
    can_be_shut = True

    def carries(self, _queue: str) -> ReplicationScope:
        return ReplicationScope.NOTHING

    def unsettled(self) -> Iterator[str]:
        return iter(())


AnyLink = Link[Any]


class Fence:
    """How clients are kept out of a broker and let in, by one reading of it: here by its listeners alone."""

    contenders: Sequence[str] = ()
    """The locks that may open it at any moment, or hold it open."""
    awaits: Sequence[str] = ()
    """Those of them that another holds."""
    passive: Sequence[str] = ()
    """Those that open it only once they are started again."""
    boots_closed: bool | None
    """Whether clients stay out when the broker is restarted, or None if unknown."""

    def __init__(self, view: Broker) -> None:
        self.view = view
        self.boots_closed = not any(listener.opens_at_boot for listener in view.listeners)

    @property
    def open(self) -> bool:
        return any(listener.started for listener in self.view.listeners)

    def opening(self, listeners: Iterable[Acceptor], _peer: PeerState, when: str | None = None) -> tuple[Call, ...]:
        """The calls that let clients in by these listeners; `_peer`: the state of the other site by then."""
        return tuple(open_listener(self.view, listener, when) for listener in listeners)

    def closing(self, listeners: Iterable[Acceptor], when: str | None = None) -> tuple[Call, ...]:
        return tuple(close_listener(self.view, listener, when) for listener in listeners)

    def yielding(self, _when: str | None = None) -> list[Call]:
        """The calls after which no lock opens it."""
        return []

    def revoking(self, _when: str | None = None) -> list[Call]:
        """Keep the clients' roles out beyond a restart. Without `when`, only where they may do something now."""
        return []

    def granting(self, _when: str | None = None) -> list[Call]:
        """Without `when`, only where they are kept out now."""
        return []

    @property
    def needs_reload(self) -> bool:
        """Say whether roles that are let in stay kept out for sure until the broker's file is read again."""
        return False

    @property
    def roles_revoked(self) -> bool:
        lasting = self.view.config.lasting
        return lasting is not None and not any(self.view.lets_in(match) for match in lasting.matches)

    @property
    def leaves_open(self) -> tuple[Acceptor, ...]:
        """The acceptors by which a client could come all the same."""
        known = {*self.view.config.clients, *self.view.link.reserved}
        return tuple(acceptor for acceptor in self.view.acceptors if acceptor.name not in known)

    def clients_elsewhere(self) -> list[str]:
        """Clients on listeners that are not theirs: there they would go on working behind a fence."""
        others = {listener.port: listener.name for listener in self.leaves_open if listener.port is not None}
        return [
            _client_text(connection, others[connection.port])
            for connection in self.view.from_outside
            if connection.port in others
        ]

    def clients_at_link(self, peer: Broker | None) -> list[str]:
        """Clients on the listeners of the peer's link: there too."""
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
    """A broker as it answered. `grants`, by match, and `users` with their roles are only asked for where the settings
    name a lasting fence; `users` is None too where the broker cannot show them. `usual` are the rights by the broker's
    own file alone, or None if not asked for. `serves_no_role`: no role may send or consume at any address, as far as
    was asked. `forged` are queues with the name of a document that clients can have made: dr-ctl believes no such
    queue. `obstacles`: those at addresses are asked for by a whole reading alone. `nodes` are those that the settings
    name, where the broker has several."""

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
    # Made of `queues` once: a broker may have ten thousand, each asked for by name.
    by_name: Mapping[str, Queue] = field(init=False, repr=False, compare=False)
    business: Mapping[str, Queue] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        named = {queue.name: queue for queue in self.queues}
        object.__setattr__(self, "by_name", named)
        object.__setattr__(self, "business", {name: queue for name, queue in named.items() if queue.business})

    @property
    def answered(self) -> bool:
        """False where the view is made of signs of a waiting broker."""
        return True

    @property
    def can_try_login(self) -> bool:
        return self.config.stomp_port is not None

    @property
    def units(self) -> Mapping[str, bool]:
        """The units that move by themselves, and whether clients are let in; empty while the role is not known."""
        return {self.pair: self.role is Role.SERVING} if self.role in (Role.SERVING, Role.STANDBY) else {}

    def unit_of(self, _queue: str) -> str | None:
        """The unit that a queue moves with, or None if the queue stays where it is."""
        return self.pair

    @property
    def takes_beginnings(self) -> bool:
        """Whether one call can be of all queues whose names begin alike, those created meanwhile included."""
        return False

    @property
    def inner_ports(self) -> frozenset[int]:
        """Where other nodes of the broker, and other brokers of its site, come in."""
        return frozenset()

    @property
    def replicates(self) -> bool:
        """Whether another node gets a copy of its store at one of those ports: cut off from it, both are active."""
        return False

    @property
    def is_clustered(self) -> bool:
        """Whether messages are under way between it and other brokers of its site."""
        return False

    @property
    def from_outside(self) -> Sequence[Connection]:
        """The connections that come neither from those nor from other nodes of the broker."""
        return self.connections

    @property
    def unnamed(self) -> Sequence[Node]:
        """Its other nodes, as far as it tells them, that the settings do not name."""
        return ()

    @property
    def paused(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, queue in self.business.items() if queue.paused))

    @property
    def differing(self) -> frozenset[str]:
        """The addresses and queues whose content may rightly differ from the peer's: of dead letters and expired
        messages every broker fills its own, and some kinds of queues drop messages, or lose them with a restart."""
        aside = {address for queue in self.queues for address in (queue.dead_letter_address, queue.expiry_address)}
        drop = {
            name
            for name, queue in self.business.items()
            if queue.address in aside or queue.ring or queue.last_value or queue.temporary or not queue.durable
        }
        return frozenset({*drop, *filter(None, aside)})

    @property
    def stays(self) -> Sequence[str]:
        """What lies there, is no queue of clients, and does not come to the other site, in words."""
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
        """Serving as soon as one client listener is open; one that is missing at the broker makes the role unknown."""
        if self.open:
            return Role.SERVING
        return Role.UNKNOWN if self.missing_listeners else Role.STANDBY

    @final
    def holds(self, call: Call) -> bool:
        """Whether a call's effect is seen; raises KeyError for one whose effect has no reading here."""
        for part in (self.link, self.fence):
            if (holds := part.holds(call)) is not None:
                return holds
        match call.goal:
            case Goal.OPEN | Goal.CLOSE:
                listener = next((acceptor for acceptor in self.acceptors if acceptor.name == call.thing), None)
                return listener is not None and listener.started is (call.goal is Goal.OPEN)
            case Goal.PAUSE | Goal.RESUME:
                queues = [self.by_name.get(name) for name in queues_of(call, self)]
                return all((queue is not None and queue.paused) is (call.goal is Goal.PAUSE) for queue in queues)
            case Goal.REVOKE | Goal.GRANT:
                let_in = self.lets_in(call.thing) if call.thing != ALL else not self.fence.roles_revoked
                return let_in is (call.goal is Goal.GRANT)
            case Goal.WRITE | Goal.STRIKE:
                return (call.thing in self.documents) is (call.goal is Goal.WRITE)
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
        """Whether a role that the lasting fence keeps out may send or consume there."""
        return self.lets_in_by(self.grants.get(match, {}))

    @final
    def lets_in_by(self, grants: Grants) -> bool:
        """The same of rights that hold anywhere."""
        lasting = self.config.lasting
        return lasting is not None and any({"send", "consume"} & {*grants.get(role, ())} for role in lasting.roles)
