"""Two brokers in memory of which one can be lost and come back: what the tests of failover and return share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Installation, Shell
from tests.topologies.mirror.pair import Management, console, mirrored_pair


class Sites(Installation):
    """Two brokers in memory of which London can be lost and come back; what it holds then is shipped at once."""

    def __init__(self, dr_ctl: Shell, paris_url: str, london: Management, paris: Management) -> None:
        super().__init__(london, paris)
        self._dr_ctl, self._paris_url = dr_ctl, paris_url
        self.up = ExitStack()
        self.start()

    def start(self) -> None:
        self.url = self.up.enter_context(console(self.london))
        self.settings()

    def settings(self, *, london: str | None = None, paris: str | None = None, **more: Any) -> None:
        self._dr_ctl.settings(london or self.url, paris or self._paris_url, drain={"poll": "5ms"}, **more)

    def lose(self, *, shown: bool = True) -> None:
        """London is gone; its ports are `shown` to refuse where the settings name an address of its clients."""
        self.up.close()
        self._attached(self.paris, attached=False)
        if not shown:
            return
        path = self._dr_ctl.folder / "dr-ctl.yaml"
        told = yaml.safe_load(path.read_text(encoding="utf-8"))
        port = self.url.split("/")[2].rpartition(":")[2]
        told["sites"]["london"]["brokers"][0]["stomp"] = f"stomp://127.0.0.1:{port}"
        path.write_text(yaml.safe_dump(told), encoding="utf-8")

    def come_back(self, *, opened: bool = False) -> None:
        """London is back, with two messages and an acknowledgement that Paris lacks."""
        self.london.acceptors["clients"]["Started"] = opened
        self.london.outflow["MessageCount"], self.london.acks = 3, 1
        self._attached(self.paris, attached=True)
        self._attached(self.london, attached=False)
        self.london.changes.clear()
        self.paris.changes.clear()
        self.paris.after_change = self._ship
        self.start()

    def _ship(self, operation: str) -> None:
        if not self.paris.acceptors["mirror"]["Started"] or not self.london.outflow["MessageCount"]:
            return
        assert all(told["Paused"] for name, told in self._orders(self.paris)), "residue meets consumers"
        self._attached(self.london, attached=True)
        self.london.outflow["MessageCount"] = self.london.acks = 0
        self.paris.messages["orders.in"] = [("node-london", 8), ("node-london", 9)]
        (queue,) = [told for name, told in self._orders(self.paris) if '"orders.in"' in name]
        queue |= {"MessageCount": 2, "MessagesAdded": 5, "MessagesAcknowledged": 3}
        (other,) = [told for name, told in self._orders(self.london) if '"orders.in"' in name]
        other |= {"MessageCount": 2, "MessagesAdded": 5, "MessagesAcknowledged": 3}
        self.london.messages = self.paris.messages

    @staticmethod
    def _orders(broker: Management) -> list[tuple[str, dict[str, Any]]]:
        return [(bean, told) for bean, told in broker.queues.items() if 'queue="orders' in bean]

    @staticmethod
    def _attached(broker: Management, *, attached: bool) -> None:
        broker.links[broker.peer]["Connected"] = attached
        broker.outflow["ConsumerCount"] = int(attached)


@pytest.fixture
def sites(dr_ctl: Shell) -> Iterator[Sites]:
    london, paris = mirrored_pair()
    with console(paris) as url:
        both = Sites(dr_ctl, url, london, paris)
        try:
            yield both
        finally:
            both.up.close()
