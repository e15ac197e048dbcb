"""Whether a broker announces what is consumed: what was heard, beside what its counters say has left. Pure."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from dr_ctl.topologies.brokersync.sync.accounts import Counters

LATE_S: Final = 5.0
"""Announcements follow the counters within milliseconds; an agent that was busy takes them in after its work."""


@dataclass(slots=True)
class Announcements:
    """`count` messages of one queue were announced since the agent follows it."""

    count: int = 0
    _left: deque[tuple[float, int]] = field(default_factory=deque)
    _from: int | None = None

    def begin(self) -> None:
        """The agent follows the queue anew: what left before was announced to nobody."""
        self.count, self._from = 0, None
        self._left.clear()

    def looked(self, now: float, counters: Counters) -> None:
        left = counters.dequeued - counters.expired  # whether an expired message is announced depends on the version
        if self._from is None or left < self._from:
            self.begin()
            self._from = left
        self._left.append((now, left - self._from))
        while len(self._left) > 1 and self._left[1][0] <= now - LATE_S:
            self._left.popleft()

    def unheard(self, now: float) -> int | None:
        """How many messages left long enough ago, and were announced by nobody; returns None where none has left."""
        if not self._left or self._left[0][0] > now - LATE_S or not self._left[0][1]:
            return None
        return max(0, self._left[0][1] - self.count)
