"""Composite queues, and the fields of a message that a selector sees."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from dr_ctl_lab.twin.filters import compiled
from dr_ctl_lab.twin.messages import Message

PATH: Final = "JMSActiveMQBrokerPath"
ORIGINAL: Final = "original-destination"
# To a selector the path of a new message is the word 'null', not SQL's null.
BORN_HERE: Final = f"{PATH} = 'null'"
# STOMP headers with another name in selectors.
FIELDS: Final = {"correlation-id": "JMSCorrelationID", "type": "JMSType", "reply-to": "JMSReplyTo"}
_TEXTS: Final = {name: header for header, name in FIELDS.items()}


@dataclass(frozen=True, slots=True)
class Composite:
    """`targets`: the queues that get a copy, each with its selector. `forward_only`: no message stays in the queue
    itself."""

    name: str
    forward_only: bool
    targets: tuple[tuple[str, str], ...] = ()

    def targets_of(self, message: Message) -> Iterator[str]:
        for queue, selector in self.targets:
            if compiled(selector)(partial(selector_value, message)):
                yield queue


def selector_value(message: Message, name: str) -> str | None:
    """The value that a selector sees; None is null."""
    if name == "JMSMessageID" and message.origin is not None:
        return "{}:{}".format(*message.origin)
    if name == PATH:
        return message.headers.get(PATH, "null")
    if name == "JMSPriority":
        return str(message.priority)
    return message.headers.get(_TEXTS.get(name, name))


def original_destination(message: Message | None, queue: str) -> Mapping[str, str]:
    """The header with a message's first queue; one that it has already stays."""
    before = message.headers.get(ORIGINAL) if message is not None else None
    return {ORIGINAL: before or f"/queue/{queue}"}
