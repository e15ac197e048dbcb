"""A pair of Classic brokers, real or simulated, as the contract tests ask it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import requests
import yaml

from dr_ctl.stomp_io.address import Address, Login
from dr_ctl.stomp_io.answers import Connected
from dr_ctl.stomp_io.client import greet
from dr_ctl.stomp_io.connection import Connection, SaidError
from dr_ctl.stomp_io.frames import Frame
from dr_ctl.stomp_io.knock import knock
from dr_ctl.topologies.sharedstore.lock import FileLock
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.state import SiteState
from dr_ctl_lab.played import PlayedTwin
from tests.twin.subject import SITES, Client, other, post, until

TEXT = "java.lang.String"
ORDERS, INVOICES = "orders.in", "orders.out"
DLQ = "ActiveMQ.DLQ"
TAKES_S = 60.0
CONSUMED = "/topic/ActiveMQ.Advisory.MessageConsumed.Queue."


class ClassicClient(Client):
    """One that sends and takes as clients of Classic do, at any door."""

    def __init__(self, place: SiteState, door: str, login: Login) -> None:
        greeting, connection = knock(Address("127.0.0.1", place.ports[door]), login, None, timeout_s=5)
        assert connection is not None, greeting
        self.connection: Connection = connection
        self.greeting = greeting
        self._frames: list[Frame] = []

    def send(self, queue: str, body: str = "body", *, durable: bool = True, **headers: str) -> None:
        told = {"persistent": "true"} if durable else {}
        self.confirmed("SEND", body, destination=f"/queue/{queue}", **told, **headers)

    def subscribe(self, queue: str, ident: str = "s", **headers: str) -> None:
        to = queue if queue.startswith("/") else f"/queue/{queue}"
        self.confirmed("SUBSCRIBE", id=ident, destination=to, **{"ack": "client-individual", **headers})

    def complaint(self, command: str, **headers: str) -> str:
        """What the broker says to that."""
        self.connection.stomp.send_frame(command, headers, "")
        with pytest.raises(SaidError) as caught:
            self.frame("ERROR")
        return str(caught.value)

    def consumed(self, queue: str) -> str:
        """Hear that a message of that queue was consumed: which one."""
        said = self.frame("MESSAGE", lambda one: one.headers.get("orignalDestination") == f"queue://{queue}")
        return str(said.headers["orignalMessageId"])


class ClassicSubject:
    """What is tested: `stage` can be killed, started, cut and healed in the same words, whatever it is."""

    def __init__(self, stage: Lab | PlayedTwin) -> None:
        self.stage = stage

    def place(self, site: str) -> SiteState:
        return self.stage.site(site)

    def reset(self) -> None:
        """Nothing lies anywhere, nothing is under way: a real pair is shared by all tests."""
        for site in SITES:
            self.stage.start(site)
            self.done(site, self.network(site), "start()")
        self.stage.close_clients("paris")
        self.stage.open_clients("london")
        until(lambda: all(self.bridges(site) for site in SITES), within_s=30)
        self.settled()
        for site in SITES:
            for name in self.depths(site):
                self.done(site, self.queue(site, name), "resume()")
                self.done(site, self.queue(site, name), "purge()")

    # management

    def post(self, site: str, body: Any, *, password: str | None = None, **headers: str) -> requests.Response:
        """Send a document as it is."""
        who = self.place(site).admin
        url = f"http://127.0.0.1:{self.place(site).ports['http']}/api/jolokia/"
        return post(url, body, Login(who.user, password or who.password), headers)

    def ask(self, site: str, **request: Any) -> dict[str, Any]:
        """One request, what is always in its answer."""
        told: dict[str, Any] = self.post(site, request, Origin="http://localhost").json()
        return {key: value for key, value in told.items() if key not in ("request", "timestamp", "stacktrace")}

    def read(self, site: str, bean: str, *names: str) -> Any:
        return self.ask(site, type="read", mbean=bean, attribute=list(names))["value"]

    def execute(self, site: str, bean: str, operation: str, *arguments: Any) -> dict[str, Any]:
        return self.ask(site, type="exec", mbean=bean, operation=operation, arguments=list(arguments))

    def done(self, site: str, bean: str, operation: str, *arguments: Any) -> Any:
        told = self.execute(site, bean, operation, *arguments)
        assert told["status"] == 200, told
        return told["value"]

    def server(self, site: str) -> str:
        return f"org.apache.activemq:type=Broker,brokerName={self.place(site).broker}"

    def queue(self, site: str, name: str) -> str:
        return f"{self.server(site)},destinationType=Queue,destinationName={name}"

    def connector(self, site: str, name: str) -> str:
        return f"{self.server(site)},connector=clientConnectors,connectorName={name}"

    def network(self, site: str) -> str:
        return f"{self.server(site)},connector=networkConnectors,networkConnectorName=to-{other(site)}"

    def bridges(self, site: str) -> list[dict[str, Any]]:
        told = self.ask(site, type="read", mbean=f"{self.network(site)},networkBridge=*")
        return list(told["value"].values()) if told["status"] == 200 else []

    def depths(self, site: str) -> dict[str, int]:
        told = self.read(site, self.queue(site, "*"), "Name", "QueueSize")
        return {row["Name"]: row["QueueSize"] for row in told.values()}

    def depth(self, site: str, queue: str) -> int:
        return self.depths(site).get(queue, 0)

    def copied(self, site: str) -> str:
        """The queue of copies that leave a site."""
        return f"{ORDERS}.to-{other(site)}"

    def ids(self, site: str, queue: str = ORDERS) -> list[str]:
        return [row["JMSMessageID"] for row in self.done(site, self.queue(site, queue), "browse()")]

    def settled(self) -> None:
        """Wait until nothing is to be shipped."""
        until(lambda: not any(self.depth(site, self.copied(site)) for site in SITES), within_s=20)

    # clients

    @contextmanager
    def client(self, site: str, door: str = "clients") -> Iterator[ClassicClient]:
        place = self.place(site)
        client = ClassicClient(place, door, place.app if door == "clients" else place.login("agent"))
        try:
            yield client
        finally:
            client.connection.close(politely=False)


class FanoutSubject(ClassicSubject):
    """Producers write to both."""

    def reset(self) -> None:
        for site in SITES:
            for name in (ORDERS, INVOICES):
                self.done(site, self.queue(site, name), "purge()")


class StoreSubject(ClassicSubject):
    """Both share a store: London serves, and Paris waits."""

    def reset(self) -> None:
        for site in SITES:
            self.stage.start(site)
        until(lambda: any(self.answers(site) for site in SITES), within_s=TAKES_S)
        if self.answers("paris"):
            self.stop("paris")
            until(lambda: self.answers("london"), within_s=TAKES_S)
            until(lambda: not self.runs("paris"), within_s=TAKES_S)
            self.stage.start("paris")
        self.done("london", self.connector("london", "stomp"), "start()")
        until(lambda: self.knocks("london") is Connected)
        for name in self.depths("london"):
            self.done("london", self.queue("london", name), "resume()")
            self.done("london", self.queue("london", name), "purge()")

    def knocks(self, site: str) -> type:
        place = self.place(site)
        return type(greet(place.stomp, place.app, None, timeout_s=2))

    def answers(self, site: str) -> bool:
        try:
            return bool(self.ask(site, type="read", mbean=self.server(site), attribute=["Slave"])["status"] == 200)
        except requests.ConnectionError:
            return False

    def stop(self, site: str) -> None:
        """Whoever asks for that is hardly ever answered."""
        with suppress(requests.ConnectionError):
            self.execute(site, self.server(site), "stop()")

    def locked(self) -> bool:
        return FileLock(self.stage.directory / "store" / "lock").read().held is True

    def runs(self, site: str) -> bool:
        """What the command of the settings says of its process."""
        told: Any = yaml.safe_load(self.stage.settings_path.read_text())
        words = told["sites"][site]["brokers"][0]["process"]["state"]
        code = subprocess.run(words, cwd=self.stage.directory, timeout=10, check=False).returncode
        assert code in (0, 3)
        return code == 0

    def taken(self, site: str) -> None:
        until(lambda: self.knocks(site) is Connected and self.answers(site), within_s=TAKES_S)
