"""The way to a broker that Jolokia manages, opened when first needed: for looks, and, on its own, for changes."""

from abc import abstractmethod
from urllib.parse import urlsplit

from dr_ctl.jolokia.client import Account, Reader, Wire
from dr_ctl.processes.secrets import resolve
from dr_ctl.settings.model import Installation
from dr_ctl.settings.parts import Secret
from dr_ctl.topologies.common.access import Access, Clients
from dr_ctl.topologies.common.snapshot import V_co


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
    def __init__(self, installation: Installation, site: str, pair: str, settings: Clients) -> None:
        super().__init__(installation, site, pair, settings)
        self._reading: Wire | None = None

    @abstractmethod
    def _jolokia(self) -> str:
        """Where its Jolokia is."""

    def wire(self) -> Wire:
        """Open a connection of its own to the broker's management."""
        return Wire(
            account(
                self._installation,
                self.site,
                self._jolokia(),
                self.settings.username,
                self.settings.password,
                self._secret(),
            )
        )

    def reader(self) -> Reader:
        if self._reading is None:
            self._reading = self.wire()
        return Reader(self._reading)

    def close(self) -> None:
        if self._reading is not None:
            self._reading.close()
