"""STOMP of each family of brokers: names of queues, and non-standard headers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Dialect:
    """STOMP of one family of brokers. `window` is the header that limits unacknowledged messages; its unit is
    `bytes_each` bytes."""

    window: str
    bytes_each: int = 1
    prefix: str = ""
    sent: Mapping[str, str] = field(default_factory=dict)
    subscribed: Mapping[str, str] = field(default_factory=dict)

    def queue(self, name: str) -> str:
        """The destination of a queue."""
        return self.prefix + name

    def subscribing(self, window_bytes: int) -> dict[str, str]:
        """Headers of a subscription with at most about `window_bytes` unacknowledged."""
        return {**self.subscribed, self.window: str(max(1, window_bytes // self.bytes_each))}


ARTEMIS: Final = Dialect(
    window="consumer-window-size", sent={"destination-type": "ANYCAST"}, subscribed={"subscription-type": "ANYCAST"}
)
# The window is a number of messages; messages of the lab have about 250 bytes with their headers.
CLASSIC: Final = Dialect(window="activemq.prefetchSize", bytes_each=256, prefix="/queue/")
