"""Diverts and bridges as broker.xml or a person has told them: JSON with the keys that management takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

from dr_ctl_lab.twin.bridge import Bridge
from dr_ctl_lab.twin.clock import Clock
from dr_ctl_lab.twin.filters import compiled
from dr_ctl_lab.twin.messages import Message, Queue

ORIGIN: Final = "ARTEMIS_MESSAGE_ORIGIN"
ADDS_HEADERS: Final = "org.apache.activemq.artemis.core.server.transformer.AddHeadersTransformer"
TRANSFORMER: Final = "transformer-configuration"

Told = Mapping[str, Any]


def properties(told: Told) -> Mapping[str, str]:
    """What its transformer puts into the headers of a message; nothing where it has none."""
    found = (told.get(TRANSFORMER) or {}).get("properties") or {}
    return {name: str(text) for name, text in found.items()}


class Divert:
    """What copies the messages of an address to another one; an exclusive divert keeps them from their own."""

    def __init__(self, told: Told) -> None:
        self.told = told
        self.name, self.address = str(told["name"]), str(told["address"])
        self.forwarding = str(told["forwarding-address"])
        self.exclusive = bool(told.get("exclusive", False))
        self.routing_name = str(told.get("routing-name") or uuid4())
        self._selects = compiled(told.get("filter-string"))

    def takes(self, message: Message) -> bool:
        return message.address == self.address and self._selects(message.headers.get)

    def copy(self, message: Message, number: int) -> Message:
        """The message as it goes on: it says where it was and its number there, and is for every queue."""
        was = {"_AMQ_ORIG_QUEUE": self.name, "_AMQ_ORIG_ADDRESS": message.address}
        return replace(
            message,
            number=number,
            address=self.forwarding,
            headers={**message.headers, **was, **properties(self.told)},
            longs={**message.longs, "_AMQ_ORIG_MESSAGE_ID": message.number},
            anycast=False,
            failed=0,
        )


class CoreBridge(Bridge):
    """A bridge that a person could make: it logs in at the peer, and its transformer says where messages come from."""

    def __init__(self, told: Told, queue: Queue, clock: Clock) -> None:
        super().__init__(str(told["name"]), queue, str(told.get("forwarding-address") or queue.address), clock)
        self.told = told
        # A user who is not named is one that no peer knows.
        self.user, self.password = str(told.get("user")), str(told.get("password"))
        self._selects = compiled(told.get("filter-string"))

    def wants(self, message: Message) -> bool:
        return self._selects(message.headers.get)

    def outgoing(self, message: Message) -> Message:
        return replace(message, headers={**message.headers, **properties(self.told)})
