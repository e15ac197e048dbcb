"""Names of queues over STOMP, and the headers that clients of a family of brokers send beside the standard ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one family of brokers speaks STOMP. `window` is the header that bounds what a consumer is sent unasked, of
    which one unit stands for so many bytes."""

    window: str
    bytes_each: int = 1
    prefix: str = ""
    sent: Mapping[str, str] = field(default_factory=dict)
    subscribed: Mapping[str, str] = field(default_factory=dict)

    def queue(self, name: str) -> str:
        """Name a queue as the destination of a frame."""
        return self.prefix + name

    def subscribing(self, window_bytes: int) -> dict[str, str]:
        """Headers of a subscription that takes at most about so much unacknowledged."""
        return {**self.subscribed, self.window: str(max(1, window_bytes // self.bytes_each))}


ARTEMIS: Final = Dialect(
    window="consumer-window-size", sent={"destination-type": "ANYCAST"}, subscribed={"subscription-type": "ANYCAST"}
)
# The window is a number of messages; messages of the lab have about 250 bytes with their headers.
CLASSIC: Final = Dialect(window="activemq.prefetchSize", bytes_each=256, prefix="/queue/")
