"""Messages that a producer of a load sends, and those without a receipt so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dr_ctl_lab.lab.working import ID_HEADER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dr_ctl.stomp_io.connection import Connection
    from dr_ctl.stomp_io.dialect import Dialect

MOST_OUTSTANDING = 256


@dataclass(slots=True)
class Sending:
    """A producer on one connection; `number` is that of its last message.

    Where queues are closed one by one, a greeting says nothing yet: the first message goes alone, and until its receipt
    is there nobody is `let_in`.
    """

    site: str
    connection: Connection
    queues: Sequence[str]
    name: str
    number: int
    let_in: bool
    outstanding: dict[str, str] = field(default_factory=dict)  # the queue of each

    @property
    def may_send(self) -> bool:
        return len(self.outstanding) < (MOST_OUTSTANDING if self.let_in else 1)

    def next(self, run: str) -> tuple[str, str]:
        """Name the next message, and its queue; from now on its receipt is awaited."""
        self.number += 1
        ident, queue = f"{run}-{self.name}-{self.number}", self.queues[self.number % len(self.queues)]
        self.outstanding[ident] = queue
        return ident, queue


def send(connection: Connection, dialect: Dialect, queue: str, ident: str, body: str) -> None:
    """Send a durable message that bears its id; the id names its receipt too."""
    headers = {**dialect.sent, "persistent": "true", ID_HEADER: ident, "receipt": ident}
    connection.stomp.send(dialect.queue(queue), body, headers=headers)
