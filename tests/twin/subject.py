"""A pair of brokers, real or simulated, as the contract tests ask it: nothing here knows which of the two it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import requests

from dr_ctl.core.clock import growing_s
from dr_ctl.core.system import system
from dr_ctl.jolokia.client import Account, Reader, Wire
from dr_ctl.stomp_io.address import Login
from dr_ctl.stomp_io.connection import Connection
from dr_ctl.stomp_io.frames import Frame
from dr_ctl.stomp_io.knock import knock
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.common.view import Config
from dr_ctl.topologies.mirror.look import look
from dr_ctl.topologies.mirror.view import BrokerView
from dr_ctl_lab.lab.artemis.admin import jolokia
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.state import SiteState
from dr_ctl_lab.played import PlayedTwin
from tests.broker.driving import on_queue, reset

SITES = ("london", "paris")
CONFIG = Config(("clients",), ("mirror",), None)
COUNTERS = ("MessagesAdded", "MessagesAcknowledged", "MessagesKilled")
HYPHENS = {
    "destination_type": "destination-type",
    "subscription_type": "subscription-type",
    "consumer_window_size": "consumer-window-size",
}
SEND_KINDS = "java.util.Map,int,java.lang.String,boolean,java.lang.String,java.lang.String"


def post(url: str, body: Any, who: Login, headers: Mapping[str, str]) -> requests.Response:
    """Send a document to a console as it is, past what the product would send; by the system's own wires, where it has
    some."""
    with requests.Session() as session:
        if (wires := system().wires) is not None:
            session.mount("http://", wires.adapter())
        return session.post(url, json=body, auth=(who.user, who.password), headers=dict(headers), timeout=10)


class Subject:
    """What is tested. `stage` can be killed, started, cut and healed in the same words, whatever it is."""

    def __init__(self, stage: Lab | PlayedTwin) -> None:
        self.stage = stage
        self.broker = {site: site for site in SITES}
        # A real pair is shared: what its counters say was counted by others before.
        self._before: dict[str, dict[str, Any]] = {site: self._counted(site) for site in SITES}

    def reset(self) -> None:
        """As after its start: a real pair is shared by all tests, and what a failed one left closed or paused would
        fail all that follow."""
        assert isinstance(self.stage, Lab)
        for site in SITES:
            self.stage.start(site)
            self.stage.admin(site).open_clients("mirror")
            on_queue(self.stage, site, f"$ACTIVEMQ_ARTEMIS_MIRROR_{other(site)}", "resume()")
        reset(self.stage)
        self._before = {site: self._counted(site) for site in SITES}

    def place(self, site: str) -> SiteState:
        return self.stage.site(site)

    @contextmanager
    def billing(self, site: str) -> Iterator[Client]:
        """A client with a name that sends a message, and holds it."""
        with self.client(site, **{"client-id": "billing"}) as client:
            client.send("orders.in")
            client.subscribe("orders.in")
            client.message()
            yield client

    # management

    def post(self, site: str, body: Any, login: Login | None = None) -> requests.Response:
        """Send a document as it is."""
        who = login or self.place(site).admin
        return post(jolokia(self.place(site)), body, who, {"Origin": "http://127.0.0.1"})

    def ask(self, site: str, **request: Any) -> dict[str, Any]:
        """One request, its whole answer without its echo."""
        told: dict[str, Any] = self.post(site, {**request, "config": {"includeRequest": False}}).json()
        return told

    def read(self, site: str, bean: str, *names: str) -> Any:
        return self.ask(site, type="read", mbean=bean, attribute=list(names))["value"]

    def execute(self, site: str, bean: str, operation: str, *arguments: Any) -> dict[str, Any]:
        return self.ask(site, type="exec", mbean=bean, operation=operation, arguments=list(arguments))

    def server(self, site: str) -> str:
        return beans.server(self.broker[site])

    def queue(self, site: str, name: str, address: str | None = None, routing: str = "anycast") -> str:
        return beans.queue(self.broker[site], address or name, routing, name)

    def outflow(self, site: str) -> str:
        return self.queue(site, f"$ACTIVEMQ_ARTEMIS_MIRROR_{other(site)}")

    def acceptor(self, site: str, name: str) -> str:
        return beans.acceptor(self.broker[site], name)

    def link(self, site: str) -> Any:
        return self.read(site, beans.broker_connection(self.broker[site], other(site)), "Started", "Connected")

    def shipping(self, site: str) -> Any:
        return self.read(site, self.outflow(site), "MessageCount", "DeliveringCount", "ConsumerCount")

    def pending(self, site: str) -> int:
        return int(self.read(site, self.server(site), "PendingMirrorAcks")["PendingMirrorAcks"])

    @contextmanager
    def reader(self, site: str) -> Iterator[Reader]:
        """The product's own way to look."""
        at = self.place(site)
        wire = Wire(Account(jolokia(at), at.admin.user, at.admin.password, "http://127.0.0.1"))
        try:
            yield Reader(wire)
        finally:
            wire.close()

    def view(self, site: str) -> BrokerView:
        with self.reader(site) as reader:
            return look(reader, pair="orders-1", site=site, config=CONFIG, broker=self.broker[site])

    def _counted(self, site: str) -> dict[str, Any]:
        start = self.read(site, beans.RUNTIME, "StartTime")
        told = self.read(site, beans.all_queues(self.broker[site]), *COUNTERS)
        return {**start, **{beans.parts(bean)["queue"]: row for bean, row in told.items()}}

    def counters(self, site: str, queue: str) -> tuple[int, int, int]:
        """Added, acknowledged, killed: in this test, or in this life of the broker."""
        now, before = self._counted(site), self._before[site]
        was = before.get(queue, {}) if now["StartTime"] == before["StartTime"] else {}
        added, acknowledged, killed = (now[queue][name] - was.get(name, 0) for name in COUNTERS)
        return added, acknowledged, killed

    def counts(self, site: str, queue: str) -> tuple[int, int, int]:
        """Depth, in delivery, added."""
        told = self.read(site, self.queue(site, queue), "MessageCount", "DeliveringCount")
        return told["MessageCount"], told["DeliveringCount"], self.counters(site, queue)[0]

    def depth(self, site: str, queue: str) -> int:
        return self.counts(site, queue)[0]

    def put(self, site: str, queue: str, count: int = 1, **headers: str) -> None:
        """Messages through management: the doors may be closed."""
        who = self.place(site).admin
        for number in range(count):
            told = {"n": str(number), **headers}
            arguments = (told, 3, f"message {number}", True, who.user, who.password)
            assert self.execute(site, self.queue(site, queue), f"sendMessage({SEND_KINDS})", *arguments)["value"]

    def create(self, site: str, name: str, **more: Any) -> dict[str, Any]:
        told = {"name": name, "address": name, "routing-type": "ANYCAST", "durable": True, **more}
        return self.execute(site, self.server(site), "createQueue(java.lang.String)", json.dumps(told))

    def settled(self) -> None:
        """Wait until nothing is under way; a message that management has just sent may not be in the outflow yet."""
        until(lambda: all(self.shipping(site)["MessageCount"] == 0 == self.pending(site) for site in SITES))

    # clients

    @contextmanager
    def client(self, site: str, **headers: str) -> Iterator[Client]:
        client = Client(self.place(site), headers)
        try:
            yield client
        finally:
            client.connection.close(politely=False)


