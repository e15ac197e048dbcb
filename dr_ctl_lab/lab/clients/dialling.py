"""Opens clients where they are let in, whatever protocol they speak: the site that served last first."""

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
from dr_ctl_lab.lab.clients.client import LOGIN_S, Client, Speaks, no_compiler
from dr_ctl_lab.lab.clients.stomp import HEART_BEATS, StompClient
from dr_ctl_lab.lab.dialect import Dialect

if TYPE_CHECKING:
    from dr_ctl.stomp_io.address import Address, Login
    from dr_ctl_lab.lab.clients.jms import Jvm

RETRY_S: Final = 0.01
AWAY_S: Final = 0.02  # after a site that does not serve what we came for
HEAD_START_S: Final = 0.1  # of the site that served last, before the other is tried too
AGAIN_S: Final = 0.1
MOST_KNOCKS: Final = 4


class Place(Protocol):
    """Where one dials: the sites and their clients' addresses, one login for all, and what their clients need."""

    @property
    def sites(self) -> Sequence[tuple[str, Address]]: ...

    @property
    def login(self) -> Login: ...

    @property
    def dialect(self) -> Dialect: ...

    @property
    def home(self) -> Path | None: ...


def lacking(speaks: Speaks) -> PartMissing | None:
    """What of this machine a client of that protocol would lack."""
    match speaks:
        case Speaks.AMQP | Speaks.MQTT:
            module = {Speaks.AMQP: "proton", Speaks.MQTT: "paho"}[speaks]
            return None if find_spec(module) else without(ModuleNotFoundError(name=module))
        case Speaks.CORE | Speaks.OPENWIRE:
            return None if shutil.which("javac") else no_compiler()
    return None


class Opener:
    """Opens the clients of one load. `home` is the distribution that has the libraries of its Java clients; their
    process is started with the first of them."""

    def __init__(self, dialect: Dialect, home: Path | None, headers: Mapping[str, str] | None = None) -> None:
        self._dialect, self._home = dialect, home
        self._headers = {**HEART_BEATS, **(headers or {})}
        self._one = system().mutex()
        self._jvm: Jvm | None = None

    def open(self, speaks: Speaks, address: Address, login: Login, *, timeout_s: float = LOGIN_S) -> Client | None:
        """One attempt; None where nobody lets us in."""
        if speaks is Speaks.STOMP:
            _, connection = probe(address, login, None, timeout_s=timeout_s, headers=self._headers)
            return StompClient(connection, self._dialect) if connection is not None else None
        try:
            connected(
                address, None, within_s=timeout_s
            ).close()  # to learn that nobody listens costs the others far more
            return self._opened(speaks, address, login)
        except (ConnectionLost, OSError):
            return None

    def close(self) -> None:
        if self._jvm is not None:
            self._jvm.close()

    def _opened(self, speaks: Speaks, address: Address, login: Login) -> Client:
        match speaks:
            case Speaks.AMQP:
                from dr_ctl_lab.lab.clients.amqp import AmqpClient  # noqa: PLC0415 - not everybody has its package

                return AmqpClient(address, login)
            case Speaks.MQTT:
                from dr_ctl_lab.lab.clients.mqtt import MqttClient  # noqa: PLC0415 - the same

                return MqttClient(address, login)
        with self._one:
            if self._jvm is None:
                from dr_ctl_lab.lab.clients.jms import Jvm  # noqa: PLC0415 - who speaks STOMP needs no Java

                if self._home is None:
                    raise UsageError(f"no broker here speaks {speaks.value}")
                self._jvm = Jvm(self._home)
        return self._jvm.client(speaks, address, login)


class Dialler:
    """Finds the site that lets clients in, the one that served last first, knocking at both side by side."""

    def __init__(self, place: Place, opener: Opener | None = None, *, headers: Mapping[str, str] | None = None) -> None:
        self._place = place
        self._opener = opener or Opener(place.dialect, place.home, headers)
        self._last = place.sites[0][0]
        self._away_until = 0.0

    def turned_away(self, site: str) -> None:
        """Note that a site let us in and refused what we came for: dial the other one next, and in a moment."""
        self._last = next((name for name, _ in self._place.sites if name != site), site)
        self._away_until = boottime_s() + AWAY_S

    def dial(self, stop: Event, speaks: Speaks = Speaks.STOMP) -> tuple[str, Client] | None:
        """Return the site and the client, or None once `stop` is set."""
        stop.wait(max(0.0, self._away_until - boottime_s()))
        began, search = boottime_s(), _Search(self._opener, self._place.login, speaks)
        in_order = sorted(self._place.sites, key=lambda site: site[0] != self._last)
        while not stop.is_set() and search.found is None:
            for site, address in in_order:
                early = site != self._last and self._last not in search.denied and boottime_s() - began < HEAD_START_S
                if not early:
                    search.probe_at(site, address)
            search.over.wait(RETRY_S)
        search.over.set()
        if search.found is not None:
            self._last = search.found[0]
        return search.found


class _Search:
    """Knocks at sites until one lets us in, or it is over."""

    def __init__(self, opener: Opener, login: Login, speaks: Speaks) -> None:
        self._opener, self._login, self._speaks = opener, login, speaks
        self._probing: dict[Address, list[float]] = {}  # a site has one for each of its nodes
        self._one = system().mutex()
        self.over = system().event()
        self.denied: set[str] = set()
        self.found: tuple[str, Client] | None = None

    def probe_at(self, site: str, address: Address) -> None:
        """Knock there from now on. And once more beside it, should that stay without an answer: a knock that is never
        answered would otherwise add its whole time limit to the gap that is measured."""
        since, now = self._probing.setdefault(address, []), boottime_s()
        most = MOST_KNOCKS if self._speaks is Speaks.STOMP else 1
        if len(since) < most and all(now - item > AGAIN_S for item in since):
            number = len(since)
            since.append(now)
            in_background(partial(self._probe, site, address, number), f"knock at {site}")

    def _probe(self, site: str, address: Address, number: int) -> None:
        while not self.over.is_set():
            self._probing[address][number] = boottime_s()
            client = self._opener.open(self._speaks, address, self._login)
            if client is not None:
                self._let_in(site, client)
            else:
                self.denied.add(site)
            self.over.wait(RETRY_S)

    def _let_in(self, site: str, client: Client) -> None:
        with self._one:
            if self.found is None and not self.over.is_set():
                self.found = site, client
                self.over.set()
                return
        client.close()
