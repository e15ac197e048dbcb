"""The result of a reading of a Classic broker, whatever joins it to its peer."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from dr_ctl.topologies.classic.beans import PAUSES, REMOVES_QUEUES, ClassicRequests, Permit
from dr_ctl.topologies.common.view import Broker, Connection, Fence, Queue

OWN_CLIENT: Final = "dr-ctl-"
"""The client ids of dr-ctl's own sessions begin so. Anybody else who comes in by dr-ctl's connector is a client."""


class Connectors(Fence):
    def clients_elsewhere(self, besides: Collection[str] = ()) -> list[str]:
        """Find clients at every connector that is not theirs, except those `besides`; the link's and dr-ctl's own are
        looked at too."""
        others = {*self.view.config.clients, *besides}
        listeners = [listener for listener in self.view.acceptors if listener.name not in others]
        ports = {listener.port: listener.name for listener in listeners if listener.port is not None}
        return [
            f"client {connection.client or '(no client id)'} from {connection.remote} "
            f"(user {connection.user or 'none'}) on connector {ports[connection.port]}"
            for connection in self.view.connections
            if connection.port in ports and not connection.client.startswith(OWN_CLIENT)
        ]


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
    Jolokia only figures are known. `copy_queues` gives by a queue's name the queue that holds its copies until they are
    shipped."""

    managed: bool = field(default=True, kw_only=True)
    networks: tuple[Network, ...] = field(default=(), kw_only=True)
    denied: frozenset[Permit] = field(default=frozenset(), kw_only=True)
    bridges: tuple[Connection, ...] = field(default=(), kw_only=True)
    copy_queues: Mapping[str, Queue] = field(default_factory=dict, kw_only=True)

    @property
    def without_dead_letters(self) -> Mapping[str, Queue]:
        """The clients' queues but those of dead letters, which every broker fills by itself."""
        return {name: queue for name, queue in self.business.items() if queue.dead_letter_address is None}

    @property
    def may_pause(self) -> bool:
        return PAUSES not in self.denied

    @property
    def may_remove_queues(self) -> bool:
        return REMOVES_QUEUES not in self.denied

    @property
    def requests(self) -> ClassicRequests:
        return ClassicRequests(self.broker)

    @property
    def fence(self) -> Fence:
        """No fence outlasts a restart, because rights are in the broker's files."""
        return Connectors(self)


B_co = TypeVar("B_co", bound=ClassicBroker, covariant=True)
