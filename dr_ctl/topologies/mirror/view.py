"""What one look at a mirrored pair told: frozen values, and what follows from them without asking again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import Role
from dr_ctl.engine.debts import Debt
from dr_ctl.engine.ports import PairSeen
from dr_ctl.jolokia.errors import Sick, TimedOut, Unreachable
from dr_ctl.settings.model import LastingFence
from dr_ctl.topologies.mirror.debts import debts_of

OUTFLOW_PREFIX: Final = "$ACTIVEMQ_ARTEMIS_MIRROR_"
CLUSTER_PREFIX: Final = "$.artemis.internal.sf."
OWN_PREFIX: Final = "dr-ctl."
QUARANTINE_PREFIX: Final = f"{OWN_PREFIX}quarantine."
_OTHERS: Final = ("activemq.management", "activemq.notifications", "$.artemis.", "$sys.", OUTFLOW_PREFIX, OWN_PREFIX)


def quarantine_queue(site: str, queue: str) -> str:
    """The name of dr-ctl's own queue for what nothing explains: it contains the site that holds it."""
    return f"{QUARANTINE_PREFIX}{site}.{queue}"


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue at one broker, with the counters of this start of the broker."""

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
    durable: bool
    temporary: bool
    internal: bool
    ring: bool
    last_value: bool
    dead_letter_address: str | None
    expiry_address: str | None
    oldest_ms: int | None = None  # age of the oldest in an outflow, where the broker can tell

    @property
    def business(self) -> bool:
        """Say whether clients' messages lie in it: neither the broker's own nor dr-ctl's."""
        return not self.internal and not self.name.startswith(_OTHERS)


@dataclass(frozen=True, slots=True)
class Acceptor:
    """One door of a broker. `port` is None where the broker does not tell it."""

    name: str
    bean: str
    started: bool
    port: int | None
    protocols: frozenset[str]
    opens_at_boot: bool


@dataclass(frozen=True, slots=True)
class Link:
    """One broker connection."""

    name: str
    started: bool
    connected: bool
    protocol: str


@dataclass(frozen=True, slots=True)
class Connection:
    """One connection that came in through an acceptor's port, or went out (`port` of no acceptor)."""

    id: str
    port: int | None
    remote: str
    client: str
    user: str
    protocol: str


@dataclass(frozen=True, slots=True)
class Consumer:
    """One consumer, with what it holds that it has not acknowledged."""

    queue: str
    port: int | None
    client: str
    remote: str
    user: str
    holds: int

    @property
    def told(self) -> str:
        """Name the client so that a person finds it."""
        return f"client {self.client or '(no client id)'} (user {self.user or 'none'}, from {self.remote})"


@dataclass(frozen=True, slots=True)
class Config:
    """What the settings say of one broker: which acceptors are whose, and the names not left to be found out."""

    clients: tuple[str, ...]
    mirror: tuple[str, ...] | None
    link: str | None
    lasting: LastingFence | None = None


