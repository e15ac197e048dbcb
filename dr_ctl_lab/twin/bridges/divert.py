"""Diverts and bridges, made from a configuration with the keys of management's JSON."""

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

Config = Mapping[str, Any]


def properties(config: Config) -> Mapping[str, str]:
    """Headers that the configured transformer adds to a message."""
    result = (config.get(TRANSFORMER) or {}).get("properties") or {}
    return {name: str(text) for name, text in result.items()}


class Divert:
    """Copies messages of an address to another; an exclusive divert moves them."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.name, self.address = str(config["name"]), str(config["address"])
        self.forwarding = str(config["forwarding-address"])
        self.exclusive = bool(config.get("exclusive", False))
        self.routing_name = str(config.get("routing-name") or uuid4())
        self._selects = compiled(config.get("filter-string"))

    def takes(self, message: Message) -> bool:
        return message.address == self.address and self._selects(message.headers.get)

    def copy(self, message: Message, number: int) -> Message:
        """The copy of a message, with its origin in headers."""
        origin = {"_AMQ_ORIG_QUEUE": self.name, "_AMQ_ORIG_ADDRESS": message.address}
        return replace(
            message,
            number=number,
            address=self.forwarding,
            headers={**message.headers, **origin, **properties(self.config)},
            longs={**message.longs, "_AMQ_ORIG_MESSAGE_ID": message.number},
            anycast=False,
            failed=0,
        )


class CoreBridge(Bridge):
    """A bridge made from a configuration, with a login and a transformer."""

    def __init__(self, config: Config, queue: Queue, clock: Clock) -> None:
        super().__init__(str(config["name"]), queue, str(config.get("forwarding-address") or queue.address), clock)
        self.config = config
        # Without a user in the configuration the login fails.
        self.user, self.password = str(config.get("user")), str(config.get("password"))
        self._selects = compiled(config.get("filter-string"))

    def wants(self, message: Message) -> bool:
        return self._selects(message.headers.get)

    def outgoing(self, message: Message) -> Message:
        return replace(message, headers={**message.headers, **properties(self.config)})
