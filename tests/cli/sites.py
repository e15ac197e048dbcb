"""Two sites of which one can be lost and come back: what the tests of failover and return share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Shell
from tests.cli.installation import Installation
from tests.twin.subject import until


class Sites(Installation):
    """An installation of which London can be lost and come back."""

    def __init__(self, dr_ctl: Shell, installation: Installation) -> None:
        super().__init__(installation.twin)
        self.london, self.paris = installation.sites
        self._dr_ctl = dr_ctl
        self.lost_ids: list[str] = []
        self.met_consumers = False
        self.paris.after_change = self._in_the_way

    def settings(
        self,
        *,
        london: str | None = None,
        paris: str | None = None,
        stomp: str | None = None,
        paris_stomp: str | None = None,
        **more: Any,
    ) -> None:
        """Write them anew; `stomp` is where clients of London are greeted."""
        self._dr_ctl.settings(london or self.london.url, paris or self.paris.url, drain={"poll": "5ms"}, **more)
        for site, address in (("london", stomp), ("paris", paris_stomp)):
            if address is not None:
                self._greeted_at(site, address)

    def _greeted_at(self, site: str, address: str) -> None:
        path = self._dr_ctl.folder / "dr-ctl.yaml"
        told = yaml.safe_load(path.read_text(encoding="utf-8"))
        told["sites"][site]["brokers"][0]["stomp"] = address
        path.write_text(yaml.safe_dump(told), encoding="utf-8")

    def lose(self, *, shown: bool = True) -> None:
        """London is gone, with two messages and an acknowledgement that Paris lacks; its ports are `shown` to refuse
        where the settings name an address of its clients."""
        broker = self.london.broker
        self.twin.cut("london")
        until(lambda: not broker.attached)
        with self.twin.still():
            queue = broker.queues["orders.in"]
            self.london.take("orders.in")
            before = set(queue.messages)
            self.london.put("orders.in", 2)
            self.lost_ids = [f"{broker.node}:{number}" for number in queue.messages if number not in before]
        self.twin.kill("london")
        until(lambda: not self.paris.broker.attached)
        self.forget()
        if not shown:
            return
        self._greeted_at("london", "stomp://{}:{}".format(*self.london.host.stomp))

    def come_back(self, *, opened: bool = False) -> None:
        """London is back; what it holds is shipped as soon as Paris lets it in."""
        self.twin.heal()
        self.twin.start("london")
        until(lambda: self.paris.broker.attached)
        if opened:
            self.london.let_in()
        self.forget()

    def _in_the_way(self, operation: str) -> None:
        paris = self.paris.broker
        if operation == "start()" and paris.acceptors["mirror"].started and self.london.broker.alive:
            left = bool(self.london.broker.outflow.events)
            self.met_consumers |= left and not all(paris.queues[name].paused for name in self.twin.queues)


@pytest.fixture
def sites(dr_ctl: Shell, installation: Installation) -> Iterator[Sites]:
    both = Sites(dr_ctl, installation)
    yield both
    assert not both.met_consumers, "what a lost site held met consumers before it was compared"
