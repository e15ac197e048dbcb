"""The way to each broker of a BrokerSync installation."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from dr_ctl.core.clock import Clock
from dr_ctl.core.patience import Patience
from dr_ctl.settings.model import Installation
from dr_ctl.settings.topologies.classic_brokersync import BrokerSyncBroker
from dr_ctl.topologies.brokersync import parity
from dr_ctl.topologies.brokersync.look import look
from dr_ctl.topologies.brokersync.view import BrokerView, SyncConfig, SyncSeen
from dr_ctl.topologies.classic import access
from dr_ctl.topologies.common import observer


class Access(access.Access[BrokerView]):
    """One such broker."""

    def _config(self) -> SyncConfig:
        told = self._installation.broker(self.site, self.pair, BrokerSyncBroker)
        other = next(site for site in self._installation.settings.sites if site != self.site)
        peer = self._installation.broker(other, self.pair, BrokerSyncBroker)
        common = super()._config()
        beside = {each.name: getattr(common, each.name) for each in fields(common)}
        return SyncConfig(
            **beside | {"link": told.network, "mirror": told.bridge},
            copies=told.copies,
            arrives=peer.copies,
            agent=told.sync.connector if told.sync is not None else None,
        )

    def _ask(self, broker: str, timeout_s: float) -> BrokerView:
        config = self.config
        assert isinstance(config, SyncConfig)
        return look(
            self.reader(),
            self.papers,
            pair=self.pair,
            site=self.site,
            config=config,
            broker=broker,
            timeout_s=timeout_s,
        )


Way = tuple[Access, Access]


class Observer(observer.Observer[BrokerView, Access]):
    """Looks at both sites of such an installation."""

    def __init__(self, installation: Installation, clock: Clock, patience: Patience, documents: Path) -> None:
        self._documents = documents
        super().__init__(installation, clock, patience)

    def unapplied_at(self, site: str, *, timeout_s: float) -> int | None:
        self.together(lambda access: access.look(timeout_s=timeout_s), self.at(site))
        return 0

    def _access(self, installation: Installation, site: str, pair: str) -> Access:
        return Access(installation, site, pair, self._documents, self.clock)

    def _differ(self, seen: SyncSeen, pair: str) -> bool:
        here, there = (seen.view(site, pair) for site in seen.sites)
        if here is None or there is None or not (here.open or there.open):
            return False
        source, target = (here, there) if here.open else (there, here)
        return bool(parity.lacking(source, target, self.queues, seen.moved.get(pair, {})))
