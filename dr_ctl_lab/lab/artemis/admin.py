"""The management calls that a lab of Artemis brokers needs for its set-up and its status."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

from dr_ctl.core.errors import BrokerError
from dr_ctl.jolokia.client import Account, Wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dr_ctl_lab.lab.state import SiteState

DOMAIN = "org.apache.activemq.artemis"
ORIGIN = "http://127.0.0.1"


def jolokia(site: SiteState) -> str:
    """The address of a broker's management."""
    return f"http://127.0.0.1:{site.ports['http']}/console/jolokia"


class Admin:
    """Management of one site's broker. Methods raise BrokerError where it does not answer or refuses."""

    def __init__(self, site: SiteState, *, timeout_s: float = 5.0) -> None:
        self._site = site
        self._timeout_s = timeout_s
        self._broker = f'{DOMAIN}:broker="{site.broker}"'

    def active(self) -> bool:
        return self._read(self._broker, "Active") is True

    def prepare(self) -> None:
        """Do nothing: broker.xml has everything."""

    def link_attached(self, peer: str) -> bool:
        """Say whether the link ships: its flag is true as soon as any program accepts the connection, so the outflow
        must have a consumer. Old versions show neither flag nor outflow: there a started link counts."""
        listing = {"type": "exec", "mbean": self._broker, "operation": "listBrokerConnections()"}
        link = next((row for row in json.loads(self._call(listing)) if row["name"] == peer), None)
        if link is None or not link.get("connected", link["started"]):  # a node that takes over lists no link
            return False
        if "connected" not in link:
            return True
        outflow = f"$ACTIVEMQ_ARTEMIS_MIRROR_{peer}"
        pattern = f'{self._broker},component=addresses,address="{outflow}",subcomponent=queues,*'
        value = self._call({"type": "read", "mbean": pattern, "attribute": ["ConsumerCount"]})
        return any(row["ConsumerCount"] for row in value.values())

    def clients_open(self, acceptor: str = "clients") -> bool:
        return self._read(self._acceptor(acceptor), "Started") is True

    def open_clients(self, acceptor: str = "clients") -> None:
        self._call({"type": "exec", "mbean": self._acceptor(acceptor), "operation": "start()"})

    def close_clients(self, acceptor: str = "clients") -> None:
        self._call({"type": "exec", "mbean": self._acceptor(acceptor), "operation": "stop()"})

    def keep_out(self) -> None:
        rights = ["#", *["amq"] * 10]
        operation = f"addSecuritySettings({','.join(['java.lang.String'] * len(rights))})"
        self._call({"type": "exec", "mbean": self._broker, "operation": operation, "arguments": rights})
        self.close_clients()

    def create_queue(self, name: str) -> None:
        """Create a durable anycast queue, unless it exists."""
        options = {"name": name, "address": name, "routing-type": "ANYCAST", "durable": True}
        options["auto-create-address"] = True
        self._call(
            {
                "type": "exec",
                "mbean": self._broker,
                "operation": "createQueue(java.lang.String,boolean)",
                "arguments": [json.dumps(options), True],
            }
        )

    def served(self, queues: Sequence[str]) -> list[str]:
        return list(queues) if self.clients_open() else []

    def depths(self) -> dict[str, int]:
        """Count the messages of every queue, internal ones included."""
        pattern = f"{self._broker},component=addresses,subcomponent=queues,*"
        value = self._call({"type": "read", "mbean": pattern, "attribute": ["Name", "MessageCount"]})
        return {str(row["Name"]): int(row["MessageCount"]) for row in value.values()}

    def depth(self, queue: str) -> int:
        """Count the messages of one queue; 0 where it does not exist."""
        return self.depths().get(queue, 0)

    def _acceptor(self, name: str) -> str:
        return f'{self._broker},component=acceptors,name="{name}"'

    def _read(self, mbean: str, attribute: str) -> Any:
        return self._call({"type": "read", "mbean": mbean, "attribute": attribute})

    def _call(self, request: dict[str, Any]) -> Any:
        login = self._site.admin
        # A connection for each call: a broker that is starting may refuse a login at first.
        with closing(Wire(Account(jolokia(self._site), login.user, login.password, ORIGIN))) as wire:
            try:
                return wire.post([request], self._timeout_s)[0].value()
            except BrokerError as error:
                raise BrokerError(f"{self._site.name}: {error}") from error
