"""The way to one broker: management, which a family supplies, and a STOMP listener, opened when first needed."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Protocol, Self, TypeVar

from dr_ctl.core.errors import BrokerError, Unreachable
from dr_ctl.core.system import Clock, growing_s
from dr_ctl.engine.lease import Store
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Outcome
from dr_ctl.processes.secrets import resolve
from dr_ctl.settings.model import Installation
from dr_ctl.settings.parts import Secret
from dr_ctl.stomp_io.address import Address, Closed, Greeting, Login, RoundTrip, TlsFiles, parse_address
from dr_ctl.topologies.common.snapshot import V_co
from dr_ctl.topologies.common.view import Config
from dr_ctl.topologies.topology import NodeReading

# For a reading of everything, and for a call.
READ_S: Final = 5.0
A_QUEUE_S: Final = 0.001
CHANGE_S: Final = 30.0


T = TypeVar("T")


class Part(Flag):
    """What can be read of a broker; of queues that are known, where a part is of queues."""

    STATE = auto()
    """The broker itself, its listeners, link and documents."""
    COUNTS = auto()
    """What lies in queues, is in delivery, and was added."""
    LEFT = auto()
    """What left them."""
    PAUSES = auto()
    QUEUES = auto()
    """All of them, with all that they tell."""
    CLIENTS = auto()
    RIGHTS = auto()
    AGES = auto()
    """Of the oldest messages to ship: only those need these who tell them."""
    LIMITS = auto()
    """What keeps clients from working behind open listeners, beside what the broker's state tells."""
    OUTFLOW = auto()
    """The role, the links and the queues to ship alone, by the names of an earlier reading."""


EVERYTHING: Final = Part.STATE | Part.QUEUES | Part.CLIENTS | Part.RIGHTS
FOR_PEOPLE: Final = EVERYTHING | Part.AGES | Part.LIMITS
FOR_HISTORY: Final = Part.STATE | Part.COUNTS | Part.LEFT | Part.CLIENTS | Part.RIGHTS | Part.AGES
FOR_GATE: Final = Part.STATE | Part.COUNTS | Part.CLIENTS
FOR_OPENING: Final = Part.STATE | Part.COUNTS | Part.RIGHTS
FOR_FENCE: Final = Part.STATE | Part.CLIENTS | Part.RIGHTS
FOR_PAUSES: Final = Part.STATE | Part.PAUSES


@dataclass(frozen=True, slots=True)
class Gate:
    """Where clients, probes and agents of one broker connect, and as whom."""

    address: Address
    login: Login
    tls: TlsFiles | None


def gate(installation: Installation, site: str, stomp: str, login: Login) -> Gate:
    """The way through a STOMP listener of that site, with the site's TLS."""
    tls = installation.settings.sites[site].tls
    files = TlsFiles(
        ca=str(installation.path(tls.ca)) if tls.ca else None,
        cert=str(installation.path(tls.cert)) if tls.cert else None,
        key=str(installation.path(tls.key)) if tls.key else None,
        verify=tls.verify,
    )
    address = parse_address(stomp)
    return Gate(address, login, files if address.tls else None)


class Clients(Protocol):
    """The settings of any kind of broker that say how clients connect."""

    @property
    def stomp(self) -> str | None: ...

    @property
    def username(self) -> str: ...

    @property
    def password(self) -> Secret: ...

    @property
    def clients(self) -> tuple[str, ...]: ...


class Channel(Protocol):
    """A way to change one broker, on a connection of its own: a change never waits behind a look."""

    def send(self, calls: Sequence[Call]) -> list[Outcome]:
        """Send the calls in their order, at once; gives an outcome for each. Raises `BrokerError`."""

    def close(self) -> None: ...


