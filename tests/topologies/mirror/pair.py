"""A broker of a mirrored pair in memory whose management answers as the real one does, or as a test says.

Bodies of requests go in, answers come out, as measured on brokers: what the pure half of a topology is shown.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from dr_ctl.jolokia.client import Answer, Reader, Wire, _answers
from dr_ctl.jolokia.http import HttpReply
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.common.calls import OUTFLOW_PREFIX

PAIR = "orders-1"
NO_BEAN = "javax.management.InstanceNotFoundException"
NO_ATTRIBUTE = "javax.management.AttributeNotFoundException"


def failed(text: str, kind: str = "java.lang.IllegalArgumentException", status: int = 400) -> dict[str, Any]:
    return {"error_type": kind, "error": f"{kind} : {text}", "status": status}


def acceptor(port: int, *, started: bool, protocols: str = "CORE,AMQP,STOMP") -> dict[str, Any]:
    options = {"host": "127.0.0.1", "port": str(port), "protocols": protocols, "autoStart": "false"}
    return {"Started": started, "Parameters": options}


def queue_told(**more: Any) -> dict[str, Any]:
    """What one queue answers; `more` by the names of its attributes."""
    counts = ("MessageCount", "DeliveringCount", "ScheduledCount", "ConsumerCount", "MessagesAdded")
    counts += ("MessagesAcknowledged", "MessagesExpired", "MessagesKilled")
    flags = {"Paused": False, "Durable": True, "Temporary": False, "InternalQueue": False, "LastValue": False}
    ends = {"RingSize": -1, "DeadLetterAddress": "DLQ", "ExpiryAddress": "ExpiryQueue"}
    return {**dict.fromkeys(counts, 0), **flags, **ends, **more}


def canonical(name: str) -> str:
    """A bean's name as a read by pattern writes it: the keys in alphabetical order."""
    plain = ("component", "subcomponent")
    keys = sorted(beans.parts(name).items())
    return f"{beans.DOMAIN}:" + ",".join(f"{key}={text if key in plain else beans.quote(text)}" for key, text in keys)


