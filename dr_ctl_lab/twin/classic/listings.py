"""Messages as a browse of a Classic broker's queue shows them."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from dr_ctl_lab.twin.classic.broker import EXPIRES, ClassicBroker
from dr_ctl_lab.twin.classic.composite import FIELDS, ORIGINAL, PATH, named
from dr_ctl_lab.twin.filters import BadFilter, compiled
from dr_ctl_lab.twin.messages import Message, Queue
from dr_ctl_lab.twin.parts import BrokerSaysNo

Select = Callable[[Message], bool]


def selected(selector: str) -> Select:
    """Read a selector as the broker does, which says no to one that it cannot read."""
    try:
        holds = compiled(selector)
    except BadFilter as error:
        raise BrokerSaysNo("javax.jms.InvalidSelectorException", selector) from error
    return lambda message: holds(partial(named, message))


def browsed(broker: ClassicBroker, queue: Queue, selector: str = "") -> list[dict[str, Any]]:
    """The messages of the first page that are meant, those in delivery among them."""
    wanted = selected(selector)
    return [row(queue, item) for item in broker.page(queue) if wanted(item)]


def row(queue: Queue, message: Message) -> dict[str, Any]:
    texts = {name: text for name, text in message.headers.items() if name not in (*FIELDS, PATH, ORIGINAL)}
    longs = {name: number for name, number in message.longs.items() if name != EXPIRES}
    fields: dict[str, Any] = {kind: {} for kind in map("{}Properties".format, _KINDS)}
    return fields | {
        "BrokerPath": named(message, PATH),
        "JMSCorrelationID": named(message, "JMSCorrelationID"),
        "JMSDeliveryMode": "PERSISTENT" if message.durable else "NON-PERSISTENT",
        "JMSDestination": f"queue://{queue.name}",
        "JMSExpiration": message.longs.get(EXPIRES, 0),
        "JMSMessageID": named(message, "JMSMessageID"),
        "JMSPriority": message.priority,
        "JMSRedelivered": message.failed > 0,
        "JMSReplyTo": named(message, "JMSReplyTo"),
        "JMSTimestamp": _date(message.timestamp_ms),
        "JMSType": named(message, "JMSType"),
        "JMSXGroupID": None,
        "JMSXGroupSeq": 0,
        "JMSXUserID": None,
        "LongProperties": longs,
        "OriginalDestination": _original(message.headers),
        "PropertiesText": "{" + ", ".join(f"{name}={value}" for name, value in {**longs, **texts}.items()) + "}",
        "StringProperties": texts,
        **({"Text": message.body.decode(errors="replace")} if message.text else {"BodyLength": len(message.body)}),
    }


_KINDS = ("Boolean", "Byte", "Double", "Float", "Int", "Long", "Short", "String")


def _date(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _original(headers: Mapping[str, str]) -> str | None:
    original = headers.get(ORIGINAL)
    return None if original is None else original.replace("/queue/", "queue://", 1)
