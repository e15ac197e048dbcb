"""Connects clients to the site that serves; the site that served last is tried first."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from dr_ctl.core.errors import UsageError
from dr_ctl.core.machine import PartMissing, without
from dr_ctl.core.system import Event, boottime_s, in_background, system
from dr_ctl.stomp_io.address import connected
from dr_ctl.stomp_io.client import ConnectionLost, probe
from dr_ctl_lab.lab.clients.client import LOGIN_S, Client, Proto, no_compiler
from dr_ctl_lab.lab.clients.stomp import HEART_BEATS, StompClient
from dr_ctl_lab.lab.dialect import Dialect

if TYPE_CHECKING:
    from dr_ctl.stomp_io.address import Address, Login
    from dr_ctl_lab.lab.clients.jms import Jvm

RETRY_S: Final = 0.01
REFUSED_S: Final = 0.02  # pause after a site that refused the queue
HEAD_START_S: Final = 0.1  # of the site that served last
NEXT_PROBE_S: Final = 0.1
MAX_PROBES: Final = 4


class Endpoints(Protocol):
    """The addresses of the sites' client listeners, the login, and the needs of clients."""

    @property
    def sites(self) -> Sequence[tuple[str, Address]]: ...

    @property
    def login(self) -> Login: ...

    @property
    def dialect(self) -> Dialect: ...

    @property
    def home(self) -> Path | None: ...


def missing_part(protocol: Proto) -> PartMissing | None:
    """The part that this machine lacks for a client of that protocol, if any."""
    match protocol:
        case Proto.AMQP | Proto.MQTT:
            module = {Proto.AMQP: "proton", Proto.MQTT: "paho"}[protocol]
            return None if find_spec(module) else without(ModuleNotFoundError(name=module))
        case Proto.CORE | Proto.OPENWIRE:
            return None if shutil.which("javac") else no_compiler()
    return None


class Opener:
    """Opens the clients of one load. `home` is the distribution with the libraries of Java clients, whose process is
    started with the first of them."""

    def __init__(self, dialect: Dialect, home: Path | None, headers: Mapping[str, str] | None = None) -> None:
        self._dialect, self._home = dialect, home
        self._headers = {**HEART_BEATS, **(headers or {})}
        self._lock = system().mutex()
        self._jvm: Jvm | None = None

    def open(self, protocol: Proto, address: Address, login: Login, *, timeout_s: float = LOGIN_S) -> Client | None:
        """Try to connect once; None where no client is let in."""
        if protocol is Proto.STOMP:
            _, connection = probe(address, login, None, timeout_s=timeout_s, headers=self._headers)
            return StompClient(connection, self._dialect) if connection is not None else None
        try:
            connected(address, None, within_s=timeout_s).close()  # a refusal takes the other clients far longer
            return self._opened(protocol, address, login)
        except (ConnectionLost, OSError):
            return None

    def close(self) -> None:
        if self._jvm is not None:
            self._jvm.close()

    def _opened(self, protocol: Proto, address: Address, login: Login) -> Client:
        match protocol:
            case Proto.AMQP:
                from dr_ctl_lab.lab.clients.amqp import AmqpClient  # noqa: PLC0415 - its package is optional

                return AmqpClient(address, login)
            case Proto.MQTT:
                from dr_ctl_lab.lab.clients.mqtt import MqttClient  # noqa: PLC0415 - the same

                return MqttClient(address, login)
        with self._lock:
            if self._jvm is None:
                from dr_ctl_lab.lab.clients.jms import Jvm  # noqa: PLC0415 - clients of STOMP need no Java

                if self._home is None:
                    raise UsageError(f"no broker here speaks {protocol.value}")
                self._jvm = Jvm(self._home)
        return self._jvm.client(protocol, address, login)


class Dialler:
    """Finds the site that lets clients in, with probes at both; the site that served last is probed first."""

    def __init__(
        self, endpoints: Endpoints, opener: Opener | None = None, *, headers: Mapping[str, str] | None = None
    ) -> None:
        self._endpoints = endpoints
        self._opener = opener or Opener(endpoints.dialect, endpoints.home, headers)
        self._last = endpoints.sites[0][0]
        self._refused_until = 0.0

    def refused_by(self, site: str) -> None:
        """Note that a site accepted the login and refused the queue: try the other site next, after a pause."""
        self._last = next((name for name, _ in self._endpoints.sites if name != site), site)
        self._refused_until = boottime_s() + REFUSED_S

    def dial(self, stop: Event, protocol: Proto = Proto.STOMP) -> tuple[str, Client] | None:
        """Return the site and the client; None once `stop` is set."""
        stop.wait(max(0.0, self._refused_until - boottime_s()))
        began, search = boottime_s(), _Search(self._opener, self._endpoints.login, protocol)
        in_order = sorted(self._endpoints.sites, key=lambda site: site[0] != self._last)
        while not stop.is_set() and search.result is None:
            for site, address in in_order:
                must_wait = (
                    site != self._last and self._last not in search.denied and boottime_s() - began < HEAD_START_S
                )
                if not must_wait:
                    search.start_probes(site, address)
            search.done.wait(RETRY_S)
        search.done.set()
        if search.result is not None:
            self._last = search.result[0]
        return search.result


class _Search:
    """Probes sites until one lets a client in, or `done` is set."""

    def __init__(self, opener: Opener, login: Login, protocol: Proto) -> None:
        self._opener, self._login, self._speaks = opener, login, protocol
        self._probing: dict[Address, list[float]] = {}  # start times by address; a site has one for each node
        self._lock = system().mutex()
        self.done = system().event()
        self.denied: set[str] = set()
        self.result: tuple[str, Client] | None = None

    def start_probes(self, site: str, address: Address) -> None:
        """Probe an address repeatedly. Start another probe beside one without an answer, whose time limit would
        otherwise count to the measured gap."""
        begun_at, now = self._probing.setdefault(address, []), boottime_s()
        most = MAX_PROBES if self._speaks is Proto.STOMP else 1
        if len(begun_at) < most and all(now - at_s > NEXT_PROBE_S for at_s in begun_at):
            number = len(begun_at)
            begun_at.append(now)
            in_background(partial(self._probe, site, address, number), f"probe of {site}")

    def _probe(self, site: str, address: Address, number: int) -> None:
        while not self.done.is_set():
            self._probing[address][number] = boottime_s()
            client = self._opener.open(self._speaks, address, self._login)
            if client is not None:
                self._use(site, client)
            else:
                self.denied.add(site)
            self.done.wait(RETRY_S)

    def _use(self, site: str, client: Client) -> None:
        with self._lock:
            if self.result is None and not self.done.is_set():
                self.result = site, client
                self.done.set()
                return
        client.close()