# What each role may do, by the broker's own words for it, in the order in which they are set.
Grants = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class BrokerView:
    """One broker as it answered. `grants`, by match, and `users` with their roles are only asked for where the settings
    name a lasting fence; `users` is None too where the broker cannot tell them."""

    pair: str
    site: str
    config: Config
    broker: str
    version: str
    node: str
    active: bool
    start: str
    now_ms: int
    pending_acks: int
    acceptors: tuple[Acceptor, ...]
    links: tuple[Link, ...]
    queues: tuple[Queue, ...]
    connections: tuple[Connection, ...]
    consumers: tuple[Consumer, ...]
    prepared: tuple[str, ...]
    lock_coordinators: tuple[str, ...]
    documents: Mapping[str, str] = field(default_factory=dict)
    grants: Mapping[str, Grants] = field(default_factory=dict)
    users: Mapping[str, frozenset[str]] | None = None

    @property
    def doors(self) -> tuple[Acceptor, ...]:
        """The acceptors that clients use."""
        return tuple(each for each in self.acceptors if each.name in self.config.clients)

    @property
    def missing_doors(self) -> tuple[str, ...]:
        here = {each.name for each in self.acceptors}
        return tuple(name for name in self.config.clients if name not in here)

    @property
    def mirror_doors(self) -> tuple[Acceptor, ...]:
        """The acceptors that the peer's link uses: as set, else the only AMQP acceptor that is not for clients."""
        if self.config.mirror is not None:
            return tuple(each for each in self.acceptors if each.name in self.config.mirror)
        others = [each for each in self.acceptors if each.name not in self.config.clients and "AMQP" in each.protocols]
        return tuple(others) if len(others) == 1 else ()

    @property
    def other_doors(self) -> tuple[Acceptor, ...]:
        mine = {each.name for each in (*self.doors, *self.mirror_doors)}
        return tuple(each for each in self.acceptors if each.name not in mine)

    @property
    def link(self) -> Link | None:
        """The broker connection that mirrors to the peer: as set, else the only AMQP one that has an outflow."""
        if self.config.link is not None:
            return next((each for each in self.links if each.name == self.config.link), None)
        names = {queue.name.removeprefix(OUTFLOW_PREFIX) for queue in self.queues if _is_outflow(queue)}
        amqp = [each for each in self.links if each.protocol.upper() == "AMQP"]
        with_outflow = [each for each in amqp if each.name in names]
        found = with_outflow or amqp
        return found[0] if len(found) == 1 else None

    @property
    def outflow(self) -> Queue | None:
        """The store-and-forward queue of the link: what this broker still has to ship to its peer."""
        link = self.link
        name = f"{OUTFLOW_PREFIX}{link.name}" if link is not None else None
        return next((queue for queue in self.queues if queue.name == name), None)

    @property
    def attached(self) -> bool:
        """Say whether the link ships now: connected by its flag, and its outflow has the link as consumer."""
        link, outflow = self.link, self.outflow
        return link is not None and link.connected and outflow is not None and outflow.consumers > 0

    @property
    def business(self) -> dict[str, Queue]:
        return {queue.name: queue for queue in self.queues if queue.business}

    @property
    def open(self) -> bool:
        return any(door.started for door in self.doors)

    def lets_in(self, match: str) -> bool:
        """Say whether a role that the lasting fence keeps out may send or consume there."""
        lasting = self.config.lasting
        grants = self.grants.get(match, {})
        return lasting is not None and any({"send", "consume"} & {*grants.get(role, ())} for role in lasting.roles)

    @property
    def shut_out(self) -> bool:
        """Say whether the lasting fence stands."""
        lasting = self.config.lasting
        return lasting is not None and not any(self.lets_in(match) for match in lasting.matches)

    @property
    def role(self) -> Role:
        """Serving as soon as one client door is open; a door that the broker does not have leaves it unknown."""
        if self.active and self.open:
            return Role.SERVING
        return Role.UNKNOWN if self.missing_doors or not self.active else Role.STANDBY

    def peer_moved(self, before: BrokerView) -> bool:
        """Say whether the peer did anything since an earlier look: took what is shipped, or shipped while all is closed
        here. True also where a restart leaves nothing to compare with."""
        if self.start != before.start or self.outflow is None or before.outflow is None:
            return True
        was = {queue.bean: (queue.added, queue.removed) for queue in before.business.values()}
        shipped_here = not self.open and any(
            (queue.added, queue.removed) != was.get(queue.bean) for queue in self.business.values()
        )
        return shipped_here or self.outflow.removed != before.outflow.removed

    def strangers(self) -> list[str]:
        """Clients on doors that are not theirs: they would go on working behind a fence."""
        others = {door.port: door.name for door in self.other_doors if door.port is not None}
        mirror = {door.port: door.name for door in self.mirror_doors if door.port is not None}
        told = [
            f"{each.protocol} connection from {each.remote} (user {each.user or 'none'}, "
            f"client {each.client or '(no client id)'}) on acceptor {others[each.port]}"
            for each in self.connections
            if each.port in others
        ]
        told += [
            f"consumer of {each.queue}: {each.told} on acceptor {mirror[each.port]}"
            for each in self.consumers
            if each.port in mirror and not each.queue.startswith(_OTHERS)
        ]
        return told


def _is_outflow(queue: Queue) -> bool:
    return queue.internal and queue.name.startswith(OUTFLOW_PREFIX)


@dataclass(frozen=True, slots=True)
class Silent:
    """One broker that did not answer as asked, and how it failed."""

    pair: str
    site: str
    error: BrokerError
    ports_refuse: bool = False

    @property
    def role(self) -> Role:
        """Down only when every port that is known refuses; sick when something lives there."""
        if isinstance(self.error, Unreachable) and self.error.refused and self.ports_refuse:
            return Role.DOWN
        return Role.SICK if isinstance(self.error, Sick | TimedOut) else Role.UNKNOWN


@dataclass(frozen=True, slots=True)
class MirrorSeen:
    """One look at both sites. `moved`: how much each pair's queues changed between two looks, where there were two."""

    sites: Mapping[str, Mapping[str, BrokerView | Silent]]
    moved: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def roles(self) -> Mapping[str, Role]:
        return {site: _together([each.role for each in brokers.values()]) for site, brokers in self.sites.items()}

    @property
    def debts(self) -> Sequence[Debt]:
        return [debt for site in self.sites for view in self.views(site) for debt in debts_of(view.documents)]

    @property
    def pairs(self) -> Sequence[PairSeen]:
        names = next(iter(self.sites.values())).keys()
        return [self._pair(name) for name in names]

    def _pair(self, pair: str) -> PairSeen:
        open_at = tuple(site for site, brokers in self.sites.items() if brokers[pair].role is Role.SERVING)
        return PairSeen(pair, open_at[0] if len(open_at) == 1 else None, open_at)

    def view(self, site: str, pair: str) -> BrokerView | None:
        """The broker's view, or None where it did not answer."""
        each = self.sites[site][pair]
        return each if isinstance(each, BrokerView) else None

    def views(self, site: str) -> list[BrokerView]:
        return [each for each in self.sites[site].values() if isinstance(each, BrokerView)]


def _together(roles: Sequence[Role]) -> Role:
    """A site's role from its brokers': one that serves makes it serving; else they must agree, or it is unknown. Where
    all are known to be closed and one is down, so is the site: it cannot take over, and it lets nobody in."""
    if Role.SERVING in roles:
        return Role.SERVING
    first = roles[0]
    if all(role is first for role in roles):
        return first
    if set(roles) == {Role.STANDBY, Role.DOWN}:
        return Role.DOWN
    return Role.SICK if Role.SICK in roles else Role.UNKNOWN
