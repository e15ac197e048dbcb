"""The broker's listings: connections, consumers and browsed messages."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from dr_ctl_lab.twin.artemis.broker import ArtemisBroker
from dr_ctl_lab.twin.broker import Broker
from dr_ctl_lab.twin.messages import ORIGIN_NODE, ORIGIN_NUMBER, Message, Queue

MAX_TEXT: Final = 256
ROUTED_ANYCAST: Final = 1

Row = dict[str, Any]


def listed(rows: Sequence[Row], page: int, size: int) -> str:
    rows_of_page = rows if page < 1 or size < 1 else rows[(page - 1) * size : page * size]
    return json.dumps({"data": rows_of_page, "count": len(rows)})


def date(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")


def _connection(**fields: Any) -> Row:
    return {"creationTime": "", "sessionCount": 1, "proxyAddress": "", "proxyProtocolVersion": "", **fields}


def clients(broker: ArtemisBroker) -> list[Row]:
    """A row for each client's connection and each foreign one."""
    rows = [
        _connection(
            connectionID=session.ident,
            remoteAddress=session.remote,
            users=session.user,
            creationTime=date(session.since_ms),
            implementation="StompConnection",
            protocol="STOMP",
            clientID=session.client,
            localAddress=f"127.0.0.1:{session.local_port}",
        )
        for session in broker.sessions.values()
    ]
    return rows + [
        _connection(
            connectionID=f"9e57{number:04x}",
            remoteAddress=connection.remote,
            users=connection.user,
            implementation="RemotingConnectionImpl",
            protocol=connection.protocol,
            clientID=connection.client,
            localAddress=f"127.0.0.1:{broker.acceptors[connection.listener].port}",
            sessionCount=int(bool(connection.user)),
        )
        for number, connection in enumerate((*broker.foreign_connections, *broker.node_connections))
    ]


def consumer(broker: Broker, queue: str, **fields: Any) -> Row:
    row = {
        "validatedUser": fields.get("user", ""),
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
    return {**row, **fields}


def clients_consumers(broker: ArtemisBroker) -> list[Row]:
    """A row for each client's subscription, with numbers as texts, as the broker writes them."""
    return [
        consumer(
            broker,
            subscription.queue.name,
            id=str(subscription.number + 1),
            session=session.ident,
            clientID=session.client,
            user=session.user,
            protocol="STOMP",
            filter=subscription.selector,
            localAddress=f"127.0.0.1:{session.local_port}",
            remoteAddress=session.remote,
            creationTime=date(subscription.since_ms),
            messagesInTransit=str(len(subscription.in_hand)),
            messagesDelivered=str(subscription.delivered),
            messagesAcknowledged=str(subscription.acknowledged),
        )
        for session in broker.sessions.values()
        for subscription in session.subscriptions()
    ] + [
        consumer(
            broker,
            connection.consumes,
            id="1",
            session="",
            clientID=connection.client,
            user=connection.user,
            protocol=connection.protocol,
            filter="",
            localAddress=f"127.0.0.1:{broker.acceptors[connection.listener].port}",
            remoteAddress=connection.remote,
            creationTime="",
            messagesInTransit="0",
            messagesDelivered="0",
            messagesAcknowledged="0",
        )
        for connection in broker.foreign_connections
        if connection.consumes
    ]


def consumers_of(broker: Broker, queue: str) -> str:
    rows = [
        {
            "consumerID": subscription.number,
            "sequentialId": subscription.number + 1,
            "connectionID": session.ident,
            "sessionID": session.ident,
            "browseOnly": False,
            "creationTime": subscription.since_ms,
            "messagesInTransit": len(subscription.in_hand),
            "messagesDelivered": subscription.delivered,
            "messagesAcknowledged": subscription.acknowledged,
            "status": "OK",
        }
        for session in broker.sessions.values()
        for subscription in session.subscriptions()
        if subscription.queue.name == queue
    ]
    return json.dumps(rows)


def browse(queue: Queue, page: int, size: int) -> list[Row]:
    """A page of a queue, without messages in delivery."""
    return paged([browsed(message, number=message.number) for message in queue.available()], page, size)


def delivering(queue: Queue, row: Callable[[Message], Row]) -> str:
    """Messages in delivery, by consumer."""
    by_consumer: dict[int, list[Message]] = {}
    for number, consumer in queue.delivering.items():
        by_consumer.setdefault(id(consumer), []).append(queue.messages[number])
    return json.dumps(
        [
            {"consumerName": f"ServerConsumer [id={ident}]", "elements": [row(message) for message in messages]}
            for ident, messages in by_consumer.items()
        ]
    )


def delivering_row(message: Message) -> Row:
    """The row of a message in delivery, with its properties among the fields."""
    return {**message.headers, **message.longs, "messageID": message.number, "address": message.address}


def paged(rows: list[Row], page: int, size: int) -> list[Row]:
    return rows[(page - 1) * size : page * size] if page > 0 and size > 0 else rows


def browsed(message: Message, *, number: int) -> dict[str, Any]:
    texts, longs = dict(message.headers), dict(message.longs)
    if message.origin is not None:
        texts[ORIGIN_NODE], longs[ORIGIN_NUMBER] = message.origin
    kinds = {"_AMQ_ROUTING_TYPE": ROUTED_ANYCAST} if message.anycast and "destination-type" in texts else None
    headers = {**texts, **(kinds or {}), **longs}
    properties: dict[str, Any] = {
        **dict.fromkeys(("Short", "Int", "Double", "Boolean", "Float")),
        "Byte": kinds,
        "Long": longs or None,
        "String": texts or None,
    }
    row: dict[str, Any] = {f"{kind}Properties": value for kind, value in properties.items()}
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
        "PropertiesText": truncated("{" + ", ".join(f"{name}={value}" for name, value in headers.items()) + "}"),
    }
    if message.text:
        return {**row, "text": truncated(message.body.decode(errors="replace"))}
    return {**row, "BodyPreview": list(message.body[:MAX_TEXT])}


def truncated(text: str) -> str:
    cut = len(text) - MAX_TEXT
    return text if cut <= 0 else f"{text[:MAX_TEXT]}, + {cut} more"
