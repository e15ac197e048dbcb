"""The interface of contract tests to a pair of brokers, the same for real and simulated ones."""

from __future__ import annotations

import json
import random
import socket
import sqlite3
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

import requests
import yaml

from dr_ctl.core.system import boottime_s, system
from dr_ctl.jolokia.client import Account, Reader, Wire
from dr_ctl.stomp_io.address import Address, Connected, Login
from dr_ctl.stomp_io.client import Frame, probe, try_login
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.broker import CREATE_FILTERED
from dr_ctl.topologies.common.view import Config
from dr_ctl.topologies.continuity.reading import read as read_plugin
from dr_ctl.topologies.continuity.reading import service_bean
from dr_ctl.topologies.continuity.view import Bridge, Flow, SiteView
from dr_ctl.topologies.mirror.reading import read
from dr_ctl.topologies.mirror.view import BrokerView
from dr_ctl.topologies.sharedstore.store import FileLock
from dr_ctl_lab.lab.artemis.admin import jolokia
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.state import SiteState
from dr_ctl_lab.played import PlayedTwin
from tests.broker.driving import on_queue, reset

SITES = ("london", "paris")
CONFIG = Config(("clients",), ("mirror",), None)
TEXT = "java.lang.String"
QUEUES = IN, OUT = "orders.in", "orders.out"
COUNTERS = ("MessagesAdded", "MessagesAcknowledged", "MessagesKilled")
HYPHENS = {
    "destination_type": "destination-type",
    "subscription_type": "subscription-type",
    "consumer_window_size": "consumer-window-size",
}
SEND = f"sendMessage(java.util.Map,int,{TEXT},boolean,{TEXT},{TEXT})"
# Of the plugin.
ID = "_AMQ_DUPL_ID"
ACTIVATE, DEACTIVATE = "activateSite(java.lang.Long)", "deactivateSite()"
# Of bridges.
IDS = "notification.idempotent-consumer"
ORIGIN = "ARTEMIS_MESSAGE_ORIGIN"
ADD, REMOVE = f"addSecuritySettings({','.join([TEXT] * 11)})", f"removeSecuritySettings({TEXT})"
CUT = f"closeConsumerConnectionsForAddress({TEXT})"
FENCED = ["amq,bridge", *["amq"] * 9]
# Of Classic.
DLQ = "ActiveMQ.DLQ"
TAKES_S = 60.0


class Client:
    """A STOMP connection after its login, as of an Artemis client."""

    def __init__(self, place: SiteState, headers: Mapping[str, str]) -> None:
        self._enter(place.stomp, place.app, headers)

    def _enter(self, address: Address, login: Login, headers: Mapping[str, str] | None = None) -> None:
        self.login_result, connection = probe(address, login, None, timeout_s=5, headers=headers)
        assert connection is not None, self.login_result
        self.connection = connection
        self._frames: list[Frame] = []

    def frame(self, command: str, wanted: Callable[[Frame], bool] = lambda _: True, *, within_s: float = 5.0) -> Frame:
        """The next frame of a kind; earlier frames are kept."""
        end = boottime_s() + within_s
        while True:
            for one in self._frames:
                if one.cmd == command and wanted(one):
                    self._frames.remove(one)
                    return one
            assert boottime_s() < end, f"no {command} within {within_s} s, but {self._frames}"
            self._frames += self.connection.receive(0.05)

    def nothing_for(self, seconds: float) -> None:
        end = boottime_s() + seconds
        while (left := end - boottime_s()) > 0:
            self._frames += self.connection.receive(left)
        assert not [one for one in self._frames if one.cmd == "MESSAGE"]

    def confirmed(self, command: str, body: str = "", **headers: str) -> Frame:
        """Send a frame and wait for its receipt."""
        by_name = {HYPHENS.get(name, name): text for name, text in headers.items()}
        self.connection.stomp.send_frame(command, {**by_name, "receipt": "r"}, body)
        return self.frame("RECEIPT")

    def send(self, queue: str, body: str = "body", *, durable: bool = True, **headers: str) -> None:
        options = {"persistent": "true"} if durable else {}
        self.confirmed("SEND", body, destination=queue, destination_type="ANYCAST", **options, **headers)

    def subscribe(self, queue: str, ident: str = "s", **headers: str) -> None:
        options = {"ack": "client-individual", **headers}
        self.confirmed("SUBSCRIBE", id=ident, destination=queue, subscription_type="ANYCAST", **options)

    def message(self, *, within_s: float = 5.0) -> Frame:
        return self.frame("MESSAGE", within_s=within_s)

    def ack(self, message: Frame, command: str = "ACK", **headers: str) -> None:
        self.confirmed(command, id=message.headers["ack"], **headers)


