"""The management calls that a lab of Classic brokers needs, and those of tests."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.jolokia.client import Account, Wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dr_ctl_lab.lab.state import SiteState

ORIGIN: Final = "http://127.0.0.1"
CLIENTS: Final = "stomp"  # the connector that clients use
TEXT: Final = "java.lang.String"
# A connector that stops ends each client's connection in order; under load that takes seconds.
STOP_S: Final = 15.0


def jolokia(site: SiteState) -> str:
    """The address of a broker's management."""
    return f"http://127.0.0.1:{site.ports['http']}/api/jolokia/"


def network(peer: str) -> str:
    """The name of the network connector to a peer."""
    return f"to-{peer}"


class ClassicAdmin:
    """Management of one site's broker. Methods raise BrokerError where it does not answer or refuses."""

    def __init__(self, site: SiteState, *, timeout_s: float = 5.0) -> None:
        self._site = site
        self._timeout_s = timeout_s
        self._broker = f"org.apache.activemq:type=Broker,brokerName={site.group}"

    def active(self) -> bool:
        return self._read(self._broker, "Slave") is False

    def prepare(self) -> None:
        """Do nothing: activemq.xml has everything."""

    def link_attached(self, peer: str) -> bool:
        """Say whether the network connector has a bridge; its bean exists while it is connected."""
        return bool(self._search(f"{self._network(network(peer))},networkBridge=*"))

    def clients_open(self, acceptor: str = CLIENTS) -> bool:
        # Only this attribute: a read of all fails while the connector is stopped.
        return self._read(self._connector(acceptor), "Started") is True

    def open_clients(self, acceptor: str = CLIENTS) -> None:
        self._execute(self._connector(acceptor), "start()")

    def close_clients(self, acceptor: str = CLIENTS) -> None:
        self._execute(self._connector(acceptor), "stop()", timeout_s=STOP_S)

    def keep_out(self) -> None:
        """Close the connector; a takeover opens it again."""
        self.close_clients()

    def create_queue(self, name: str) -> None:
        """Create a queue that is not copied: copying needs a configuration and a restart."""
        self._execute(self._broker, f"addQueue({TEXT})", name)

    def served(self, queues: Sequence[str]) -> list[str]:
        return list(queues) if self.clients_open() else []

    def depths(self) -> dict[str, int]:
        pattern = self._queue("*")
        call = self._call({"type": "read", "mbean": pattern, "attribute": ["Name", "QueueSize"]})
        return {str(row["Name"]): int(row["QueueSize"]) for row in call.values()}

    def depth(self, queue: str) -> int:
        return self.depths().get(queue, 0)

    def start_link(self, peer: str) -> None:
        self._execute(self._network(network(peer)), "start()")

    def stop_link(self, peer: str) -> None:
        """Stop the network connector to a peer; unshipped messages stay in the copy queues."""
        self._execute(self._network(network(peer)), "stop()", timeout_s=STOP_S)

    def ids(self, queue: str) -> list[str]:
        """The ids of a queue's messages, up to the broker's browse limit."""
        return [str(row["JMSMessageID"]) for row in self._execute(self._queue(queue), "browse()", timeout_s=STOP_S)]

    def purge(self, queue: str) -> None:
        """Remove all messages of a queue."""
        self._execute(self._queue(queue), "purge()", timeout_s=STOP_S)

    def move(self, queue: str, to: str, *, selector: str = "", limit: int | None = None) -> int:
        """Move messages to another queue; return their number."""
        kinds, limits = (f"{TEXT},{TEXT}", []) if limit is None else (f"{TEXT},{TEXT},int", [limit])
        operation = f"moveMatchingMessagesTo({kinds})"
        return int(self._execute(self._queue(queue), operation, selector, to, *limits, timeout_s=STOP_S))

    def _connector(self, name: str) -> str:
        return f"{self._broker},connector=clientConnectors,connectorName={name}"

    def _network(self, name: str) -> str:
        return f"{self._broker},connector=networkConnectors,networkConnectorName={name}"

    def _queue(self, name: str) -> str:
        return f"{self._broker},destinationType=Queue,destinationName={name}"

    def _read(self, mbean: str, attribute: str) -> Any:
        return self._call({"type": "read", "mbean": mbean, "attribute": attribute})

    def _search(self, pattern: str) -> list[str]:
        return list(self._call({"type": "search", "mbean": pattern}))

    def _execute(self, mbean: str, operation: str, *arguments: Any, timeout_s: float | None = None) -> Any:
        request = {"type": "exec", "mbean": mbean, "operation": operation, "arguments": list(arguments)}
        return self._call(request, timeout_s=timeout_s)

    def _call(self, request: dict[str, Any], *, timeout_s: float | None = None) -> Any:
        login = self._site.admin
        with closing(Wire(Account(jolokia(self._site), login.user, login.password, ORIGIN))) as wire:
            try:
                return wire.post([request], timeout_s or self._timeout_s)[0].value()
            except BrokerError as error:
                raise BrokerError(f"{self._site.name}: {error}") from error
