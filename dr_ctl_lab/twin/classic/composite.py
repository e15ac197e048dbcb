"""Composite queues, which pass on what is sent to them, and what a selector sees of a message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from dr_ctl_lab.twin.filters import compiled
from dr_ctl_lab.twin.messages import Message

PATH: Final = "JMSActiveMQBrokerPath"
ORIGINAL: Final = "original-destination"
# No message has been anywhere before its first broker, and the selector is told so in this word: it is not null.
BORN_HERE: Final = f"{PATH} = 'null'"
# Headers of STOMP that are no properties, with what a selector calls them.
FIELDS: Final = {"correlation-id": "JMSCorrelationID", "type": "JMSType", "reply-to": "JMSReplyTo"}
_TEXTS: Final = {name: header for header, name in FIELDS.items()}


@dataclass(frozen=True, slots=True)
class Composite:
    """`targets`: the queues that get a copy, each with its selector. `forward_only`: nothing stays in its own."""

    name: str
    forward_only: bool
    targets: tuple[tuple[str, str], ...] = ()

    def targets_of(self, message: Message) -> Iterator[str]:
        for queue, selector in self.targets:
            if compiled(selector)(partial(named, message)):
                yield queue


def named(message: Message, name: str) -> str | None:
    """What a selector knows by that name; None where it is null."""
    if name == "JMSMessageID" and message.origin is not None:
        return "{}:{}".format(*message.origin)
    if name == PATH:
        return message.headers.get(PATH, "null")
    if name == "JMSPriority":
        return str(message.priority)
    return message.headers.get(_TEXTS.get(name, name))


def original(message: Message | None, queue: str) -> Mapping[str, str]:
    """The mark of where it was before; where it has one already, that stays."""
    before = message.headers.get(ORIGINAL) if message is not None else None
    return {ORIGINAL: before or f"/queue/{queue}"}