class ClassicClient(Client):
    """A STOMP connection as of a Classic client, at any listener."""

    def __init__(self, place: SiteState, listener: str, login: Login) -> None:
        self._enter(Address("127.0.0.1", place.ports[listener]), login)

    def send(self, queue: str, body: str = "body", *, durable: bool = True, **headers: str) -> None:
        options = {"persistent": "true"} if durable else {}
        self.confirmed("SEND", body, destination=f"/queue/{queue}", **options, **headers)

    def subscribe(self, queue: str, ident: str = "s", **headers: str) -> None:
        to = queue if queue.startswith("/") else f"/queue/{queue}"
        self.confirmed("SUBSCRIBE", id=ident, destination=to, **{"ack": "client-individual", **headers})


class BrokerSubject:
    """The tested brokers. `stage` is a lab or a twin, which have the same methods."""

    def __init__(self, stage: Lab | PlayedTwin) -> None:
        self.stage = stage

    def place(self, site: str) -> SiteState:
        return self.stage.site(site)

    def _post(self, url: str, body: Any, login: Login, headers: Mapping[str, str]) -> requests.Response:
        """Post any document to a console, over the simulated network where there is one."""
        with requests.Session() as session:
            if (wires := system().wires) is not None:
                session.mount("http://", wires.adapter())
            return session.post(url, json=body, auth=(login.user, login.password), headers=dict(headers), timeout=10)

    def posted(self, site: str, body: Any) -> requests.Response:
        raise NotImplementedError

    def ask(self, site: str, **request: Any) -> dict[str, Any]:
        """Send one request; return its answer, without parts that only some versions add."""
        document = self.posted(site, {"config": {"includeRequest": False}, **request}).json()
        return {key: value for key, value in document.items() if key not in ("request", "timestamp", "stacktrace")}

    def read(self, site: str, bean: str, *names: str) -> Any:
        return self.ask(site, type="read", mbean=bean, attribute=list(names))["value"]

    def execute(self, site: str, bean: str, operation: str, *arguments: Any) -> dict[str, Any]:
        return self.ask(site, type="exec", mbean=bean, operation=operation, arguments=list(arguments))

    def done(self, site: str, bean: str, operation: str, *arguments: Any) -> Any:
        rows = self.execute(site, bean, operation, *arguments)
        assert rows["status"] == 200, rows
        return rows["value"]

    def server(self, site: str) -> str:
        raise NotImplementedError

    def queue(self, site: str, name: str) -> str:
        raise NotImplementedError

    def call(self, site: str, operation: str, *arguments: Any) -> dict[str, Any]:
        """Call an operation of the broker; return its answer."""
        return self.execute(site, self.server(site), operation, *arguments)

    def on(self, site: str, operation: str, *arguments: Any, queue: str = IN) -> Any:
        """Call an operation of a queue; return its value."""
        return self.done(site, self.queue(site, queue), operation, *arguments)


