"""What one look at a pair of Artemis brokers told: frozen values, and what follows from them without asking again.

A topology adds to a broker what joins it to its peer: what it still ships, how its doors are opened and closed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Any, Final, Generic, Self, TypeVar

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import Finding, Json, Role, Severity
from dr_ctl.engine.debts import Debt, DebtKind
from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.lease import LOCK, LockDocument, Look
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import PairSeen
from dr_ctl.jolokia.errors import Sick, TimedOut, Unreachable
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.topologies.artemis import ID_CACHE_SIZE, LastingFence
from dr_ctl.topologies.artemis.debts import debts_of
from dr_ctl.topologies.artemis.names import OWN, numbered
from dr_ctl.topologies.artemis.papers import IN_USER, Papers
from dr_ctl.topologies.topology import BrokerSeen, FenceStrength, LinkSeen, Stake

OUTFLOW_PREFIX: Final = "$ACTIVEMQ_ARTEMIS_MIRROR_"
CLUSTER_PREFIX: Final = "$.artemis.internal.sf."
QUARANTINE_PREFIX: Final = f"{OWN}quarantine."
_OTHERS: Final = ("activemq.management", "activemq.notifications", "$.artemis.", "$sys.", OUTFLOW_PREFIX, OWN)


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

    def row(self, broker: Broker, at: datetime) -> Row:
        """It as the history keeps it, without what only some kinds of queue have."""
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
            oldest_ms=self.oldest_ms,
        )


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
    """One consumer, with what it holds that it has not acknowledged; None where the broker does not tell."""

    queue: str
    port: int | None
    client: str
    remote: str
    user: str
    holds: int | None

    @property
    def told(self) -> str:
        """Name the client so that a person finds it."""
        return f"client {self.client or '(no client id)'} (user {self.user or 'none'}, from {self.remote})"


@dataclass(frozen=True, slots=True)
class Config:
    """What the settings say of one broker: which acceptors are whose, the names not left to be found out, and how many
    message ids it remembers for an address, which it does not tell."""

    clients: tuple[str, ...]
    mirror: tuple[str, ...] | None
    link: str | None
    lasting: LastingFence | None = None
    id_cache: int = ID_CACHE_SIZE


class Peer(Enum):
    """What is known of a site's peer when its doors are opened."""

    DRAINED = "drained"  # the gate has shown that nothing of it is missing
    NOT_DRAINED = "not drained"  # the site goes on where it was, or once more
    AWAY = "away"  # nothing can come any more


# What each role may do, by the broker's own words for it, in the order in which they are set.
Grants = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Broker(ABC):
    """One broker as it answered. `grants`, by match, and `users` with their roles are only asked for where the settings
    name a lasting fence; `users` is None too where the broker cannot tell them."""

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
    grants: Mapping[str, Grants] = field(default_factory=dict, kw_only=True)
    users: Mapping[str, frozenset[str]] | None = field(default=None, kw_only=True)

    # What joins it to its peer.

    @property
    @abstractmethod
    def attached(self) -> bool:
        """Say whether it ships to its peer now."""

    @property
    @abstractmethod
    def to_ship(self) -> int | None:
        """How much it still has to ship to its peer; None where that cannot be seen."""

    @property
    @abstractmethod
    def unapplied(self) -> int:
        """How many acknowledgements of its peer have arrived and are not applied."""

    @abstractmethod
    def unsettled(self) -> Iterator[str]:
        """Say what of the way between the sites keeps the gate shut at this broker."""

    @property
    @abstractmethod
    def ships(self) -> Mapping[str, bool]:
        """What ships to the peer, by name, and whether it is started."""

    @property
    @abstractmethod
    def role(self) -> Role:
        """What it is for clients."""

    @abstractmethod
    def peer_moved(self, before: Broker) -> bool:
        """Say whether the peer did anything since an earlier look. True also where nothing is left to compare with."""

    @abstractmethod
    def opening(self, doors: Iterable[Acceptor], peer: Peer, when: str | None = None) -> tuple[Call, ...]:
        """The calls that let clients in by these doors; `peer`: what is known of the other site by then."""

    @abstractmethod
    def closing(self, doors: Iterable[Acceptor], when: str | None = None) -> tuple[Call, ...]:
        """The calls that keep clients out of these doors."""

    @abstractmethod
    def linked(self, before: Self | None, took_s: float) -> LinkSeen:
        """What ships to its peer; `before` is an earlier look at it, so many seconds ago."""

    @abstractmethod
    def outflow_rows(self, peer: Self | None, at: datetime) -> Iterable[Row]:
        """The history of what joins it to its peer."""

    @abstractmethod
    def stake(self, peer: Self | None) -> Stake:
        """What it holds for its peer, if it is closed."""

    def residue(self) -> Mapping[str, int]:
        """What it holds for its peer and brings when it is let in, by the names of `data.residue`; empty where that
        cannot be said before."""
        return {}

    @property
    def papers(self) -> Papers:
        """How documents of dr-ctl are kept at it."""
        return IN_USER

    @property
    def boots_closed(self) -> bool | None:
        """Say whether clients stay out when it is restarted; None where that cannot be told."""
        return not any(door.opens_at_boot for door in self.doors)

    @property
    def settable(self) -> Mapping[str, Json]:
        """What else dr-ctl may set at it, as it is."""
        return {}

    @property
    def counted(self) -> Iterable[Queue]:
        """The queues whose counters a receipt rests on."""
        return self.business.values()

    def holds(self, call: Call) -> bool:
        """Say whether a call's effect is seen; raises KeyError for one whose effect has no look here."""
        match call.goal:
            case Goal.OPEN | Goal.CLOSE:
                door = next((each for each in self.acceptors if each.name == call.thing), None)
                return door is not None and door.started is (call.goal is Goal.OPEN)
            case Goal.PAUSE | Goal.RESUME:
                paused = any(queue.name == call.thing and queue.paused for queue in self.queues)
                return paused is (call.goal is Goal.PAUSE)
            case Goal.SHUT_OUT | Goal.ADMIT:
                let_in = self.lets_in(call.thing) if call.thing != ALL else not self.shut_out
                return let_in is (call.goal is Goal.ADMIT)
            case Goal.WRITE | Goal.STRIKE:
                return (call.thing in self.documents) is (call.goal is Goal.WRITE)
        raise KeyError(call.goal)

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


