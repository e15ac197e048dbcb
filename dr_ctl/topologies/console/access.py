"""The way to a broker that Jolokia manages, opened when first needed: for readings, and, on its own, for changes."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from dr_ctl.core.errors import Unreachable
from dr_ctl.core.system import Clock
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Done, Outcome, Refused
from dr_ctl.jolokia.client import Account, Changer, Reader, Wire
from dr_ctl.processes.secrets import resolve
from dr_ctl.settings.model import Installation
from dr_ctl.settings.parts import Secret
from dr_ctl.topologies.common import access as common
from dr_ctl.topologies.common.access import CHANGE_S, Access, Clients
from dr_ctl.topologies.common.snapshot import V_co
from dr_ctl.topologies.console.requests import change


class Managed(Clients, Protocol):
    """The settings that say how a broker is managed."""

    @property
    def jolokia(self) -> str | None: ...

    @property
    def broker(self) -> str | None: ...


def account(
    installation: Installation, site: str, url: str, username: str, secret: Secret, password: str | None = None
) -> Account:
    """The login for a console of that site, with the site's TLS. `password`: the secret, if resolved already."""
    settings = installation.settings.sites[site]
    tls, parts = settings.tls, urlsplit(url)
    ca = str(installation.path(tls.ca)) if tls.ca is not None else True
    own = (tls.cert, tls.key or tls.cert) if tls.cert is not None else None
    return Account(
        url=url,
        username=username,
        password=password if password is not None else resolve(secret, installation.file.parent),
        origin=settings.origin or f"{parts.scheme}://{parts.hostname or ''}",
        verify=ca if tls.verify else False,
        source=secret.source,
        cert=(str(installation.path(own[0])), str(installation.path(own[1]))) if own else None,
    )


class ConsoleAccess(Access[V_co]):
    settings: Managed

    def __init__(self, installation: Installation, site: str, pair: str, documents: Path, clock: Clock) -> None:
        super().__init__(installation, site, pair, documents, clock)
        self._broker = self.settings.broker
        self._reading: Wire | None = None

    @staticmethod
    @abstractmethod
    def find_broker(reader: Reader, *, timeout_s: float) -> str:
        """The broker's own name. Raises `BrokerError`."""

    @abstractmethod
    def _ask(self, broker: str, timeout_s: float) -> V_co:
        """Ask that broker for everything."""

    def _everything(self, timeout_s: float) -> V_co:
        if self._broker is None:
            self._broker = self.find_broker(self.reader(), timeout_s=timeout_s)
        return self._ask(self._broker, timeout_s)

    def wire(self) -> Wire:
        """Open a connection of its own to the broker's management."""
        settings = self.settings
        if settings.jolokia is None:
            text = f"{self.site}/{self.pair}: the settings name no `jolokia:`, so nothing can be managed there"
            raise Unreachable(text, refused=False)
        return Wire(
            account(
                self._installation, self.site, settings.jolokia, settings.username, settings.password, self._secret()
            )
        )

    def reader(self) -> Reader:
        if self._reading is None:
            self._reading = self.wire()
        return Reader(self._reading)

    def channel(self) -> common.Channel:
        return Channel(self.wire())

    def close(self) -> None:
        if self._reading is not None:
            self._reading.close()


class Channel:
    """Implements `common.access.Channel` over one connection."""

    def __init__(self, wire: Wire) -> None:
        self._wire, self._changer = wire, Changer(wire)

    def send(self, calls: Sequence[Call]) -> list[Outcome]:
        answers = self._changer.change([change(call) for call in calls], timeout_s=CHANGE_S)
        return [Done("answered") if each.error is None else Refused(str(each.error)) for each in answers]

    def close(self) -> None:
        self._wire.close()
