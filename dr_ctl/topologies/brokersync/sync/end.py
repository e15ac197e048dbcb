"""The agent's access to one broker of a pair: the management, and the agent's own door."""

from dataclasses import dataclass, field

from dr_ctl.core.errors import UsageError
from dr_ctl.jolokia.client import Changer, Reader, Wire
from dr_ctl.settings.model import Installation
from dr_ctl.settings.topologies.classic import AgentAccess
from dr_ctl.settings.topologies.classic_brokersync import BrokerSyncBroker
from dr_ctl.topologies.brokersync.access import Access
from dr_ctl.topologies.classic.look import find_broker
from dr_ctl.topologies.common.access import Gate


@dataclass
class End:
    """Opened when first needed. Raises `BrokerError` from every method that needs a secret or asks the broker."""

    installation: Installation
    access: Access
    _wire: Wire | None = field(default=None, init=False)
    _broker: str | None = field(default=None, init=False)

    @property
    def site(self) -> str:
        return self.access.site

    @property
    def settings(self) -> BrokerSyncBroker:
        return self.installation.broker(self.access.site, self.access.pair, BrokerSyncBroker)

    @property
    def own(self) -> AgentAccess:
        """Raises `UsageError` where the settings do not say how the agent gets in."""
        settings = self.settings
        if settings.sync is None or settings.jolokia is None:
            lacking = "sync" if settings.jolokia else "jolokia"
            text = f"{self.access.pair} at {self.access.site} has no `{lacking}:` in the settings"
            remedy = "The agent needs a transport connector that no client uses, as `sync:`, and `jolokia:`, at each."
            raise UsageError(text, remedy=remedy)
        return settings.sync

    def gate(self) -> Gate:
        door = self.access.agents_door() if self.own else None
        assert door is not None
        return door

    def reader(self) -> Reader:
        return Reader(self._opened())

    def changer(self) -> Changer:
        return Changer(self._opened())

    @property
    def broker(self) -> str:
        if self._broker is None:
            self._broker = self.settings.broker or find_broker(self.reader())
        return self._broker

    def copy(self, queue: str) -> str:
        """The queue here that holds the copies of a queue until they are shipped."""
        return self.settings.copies.format(queue=queue)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _opened(self) -> Wire:
        if self._wire is None:
            self._wire = self.access.wire()
        return self._wire
