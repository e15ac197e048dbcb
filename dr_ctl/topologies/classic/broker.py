"""The result of a look at a Classic broker, whatever joins it to its peer."""

from dataclasses import dataclass, field
from typing import TypeVar

from dr_ctl.core.model import Role
from dr_ctl.topologies.classic.fence import Connectors
from dr_ctl.topologies.classic.operations import ClassicRequests, Permit
from dr_ctl.topologies.common.fence import Fence
from dr_ctl.topologies.common.view import Broker, Connection


@dataclass(frozen=True, slots=True)
class Network:
    """A network connector. `to` is the connected peer's name: a stopped connector and an absent peer look the same."""

    name: str
    bean: str
    to: str | None


@dataclass(frozen=True, slots=True)
class ClassicBroker(Broker):
    """A Classic broker as it answered. `denied` are the operations that its console's policy refuses; `bridges` are the
    connections of network connectors, which are no clients; `managed` says that Jolokia reads and changes it: without
    Jolokia only figures are known."""

    managed: bool = field(default=True, kw_only=True)
    networks: tuple[Network, ...] = field(default=(), kw_only=True)
    denied: frozenset[Permit] = field(default=frozenset(), kw_only=True)
    bridges: tuple[Connection, ...] = field(default=(), kw_only=True)

    @property
    def role(self) -> Role:
        return self.by_doors

    @property
    def by_doors(self) -> Role:
        """Serving as soon as one client connector is open; a connector missing at the broker makes the role unknown."""
        if self.open:
            return Role.SERVING
        return Role.UNKNOWN if self.missing_doors else Role.STANDBY

    @property
    def requests(self) -> ClassicRequests:
        return ClassicRequests(self.broker)

    @property
    def fence(self) -> Fence:
        """Rights are in its files: no fence outlasts a restart."""
        return Connectors(self)


B_co = TypeVar("B_co", bound=ClassicBroker, covariant=True)