class Access(ABC, Generic[V_co]):
    """A broker of one site. The secret is resolved at the first need; a missing secret is an error of this broker
    alone. Raises `BrokerError` from every method that asks the broker. `fenced_by_listener`: where clients are kept
    out, nobody is greeted."""

    fenced_by_listener: ClassVar[bool] = True
    apart: Part = Part(0)
    """The parts that such a broker can be asked for without the others; it is asked for everything otherwise."""

    settings_of: ClassVar[type[Any]]
    settings: Clients

    def __init__(self, installation: Installation, site: str, pair: str, documents: Path, clock: Clock) -> None:
        """`documents`: the folder for those of brokers that can keep none."""
        self.site, self.pair = site, pair
        self.settings = installation.broker(site, pair, self.settings_of)
        self._installation, self._documents, self._clock = installation, documents, clock
        self.config = self._config()
        self._password: str | None = None
        # The newest reading, and the moment at which it began: the values are no older.
        self.newest: tuple[float, V_co] | None = None

    @classmethod
    def each(cls, installation: Installation, documents: Path, clock: Clock) -> Callable[[str, str], Self]:
        """How the way to a broker of that installation is opened, by site and pair."""
        return lambda site, pair: cls(installation, site, pair, documents, clock)

    def _config(self) -> Config:
        """The broker's listeners and names, by the settings; a topology adds its own."""
        greets_at = parse_address(self.stomp).port if self.stomp is not None else None
        peer = self._installation.other(self.site)
        return Config(self.settings.clients, None, None, greets_at=greets_at, peer=peer)

    @abstractmethod
    def store(self) -> Store:
        """The broker's documents, on a connection of their own."""

    @abstractmethod
    def channel(self) -> Channel:
        """A way to change it."""

    @abstractmethod
    def _everything(self, timeout_s: float) -> V_co:
        """Ask it for everything."""

    def _some(self, known: V_co, parts: Part, timeout_s: float) -> V_co:  # type: ignore[misc] # its own
        """Ask it for these of the parts that it can be asked for alone; all else stays as it was `known`."""
        raise NotImplementedError(parts)

    def _beside(self, view: V_co, parts: Part, timeout_s: float) -> V_co:  # type: ignore[misc] # its own
        """Ask it for what questions of their own are for."""
        del parts, timeout_s
        return view

    @abstractmethod
    def open_listeners(self, *, timeout_s: float) -> tuple[str, ...]:
        """The client acceptors through which it says that it serves, in one small reading."""

    @abstractmethod
    def dispatch(self) -> Mapping[str, tuple[int, bool]]:
        """Messages in delivery of each queue, and whether it is paused: the poll of a quiesce."""

    def uncovered(self) -> list[str]:
        """Business addresses that the lasting fence leaves out."""
        return []

    def unapplied(self, *, timeout_s: float) -> int | None:
        """How many acknowledgements of the peer have arrived and are not applied, or None if unread."""
        return self.read(timeout_s=timeout_s).link.unapplied

    @abstractmethod
    def close(self) -> None: ...

    @property
    def stomp(self) -> str | None:
        """The STOMP address of the node that is active, if the settings name one."""
        return self.settings.stomp

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts that clients use, as far as the settings name STOMP addresses."""
        return frozenset({parse_address(self.stomp).host} if self.stomp is not None else ())

    @property
    def nodes(self) -> tuple[NodeReading, ...]:
        """Each of its nodes as it was read last, where the settings name several."""
        return ()

    @property
    def left_s(self) -> float:
        """How long it may still take until one of them is active again; 0 where one is."""
        return 0.0

    @property
    def turn(self) -> str:
        """Which node is active, and since when, by the newest answer; empty where the broker has a single one."""
        return ""

    @property
    def takeover_s(self) -> float:
        """The longest that another node of it may need to be active."""
        return 0.0

    def is_vacant(self, *, anew: bool = False) -> bool:
        """Say whether no node is active and one may be at any moment. Asked `anew`, or where none was by the newest
        answer."""
        del anew
        return False

    def refuses(self, error: BrokerError, *, within_s: float) -> bool:
        """Say whether every port of it that is known refuses, as its management did."""
        if not (isinstance(error, Unreachable) and error.refused):
            return False
        return isinstance(self.greet(timeout_s=within_s), Closed)

    def read(self, parts: Part = EVERYTHING, *, timeout_s: float = READ_S) -> V_co:
        """These parts as they are now, and no less. Others may be from the newest reading."""
        began, enough_s = growing_s(), self._enough_s(timeout_s)
        known = self.names() if parts is Part.OUTFLOW else self._last
        if known is None or parts not in self.apart or EVERYTHING in parts:
            parts, view = parts | EVERYTHING, self._everything(enough_s)
        else:
            view = self._some(known, parts, enough_s)
        if Part.STATE in parts:
            self.newest = began, view
        return self._beside(view, parts, timeout_s)

    @property
    def _last(self) -> V_co | None:
        return self.newest[1] if self.newest is not None else None

    def _enough_s(self, timeout_s: float) -> float:
        """For a reading that nothing cuts short: a broker known to have very many queues is given time for them."""
        known = len(self._last.queues) if self._last is not None else 0
        return timeout_s + known * A_QUEUE_S if timeout_s >= READ_S else timeout_s

    def names(self) -> V_co:
        """The newest reading, where only its names matter: which acceptors, link and outflow there are."""
        return self._last if self._last is not None else self.read()

    def gate(self) -> Gate | None:
        """The STOMP listener, if the settings name one."""
        if self.stomp is None:
            return None
        return gate(self._installation, self.site, self.stomp, Login(self.settings.username, self._secret()))

    def greet(self, *, timeout_s: float) -> Greeting | None:
        """Connect once as a client, if the settings name a STOMP address."""
        from dr_ctl.stomp_io.client import greet  # noqa: PLC0415 - stomp.py is loaded by who asks a port, not by a look

        return self._as_client(partial(greet, timeout_s=timeout_s))

    def round_trip(self, queue: str, *, timeout_s: float) -> RoundTrip | None:
        from dr_ctl.stomp_io.client import round_trip  # noqa: PLC0415

        name = self.destination(queue)
        return self._as_client(partial(round_trip, queue=name, body="dr-ctl probe", timeout_s=timeout_s))

    def put_some(self, queue: str, token: str, count: int, *, timeout_s: float) -> RoundTrip | None:
        """Send durable messages as a producer; None where the settings name no STOMP address."""
        from dr_ctl.stomp_io.client import put  # noqa: PLC0415

        name = self.destination(queue)
        return self._as_client(partial(put, queue=name, token=token, count=count, timeout_s=timeout_s))

    def take_some(self, queue: str, token: str | None, count: int, *, timeout_s: float) -> RoundTrip | None:
        """Receive and acknowledge these messages, or any of a rehearsal, as a consumer; None where the settings name no
        STOMP address."""
        from dr_ctl.stomp_io.client import take  # noqa: PLC0415

        name = self.destination(queue)
        return self._as_client(partial(take, queue=name, token=token, count=count, timeout_s=timeout_s))

    def _as_client(self, act: Callable[[Address, Login, TlsFiles | None], T]) -> T | None:
        gate = self.gate()
        return act(gate.address, gate.login, gate.tls) if gate is not None else None

    @staticmethod
    def destination(queue: str) -> str:
        """How a client names a queue over STOMP."""
        return queue

    def _secret(self) -> str:
        if self._password is None:
            self._password = resolve(self.settings.password, self._installation.file.parent)
        return self._password