class Subject(BrokerSubject):
    """A mirrored pair."""

    def __init__(self, stage: Lab | PlayedTwin) -> None:
        super().__init__(stage)
        self.broker = {site: site for site in SITES}
        # A real pair is shared: what its counters say was counted by others before.
        self._before: dict[str, dict[str, Any]] = {site: self._counted(site) for site in SITES}

    def reset(self) -> None:
        """Restore the state after the start: all tests share a real pair."""
        assert isinstance(self.stage, Lab)
        for site in SITES:
            self.stage.start(site)
            self.stage.admin(site).open_clients("mirror")
            on_queue(self.stage, site, f"$ACTIVEMQ_ARTEMIS_MIRROR_{other(site)}", "resume()")
        reset(self.stage)
        self._before = {site: self._counted(site) for site in SITES}

    @contextmanager
    def billing(self, site: str) -> Iterator[Client]:
        """A named client that sends a message, and keeps it unacknowledged."""
        with self.client(site, **{"client-id": "billing"}) as client:
            client.send(IN)
            client.subscribe(IN)
            client.message()
            yield client

    # management

    def post(self, site: str, body: Any, login: Login | None = None) -> requests.Response:
        """Send a document as it is."""
        who = login or self.place(site).admin
        return self._post(jolokia(self.place(site)), body, who, {"Origin": "http://127.0.0.1"})

    posted = post

    def server(self, site: str) -> str:
        return beans.server(self.broker[site])

    def queue(self, site: str, name: str, address: str | None = None, routing: str = "anycast") -> str:
        return beans.queue(self.broker[site], address or name, routing, name)

    def outflow(self, site: str) -> str:
        return self.queue(site, f"$ACTIVEMQ_ARTEMIS_MIRROR_{other(site)}")

    def acceptor(self, site: str, name: str) -> str:
        return beans.acceptor(self.broker[site], name)

    def address(self, site: str, name: str) -> str:
        return beans.address(self.broker[site], name)

    def link(self, site: str) -> Any:
        return self.read(site, beans.broker_connection(self.broker[site], other(site)), "Started", "Connected")

    def shipping(self, site: str) -> Any:
        return self.read(site, self.outflow(site), "MessageCount", "DeliveringCount", "ConsumerCount")

    def pending(self, site: str) -> int:
        return int(self.read(site, self.server(site), "PendingMirrorAcks")["PendingMirrorAcks"])

    @contextmanager
    def reader(self, site: str) -> Iterator[Reader]:
        """dr-ctl's reader."""
        at = self.place(site)
        with closing(Wire(Account(jolokia(at), at.admin.user, at.admin.password, "http://127.0.0.1"))) as wire:
            yield Reader(wire)

    def view(self, site: str) -> BrokerView:
        with self.reader(site) as reader:
            return read(reader, pair="orders-1", site=site, config=CONFIG, broker=self.broker[site])

    def _counted(self, site: str) -> dict[str, Any]:
        start = self.read(site, beans.RUNTIME, "StartTime")
        reading = self.read(site, f"{self.server(site)},queue=*,*", "MessageCount", *COUNTERS)
        return {**start, **{beans.parts(bean)["queue"]: row for bean, row in reading.items()}}

    def counters(self, site: str, queue: str) -> tuple[int, int, int]:
        """Added, acknowledged, killed: since the test's start, or the broker's."""
        now, before = self._counted(site), self._before[site]
        was = before.get(queue, {}) if now["StartTime"] == before["StartTime"] else {}
        added, acknowledged, killed = (now[queue][name] - was.get(name, 0) for name in COUNTERS)
        return added, acknowledged, killed

    def counts(self, site: str, queue: str) -> tuple[int, int, int]:
        """Depth, in delivery, added."""
        reading = self.read(site, self.queue(site, queue), "MessageCount", "DeliveringCount")
        return reading["MessageCount"], reading["DeliveringCount"], self.counters(site, queue)[0]

    def depth(self, site: str, queue: str) -> int:
        return self.counts(site, queue)[0]

    def browse(self, site: str, queue: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.on(site, "browse(int,int)", 1, 10, queue=queue)
        return rows

    def destroy(self, site: str, name: str) -> dict[str, Any]:
        return self.call(site, f"destroyQueue({TEXT})", name)

    def put(self, site: str, queue: str, count: int = 1, **headers: str) -> None:
        """Send messages by management, even where listeners are closed."""
        login = self.place(site).admin
        for number in range(count):
            options = {"n": str(number), **headers}
            assert self.done(
                site, self.queue(site, queue), SEND, options, 3, f"message {number}", True, login.user, login.password
            )

    def create(self, site: str, name: str, **more: Any) -> dict[str, Any]:
        options = {"name": name, "address": name, "routing-type": "ANYCAST", "durable": True, **more}
        return self.call(site, f"createQueue({TEXT})", json.dumps(options))

    def settled(self) -> None:
        """Wait until nothing is under way; a new message may not be in the outflow yet."""
        until(lambda: all(self.shipping(site)["MessageCount"] == 0 == self.pending(site) for site in SITES))

    @contextmanager
    def client(self, site: str, **headers: str) -> Iterator[Client]:
        client = Client(self.place(site), headers)
        try:
            yield client
        finally:
            client.connection.close(politely=False)


class _Names(dict[str, str]):
    def __init__(self, place: Callable[[str], SiteState]) -> None:
        super().__init__()
        self._place = place

    def __missing__(self, at: str) -> str:
        return self._place(at).broker


class GroupSubject(Subject):
    """A mirrored pair of brokers of several nodes: `london/b` is a node, `london` the active one."""

    def __init__(self, stage: Lab | PlayedTwin) -> None:
        BrokerSubject.__init__(self, stage)
        self.broker = _Names(self.place)

    def place(self, site: str) -> SiteState:
        name, _, node = site.partition("/")
        return self.stage.site(name, node=node or None)

    def reset(self) -> None:
        """Make the first nodes active, and empty the queues."""
        for site in SITES:
            if self.active(f"{site}/a") is not True:  # where the other one stays active
                self.stage.kill(site)
                self.stage.start(site)
            until(lambda site=site: self.active(f"{site}/a") and self.active(f"{site}/b") is False, within_s=TAKES_S)
            until(lambda site=site: self.attached(site), within_s=TAKES_S)
        for site in SITES:
            for match in (IN, "geheim.#"):
                self.call(site, REMOVE, match)
            for queue in QUEUES:
                self.on(site, "resume()", queue=queue)
                self.on(site, "removeAllMessages()", queue=queue)
            self.destroy(site, "dr-ctl.contract.london")

    def active(self, at: str) -> bool | None:
        """Whether a node is active; None where no console answers."""
        try:
            return bool(self.read(at, self.server(at), "Active")["Active"])
        except (requests.ConnectionError, KeyError):
            return None

    def depth(self, site: str, queue: str) -> int:
        return int(self.read(site, self.queue(site, queue), "MessageCount")["MessageCount"])

    def logged_in(self, at: str) -> type:
        place = self.place(at)
        return type(try_login(place.stomp, place.app, None, timeout_s=5))

    def attached(self, at: str) -> bool:
        return bool(self.link(at)["Connected"] and self.shipping(at)["ConsumerCount"])


class PluginSubject(Subject):
    """A pair of artemis-continuity: activation opens listeners; the plugin decides the names of its beans."""

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
                    for queue in (flow.staging.name, flow.queue):
                        self.execute(site, self.at(site, queue), "removeAllMessages()")
            self.quiet()
        for bridge in self.bridges("london", ".in.mirror.bridge"):
            self.execute("london", bridge, "start()")
        self._before = {site: self._counted(site) for site in SITES}

    def service(self, site: str) -> str:
        return service_bean(self.broker[site])

    def at(self, site: str, queue: str) -> str:
        """The bean of a queue, by search."""
        [answer] = self.ask(site, type="search", mbean=f'{self.server(site)},queue="{queue}",*')["value"]
        return str(answer)

    def bridges(self, site: str, *ends: str) -> list[str]:
        """The names of bridges' beans, by search."""
        patterns = [f"{self.server(site)},{name}" for name in ("bridge=*,*", "component=bridges,*")]
        rows = [self.ask(site, type="read", mbean=pattern, attribute=["Name"]).get("value", {}) for pattern in patterns]
        return [bean for beans_ in rows for bean, row in beans_.items() if row["Name"].endswith(ends)]

    def bridge(self, site: str, name: str) -> str:
        [all_bridges] = self.bridges(site, name)
        return all_bridges

    def in_flight(self, site: str, bridge: Bridge) -> int:
        return sum(self.read(site, bridge.bean, "MessagesPendingAcknowledgement").values()) - bridge.acked

    def serving(self, site: str) -> tuple[bool, bool] | None:
        """Whether it is activated, and delivers; None without the plugin."""
        answer = self.ask(site, type="read", mbean=self.service(site))
        return (answer["value"]["SiteActivated"], answer["value"]["Delivering"]) if answer["status"] == 200 else None

    def view(self, site: str) -> SiteView:  # type: ignore[override]
        with self.reader(site) as reader:
            return read_plugin(reader, pair="orders-1", site=site, config=CONFIG, broker=self.broker[site])

    def flow(self, site: str, queue: str) -> Flow:
        one_flow = self.view(site).flow(queue)
        assert one_flow is not None
        return one_flow

    def depths(self, *queues: str) -> list[int]:
        """The depths of the queues at London, then at Paris."""
        return [depth for site in SITES for depth in self.depths_at(site, *queues)]

    def depths_at(self, site: str, *queues: str) -> list[int]:
        counted = self._counted(site)
        return [counted[queue]["MessageCount"] for queue in queues]

    def ids(self, site: str, queue: str, within: str = "") -> set[str]:
        document = json.loads(self.done(site, self.at(site, queue), f"countMessages({TEXT},{TEXT})", within, ID))
        assert set(document.values()) <= {1}
        return set(document)

    def write(self, site: str, name: str, text: str | None, address: str, *, durable: bool = True) -> dict[str, Any]:
        items = (address, "ANYCAST", name, text, durable, -1 if text is None else 0, False, True)
        return self.call(site, CREATE_FILTERED, *items)

    def send(self, queue: str, bodies: Sequence[str], site: str = "london") -> None:
        with self.client(site) as client:
            for body in bodies:
                client.send(queue, body, order_id=body)

    def move(self, to: str) -> None:
        """Deactivate one site, activate the other, and wait until it delivers."""
        self.execute(other(to), self.service(other(to)), DEACTIVATE)
        self.quiet()
        self.execute(to, self.service(to), ACTIVATE, 20_000)
        until(lambda: self.serving(to) == (True, True))
        self.quiet()

    def quiet(self) -> None:
        """Wait until nothing is under way in several successive readings."""
        in_a_row = 0

        def even() -> bool:
            nonlocal in_a_row
            views = [self.view(site) for site in SITES]
            in_a_row = 0 if any(reason for view in views for reason in view.link.unsettled()) else in_a_row + 1
            return in_a_row >= 3

        until(even, within_s=20)

    def staged(self, queue: str, count: int, site: str = "paris") -> None:
        """Wait until `count` messages are staged and due."""

        def there() -> bool:
            staged = self.flow(site, queue).staging
            return (staged.depth, staged.scheduled) == (count, 0)

        until(there)


class BridgesSubject(Subject):
    """A pair of artemis-bridges: a queue is closed by rights and a lasting pause."""

    def reset(self) -> None:
        """London serves, nothing lies anywhere, nothing is under way: a real pair is shared by all tests."""
        for site in SITES:
            self.stage.start(site)
            for address in (*QUEUES, IDS):
                self.done(site, self.bridge(site, address), "start()")
        self.stage.close_clients("paris")
        self.stage.open_clients("london")
        until(self.even, within_s=30)
        for site in SITES:
            for name in QUEUES:
                self.on(site, "removeAllMessages()", queue=name)
        self._before = {site: self._counted(site) for site in SITES}

    def even(self) -> bool:
        buffers = [self.buffered(site, address)["MessageCount"] for site in SITES for address in (*QUEUES, IDS)]
        return not any(buffers) and not any(self.depth(site, IDS) for site in SITES)

    def bridge(self, site: str, address: str) -> str:
        return f'{self.server(site)},component=bridges,name="bridge.mirror.{other(site)}.{address}"'

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


class ClassicSubject(BrokerSubject):
    """Two Classic brokers that copy to each other."""

    def probes(self, site: str) -> type:
        place = self.place(site)
        return type(try_login(place.stomp, place.app, None, timeout_s=2))

    def answers(self, site: str) -> bool:
        try:
            return bool(self.ask(site, type="read", mbean=self.server(site), attribute=["Slave"])["status"] == 200)
        except requests.ConnectionError:
            return False

    def reset(self) -> None:
        """Empty all queues, and wait until nothing is under way: all tests share a real pair."""
        for site in SITES:
            self.stage.start(site)
            self.done(site, self.network(site), "start()")
        self.stage.close_clients("paris")
        self.stage.open_clients("london")
        until(lambda: all(self.bridges(site) for site in SITES), within_s=30)
        self.settled()
        for site in SITES:
            self.empty(site, *self.depths(site))

    def empty(self, site: str, *names: str) -> None:
        for name in names:
            self.on(site, "resume()", queue=name)
            self.on(site, "purge()", queue=name)

    def post(self, site: str, body: Any, *, password: str | None = None, **headers: str) -> requests.Response:
        """Send a document as it is."""
        place = self.place(site)
        who = Login(place.admin.user, password or place.admin.password)
        return self._post(f"http://127.0.0.1:{place.ports['http']}/api/jolokia/", body, who, headers)

    def posted(self, site: str, body: Any) -> requests.Response:
        return self.post(site, body, Origin="http://localhost")

    def server(self, site: str) -> str:
        return f"org.apache.activemq:type=Broker,brokerName={self.place(site).group}"

    def queue(self, site: str, name: str) -> str:
        return f"{self.server(site)},destinationType=Queue,destinationName={name}"

    def connector(self, site: str, name: str) -> str:
        return f"{self.server(site)},connector=clientConnectors,connectorName={name}"

    def network(self, site: str) -> str:
        return f"{self.server(site)},connector=networkConnectors,networkConnectorName=to-{other(site)}"

    def bridges(self, site: str) -> list[dict[str, Any]]:
        answer = self.ask(site, type="read", mbean=f"{self.network(site)},networkBridge=*")
        return list(answer["value"].values()) if answer["status"] == 200 else []

    def shows(self, site: str, *names: str, queue: str = IN) -> Any:
        return self.read(site, self.queue(site, queue), *names)

    def depths(self, site: str) -> dict[str, int]:
        reading = self.read(site, self.queue(site, "*"), "Name", "QueueSize")
        return {row["Name"]: row["QueueSize"] for row in reading.values()}

    def depth(self, site: str, queue: str) -> int:
        return self.depths(site).get(queue, 0)

    def copied(self, site: str) -> str:
        """The copy queue of a site."""
        return f"{IN}.to-{other(site)}"

    def ids(self, site: str, queue: str = IN) -> list[str]:
        return [row["JMSMessageID"] for row in self.on(site, "browse()", queue=queue)]

    def send(self, count: int) -> list[str]:
        """Send `count` numbered messages to London; return the ids of all its messages."""
        with self.client("london") as client:
            for number in range(count):
                client.send(IN, f"body {number}", n=str(number))
        return self.ids("london")

    def fill(self, site: str, count: int, queue: str = IN) -> None:
        """Send `count` messages; the last is confirmed."""
        with self.client(site) as client:
            headers = {"destination": f"/queue/{queue}", "persistent": "true"}
            for _ in range(count - 1):
                client.connection.stomp.send_frame("SEND", headers, "x")
            client.send(queue)

    def take(self, site: str, count: int, word: str = "ACK") -> None:
        """Consume `count` messages one by one, with confirmed acknowledgements."""
        with self.client(site) as client:
            client.subscribe(IN, **{"activemq.prefetchSize": "1"})
            for _ in range(count):
                client.ack(client.message(), word)

    def settled(self) -> None:
        """Wait until all copies are shipped."""
        until(lambda: not any(self.depth(site, self.copied(site)) for site in SITES), within_s=20)

    @contextmanager
    def client(self, site: str, listener: str = "clients") -> Iterator[ClassicClient]:
        place = self.place(site)
        client = ClassicClient(place, listener, place.app if listener == "clients" else place.login("agent"))
        try:
            yield client
        finally:
            client.connection.close(politely=False)

    def give_up_logins(self, site: str) -> None:
        """Log in with OpenWire and reset the connection at once, until the broker keeps a bean of one of them."""
        if isinstance(self.stage, PlayedTwin):
            self.stage.host(site).broker.stopped.append("ID:gone")
            return
        place = self.place(site)
        user, password = (
            b"\1" + struct.pack(">H", len(word)) + word.encode() for word in (place.app.user, place.app.password)
        )

        def given_up() -> bool:
            name = b"\1" + struct.pack(">H", 4) + random.randbytes(2).hex().encode()
            parts = (b"\1ActiveMQ\0\0\0\1\0", b"\3\0\0\0\1\1\1\x78" + name + name + password + user + b"\0\0\0")
            with socket.create_connection(("127.0.0.1", place.ports["clients"])) as client:
                client.sendall(b"".join(struct.pack(">i", len(part)) + part for part in parts))
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            rows = self.read(
                site, f"{self.connector(site, '*')},connectionViewType=clientId,connectionName=*", "Active"
            )
            return {"Active": False} in rows.values()

        until(given_up, within_s=60)


class ClassicGroupSubject(ClassicSubject):
    """A pair of classic-brokersync with several nodes."""

    place = GroupSubject.place

    def reset(self) -> None:
        """Make the first nodes active."""
        for site in SITES:
            if not self.answers(f"{site}/a"):
                self.stage.kill(site)
                self.stage.start(site)
            until(lambda site=site: self.bridges(site), within_s=TAKES_S)
        super().reset()


class FanoutSubject(ClassicSubject):
    """A pair of classic-fanout."""

    def reset(self) -> None:
        for site in SITES:
            self.empty(site, *QUEUES)


class StoreSubject(ClassicSubject):
    """A pair of classic-shared-store: London serves, and Paris waits."""

    def reset(self) -> None:
        for site in SITES:
            self.stage.start(site)
        until(lambda: any(self.answers(site) for site in SITES), within_s=TAKES_S)
        if self.answers("paris"):
            self.stop("paris")
            until(lambda: self.answers("london"), within_s=TAKES_S)
            self.gone("paris")
            self.stage.start("paris")
        self.done("london", self.connector("london", "stomp"), "start()")
        until(lambda: self.probes("london") is Connected)
        self.empty("london", *self.depths("london"))

    def stop(self, site: str) -> None:
        """Stop a broker; the request gets no complete answer."""
        with suppress(requests.RequestException):
            self.execute(site, self.server(site), "stop()")

    def locked(self) -> bool:
        return FileLock(self.stage.directory / "store" / "lock").read().held is True

    def runs(self, site: str) -> bool:
        """Whether the `state` command of the settings says that it runs."""
        value: Any = yaml.safe_load(self.stage.settings_path.read_text())
        words = value["sites"][site]["brokers"][0]["process"]["state"]
        code = subprocess.run(words, cwd=self.stage.directory, timeout=10, check=False).returncode
        assert code in (0, 3)
        return code == 0

    def gone(self, site: str) -> None:
        until(lambda: not self.runs(site), within_s=TAKES_S)

    def taken(self, site: str) -> None:
        until(lambda: self.probes(site) is Connected and self.answers(site), within_s=TAKES_S)


def other(site: str) -> str:
    return SITES[1 - SITES.index(site.partition("/")[0])]


def comes(read: Callable[[], object], wanted: object, *, within_s: float = 10.0) -> None:
    """Wait until a reading equals `wanted`; fail with the reading."""
    end = boottime_s() + within_s
    while (reading := read()) != wanted and boottime_s() < end:
        system().sleep(0.01)
    assert reading == wanted, f"{reading}, and not {wanted}"


def until(condition: Callable[[], object], *, within_s: float = 10.0) -> None:
    """Wait for a condition."""
    end = boottime_s() + within_s
    while not condition():
        assert boottime_s() < end, f"not within {within_s} s"
        system().sleep(0.01)
