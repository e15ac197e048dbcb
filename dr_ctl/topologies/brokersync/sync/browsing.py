"""The ids of all messages of a queue, by a STOMP browse that is believed only where it was whole.

A broker ends a browse at its `maxBrowsePageSize` (400 unless set), or where its memory is full, as if the queue ended
there.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from dr_ctl.stomp_io.connection import Connection
from dr_ctl.topologies.brokersync.sync.ports import Browsed
from dr_ctl.topologies.brokersync.view import AGENT
from dr_ctl.topologies.classic import browsing
from dr_ctl.topologies.common.access import Gate

TRYING_S: Final = 5.0


def connected(gate: Gate, *, beats: str | None = None) -> Connection:
    """A session of the agent's at that door; raises `BrokerError` where it does not open."""
    return browsing.connected(gate, beats=beats, client=f"{AGENT}{secrets.token_hex(6)}")


def browsed(gate: Gate, queue: str) -> Iterator[str]:
    """The ids that one browse shows; raises `BrokerError` where it does not come to its end."""
    for frame in browsing.browsed(gate, queue, client=f"{AGENT}{secrets.token_hex(6)}"):
        yield frame.headers["message-id"]


@dataclass
class Browser:
    """Browses the queues of one broker. `depth` reads how many messages a queue has; returns None where there is no
    such queue yet."""

    gate: Callable[[], Gate]
    depth: Callable[[str], int | None]

    def ids(self, queue: str) -> Browsed:
        found: set[str] = set()
        whole, shown = self._whole(queue, found.clear, found.add)
        return Browsed(frozenset(found), whole, shown)

    def lacking(self, queue: str, ids: frozenset[str]) -> Browsed:
        """Which of these ids it does not show."""
        left: set[str] = set()

        def begin() -> None:
            left.clear()
            left.update(ids)

        whole, shown = self._whole(queue, begin, left.discard)
        return Browsed(frozenset(left), whole, shown)

    def _whole(self, queue: str, begin: Callable[[], None], each: Callable[[str], None]) -> tuple[bool, int]:
        """Browse until nothing can have been left out; False where that was never so. And how many were shown."""
        shown, until = 0, time.monotonic() + TRYING_S
        while time.monotonic() < until:
            begin()
            before = self.depth(queue)
            if before is None:
                return True, shown
            length = 0
            for id_ in browsed(self.gate(), queue):
                each(id_)
                length += 1
            shown += length
            # A browse shows the oldest first: if it shows as many as lay there before, every one of those was shown.
            # While clients take messages, a browse shows fewer at times; a browse that was cut looks the same.
            if length >= before:
                return True, shown
        return False, shown
