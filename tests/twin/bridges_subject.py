"""A pair that diverts and bridges join, real or simulated, as the contract tests ask it."""

import sqlite3
from contextlib import closing
from typing import Any

from tests.twin.subject import SITES, Subject, other, until

TEXT = "java.lang.String"
QUEUES = IN, OUT = "orders.in", "orders.out"
IDS = "notification.idempotent-consumer"
ORIGIN = "ARTEMIS_MESSAGE_ORIGIN"
ADD, REMOVE = f"addSecuritySettings({','.join([TEXT] * 11)})", f"removeSecuritySettings({TEXT})"
CUT = f"closeConsumerConnectionsForAddress({TEXT})"
FENCED = ["amq,bridge", *["amq"] * 9]


class BridgesSubject(Subject):
    """What is tested: London serves; a queue is closed at a site by roles and by a pause that lasts."""

    def reset(self) -> None:
        """Nothing lies anywhere, nothing is under way: a real pair is shared by all tests."""
        for site in SITES:
            self.stage.start(site)
            for address in (*QUEUES, IDS):
                self.done(site, self.bridge(site, address), "start()")
        self.stage.close_clients("paris")
        self.stage.open_clients("london")
        until(self.even, within_s=30)
        for site in SITES:
            for name in QUEUES:
                self.done(site, self.queue(site, name), "removeAllMessages()")
        self._before = {site: self._counted(site) for site in SITES}

    def even(self) -> bool:
        buffers = [self.buffered(site, address)["MessageCount"] for site in SITES for address in (*QUEUES, IDS)]
        return not any(buffers) and not any(self.depth(site, IDS) for site in SITES)

    def done(self, site: str, bean: str, operation: str, *arguments: Any) -> Any:
        told = self.execute(site, bean, operation, *arguments)
        assert told["status"] == 200, told
        return told["value"]

    def bridge(self, site: str, address: str) -> str:
        return f'{self.server(site)},component=bridges,name="bridge.mirror.{other(site)}.{address}"'

    def address(self, site: str, name: str) -> str:
        return f'{self.server(site)},component=addresses,address="{name}"'

    def buffer(self, site: str, address: str) -> str:
        return self.queue(site, f"mirror.{other(site)}.{address}", f"mirror.{address}", "anycast")

    def buffered(self, site: str, address: str) -> Any:
        return self.read(site, self.buffer(site, address), "MessageCount", "ConsumerCount")

    def shows(self, site: str, address: str) -> Any:
        return self.read(site, self.bridge(site, address), "Started", "Connected")

    def processed(self, site: str) -> set[tuple[str, str]]:
        path = self.stage.directory / "ids" / f"{self.place(site).broker}.sqlite"
        with closing(sqlite3.connect(path)) as store:
            return set(store.execute("SELECT queue, id FROM processed"))
