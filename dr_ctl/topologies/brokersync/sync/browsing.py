"""The ids of all messages of a queue, by a STOMP browse that is believed only where nothing can have been left out.

A broker ends a browse at its `maxBrowsePageSize` (400 unless set), or where its memory is full, as if the queue ended
there. No browse shows a message that is acknowledged in an open transaction, or in a prepared one; an abort brings that
message back. A listing therefore shows all only where it has as many messages as the queue, and where no message came
or left meanwhile: one that came would stand for one that is hidden.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dr_ctl.core.clock import growing_s
from dr_ctl.core.errors import BrokerError
from dr_ctl.stomp_io.connection import Connection
from dr_ctl.topologies.brokersync.sync.ports import Count, Listed
from dr_ctl.topologies.brokersync.view import AGENT
from dr_ctl.topologies.classic.browsing import browse, connected
from dr_ctl.topologies.common.access import Gate
from dr_ctl.topologies.common.consumed import NotWhole, Whole

TRIES: Final = 5
IDLE_S: Final = 2.0
"""A session of the agent's is used for many browses, and no longer than so after the last one."""
BUSY: Final = "messages came or left while it was listed"


@dataclass
class Browser:
    """Browses the queues of one broker. `count` reads the counters of a queue; returns None where there is none."""

    gate: Callable[[], Gate]
    count: Callable[[str], Count | None]
    _session: Connection | None = None
    _used: float = 0.0
    _number: int = field(default=0)

    def listed(self, queue: str, before: Count | None) -> Listed:
        """Browse until nothing can have been left out, a few times. `before` was read just before; None asks for it. A
        queue that was read as empty is not browsed. Raises `BrokerError` where a browse does not come to its end."""
        shown, found, why_not = 0, frozenset[str](), ""
        before = before or self.count(queue)
        for _ in range(TRIES):
            if before is None or not before.depth:
                return Listed(frozenset(), Whole(queue, frozenset(), 0, 0), shown)
            ids = self._browsed(queue)
            found, shown = frozenset(ids), shown + len(ids)
            after = self.count(queue)
            try:
                if before == after:
                    return Listed(found, Whole(queue, found, before.depth, after.depth), shown)
                why_not = f"{queue}: {BUSY}"
            except NotWhole as error:
                why_not = str(error)
            before = after
        return Listed(found, None, shown, why_not)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _browsed(self, queue: str) -> list[str]:
        try:
            return self._ids(queue)
        except BrokerError:
            self.close()
            raise

    def _ids(self, queue: str) -> list[str]:
        self._number += 1
        found = [each.headers["message-id"] for each in browse(self._opened(), queue, f"browse-{self._number}")]
        self._used = growing_s()
        return found

    def _opened(self) -> Connection:
        if growing_s() - self._used > IDLE_S:
            self.close()
        if self._session is None:
            self._session = connected(self.gate(), client=AGENT)
        self._used = growing_s()
        return self._session
