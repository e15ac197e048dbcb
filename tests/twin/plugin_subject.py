"""A pair that the continuity plugin joins, real or simulated, as the contract tests ask it."""

import json
from collections.abc import Sequence
from typing import Any

from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.document_queue import CREATE_FILTERED
from dr_ctl.topologies.continuity.look import aged, look, service_bean
from dr_ctl.topologies.continuity.view import Flow, SiteView
from tests.twin.subject import CONFIG, COUNTERS, SITES, Subject, until

ID = "_AMQ_DUPL_ID"
ACTIVATE, DEACTIVATE = "activateSite(java.lang.Long)", "deactivateSite()"
FLOWS = ("orders.in", "orders.out")


def bare(told: dict[str, Any]) -> dict[str, Any]:
    """An answer without what these versions add to each, whether it is wanted or not."""
    return {key: value for key, value in told.items() if key not in ("request", "timestamp")}


class PluginSubject(Subject):
    """What is tested: doors open by activation, the plugin's queues are wherever it has put them."""

    def reset(self) -> None:
        """London serves, nothing lies anywhere, nothing is under way: a real pair is shared by all tests."""
        self.stage.heal()
        until(lambda: all(self.serving(site) is not None for site in SITES), within_s=30)
        for site in SITES:
            self.execute(site, self.acceptor(site, "mirror"), "start()")
            self.execute(site, self.at(site, "continuity.cmd.out"), "resume()")
            for flow in self.view(site).flows:
                for bridge in flow.shipping:
                    self.execute(site, bridge.bean, "start()")
        if self.serving("london") != (True, True) or self.serving("paris") != (False, False):
            self.move("london")
        for bridge in self.bridges("london", ".in.mirror.bridge"):
            self.execute("london", bridge, "stop()")
        self.quiet()
        # Purging at a site that is not active would delete at the other; both are to be empty.
        for _ in range(2):
            for site in SITES:
                for flow in self.view(site).flows:
                    for queue in (flow.in_mirror.name, flow.queue):
                        self.execute(site, self.at(site, queue), "removeAllMessages()")
            self.quiet()
        for bridge in self.bridges("london", ".in.mirror.bridge"):
            self.execute("london", bridge, "start()")
        self._before = {site: self._counted(site) for site in SITES}

    # management

    def service(self, site: str) -> str:
        return service_bean(self.broker[site])

    def at(self, site: str, queue: str) -> str:
        """The bean of a queue, found as a caller would have to."""
        [found] = self.ask(site, type="search", mbean=f'{self.server(site)},queue="{queue}",*')["value"]
        return str(found)

    def bridges(self, site: str, *ends: str) -> list[str]:
        told = self.ask(site, type="read", mbean=f"{self.server(site)},bridge=*,*", attribute=["Name"])["value"]
        return [bean for bean, row in told.items() if row["Name"].endswith(ends)]

    def bridge(self, site: str, name: str) -> str:
        [found] = self.bridges(site, name)
        return found

    def serving(self, site: str) -> tuple[bool, bool] | None:
        """Activated, delivering; None where the plugin is not there."""
        told = self.ask(site, type="read", mbean=self.service(site))
        return (told["value"]["SiteActivated"], told["value"]["Delivering"]) if told["status"] == 200 else None

    def view(self, site: str) -> SiteView:  # type: ignore[override]
        with self.reader(site) as reader:
            return aged(reader, look(reader, pair="orders-1", site=site, config=CONFIG, broker=self.broker[site]))

    def flow(self, site: str, queue: str) -> Flow:
        found = self.view(site).flow(queue)
        assert found is not None
        return found

    def _counted(self, site: str) -> dict[str, Any]:
        start = self.read(site, beans.RUNTIME, "StartTime")
        told = self.ask(
            site, type="read", mbean=f"{self.server(site)},queue=*,*", attribute=["MessageCount", *COUNTERS]
        )["value"]
        return {**start, **{beans.parts(bean)["queue"]: row for bean, row in told.items()}}

    def depths(self, *queues: str) -> list[int]:
        """How deep each queue is at London, then at Paris."""
        return [depth for site in SITES for depth in self.depths_at(site, *queues)]

    def depths_at(self, site: str, *queues: str) -> list[int]:
        told = self._counted(site)
        return [told[queue]["MessageCount"] for queue in queues]

    def ids(self, site: str, queue: str) -> set[str]:
        operation = "countMessages(java.lang.String,java.lang.String)"
        told = json.loads(self.execute(site, self.at(site, queue), operation, "", ID)["value"])
        assert set(told.values()) <= {1}
        return set(told)

    def write(self, site: str, name: str, text: str | None, address: str, *, durable: bool = True) -> dict[str, Any]:
        told = (address, "ANYCAST", name, text, durable, -1 if text is None else 0, False, True)
        return self.execute(site, self.server(site), CREATE_FILTERED, *told)

    # what happens

    def send(self, queue: str, bodies: Sequence[str], site: str = "london") -> None:
        with self.client(site) as client:
            for body in bodies:
                client.send(queue, body, order_id=body)

    def move(self, to: str) -> None:
        """Deactivate the one and activate the other, and wait until it delivers."""
        for site in SITES:
            if site != to:
                self.execute(site, self.service(site), DEACTIVATE)
        self.quiet()
        self.execute(to, self.service(to), ACTIVATE, 20_000)
        until(lambda: self.serving(to) == (True, True))
        self.quiet()

    def quiet(self) -> None:
        """Wait until nothing is under way, several times in a row."""
        calm = 0

        def even() -> bool:
            nonlocal calm
            views = [self.view(site) for site in SITES]
            calm = 0 if any(reason for view in views for reason in view.link.unsettled()) else calm + 1
            return calm >= 3

        until(even, within_s=20)

    def staged(self, queue: str, count: int, site: str = "paris") -> None:
        """Wait until so many are staged and none of them waits for its time."""

        def there() -> bool:
            staged = self.flow(site, queue).in_mirror
            return (staged.depth, staged.scheduled) == (count, 0)

        until(there)
