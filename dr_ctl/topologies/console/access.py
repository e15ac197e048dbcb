"""The way to a broker that Jolokia manages, opened when first needed: for looks, and, on its own, for changes."""

from __future__ import annotations

from abc import abstractmethod
from urllib.parse import urlsplit

from dr_ctl.jolokia.client import Account, Reader, Wire
from dr_ctl.settings.model import Installation
from dr_ctl.topologies.common.access import Access, Clients
from dr_ctl.topologies.common.seen import V_co


class ConsoleAccess(Access[V_co]):
    """One broker behind its console."""

    def __init__(self, installation: Installation, site: str, pair: str, settings: Clients) -> None:
        super().__init__(installation, site, pair, settings)
        self._reading: Wire | None = None

    @abstractmethod
    def _jolokia(self) -> str:
        """Where its Jolokia is."""

    def wire(self) -> Wire:
        """Open a connection of its own to the broker's management."""
        tls, url = self._site.tls, self._jolokia()
        parts = urlsplit(url)
        ca = str(self._installation.path(tls.ca)) if tls.ca is not None else True
        own = (tls.cert, tls.key or tls.cert) if tls.cert is not None else None
        return Wire(
            Account(
                url=url,
                username=self.settings.username,
                password=self._secret(),
                origin=self._site.origin or f"{parts.scheme}://{parts.hostname}",
                verify=ca if tls.verify else False,
                source=self.settings.password.source,
                cert=(str(self._installation.path(own[0])), str(self._installation.path(own[1]))) if own else None,
            )
        )

    def reader(self) -> Reader:
        if self._reading is None:
            self._reading = self.wire()
        return Reader(self._reading)

    def close(self) -> None:
        if self._reading is not None:
            self._reading.close()