class Client:
    """One STOMP connection that is in."""

    def __init__(self, place: SiteState, headers: Mapping[str, str]) -> None:
        greeting, connection = knock(place.stomp, place.app, None, timeout_s=5, headers=headers)
        assert connection is not None, greeting
        self.connection: Connection = connection
        self._frames: list[Frame] = []

    def frame(self, command: str, wanted: Callable[[Frame], bool] = lambda _: True, *, within_s: float = 5.0) -> Frame:
        """The next frame of a kind; what comes before it is kept."""
        end = growing_s() + within_s
        while True:
            for one in self._frames:
                if one.cmd == command and wanted(one):
                    self._frames.remove(one)
                    return one
            assert growing_s() < end, f"no {command} within {within_s} s, but {self._frames}"
            self._frames += self.connection.receive(0.05)

    def nothing_for(self, seconds: float) -> None:
        end = growing_s() + seconds
        while (left := end - growing_s()) > 0:
            self._frames += self.connection.receive(left)
        assert not [one for one in self._frames if one.cmd == "MESSAGE"]

    def confirmed(self, command: str, body: str = "", **headers: str) -> Frame:
        """Send a frame and wait for its receipt."""
        told = {HYPHENS.get(name, name): text for name, text in headers.items()}
        self.connection.stomp.send_frame(command, {**told, "receipt": "r"}, body)
        return self.frame("RECEIPT")

    def send(self, queue: str, body: str = "body", *, durable: bool = True, **headers: str) -> None:
        told = {"persistent": "true"} if durable else {}
        self.confirmed("SEND", body, destination=queue, destination_type="ANYCAST", **told, **headers)

    def subscribe(self, queue: str, ident: str = "s", **headers: str) -> None:
        told = {"ack": "client-individual", **headers}
        self.confirmed("SUBSCRIBE", id=ident, destination=queue, subscription_type="ANYCAST", **told)

    def message(self, *, within_s: float = 5.0) -> Frame:
        return self.frame("MESSAGE", within_s=within_s)

    def ack(self, message: Frame, command: str = "ACK") -> None:
        self.confirmed(command, id=message.headers["ack"])


def other(site: str) -> str:
    return SITES[1 - SITES.index(site)]


def comes(read: Callable[[], object], wanted: object, *, within_s: float = 10.0) -> None:
    """Wait until what is read is as it should be; else show what it is."""
    end = growing_s() + within_s
    while (told := read()) != wanted and growing_s() < end:
        system().sleep(0.01)
    assert told == wanted


def until(condition: Callable[[], object], *, within_s: float = 10.0) -> None:
    """Wait for a condition."""
    end = growing_s() + within_s
    while not condition():
        assert growing_s() < end, f"not within {within_s} s"
        system().sleep(0.01)
