"""The broker's listings: connections, consumers, browsed messages, as text or rows the way it writes them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

from dr_ctl.twin.broker import Broker
from dr_ctl.twin.messages import ORIGIN_NODE, ORIGIN_NUMBER, Event, Message, Outflow, Queue, Reason

MOST_OF_A_TEXT: Final = 256
ROUTED_ANYCAST: Final = 1
EVENT_KIND: Final = "x-opt-amq-mr-ev-type"


def _listed(rows: list[dict[str, Any]], page: int, size: int) -> str:
    shown = rows if page < 1 or size < 1 else rows[(page - 1) * size : page * size]
    return json.dumps({"data": shown, "count": len(rows)})


def _date(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")


def _connection(broker: Broker, **told: Any) -> dict[str, Any]:
    row = {
        "creationTime": _date(broker.start_ms),
        "implementation": "ActiveMQProtonRemotingConnection",
        "protocol": "AMQP",
        "sessionCount": 1,
        "proxyAddress": "",
        "proxyProtocolVersion": "",
    }
    return {**row, **told}


def connections(broker: Broker) -> list[dict[str, Any]]:
    rows = []
    if broker.peer_connected:
        port = broker.acceptors["mirror"].port
        rows.append(
            _connection(
                broker,
                connectionID="11f0a5c2",
                remoteAddress="127.0.0.1:1",
                users="admin",
                clientID=broker.link.name,
                localAddress=f"127.0.0.1:{port}",
            )
        )
    if broker.link.connected:
        rows.append(
            _connection(
                broker,
                connectionID="0a77e1d4",
                remoteAddress=f"127.0.0.1/127.0.0.1:{broker.link.port}",
                users="",
                clientID=broker.link.name,
                localAddress="127.0.0.1:2",
            )
        )
    rows += [
        _connection(
            broker,
            connectionID=each.ident,
            remoteAddress=each.remote,
            users=each.user,
            creationTime=_date(each.since_ms),
            implementation="StompConnection",
            protocol="STOMP",
            clientID=each.client,
            localAddress=f"127.0.0.1:{each.local_port}",
        )
        for each in broker.sessions.values()
    ]
    return rows


def list_connections(broker: Broker, _: str, page: int, size: int) -> str:
    return _listed(connections(broker), page, size)


def _consumer(broker: Broker, queue: str, **told: Any) -> dict[str, Any]:
    row = {
        "validatedUser": told.get("user", ""),
        "queue": queue,
        "queueType": broker.queues[queue].routing if queue in broker.queues else "anycast",
        "address": broker.queues[queue].address if queue in broker.queues else queue,
        "messagesInTransitSize": "0",
        "messagesDeliveredSize": "0",
        "messagesAcknowledgedAwaitingCommit": "0",
        "lastDeliveredTime": 0,
        "lastAcknowledgedTime": 0,
        "status": "OK",
    }
    return {**row, **told}


def list_consumers(broker: Broker, _: str, page: int, size: int) -> str:
    """Numbers are texts in it, as the broker writes them."""
    rows = []
    if broker.link.attached:
        rows.append(
            _consumer(
                broker,
                broker.outflow.name,
                id=str(broker.outflow.number + 1),
                session=broker.node,
                clientID=broker.link.name,
                user="",
                protocol="AMQP",
                filter="",
                localAddress="127.0.0.1:2",
                remoteAddress=f"127.0.0.1/127.0.0.1:{broker.link.port}",
                creationTime=_date(broker.start_ms),
                messagesInTransit=str(broker.outflow.under_way),
                messagesDelivered=str(broker.outflow.counters.acknowledged + broker.outflow.under_way),
                messagesAcknowledged=str(broker.outflow.counters.acknowledged),
            )
        )
    for session in broker.sessions.values():
        rows += [
            _consumer(
                broker,
                each.queue,
                id=str(each.number + 1),
                session=session.ident,
                clientID=session.client,
                user=session.user,
                protocol="STOMP",
                filter=each.filter,
                localAddress=f"127.0.0.1:{session.local_port}",
                remoteAddress=session.remote,
                creationTime=_date(each.since_ms),
                messagesInTransit=str(each.in_hand),
                messagesDelivered=str(each.delivered),
                messagesAcknowledged=str(each.acknowledged),
            )
            for each in session.holds()
        ]
    return _listed(rows, page, size)


def consumers_of(broker: Broker, queue: str) -> str:
    rows = [
        {
            "consumerID": each.number,
            "sequentialId": each.number + 1,
            "connectionID": session.ident,
            "sessionID": session.ident,
            "browseOnly": False,
            "creationTime": each.since_ms,
            "messagesInTransit": each.in_hand,
            "messagesDelivered": each.delivered,
            "messagesAcknowledged": each.acknowledged,
            "status": "OK",
        }
        for session in broker.sessions.values()
        for each in session.holds()
        if each.queue == queue
    ]
    return json.dumps(rows)


def browse(queue: Queue | Outflow, node: str, page: int, size: int) -> list[dict[str, Any]]:
    """One page of a queue of the broker `node`; what is in delivery is not seen."""
    if isinstance(queue, Queue):
        rows = [browsed(each, number=each.number) for each in queue.live()]
    else:
        rows = [_event(each, queue, node) for each in list(queue.events)[queue.under_way :]]
    return rows[(page - 1) * size : page * size] if page > 0 and size > 0 else rows


def browsed(message: Message, *, number: int) -> dict[str, Any]:
    texts, longs = dict(message.headers), dict(message.longs)
    if message.origin is not None:
        texts[ORIGIN_NODE], longs[ORIGIN_NUMBER] = message.origin
    kinds = {"_AMQ_ROUTING_TYPE": ROUTED_ANYCAST} if message.anycast and "destination-type" in texts else None
    every = {**texts, **(kinds or {}), **longs}
    told: dict[str, Any] = {
        **dict.fromkeys(("Short", "Int", "Double", "Boolean", "Float")),
        "Byte": kinds,
        "Long": longs or None,
        "String": texts or None,
    }
    row: dict[str, Any] = {f"{kind}Properties": value for kind, value in told.items()}
    row |= {
        "messageID": str(number),
        "address": message.address,
        "userID": "",
        "type": 3 if message.text else 4,
        "durable": message.durable,
        "expiration": 0,
        "priority": message.priority,
        "redelivered": message.failed > 0,
        "timestamp": message.timestamp_ms,
        "largeMessage": False,
        "persistentSize": message.size,
        "protocol": "CORE",
        "PropertiesText": _short("{" + ", ".join(f"{name}={value}" for name, value in every.items()) + "}"),
    }
    if message.text:
        return {**row, "text": _short(message.body.decode(errors="replace"))}
    return {**row, "BodyPreview": list(message.body[:MOST_OF_A_TEXT])}


def _event(event: Event, outflow: Outflow, node: str) -> dict[str, Any]:
    """What is no message is one of the link's own; its kind stands in the text of its properties only."""
    if event.message is not None:
        return browsed(event.message, number=event.number)
    annotated = "messageAnnotations.x-opt-amq-mr-"
    texts = {f"{annotated}adr": event.address}
    if event.origin is not None and event.origin[0] != node:
        texts[f"messageAnnotations.{ORIGIN_NODE}"] = event.origin[0]
    reason = {f"{annotated}ack-reason": event.reason.value} if event.reason is not Reason.NORMAL else {}
    shown = [f"{name}={text}" for name, text in texts.items()]
    shown.insert(1, f"messageAnnotations.{EVENT_KIND}={event.kind}")
    shown += [f"{name}={value}" for name, value in reason.items()]
    texts["extraProperties._AMQ_AD"] = outflow.name
    if event.queue:
        texts[f"{annotated}qu"] = event.queue
    shown += [f"{name}={text}" for name, text in list(texts.items())[len(shown) - 1 - len(reason) :]]
    body = str(event.origin[1]) if event.origin is not None else json.dumps({"name": event.queue or event.address})
    plain = Message(event.number, outflow.name, body.encode(), text=True, headers=texts, anycast=False)
    return {
        **browsed(plain, number=event.number),
        "type": 4 if event.origin is not None else 3,
        "protocol": "AMQP",
        "timestamp": 0,
        "ByteProperties": reason or None,
        "PropertiesText": _short("{" + ", ".join(shown) + "}"),
    }


def _short(text: str) -> str:
    left = len(text) - MOST_OF_A_TEXT
    return text if left <= 0 else f"{text[:MOST_OF_A_TEXT]}, + {left} more"


def annotation(event: Event, name: str) -> str | None:
    """What a filter on an outflow sees of an event."""
    if event.message is not None:
        return event.message.headers.get(name)
    return event.kind if name in (f"m.{EVENT_KIND}", EVENT_KIND) else None
