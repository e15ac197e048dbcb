"""A kind of lab: creation, start and management of one topology's brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from dr_ctl_lab.lab.clients.client import Proto
from dr_ctl_lab.lab.clients.traits import Variation
from dr_ctl_lab.lab.dialect import ARTEMIS, Dialect

if TYPE_CHECKING:
    from pathlib import Path

    from dr_ctl_lab.lab.daemons import Process
    from dr_ctl_lab.lab.distribution import Coordinates
    from dr_ctl_lab.lab.state import SiteState

# Options of a kind, by name.
Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BrokerSpec:
    """The specification of a broker, or of one of its `nodes`, which share `store` unless it `replicates`. `link_ports`
    are those of the proxies to each node of `peer`, if there is a link. `edit` changes the broker's configuration
    before its first start."""

    site: SiteState
    peer: SiteState
    link_ports: Sequence[int]
    queues: Sequence[str]
    forwards: Sequence[str] = ()  # the queues that get messages published with MQTT
    options: Options = field(default_factory=dict)
    edit: Callable[[str], str] | None = None
    nodes: Sequence[SiteState] = ()
    replicates: bool = False
    store: Path | None = None
    version: tuple[int, ...] = ()  # of the brokers

    @property
    def link_uris(self) -> list[str]:
        return [f"tcp://127.0.0.1:{port}" for port in self.link_ports]


@dataclass(frozen=True, slots=True)
class Group:
    """Brokers of several nodes: further ports of each node, whether its log says that it is passive, whether stores can
    be replicated, and further settings."""

    ports: tuple[str, ...]
    is_waiting: Callable[[Path], bool]
    replicates: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)


class Admin(Protocol):
    """Management of one site's broker. Methods raise BrokerError where it does not answer or refuses."""

    def active(self) -> bool: ...

    def prepare(self) -> None:
        """Finish the first start by management, before any site serves."""

    def link_attached(self, peer: str) -> bool:
        """Say whether the broker ships to its peer."""

    def clients_open(self, acceptor: str = "clients") -> bool: ...

    def open_clients(self, acceptor: str = "clients") -> None:
        """Let clients in, as a person at its console could."""

    def close_clients(self, acceptor: str = "clients") -> None: ...

    def keep_out(self) -> None:
        """Keep clients out even over a takeover, where the brokers can."""

    def create_queue(self, name: str) -> None:
        """Create a durable queue, unless it exists."""

    def served(self, queues: Sequence[str]) -> list[str]:
        """The queues among these that clients are served from here."""

    def depths(self) -> dict[str, int]:
        """Count the messages of every queue, internal ones included."""

    def depth(self, queue: str) -> int:
        """Count the messages of one queue; 0 where it does not exist."""


class AdminFactory(Protocol):
    """Opens the management of a broker."""

    def __call__(self, site: SiteState, *, timeout_s: float = 5.0) -> Admin: ...


@dataclass(frozen=True, slots=True)
class IdExchange:
    """How processed ids are exchanged: consumers send them to `address`; `user` consumes those of the peer from the
    queue of the same name, at `acceptor`."""

    address: str
    acceptor: str
    user: str


@dataclass(frozen=True, slots=True)
class Kind:
    """The brokers of one topology. `ports`: names of each broker's ports, with `clients`; `link_target` is the port of
    the peer's link, None without a link. `options` checks the caller's options and adds defaults."""

    joined: str  # the verb after "two brokers", in messages
    distribution: Coordinates | None  # None where no download is needed
    ports: tuple[str, ...]
    link_target: str | None
    options: Callable[[Options], Options]
    create: Callable[[Path, Path, BrokerSpec], None]  # gets the distribution and the broker's directory
    start: Callable[[Path], Process]
    admin: AdminFactory
    settings: Callable[[SiteState, str], dict[str, Any]]  # gets the path of the secret
    logs: tuple[str, ...]
    links_at_boot: Callable[[BrokerSpec], bool] = lambda _: True
    # Whether the first start creates a queue of that name; management creates the others.
    made_at_once: Callable[[str], bool] = lambda _: False
    # Further users; each has one password at both sites.
    users: tuple[str, ...] = ()
    # Adds the parts of the settings file that concern both sites.
    complete: Callable[[dict[str, Any], Options], dict[str, Any]] = lambda document, _: document
    # Starts a process that the brokers need; it ends after them.
    beside: Callable[[Path, Sequence[BrokerSpec]], Process | None] | None = None
    # Where one broker of a pair is active at a time: whether a log says that it waits for its peer's end.
    is_waiting: Callable[[Path], bool] | None = None
    # Without it every broker is one process.
    group: Group | None = None
    dialect: Dialect = ARTEMIS  # of its STOMP clients
    # The protocols of the clients' listener, and the variations of their messages.
    protocols: tuple[Proto, ...] = (Proto.STOMP,)
    variations: frozenset[Variation] = frozenset(Variation)
    # Protocols without a client in the distribution of that version.
    lacks: Callable[[tuple[int, ...]], frozenset[Proto]] = lambda _: frozenset()
    # Whether the brokers can forward from MQTT into a queue of that name.
    forwards: Callable[[str], bool] = lambda _: False
    # With it consumers are idempotent: each serves one queue, at the site where that is open, skips ids of the site's
    # store, and sends processed ids to the peer, where a processor stores them.
    ids: IdExchange | None = None
    # The port where producers send to both sites. Consumers of both sites then share one store of ids.
    fan_out: str | None = None
