"""The way to one broker: management, which a family supplies, and a STOMP listener, opened when first needed."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Generic, Protocol

from dr_ctl.core.system import growing_s
from dr_ctl.engine.lease import Store
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Outcome
from dr_ctl.processes.secrets import resolve
from dr_ctl.settings.model import Installation
from dr_ctl.settings.parts import Secret
from dr_ctl.stomp_io.address import Address, Greeting, Login, RoundTrip, TlsFiles, parse_address
from dr_ctl.topologies.common.snapshot import V_co
from dr_ctl.topologies.common.view import Config

# For a look at everything, and for a call.
READ_S: Final = 5.0
A_QUEUE_S: Final = 0.001
CHANGE_S: Final = 30.0


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

    def __init__(self, installation: Installation, site: str, pair: str, settings: Clients) -> None:
        self.site, self.pair, self.settings = site, pair, settings
        self._installation = installation
        self.config = self._config()
        self._password: str | None = None
        # The newest look, and the moment at which it began: the values are no older.
        self.newest: tuple[float, V_co] | None = None

    @abstractmethod
    def _config(self) -> Config:
        """The broker's listeners and names, by the settings."""

    @abstractmethod
    def store(self) -> Store:
        """The broker's documents, on a connection of their own."""

    @abstractmethod
    def channel(self) -> Channel:
        """A way to change it."""

    @abstractmethod
    def _look(self, timeout_s: float) -> V_co:
        """Ask it for everything."""

    @abstractmethod
    def open_listeners(self, *, timeout_s: float) -> tuple[str, ...]:
        """The client acceptors through which it says that it serves, in one small look."""

    @abstractmethod
    def dispatch(self) -> Mapping[str, tuple[int, bool]]:
        """Messages in delivery of each queue, and whether it is paused: the poll of a quiesce."""

    @abstractmethod
    def uncovered(self) -> list[str]:
        """Business addresses that the lasting fence leaves out."""

    @abstractmethod
    def close(self) -> None: ...

    @property
    def host(self) -> str | None:
        """The host that clients use, if the settings name a STOMP address."""
        return parse_address(self.settings.stomp).host if self.settings.stomp is not None else None

    def look(self, *, timeout_s: float = READ_S) -> V_co:
        began = growing_s()
        view = self._look(self.long_enough_s(timeout_s))
        self.newest = began, view
        return view

    @property
    def _last(self) -> V_co | None:
        return self.newest[1] if self.newest is not None else None

    def long_enough_s(self, timeout_s: float) -> float:
        """For a look that nothing cuts short: a broker known to have very many queues is given time for them."""
        known = len(self._last.queues) if self._last is not None else 0
        return timeout_s + known * A_QUEUE_S if timeout_s >= READ_S else timeout_s

    def counts(self) -> V_co:
        """A look for the gate: of queues that are known, at least what lies in them, is in delivery, and was added.
        Other values may be from the last look."""
        return self.look()

    def pauses(self) -> V_co:
        """A look for pauses: of queues that are known, at least whether they are."""
        return self.look()

    def before_opening(self) -> V_co:
        """A look right before clients are let in: counts, listeners and links as for the gate, and the rights of roles.
        Clients may be from the last look."""
        return self.look()

    def listeners(self) -> V_co:
        """A look for listeners, who is connected, links and the rights of roles; queues may be from the last look."""
        return self.look()

    def rights(self) -> V_co:
        """A look for the rights of roles; everything else may be from the last look."""
        return self.listeners()

    def aged(self, *, timeout_s: float = READ_S) -> V_co:
        """Look, and at ages that only those need who tell them, where a topology asks for these by themselves."""
        return self.look(timeout_s=timeout_s)

    def whole(self, *, timeout_s: float = READ_S) -> V_co:
        """Look, at ages, and at what keeps clients from working behind open listeners: everything that commands
        tell."""
        return self.aged(timeout_s=timeout_s)

    def moving(self, *, timeout_s: float = READ_S) -> V_co:
        """A look for the history: of queues that are known, at least what it keeps of them. Other values may be from
        the last look."""
        return self.aged(timeout_s=timeout_s)

    def glance(self, *, timeout_s: float = READ_S) -> V_co | None:
        """Look at the role, the links and the queues to ship alone, by the names of the last look. Gives None if the
        broker cannot be asked so little."""
        del timeout_s
        return None

    def names(self) -> V_co:
        """The last look, where only its names matter: which acceptors, link and outflow there are."""
        return self._last if self._last is not None else self.look()

    def gate(self) -> Gate | None:
        """The STOMP listener, if the settings name one."""
        if self.settings.stomp is None:
            return None
        return gate(self._installation, self.site, self.settings.stomp, Login(self.settings.username, self._secret()))

    def greet(self, *, timeout_s: float) -> Greeting | None:
        """Connect once as a client, if the settings name a STOMP address."""
        from dr_ctl.stomp_io.client import greet  # noqa: PLC0415 - stomp.py is loaded by who asks a port, not by a look

        gate = self.gate()
        return greet(gate.address, gate.login, gate.tls, timeout_s=timeout_s) if gate is not None else None

    def round_trip(self, queue: str, *, timeout_s: float) -> RoundTrip | None:
        from dr_ctl.stomp_io.client import round_trip  # noqa: PLC0415

        gate = self.gate()
        if gate is None:
            return None
        return round_trip(
            gate.address, gate.login, gate.tls, queue=self.destination(queue), body="dr-ctl probe", timeout_s=timeout_s
        )

    def put_some(self, queue: str, token: str, count: int, *, timeout_s: float) -> RoundTrip | None:
        """Send durable messages as a producer; None where the settings name no STOMP address."""
        from dr_ctl.stomp_io.client import put  # noqa: PLC0415

        gate = self.gate()
        if gate is None:
            return None
        name = self.destination(queue)
        return put(gate.address, gate.login, gate.tls, queue=name, token=token, count=count, timeout_s=timeout_s)

    def take_some(self, queue: str, token: str | None, count: int, *, timeout_s: float) -> RoundTrip | None:
        """Receive and acknowledge these messages, or any of a rehearsal, as a consumer; None where the settings name no
        STOMP address."""
        from dr_ctl.stomp_io.client import take  # noqa: PLC0415

        gate = self.gate()
        if gate is None:
            return None
        name = self.destination(queue)
        return take(gate.address, gate.login, gate.tls, queue=name, token=token, count=count, timeout_s=timeout_s)

    @staticmethod
    def destination(queue: str) -> str:
        """How a client names a queue over STOMP."""
        return queue

    def _secret(self) -> str:
        if self._password is None:
            self._password = resolve(self.settings.password, self._installation.file.parent)
        return self._password
