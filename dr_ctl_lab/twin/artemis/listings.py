"""The broker's listings: connections, consumers, browsed messages, as text or rows the way it writes them."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from dr_ctl_lab.twin.artemis.broker import ArtemisBroker
from dr_ctl_lab.twin.broker import Broker
from dr_ctl_lab.twin.messages import ORIGIN_NODE, ORIGIN_NUMBER, Message, Queue

MOST_OF_A_TEXT: Final = 256
ROUTED_ANYCAST: Final = 1

Listed = dict[str, Any]


def listed(rows: Sequence[Listed], page: int, size: int) -> str:
    shown = rows if page < 1 or size < 1 else rows[(page - 1) * size : page * size]
    return json.dumps({"data": shown, "count": len(rows)})


def date(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")


def _connection(**fields: Any) -> Listed:
    return {"creationTime": "", "sessionCount": 1, "proxyAddress": "", "proxyProtocolVersion": "", **fields}


def clients(broker: ArtemisBroker) -> list[Listed]:
    """A row for each client's connection, and for each guest's."""
    own = [
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
    return own + [
        _connection(
            connectionID=f"9e57{number:04x}",
            remoteAddress=case.remote,
            users=case.user,
            implementation="RemotingConnectionImpl",
            protocol=case.protocol,
            clientID=case.client,
            localAddress=f"127.0.0.1:{broker.acceptors[case.listener].port}",
            sessionCount=int(bool(case.user)),
        )
        for number, case in enumerate((*broker.guests, *broker.between))
    ]


def consumer(broker: Broker, queue: str, **fields: Any) -> Listed:
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


def clients_consumers(broker: ArtemisBroker) -> list[Listed]:
    """A row for each client's subscription. Numbers are texts in it, as the broker writes them."""
    return [
        consumer(
            broker,
            hold.queue.name,
            id=str(hold.number + 1),
            session=session.ident,
            clientID=session.client,
            user=session.user,
            protocol="STOMP",
            filter=hold.selector,
            localAddress=f"127.0.0.1:{session.local_port}",
            remoteAddress=session.remote,
            creationTime=date(hold.since_ms),
            messagesInTransit=str(len(hold.in_hand)),
            messagesDelivered=str(hold.delivered),
            messagesAcknowledged=str(hold.acknowledged),
        )
        for session in broker.sessions.values()
        for hold in session.holds()
    ] + [
        consumer(
            broker,
            guest.consumes,
            id="1",
            session="",
            clientID=guest.client,
            user=guest.user,
            protocol=guest.protocol,
            filter="",
            localAddress=f"127.0.0.1:{broker.acceptors[guest.listener].port}",
            remoteAddress=guest.remote,
            creationTime="",
            messagesInTransit="0",
            messagesDelivered="0",
            messagesAcknowledged="0",
        )
        for guest in broker.guests
        if guest.consumes
    ]


def consumers_of(broker: Broker, queue: str) -> str:
    rows = [
        {
            "consumerID": hold.number,
            "sequentialId": hold.number + 1,
            "connectionID": session.ident,
            "sessionID": session.ident,
            "browseOnly": False,
            "creationTime": hold.since_ms,
            "messagesInTransit": len(hold.in_hand),
            "messagesDelivered": hold.delivered,
            "messagesAcknowledged": hold.acknowledged,
            "status": "OK",
        }
        for session in broker.sessions.values()
        for hold in session.holds()
        if hold.queue.name == queue
    ]
    return json.dumps(rows)


def browse(queue: Queue, page: int, size: int) -> list[Listed]:
    """A page of a queue, without messages in delivery."""
    return paged([browsed(message, number=message.number) for message in queue.live()], page, size)


def delivering(queue: Queue, row: Callable[[Message], Listed]) -> str:
    """Messages in consumers' hands, by consumer."""
    by_taker: dict[int, list[Message]] = {}
    for number, taker in queue.delivering.items():
        by_taker.setdefault(id(taker), []).append(queue.messages[number])
    return json.dumps(
        [
            {"consumerName": f"ServerConsumer [id={ident}]", "elements": [row(message) for message in messages]}
            for ident, messages in by_taker.items()
        ]
    )


def held(message: Message) -> Listed:
    """A message in such a list, with properties among the other fields."""
    return {**message.headers, **message.longs, "messageID": message.number, "address": message.address}


def paged(rows: list[Listed], page: int, size: int) -> list[Listed]:
    return rows[(page - 1) * size : page * size] if page > 0 and size > 0 else rows


def browsed(message: Message, *, number: int) -> dict[str, Any]:
    texts, longs = dict(message.headers), dict(message.longs)
    if message.origin is not None:
        texts[ORIGIN_NODE], longs[ORIGIN_NUMBER] = message.origin
    kinds = {"_AMQ_ROUTING_TYPE": ROUTED_ANYCAST} if message.anycast and "destination-type" in texts else None
    every = {**texts, **(kinds or {}), **longs}
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
        "PropertiesText": short("{" + ", ".join(f"{name}={value}" for name, value in every.items()) + "}"),
    }
    if message.text:
        return {**row, "text": short(message.body.decode(errors="replace"))}
    return {**row, "BodyPreview": list(message.body[:MOST_OF_A_TEXT])}


def short(text: str) -> str:
    left = len(text) - MOST_OF_A_TEXT
    return text if left <= 0 else f"{text[:MOST_OF_A_TEXT]}, + {left} more"
