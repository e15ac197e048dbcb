"""What a kind of lab is: how the brokers of one topology are made, started and managed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from dr_ctl_lab.lab.clients.client import Speaks
from dr_ctl_lab.lab.clients.traits import Odd
from dr_ctl_lab.lab.dialect import ARTEMIS, Dialect

if TYPE_CHECKING:
    from pathlib import Path

    from dr_ctl_lab.lab.daemons import Process
    from dr_ctl_lab.lab.distribution import Coordinates
    from dr_ctl_lab.lab.state import SiteState

# Options that a caller wants otherwise than usual, by names that each kind has of its own.
Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BrokerSpec:
    """How a site's broker is to be made, or one of its `nodes`, which have `store` in common unless it `replicates`.
    `link_ports` are those of the proxies on the way to `peer`, one to each of its nodes, if anything goes there. `edit`
    changes the broker's own configuration before its first start."""

    site: SiteState
    peer: SiteState
    link_ports: Sequence[int]
    queues: Sequence[str]
    forwards: Sequence[str] = ()  # of the queues, those that take what is published with MQTT
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
    """What a kind of lab needs for brokers of several nodes: further ports of each, how one says in its log that it
    waits for its turn, whether their stores can be replicated, and what the settings say of such a broker."""

    ports: tuple[str, ...]
    waits: Callable[[Path], bool]
    replicates: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)


class Admin(Protocol):
    """Management of one site's broker. Every method raises BrokerError where it does not answer or refuses."""

    def active(self) -> bool: ...

    def prepare(self) -> None:
        """Do what the first start leaves to management, before any site serves."""

    def link_attached(self, peer: str) -> bool:
        """Say whether the broker ships to its peer."""

    def clients_open(self, acceptor: str = "clients") -> bool: ...

    def open_clients(self, acceptor: str = "clients") -> None:
        """Let clients in, as a person at its console could."""

    def close_clients(self, acceptor: str = "clients") -> None: ...

    def keep_out(self) -> None:
        """Close them so that they stay out over a takeover, as far as the brokers can."""

    def create_queue(self, name: str) -> None:
        """Make a durable queue of any name; a queue that exists is left as it is."""

    def served(self, queues: Sequence[str]) -> list[str]:
        """Say which of those queues clients are served from here."""

    def depths(self) -> dict[str, int]:
        """Count the messages of every queue, by name; the broker's own included."""

    def depth(self, queue: str) -> int:
        """Count the messages of one queue; 0 where it does not exist."""


class Manage(Protocol):
    """Opener of the management of a broker."""

    def __call__(self, site: SiteState, *, timeout_s: float = 5.0) -> Admin: ...


@dataclass(frozen=True, slots=True)
class IdsAt:
    """Where processed ids travel: the address that consumers tell them at is the name of the queue where the peer's
    arrive; `user` takes them from there, at the acceptor of that name."""

    address: str
    acceptor: str
    user: str


@dataclass(frozen=True, slots=True)
class Kind:
    """How the brokers of one topology are made. `ports`: names of the ports at each, `clients` among them;
    `link_target` is where the peer's link goes, or None where the sites have none. `options` checks what a caller wants
    and adds what holds otherwise."""

    joined: str  # the act of two such brokers, in words to be read after them
    distribution: Coordinates | None  # None where no download is needed
    ports: tuple[str, ...]
    link_target: str | None
    options: Callable[[Options], Options]
    create: Callable[
        [Path, Path, BrokerSpec], None
    ]  # from the distribution, into a directory; no process runs after it
    start: Callable[[Path], Process]
    admin: Manage
    settings: Callable[[SiteState, str], dict[str, Any]]  # of the settings file, with the place of the secret
    logs: tuple[str, ...]
    links_at_boot: Callable[[BrokerSpec], bool] = lambda _: True
    # Whether a queue of that name is there from the first start on; any other is made over management.
    made_at_once: Callable[[str], bool] = lambda _: False
    # Other users who log in at the brokers: a user has a password of its own, the same at both sites.
    users: tuple[str, ...] = ()
    # Parts of the settings file that one broker alone does not tell.
    complete: Callable[[dict[str, Any], Options], dict[str, Any]] = lambda document, _: document
    # Processes that the brokers need beside them: started before, ended after them.
    beside: Callable[[Path, Sequence[BrokerSpec]], Process | None] | None = None
    # Where one broker of a pair runs at a time: whether a started one waits for its peer to end, by what it wrote.
    waits: Callable[[Path], bool] | None = None
    # What brokers of several nodes need; without it every broker is one process.
    group: Group | None = None
    dialect: Dialect = ARTEMIS  # how its clients speak STOMP
    # The protocols of its clients' listener, and what may be odd about their messages.
    speaks: tuple[Speaks, ...] = (Speaks.STOMP,)
    odd: frozenset[Odd] = frozenset(Odd)
    # Protocols of which the distribution of that version has no client.
    lacks: Callable[[tuple[int, ...]], frozenset[Speaks]] = lambda _: frozenset()
    # Whether its brokers can forward what is published with MQTT into a queue of that name.
    forwards: Callable[[str], bool] = lambda _: False
    # Where consumers tell which ids they processed. Consumers skip ids that their site's store has, serve one queue
    # each, wherever that is open, and a processor at each site writes into its store what the peer's consumers told.
    ids: IdsAt | None = None
    # The port where producers write to both sites at once. Consumers, wherever they are, then share one store of ids.
    fan_out: str | None = None
