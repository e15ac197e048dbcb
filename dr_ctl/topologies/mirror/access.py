"""The way to each broker of a mirrored installation."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from dr_ctl.core.clock import growing_s
from dr_ctl.core.errors import TimedOut
from dr_ctl.settings.model import Installation
from dr_ctl.settings.topologies.artemis_mirror import MirrorBroker
from dr_ctl.topologies.artemis import access
from dr_ctl.topologies.artemis.look import COUNTS, MOVING, PAUSES
from dr_ctl.topologies.common import observer
from dr_ctl.topologies.common.access import A_QUEUE_S, READ_S
from dr_ctl.topologies.common.view import Config
from dr_ctl.topologies.mirror import parity
from dr_ctl.topologies.mirror.look import (
    Flow,
    Size,
    glance,
    look,
    look_again,
    look_at_flow,
    look_at_rights,
    open_doors,
    queue_count,
    unapplied,
)
from dr_ctl.topologies.mirror.view import BrokerView

# Queues whose number alone may make a look take longer than a look may; and how long a broker has to tell the number.
MANY: Final = 1000
SMALL_S: Final = 2.0


class Access(access.Access[BrokerView]):
    def _config(self) -> Config:
        settings = self._installation.broker(self.site, self.pair, MirrorBroker)
        return replace(super()._config(), link=settings.link, lasting=settings.lasting_fence)

    def _ask(self, broker: str, timeout_s: float) -> BrokerView:
        ask = partial(look, self.reader(), pair=self.pair, site=self.site, config=self.config, broker=broker)
        try:
            return ask(timeout_s=timeout_s)
        except TimedOut:
            # A broker is not sick for having more queues than it tells of in that time on a busy machine.
            if self._last is not None or timeout_s < READ_S:
                raise
            count = queue_count(self.reader(), broker, timeout_s=SMALL_S)
            if count < MANY:
                raise
            return ask(timeout_s=timeout_s + count * A_QUEUE_S)

    def counts(self) -> BrokerView:
        return self._again(Size(COUNTS, rights=False))

    def before_opening(self) -> BrokerView:
        return self._again(Size(COUNTS, clients=False))

    def pauses(self) -> BrokerView:
        return self._again(Size(PAUSES, clients=False, rights=False))

    def doors(self) -> BrokerView:
        return self._again(Size(()))

    def rights(self) -> BrokerView:
        return look_at_rights(self.reader(), self.names())

    def moving(self, *, timeout_s: float = READ_S) -> BrokerView:
        return self._again(Size(MOVING), timeout_s=timeout_s)

    def _again(self, size: Size, *, timeout_s: float = READ_S) -> BrokerView:
        if self._last is None:
            return self.look(timeout_s=timeout_s)
        began = growing_s()
        view = look_again(self.reader(), self._last, size, timeout_s=self.long_enough_s(timeout_s))
        self.newest = began, view
        return view

    def glance(self, *, timeout_s: float = READ_S) -> BrokerView:
        return glance(self.reader(), self.names(), timeout_s=timeout_s)

    def flow(self, *, timeout_s: float) -> Flow:
        return look_at_flow(self.reader(), self.names(), timeout_s=timeout_s)

    def open_doors(self, *, timeout_s: float) -> tuple[str, ...]:
        return open_doors(self.reader(), self.names(), timeout_s=timeout_s)

    def unapplied(self, *, timeout_s: float) -> int:
        return unapplied(self.reader(), self.names(), timeout_s=timeout_s)


Way = tuple[Access, Access]


class Observer(observer.Observer[BrokerView, Access]):
    """Looks at both sites of a mirrored installation."""

    def unapplied_at(self, site: str, *, timeout_s: float) -> int:
        return sum(self.together(lambda access: access.unapplied(timeout_s=timeout_s), self.at(site)))

    def _access(self, installation: Installation, site: str, pair: str) -> Access:
        return Access(installation, site, pair)

    def _unlike(self, source: BrokerView, target: BrokerView, moved: Mapping[str, int]) -> bool:
        return bool(parity.unexplained(source, target, self.queues, moved))
