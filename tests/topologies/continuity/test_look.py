"""What a look makes of the answers: beans moved or not, counts that stay too high, a plugin that has not started."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dr_ctl.jolokia.client import Answer, Ask, Listing, Read, Search
from dr_ctl.jolokia.errors import BadValue, PolicyRefused
from dr_ctl.topologies.common.view import Config
from dr_ctl.topologies.continuity.look import look, serving

SERVER = 'org.apache.activemq.artemis:broker="london"'
SERVICE = f'{SERVER},component=continuity,name="continuity.service"'
ZERO = {
    "MessageCount": 0, "DeliveringCount": 0, "ScheduledCount": 0, "ConsumerCount": 1, "Paused": False,
    "MessagesAdded": 0, "MessagesAcknowledged": 0,
}  # fmt: skip
WHOLE = ZERO | {
    "Name": "", "MessagesExpired": 0, "MessagesKilled": 0, "Durable": True, "Temporary": False, "RingSize": -1,
    "LastValue": False, "DeadLetterAddress": "DLQ", "ExpiryAddress": "ExpiryQueue", "Filter": None,
}  # fmt: skip


ENDS = {"OutflowMirror": "out.mirror", "OutflowAcks": "out.acks", "InflowMirror": "in.mirror", "InflowAcks": "in.acks"}


class Console:
    """Answers the requests of a look by their kind, as the brokers do."""

    url = "http://london"

    def __init__(self, *, moved: bool = True, plugin: bool = True) -> None:
        self.moved, self.plugin = moved, plugin
        self.subject = WHOLE | {"Name": "orders"}
        self.held: list[Any] = []

    def look(self, requests: list[Any], **_: Any) -> list[Answer]:
        return [self._answer(each) for each in requests]

    def _answer(self, request: Any) -> Answer:
        if isinstance(request, Search):
            return Answer(None, [SERVICE] if self.plugin else [])
        if isinstance(request, Ask):
            if request.listing is Listing.DELIVERING:
                return Answer(None, json.dumps(self.held))
            if request.listing is Listing.PREPARED:
                return Answer(None, "")
            if request.listing is Listing.TOPOLOGY:
                return Answer(None, "[]")
            return Answer(None, json.dumps({"data": [], "count": 0}))
        return self._read(request)

    def _read(self, request: Read) -> Answer:
        if request.bean == SERVICE:
            return Answer(None, self._service()) if self.plugin else Answer(PolicyRefused("forbidden"))
        if request.bean == SERVER:
            group = {"Backup": False, "SharedStore": False}
            return Answer(None, {"Version": "2.11.0", "NodeID": "node", **group})
        if request.bean.startswith("java.lang"):
            return Answer(None, {"StartTime": 1000, "Uptime": 500})
        if "component=acceptors" in request.bean:
            bean = f'{SERVER},component=acceptors,name="clients"'
            return Answer(None, {bean: {"Name": "clients", "Started": True, "Parameters": {"port": "61616"}}})
        if "subcomponent=flows" in request.bean:
            return Answer(None, {f'{SERVICE},subcomponent=flows,flow="orders"': self._flow()} if self.plugin else {})
        return Answer(None, self._pattern(request.bean))

    def _pattern(self, bean: str) -> dict[str, Any]:
        if bean.endswith('queue="*.out.mirror",*'):
            return {self._queue("orders.out.mirror"): {"FirstMessageAge": None}}
        if "component=bridges" in bean or "bridge=*" in bean:
            return self._bridges() if ("bridge=*" in bean) is self.moved else {}
        subject = {f'{SERVER},component=addresses,address="orders",routing-type="anycast",queue="orders"': self.subject}
        if "component=addresses" in bean:
            return subject
        names = [f"orders.{kind}" for kind in ("out.mirror", "out.acks", "in.mirror", "in.acks")]
        return subject | {self._queue(name): ZERO for name in (*names, "continuity.cmd.out", "continuity.cmd.in")}

    def _queue(self, name: str) -> str:
        where = "component=continuity" if self.moved else "component=addresses"
        return f'{SERVER},{where},address="{name}",routing-type="anycast",queue="{name}"'

    def _bridges(self) -> dict[str, Any]:
        names = [f"orders.{kind}.bridge" for kind in ("out.mirror", "out.acks", "in.mirror")]
        key = "bridge" if self.moved else "component=bridges,name"
        told = {"Started": True, "MessagesPendingAcknowledgement": 7, "MessagesAcknowledged": 5}
        return {f'{SERVER},{key}="{name}"': {"Name": name, **told} for name in (*names, "continuity.cmd.out.bridge")}

    def _flow(self) -> dict[str, str]:
        own = {"SubjectQueueName": "orders", "SubjectAddressName": "orders"}
        named = {f"{kind}Name": f"orders.{end}" for kind, end in ENDS.items()}
        bridges = {"OutflowMirror": "out.mirror", "OutflowAcks": "out.acks", "Target": "in.mirror"}
        return own | named | {f"{kind}BridgeName": f"orders.{end}.bridge" for kind, end in bridges.items()}

    def _service(self) -> dict[str, Any]:
        flags = {"SiteActivated": True, "Delivering": True, "ServiceStarted": "true", "CommandManagerStarted": "true"}
        suffixes = {f"{kind}Suffix": f".{end}" for kind, end in ENDS.items()}
        times = {"InflowStagingDelay": "2000", "BridgeInterval": "1000"}
        return {"SiteId": "london", "CommandDestinationPrefix": "continuity.cmd", **flags, **suffixes, **times}


def seen(console: Console) -> Any:
    told: Any = console
    return look(told, pair="orders-1", site="london", config=Config(("clients",), None, None), broker="london")


@pytest.mark.parametrize("moved", [True, False])
def test_the_plugins_beans_are_found_where_they_are(*, moved: bool) -> None:
    view = seen(Console(moved=moved))
    [flow] = view.flows
    assert (flow.queue, flow.mirror_bridge.acked, flow.target_bridge.started) == ("orders", 5, True)
    assert list(view.business) == ["orders"]
    assert view.commands.out.name == "continuity.cmd.out"
    assert (view.link.attached, view.link.to_ship, view.now_ms, view.start) == (True, 0, 1500, "1000")


def test_a_broker_whose_plugin_has_not_started_is_a_view_and_not_an_error() -> None:
    """Reading a bean that is not there is answered as forbidden by these versions."""
    console: Any = Console(plugin=False)
    view = seen(console)
    assert (view.service, view.flows, view.commands, view.link.attached) == (None, (), None, None)
    assert serving(console, "london", timeout_s=1.0) == (False, ("clients",))


@pytest.mark.parametrize(("consumers", "depth", "delivering"), [(0, 2, 1), (1, 3, 2)])
def test_what_nobody_consumes_is_in_delivery_only_as_listed(consumers: int, depth: int, delivering: int) -> None:
    """With a consumer the count stands: what a cut would roll back is listed nowhere."""
    console = Console()
    console.subject |= {"MessageCount": 3, "DeliveringCount": 2, "ConsumerCount": consumers}
    console.held = [{"consumerName": "c", "elements": [{"messageID": 1}]}]
    orders = seen(console).business["orders"]
    assert (orders.depth, orders.delivering) == (depth, delivering)
    if not consumers:
        console.held = [{"consumerName": "c"}]  # a listing of another shape
        with pytest.raises(BadValue):
            seen(console)
