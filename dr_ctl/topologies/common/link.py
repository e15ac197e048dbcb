"""The link of a broker to its peer: the questions that a topology answers of its own, and the answers where none is;
the figures of a reading of it, as a journal keeps them, and what a returned broker still holds for its peer. Pure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import Json, total
from dr_ctl.engine.plan import Call, Goal


def evidence(readings: Iterable[tuple[str, AnyLink | BrokerError]]) -> dict[str, Json]:
    """By site; A broker that did not answer, or was not read, makes the figure of its site unknown."""
    sites: dict[str, list[AnyLink | BrokerError]] = {}
    for site, reading in readings:
        sites.setdefault(site, []).append(reading)
    return {site: _of(links) for site, links in sites.items()}


def _of(links: list[AnyLink | BrokerError]) -> dict[str, Json]:
    silent = [link for link in links if isinstance(link, BrokerError)]
    if silent:
        return {"unknown": str(silent[0])}
    read = [link for link in links if not isinstance(link, BrokerError)]
    return {
        "outflow": total(link.to_ship for link in read),
        "pending": total(link.unapplied for link in read),
        "attached": all_known(link.attached for link in read),
    }


def count_text(count: int | None) -> str:
    """A count in a sentence."""
    return "an unknown number of" if count is None else str(count)


def all_known(flags: Iterable[bool | None]) -> bool | None:
    """True if all flags hold, False if one does not; returns None where a flag was not read and no other is False."""
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
        """The residue of several brokers, by count."""
        messages, acks = sum(residue.messages for residue in several), sum(residue.acks for residue in several)
        return cls(messages, acks, total(residue.duplicates for residue in several))

    def figures(self) -> dict[str, Json]:
        figures: dict[str, Json] = {"messages": self.messages, "acknowledgements": self.acks}
        return figures if self.duplicates is None else {**figures, "duplicates_at_most": self.duplicates}


if TYPE_CHECKING:
    from dr_ctl.rpo.history.row import Row
    from dr_ctl.stomp_io.address import Address
    from dr_ctl.topologies.common.view import Acceptor, Broker, Connection, Queue
    from dr_ctl.topologies.topology import LinkSnapshot, Stake

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
        """Say whether what the peer holds can be kept out here."""
        return bool(self.listeners)

    def rights_calls(self, _goal: Goal) -> list[Call]:
        """The calls that keep the peer's link out by rights, or let it in."""
        return []

    @property
    def is_shut(self) -> bool:
        """Say whether nothing of what the peer holds gets in."""
        opened = any(listener.started for listener in self.listeners)
        return self.can_be_shut and (not opened or self.rights_revoked is True)

    @abstractmethod
    def linked(self, before: V | None, took_s: float) -> LinkSnapshot:
        """The link as commands show it; `before` is an earlier reading of the broker, so many seconds ago."""

    def rate(self, before: V | None, took_s: float) -> float | None:
        """How much a second was shipped since an earlier reading of the same start of the broker."""
        was = before.link.shipped if before is not None and before.start == self.view.start else None
        if self.shipped is None or was is None or not was.keys() >= self.shipped.keys():
            return None
        return sum(count - was[name] for name, count in self.shipped.items()) / took_s

    @abstractmethod
    def rows(self, peer: V | None, at: datetime) -> Iterable[Row]:
        """The link's rows of the history."""

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
        """Say whether the peer gets all that clients send here once they are let in, now or later, as far as a link is
        configured."""
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
        """How many messages of a queue lie here, wherever the link keeps those that arrived; None without that queue,
        or where it is not counted."""
        lying = self.view.by_name.get(queue)
        return lying.depth if lying is not None and lying.counted else None

    @property
    def counters(self) -> Iterable[Queue]:
        """The queues whose counters a receipt rests on."""
        return self.view.business.values()

    @property
    def settable(self) -> Mapping[str, Json]:
        """The settings of the link that dr-ctl may change, as they are."""
        return {}

    @property
    def reserved(self) -> Collection[str]:
        """The names of acceptors that neither clients use nor anybody who may be a client."""
        return {listener.name for listener in self.listeners}

    def holds(self, call: Call) -> bool | None:
        """Say whether the effect of a call to the link is seen, or None for any other call."""
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
        view = self.view
        if view.config.mirror is not None:
            return tuple(acceptor for acceptor in view.acceptors if acceptor.name in view.config.mirror)
        aside = {*view.config.clients, *view.config.cluster}
        others = [acceptor for acceptor in view.acceptors if acceptor.name not in aside and fits(acceptor)]
        return tuple(others) if len(others) == 1 else ()


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
