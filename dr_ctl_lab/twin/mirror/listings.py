"""A mirror's link in the broker's listings, and a browse of its outflow."""

import json
from typing import Any, Final

from dr_ctl_lab.twin.artemis.listings import Row, browsed, clients, clients_consumers, consumer, date, paged, truncated
from dr_ctl_lab.twin.messages import ORIGIN_NODE, Message, Reason
from dr_ctl_lab.twin.mirror.broker import MirrorBroker
from dr_ctl_lab.twin.mirror.outflow import Event, Outflow

EVENT_KIND: Final = "x-opt-amq-mr-ev-type"


def _connection(broker: MirrorBroker, **fields: Any) -> Row:
    row = {
        "creationTime": date(broker.start_ms),
        "implementation": "ActiveMQProtonRemotingConnection",
        "protocol": "AMQP",
        "sessionCount": 1,
        "proxyAddress": "",
        "proxyProtocolVersion": "",
    }
    return {**row, **fields}


def connections(broker: MirrorBroker) -> list[Row]:
    """The connections of the peer's link, of the own link, and of clients."""
    rows = []
    if broker.peer_connected:
        port = broker.acceptors["mirror"].port
        rows.append(
            _connection(
                broker,
                connectionID="11f0a5c2",
                remoteAddress="127.0.0.1:1",
                users="admin",
                clientID=broker.link.peer_node,
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
                clientID=broker.link.peer_node,
                localAddress="127.0.0.1:2",
            )
        )
    return rows + clients(broker)


def consumers(broker: MirrorBroker) -> list[Row]:
    rows = []
    if broker.link.attached:
        rows.append(
            consumer(
                broker,
                broker.outflow.name,
                id=str(broker.outflow.number + 1),
                session=broker.node,
                clientID=broker.link.peer_node,
                user="",
                protocol="AMQP",
                filter="",
                localAddress="127.0.0.1:2",
                remoteAddress=f"127.0.0.1/127.0.0.1:{broker.link.port}",
                creationTime=date(broker.start_ms),
                messagesInTransit=str(broker.outflow.under_way),
                messagesDelivered=str(broker.outflow.counters.acknowledged + broker.outflow.under_way),
                messagesAcknowledged=str(broker.outflow.counters.acknowledged),
            )
        )
    return rows + clients_consumers(broker)


def browse(outflow: Outflow, node: str, page: int, size: int) -> list[Row]:
    """A page of the outflow of the broker `node`, without events under way."""
    return paged([_event(event, outflow, node) for event in list(outflow.events)[outflow.under_way :]], page, size)


def _event(event: Event, outflow: Outflow, node: str) -> dict[str, Any]:
    """An event as a browse shows it; the kind of one that is no message is in its properties only."""
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
        "PropertiesText": truncated("{" + ", ".join(shown) + "}"),
    }


def annotation(event: Event, name: str) -> str | None:
    """The value of an event that a filter on the outflow sees."""
    if event.message is not None:
        return event.message.headers.get(name)
    return event.kind if name in (f"m.{EVENT_KIND}", EVENT_KIND) else None
