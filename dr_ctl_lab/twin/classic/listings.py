"""Messages as a browse of a Classic broker's queue shows them."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from dr_ctl_lab.twin.classic.broker import EXPIRES, ClassicBroker
from dr_ctl_lab.twin.classic.composite import FIELDS, ORIGINAL, PATH, selector_value
from dr_ctl_lab.twin.filters import BadFilter, compiled
from dr_ctl_lab.twin.messages import Message, Queue
from dr_ctl_lab.twin.parts import BrokerError

Select = Callable[[Message], bool]


def selected(selector: str) -> Select:
    """Compile a selector. BrokerError where it is none."""
    try:
        selects = compiled(selector)
    except BadFilter as error:
        raise BrokerError("javax.jms.InvalidSelectorException", selector) from error
    return lambda message: selects(partial(selector_value, message))


def browsed(broker: ClassicBroker, queue: Queue, selector: str = "") -> list[dict[str, Any]]:
    """The messages of the first page that match, those in delivery included."""
    wanted = selected(selector)
    return [row(queue, item) for item in broker.page(queue) if wanted(item)]


def row(queue: Queue, message: Message) -> dict[str, Any]:
    texts = {name: text for name, text in message.headers.items() if name not in (*FIELDS, PATH, ORIGINAL)}
    longs = {name: number for name, number in message.longs.items() if name != EXPIRES}
    fields: dict[str, Any] = {kind: {} for kind in map("{}Properties".format, _KINDS)}
    return fields | {
        "BrokerPath": selector_value(message, PATH),
        "JMSCorrelationID": selector_value(message, "JMSCorrelationID"),
        "JMSDeliveryMode": "PERSISTENT" if message.durable else "NON-PERSISTENT",
        "JMSDestination": f"queue://{queue.name}",
        "JMSExpiration": message.longs.get(EXPIRES, 0),
        "JMSMessageID": selector_value(message, "JMSMessageID"),
        "JMSPriority": message.priority,
        "JMSRedelivered": message.failed > 0,
        "JMSReplyTo": selector_value(message, "JMSReplyTo"),
        "JMSTimestamp": _date(message.timestamp_ms),
        "JMSType": selector_value(message, "JMSType"),
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
    original_destination = headers.get(ORIGINAL)
    return None if original_destination is None else original_destination.replace("/queue/", "queue://", 1)