V_co = TypeVar("V_co", bound=Broker, covariant=True)


@dataclass(frozen=True)
class Seen(Generic[V_co]):
    """One look at both sites. `moved`: how much each pair's queues changed between two looks, where there were two,
    `took_s` apart: then `before` is the first."""

    sites: Mapping[str, Mapping[str, V_co | Silent]]
    moved: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    before: Seen[V_co] | None = None
    took_s: float = 0.0

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

    def view(self, site: str, pair: str) -> V_co | None:
        """The broker's view, or None where it did not answer."""
        each = self.sites[site][pair]
        return None if isinstance(each, Silent) else each

    def views(self, site: str) -> list[V_co]:
        return [each for each in self.sites[site].values() if not isinstance(each, Silent)]

    # What the commands take from it: see `topologies.topology`.

    @property
    def brokers(self) -> Sequence[BrokerSeen]:
        return [_broker(each) for brokers in self.sites.values() for each in brokers.values()]

    @property
    def locks(self) -> Sequence[Look]:
        return [
            Look(view.site, view.pair, view.now_ms, tuple(LockDocument.of_text(*each) for each in texts))
            for view in self._all()
            for texts in (numbered(view.documents, LOCK),)
        ]

    def links(self) -> Sequence[LinkSeen]:
        was = self.before
        return [
            view.linked(was.view(view.site, view.pair) if was is not None else None, self.took_s)
            for view in self._all()
        ]

    def rows(self, at: datetime) -> Sequence[Row]:
        found: list[Row] = []
        for view in self._all():
            found += view.outflow_rows(self._peer(view), at)
            found += [replace(queue.row(view, at), acked=queue.acked) for queue in view.business.values()]
        return found

    def stake(self, site: str) -> Sequence[Stake]:
        return [view.stake(self._peer(view)) for view in self.views(site)]

    def residue(self, site: str) -> Mapping[str, Json]:
        total: dict[str, Json] = {}
        for view in self.views(site):
            total |= {name: count + int(str(total.get(name, 0))) for name, count in view.residue().items()}
        return total

    def findings(self) -> Sequence[Finding]:
        return [*self._let_in(), *self._quarantined()]

    def fence_strength(self, site: str) -> FenceStrength | None:
        views = self.views(site)
        if len(views) < len(self.sites[site]):
            return None
        lasts = [True if view.config.lasting is not None else view.boots_closed for view in views]
        if None in lasts:
            return None
        return "lasting" if all(lasts) else "now"

    def _all(self) -> list[V_co]:
        return [view for site in self.sites for view in self.views(site)]

    def _peer(self, view: Broker) -> Any:
        """The other broker of a pair, which is of the same kind; None where it did not answer."""
        return next(self.view(site, view.pair) for site in self.sites if site != view.site)

    def _let_in(self) -> Iterator[Finding]:
        """A quarantine that a restart has ended."""
        for debt in self.debts:
            doors = [door.name for view in self.views(debt.kept_at) for door in view.mirror_doors if door.started]
            if debt.kind is DebtKind.QUARANTINE and doors:
                text = (
                    f"acceptor {', '.join(doors)} at {debt.kept_at} is open: what {debt.about} still holds can come in"
                )
                remedy = (
                    f"Stop that acceptor while {debt.about} is away; `dr-ctl reinstate {debt.about}` once it is back."
                )
                yield Finding("DR-RETURN-004", Severity.WARNING, text, remedy)

    def _quarantined(self) -> Iterator[Finding]:
        """What a return took out because nothing explained it, until a person has looked at it."""
        for view in self._all():
            for queue in view.queues:
                if queue.name.startswith(QUARANTINE_PREFIX) and queue.depth:
                    text = f"{view.site}/{view.pair}: {queue.depth} message(s) in {queue.name} that nothing explained"
                    remedy = "Move back by hand what was never done; then remove that queue."
                    yield Finding("DR-RECONCILE-003", Severity.WARNING, text, remedy)


def _broker(view: Broker | Silent) -> BrokerSeen:
    if isinstance(view, Silent):
        return BrokerSeen(view.site, view.pair, view.role, silent=view.error)
    business = view.business
    return BrokerSeen(
        view.site,
        view.pair,
        view.role,
        start=view.start,
        doors={door.name: door.started for door in view.doors},
        kept_out=view.shut_out,
        depths={name: queue.depth for name, queue in business.items()},
        paused=tuple(sorted(name for name, queue in business.items() if queue.paused)),
        to_ship=view.to_ship,
    )


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
