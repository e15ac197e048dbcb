"""The topology `folders`, opened for one command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dr_ctl.core.clock import Clock
from dr_ctl.engine.holding import Lease
from dr_ctl.engine.lease import Store
from dr_ctl.engine.stores import FolderStore
from dr_ctl.settings.model import Installation
from tests.folders.broker import FolderBroker
from tests.folders.driver import FoldersDriver
from tests.folders.recipe import FoldersRecipe
from tests.folders.seen import FoldersSeen
from tests.folders.settings import FolderBroker as Settings
from tests.folders.site import FolderSites


class FoldersTopology:
    """Implements `Topology`."""

    def __init__(self, sites: FolderSites) -> None:
        self.recipe = FoldersRecipe()
        self._sites = sites

    def look(self, *, over_s: float = 0.0) -> FoldersSeen:
        del over_s  # a folder counts nothing: there is no rate
        return self._sites.look()

    def observe(self) -> FoldersSeen:
        return self._sites.look()

    def spend_at_most(self, seconds: float, site: str) -> None:
        """No look waits for a folder."""

    def stores(self) -> Sequence[Store]:
        return list(self._sites.stores.values())

    def driver(self, lease: Lease | None = None) -> FoldersDriver:
        return FoldersDriver(self._sites, self.recipe, lease)

    def why_not_so(self, site: str, *, serving: bool) -> str | None:
        is_open = self._sites.view(site).open
        return None if is_open is serving else f"its door is {'open' if is_open else 'closed'}"

    def close(self) -> None:
        """Nothing stays open."""


def open_(installation: Installation, clock: Clock, documents: Path) -> FoldersTopology:
    """Make it ready for one command."""
    brokers, stores = {}, {}
    for site, told in installation.settings.sites.items():
        broker = installation.broker(site, told.brokers[0].name, Settings)
        brokers[site] = FolderBroker(site, broker.name, installation.path(broker.folder))
        stores[site] = FolderStore(documents, site, broker.name, clock)
    return FoldersTopology(FolderSites(brokers, stores, clock))
