"""The way to each broker of an installation that the continuity plugin joins."""

from dataclasses import replace

from dr_ctl.jolokia.client import Answer, Read
from dr_ctl.settings.model import Installation
from dr_ctl.settings.topologies.artemis_continuity import ContinuityBroker
from dr_ctl.topologies.artemis import access
from dr_ctl.topologies.common import observer
from dr_ctl.topologies.common.access import READ_S
from dr_ctl.topologies.common.view import Config
from dr_ctl.topologies.continuity import look
from dr_ctl.topologies.continuity.view import SiteView


class Access(access.Access[SiteView]):
    def _config(self) -> Config:
        settings = self._installation.broker(self.site, self.pair, ContinuityBroker)
        return replace(super()._config(), id_cache=settings.id_cache_size)

    def _ask(self, broker: str, timeout_s: float) -> SiteView:
        return look.look(
            self.reader(), pair=self.pair, site=self.site, config=self.config, broker=broker, timeout_s=timeout_s
        )

    def aged(self, *, timeout_s: float = READ_S) -> SiteView:
        return look.aged(self.reader(), self.look(timeout_s=timeout_s), timeout_s=timeout_s)

    def glance(self, *, timeout_s: float = READ_S) -> SiteView:
        return look.glance(self.reader(), self.names(), timeout_s=timeout_s)

    def open_doors(self, *, timeout_s: float) -> tuple[str, ...]:
        """Empty while the plugin does not deliver: an acceptor whose port is taken says that it is started."""
        delivers, started = look.serving(self.reader(), self.names().broker, timeout_s=timeout_s)
        return started if delivers else ()

    @staticmethod
    def clock(broker: str) -> Read:
        return look.clock(broker)

    @staticmethod
    def clock_ms(answer: Answer) -> int:
        return look.clock_ms(answer)


Way = tuple[Access, Access]


class Observer(observer.Observer[SiteView, Access]):
    """Looks at both sites."""

    def _access(self, installation: Installation, site: str, pair: str) -> Access:
        return Access(installation, site, pair)
