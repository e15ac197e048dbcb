"""Reads a Classic broker that has no management over HTTP, as on Amazon MQ. Its statistics plugin has figures, but
neither connectors by name nor pauses. Answers arrive in the order of the questions, and the last one ends the
reading."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dr_ctl.core.errors import BrokerError, TimedOut, Unreachable
from dr_ctl.core.system import boottime_s
from dr_ctl.jolokia.values import Fields
from dr_ctl.stomp_io.address import Connected, LoginDenied, StompAccount
from dr_ctl.stomp_io.client import Connection, ConnectionLost, Frame, probe
from dr_ctl.topologies.classic import reading
from dr_ctl.topologies.classic.beans import EVERY
from dr_ctl.topologies.classic.broker import Network
from dr_ctl.topologies.classic.reading import Answered
from dr_ctl.topologies.common.view import Acceptor, Consumer, Queue

REPLIES: Final = "/temp-queue/dr-ctl.statistics"
_PLUGIN: Final = "/queue/ActiveMQ.Statistics."
_QUEUES, _CONSUMERS, _BROKER = "Destination.>", "Subscription", "Broker"
# The statistics of a queue have these figures of its bean, under names of their own.
_FIGURES: Final = {
    "size": "QueueSize", "inflightCount": "InFlightCount", "enqueueCount": "EnqueueCount",
    "dequeueCount": "DequeueCount", "expiredCount": "ExpiredCount", "consumerCount": "ConsumerCount",
}  # fmt: skip
# The client id of a network connector's bridge names the connector, the peer and the broker.
_BRIDGE: Final = re.compile(r"(?P<name>.+)_(?P<to>[^_]+)_inbound_(?P<broker>[^_]+)")


def ask(account: StompAccount, listeners: Mapping[str, bool], *, timeout_s: float) -> Answered:
    """Ask for the statistics. `listeners` says for each connector of clients whether it is open. Raises
    `BrokerError`."""
    login_result, connection = probe(account.address, account.login, account.tls, timeout_s=timeout_s)
    if connection is None:
        because = getattr(login_result, "because", "no answer to the login")
        if isinstance(login_result, LoginDenied):
            raise BrokerError(f"{account.address}: {because}")
        # A closed listener looks like a broker that does not run.
        raise Unreachable(f"{account.address}: {because}", refused=False)
    try:
        frames = _asked(connection, boottime_s() + timeout_s)
    except ConnectionLost as error:
        raise Unreachable(f"{account.address}: {error}", refused=False) from error
    finally:
        connection.close()
    server = login_result.server if isinstance(login_result, Connected) else ""
    return answered(frames, listeners, (server or "").partition("/")[2])


def _asked(connection: Connection, until: float) -> list[Mapping[str, Any]]:
    connection.stomp.subscribe(REPLIES, "statistics", "auto", {"transformation": "jms-map-json"})
    for question in (_CONSUMERS, _QUEUES, _BROKER):
        headers = {"reply-to": REPLIES, "correlation-id": question}
        connection.stomp.send(f"{_PLUGIN}{question}", "", headers=headers)
    replies: list[Mapping[str, Any]] = []
    while boottime_s() < until:
        for frame in connection.receive(min(0.2, max(0.0, until - boottime_s()))):
            if frame.cmd == "MESSAGE":
                replies.append(entries(frame))
                if frame.headers.get("correlation-id") == _BROKER:
                    return replies
    raise TimedOut(f"{connection.address}: no statistics in time: is the statistics plugin of that broker on?")


def entries(frame: Frame) -> dict[str, Any]:
    """Read the entries of a map: `{"string": KEY, "long": VALUE}`, or `{"string": [KEY, VALUE]}` of a text."""
    values: dict[str, Any] = {}
    for entry in json.loads(frame.body)["map"]["entry"]:
        key, others = entry["string"], [value for kind, value in entry.items() if kind != "string"]
        if isinstance(key, list):
            values[key[0]] = key[1]
        else:
            values[key] = others[0] if others else None
    return values


def answered(replies: list[Mapping[str, Any]], listeners: Mapping[str, bool], version: str) -> Answered:
    broker = replies[-1]
    names = ("BrokerName", "BrokerId", "StorePercentUsage", "MemoryPercentUsage", "TempPercentUsage")
    fields = {name: broker.get(name[0].lower() + name[1:]) for name in names} | {"BrokerVersion": version}
    rows = [reply for reply in replies[:-1] if str(reply.get("destinationName", "")).startswith("queue://")]
    consuming = [reply for reply in replies[:-1] if "dispatchedQueueSize" in reply]
    bridges = {str(row["clientId"]): found for row in consuming if (found := _BRIDGE.fullmatch(str(row["clientId"])))}
    return reading.answered(
        Fields("the statistics of the broker", fields),
        [(_consumer(row), str(row["clientId"]) in bridges) for row in consuming],
        acceptors=tuple(
            Acceptor(name, "", is_open, None, frozenset({"STOMP"}), opens_at_boot=True)
            for name, is_open in listeners.items()
        ),
        networks=tuple(
            Network(bridge["name"], "", bridge["to"])
            for bridge in {bridge[0]: bridge for bridge in bridges.values()}.values()
        ),
        queues=tuple(map(_queue, rows)),
        prepared=(),
        denied=frozenset(EVERY),
        managed=False,
    )


def _queue(row: Mapping[str, Any]) -> Queue:
    name = Fields("the statistics of a queue", row).text("destinationName").removeprefix("queue://")
    figures = {figure: row.get(name) for name, figure in _FIGURES.items()}
    fields = Fields(f"the statistics of {name}", {"Name": name, "Paused": False, "DLQ": False, **figures})
    queue = reading.queue("", fields)
    return replace(queue, delivering=max(0, queue.delivering))


def _consumer(row: Mapping[str, Any]) -> Consumer:
    fields = Fields("the statistics of a consumer", row)
    return Consumer(
        queue=fields.text("destinationName"),
        port=None,
        client=fields.any_text("clientId"),
        remote="",
        user="",
        holds=fields.number("dispatchedQueueSize"),
    )
