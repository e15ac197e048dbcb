"""One broker of a pair as the agent reaches it: its management, and the door that is the agent's own."""

from __future__ import annotations

from dataclasses import dataclass, field

from dr_ctl.core.errors import UsageError
from dr_ctl.jolokia.client import Changer, Reader, Wire
from dr_ctl.processes.secrets import resolve
from dr_ctl.settings.model import Installation
from dr_ctl.settings.topologies.classic_brokersync import AgentAccess, BrokerSyncBroker
from dr_ctl.stomp_io.address import Login
from dr_ctl.topologies.brokersync.sync import beans
from dr_ctl.topologies.common.access import Gate, gate
from dr_ctl.topologies.console.access import account


@dataclass
class End:
    """Opened when first needed. Raises `BrokerError` from every method that needs a secret or asks the broker."""

    installation: Installation
    site: str
    pair: str
    _wire: Wire | None = field(default=None, init=False)
    _broker: str | None = field(default=None, init=False)

    @property
    def settings(self) -> BrokerSyncBroker:
        return self.installation.broker(self.site, self.pair, BrokerSyncBroker)

    @property
    def access(self) -> AgentAccess:
        """Raises `UsageError` where the settings do not say how the agent gets in."""
        if self.settings.sync is None or self.settings.jolokia is None:
            text = (
                f"{self.pair} at {self.site} has no {'sync' if self.settings.jolokia else 'jolokia'}: in the settings"
            )
            remedy = (
                "The agent needs a transport connector that no client uses, as `sync:`, and `jolokia:`, at each broker."
            )
            raise UsageError(text, remedy=remedy)
        return self.settings.sync

    def gate(self) -> Gate:
        access = self.access
        password = resolve(access.password, self.installation.file.parent)
        return gate(self.installation, self.site, access.stomp, Login(access.username, password))

    def wire(self) -> Wire:
        if self._wire is None:
            settings = self.settings
            url = settings.jolokia or ""
            self._wire = Wire(account(self.installation, self.site, url, settings.username, settings.password))
        return self._wire

    def reader(self) -> Reader:
        return Reader(self.wire())

    def changer(self) -> Changer:
        return Changer(self.wire())

    @property
    def broker(self) -> str:
        """Its own name."""
        if self._broker is None:
            self._broker = self.settings.broker or beans.find_broker(self.reader())
        return self._broker

    def depth(self, queue: str) -> int | None:
        return beans.depth(self.reader(), self.broker, queue)

    def copy(self, queue: str) -> str:
        """The queue here that holds the copies of a queue until they are shipped."""
        return self.settings.copies.format(queue=queue)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
