"""Messages that a producer of a load sends, and those without a receipt so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dr_ctl_lab.lab.clients import traits
from dr_ctl_lab.lab.clients.client import Outgoing, body_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from dr_ctl_lab.lab.clients.client import Client

MOST_OUTSTANDING = 256


@dataclass(slots=True)
class Numbered:
    """The messages of one producer, over all its connections."""

    run: str
    name: str
    body_bytes: int
    odd: Collection[traits.Odd]
    number: int = 0

    def next(self, queues: Sequence[str]) -> Outgoing:
        """The next message, for one of those queues in turn."""
        self.number += 1
        ident, size = f"{self.run}-{self.name}-{self.number}", traits.size(self.number, self.body_bytes, self.odd)
        queue = queues[self.number % len(queues)]
        return Outgoing(ident, queue, body_of(ident, size), traits.of(self.number, self.odd))

    def every(self, queues: Sequence[str]) -> Iterator[Outgoing]:
        while True:
            yield self.next(queues)


@dataclass(slots=True)
class Sending:
    """A producer on one connection.

    Where queues are closed one by one, a greeting says nothing yet: the first message goes alone, and until its receipt
    is there nobody is `let_in`.
    """

    site: str
    client: Client
    queues: Sequence[str]
    let_in: bool
    outstanding: dict[str, str] = field(default_factory=dict)  # the queue of each

    @property
    def may_send(self) -> bool:
        return len(self.outstanding) < (MOST_OUTSTANDING if self.let_in else 1)

    def send(self, message: Outgoing) -> None:
        """Send a message, whose receipt is awaited from now on under its id."""
        self.outstanding[message.ident] = message.queue
        self.client.send(message, confirm=message.ident)