@dataclass
class Management:
    """One broker. `instead` gives another answer to a kind of request."""

    site: str
    peer: str
    open: bool
    broker: str = ""
    acceptors: dict[str, dict[str, Any]] = field(default_factory=dict)
    links: dict[str, dict[str, Any]] = field(default_factory=dict)
    queues: dict[str, dict[str, Any]] = field(default_factory=dict)
    connections: list[dict[str, Any]] = field(default_factory=list)
    consumers: list[dict[str, Any]] = field(default_factory=list)
    instead: dict[str, Any] = field(default_factory=dict)
    acks: int = 0  # of what the outflow holds

    def __post_init__(self) -> None:
        self.broker = self.broker or f"broker-{self.site}"
        self.acceptors |= {
            "clients": acceptor(61616, started=self.open),
            "mirror": acceptor(61617, started=True, protocols="AMQP"),
        }
        self.links[self.peer] = {"Started": True, "Connected": True, "Protocol": "AMQP", "ReconnectAttempts": -1}
        self.outflow = self.queue(f"{OUTFLOW_PREFIX}{self.peer}", InternalQueue=True, ConsumerCount=1)
        self.server = {
            "Active": True,
            "Backup": False,
            "SharedStore": False,
            "Version": "2.56.0",
            "NodeID": f"node-{self.site}",
            "CurrentTimeMillis": 1795251263227,
            "PendingMirrorAcks": 0,
        }

    def queue(self, name: str, routing: str = "anycast", **more: Any) -> dict[str, Any]:
        """Create a queue; what it answers may be altered afterwards."""
        bean = canonical(beans.queue(self.broker, more.pop("address", name), routing, name))
        self.queues[bean] = queue_told(**more)
        return self.queues[bean]

    def answers(self, bodies: Sequence[Mapping[str, Any]]) -> list[Any]:
        return [self._answer(body) for body in bodies]

    def reader(self) -> Reader:
        return Reader(cast("Wire", _Direct(self)))

    def _answer(self, body: Mapping[str, Any]) -> Any:
        bean, names = body["mbean"], body.get("attribute", ())
        if body["type"] == "search":
            return self._told("search", [beans.server(self.broker)])
        if body["type"] == "exec":
            return self._exec(bean, body["operation"], body["arguments"])
        patterns = {
            beans.acceptor(self.broker): ("acceptors", beans.acceptor, self.acceptors),
            beans.broker_connection(self.broker): ("links", beans.broker_connection, self.links),
        }
        if bean in patterns:
            kind, name_of, rows = patterns[bean]
            named = {canonical(name_of(self.broker, row)): {"Name": row, **value} for row, value in rows.items()}
            return self._matched(kind, named, names)
        if bean == beans.documents(self.broker):
            return self._matched("documents", {}, names)
        outflows = {queue: value for queue, value in self.queues.items() if value is self.outflow}
        queues = {beans.queue(self.broker): self.queues, beans.outflows(self.broker): outflows}
        if bean in queues:
            return self._matched("queues" if queues[bean] is self.queues else "outflows", queues[bean], names)
        if bean == beans.server(self.broker):
            return self._told("server", _asked(self.server, names))
        if bean == beans.RUNTIME:
            return self._told("runtime", {"StartTime": 1795251000000})
        links = {beans.broker_connection(self.broker, name): link for name, link in self.links.items()}
        listeners = {canonical(beans.acceptor(self.broker, name)): value for name, value in self.acceptors.items()}
        one = links.get(bean) or listeners.get(canonical(bean)) or self.queues.get(canonical(bean))
        return self._told("one", _asked(one, names)) if one else failed(f"No MBean {bean} found", NO_BEAN, 404)

    def _exec(self, bean: str, operation: str, arguments: Sequence[Any]) -> Any:
        verb = operation.partition("(")[0]
        listings = {
            "listConnections": lambda: json.dumps({"data": self.connections, "count": len(self.connections)}),
            "listConsumers": lambda: json.dumps({"data": self.consumers, "count": len(self.consumers)}),
            "listPreparedTransactionDetailsAsJSON": lambda: "",
            "listLockCoordinatorsAsJSON": lambda: "[]",
            "browse": list,
            "countMessages": lambda: (
                self.acks if "NOT NULL" in arguments[0] else int(self.outflow["MessageCount"]) - self.acks
            ),
        }
        if verb in listings:
            return self._told(verb, listings[verb]())
        return self.instead.get(verb, failed(f"No operation {operation} found on MBean {bean}"))

    def _matched(self, kind: str, rows: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> Any:
        """What a pattern matched: attributes that a bean lacks are left out."""
        if not rows:
            return self.instead.get(kind, failed(f"No MBean with pattern for {kind}", NO_BEAN, 404))
        by_name = {bean: {name: row[name] for name in names if name in row} for bean, row in rows.items()}
        return self._told(kind, by_name)

    def _told(self, kind: str, value: Any) -> Any:
        return self.instead.get(kind, {"value": value, "status": 200})


def _asked(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The attributes of one bean; one that it lacks is an error in its place."""
    missing = {".error": True, "error_type": NO_ATTRIBUTE, "error": "No such attribute"}
    return {name: row.get(name, missing) for name in names}


class _Direct:
    """The way to a broker without a network: through JSON and the client's own parsing."""

    url, activation = "memory:", ""

    def __init__(self, broker: Management) -> None:
        self._broker = broker

    def post(self, bodies: Sequence[Mapping[str, Any]], timeout_s: float) -> list[Answer]:
        dumps = json.dumps(self._broker.answers(json.loads(json.dumps(list(bodies)))))
        return _answers(self.url, HttpReply(200, {}, bytearray(dumps.encode())), len(bodies))


def connection(port: int, *, user: str = "app", client: str = "billing", protocol: str = "STOMP") -> dict[str, Any]:
    """One row of `listConnections`."""
    return {
        "connectionID": "5f0c",
        "remoteAddress": "10.1.2.3:50412",
        "users": user,
        "protocol": protocol,
        "clientID": client,
        "localAddress": f"tcp://127.0.0.1:{port}",
        "sessionCount": 1,
    }


def consumer(queue: str, port: int, *, client: str = "billing", holds: int = 0) -> dict[str, Any]:
    """One row of `listConsumers`."""
    return {
        "id": "0",
        "queue": queue,
        "user": "app",
        "protocol": "STOMP",
        "clientID": client,
        "localAddress": f"tcp://127.0.0.1:{port}",
        "remoteAddress": "10.1.2.3:50412",
        "messagesInTransit": holds,
    }


def broker_of(site: str) -> Management:
    """London serves, Paris waits; the same two queues at both."""
    broker = Management(site, {"london": "paris", "paris": "london"}[site], open=site == "london")
    broker.queue("orders.in", MessageCount=3, MessagesAdded=3)
    broker.queue("orders.audit")
    return broker
