"""A producer's messages, and its sends without a receipt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dr_ctl_lab.lab.clients import traits
from dr_ctl_lab.lab.clients.client import Outgoing, body_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from dr_ctl_lab.lab.clients.client import Client

MAX_OUTSTANDING = 256


@dataclass(slots=True)
class Numbered:
    """The numbered messages of one producer, for all its connections."""

    run: str
    name: str
    body_bytes: int
    variations: Collection[traits.Variation]
    number: int = 0

    def next(self, queues: Sequence[str]) -> Outgoing:
        """Return the next message, for the queues in turn."""
        self.number += 1
        ident, size = (
            f"{self.run}-{self.name}-{self.number}",
            traits.size_of(self.number, self.body_bytes, self.variations),
        )
        queue = queues[self.number % len(queues)]
        return Outgoing(ident, queue, body_of(ident, size), traits.traits_of(self.number, self.variations))

    def every(self, queues: Sequence[str]) -> Iterator[Outgoing]:
        while True:
            yield self.next(queues)


@dataclass(slots=True)
class Sending:
    """A producer on one connection. Where queues are closed one by one, a login does not show that a queue is open: the
    first message is sent alone, and its receipt makes the connection `accepted`."""

    site: str
    client: Client
    queues: Sequence[str]
    accepted: bool
    outstanding: dict[str, str] = field(default_factory=dict)  # queue by id

    @property
    def can_send(self) -> bool:
        return len(self.outstanding) < (MAX_OUTSTANDING if self.accepted else 1)

    def send(self, message: Outgoing) -> None:
        """Send a message; its receipt has the id as name."""
        self.outstanding[message.ident] = message.queue
        self.client.send(message, confirm=message.ident)
