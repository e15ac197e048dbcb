"""The serving broker for the agent: announcements of consumed messages over STOMP, counters over Jolokia."""

from collections.abc import Sequence
from typing import Final

from dr_ctl.core.clock import growing_s
from dr_ctl.core.errors import BrokerError, TimedOut
from dr_ctl.stomp_io.connection import Connection, ConnectionLost
from dr_ctl.stomp_io.frames import Frame
from dr_ctl.topologies.brokersync.sync import counting
from dr_ctl.topologies.brokersync.sync.browsing import Browser
from dr_ctl.topologies.brokersync.sync.end import End
from dr_ctl.topologies.brokersync.sync.ports import Count, Glance, Listed
from dr_ctl.topologies.brokersync.view import AGENT
from dr_ctl.topologies.classic.browsing import connected

CONSUMED: Final = "/topic/ActiveMQ.Advisory.MessageConsumed.Queue."
ORIGINAL_ID: Final = "orignalMessageId"  # misspelt by the broker
# The broker does this anyway; without the header it builds a translator for every announcement, at four times the cost,
# and falls behind at a few hundred a second.
CHEAPLY: Final = {"transformation": "jms-advisory-json"}
BEATS: Final = "0,2000"  # the broker beats every two seconds; the agent may be busy for longer
SILENT_S: Final = 10.0
RECEIPT_S: Final = 10.0


class RealPrimary:
    """Implements `Primary`."""

    def __init__(self, end: End) -> None:
        self._end = end
        self._browser = Browser(end.gate, lambda queue: counting.count(end.reader(), end.broker, queue))
        self._connection: Connection | None = None
        self._followed: set[str] = set()
        self._early: list[Frame] = []

    def glance(self) -> Glance:
        return counting.glance(self._end)

    def listen(self, queues: Sequence[str]) -> Sequence[str]:
        fresh = [each for each in queues if each not in self._followed]
        if self._connection is None:
            self._connection = connected(self._end.gate(), beats=BEATS, client=AGENT)
        try:
            for each in fresh:
                self._connection.stomp.subscribe(f"{CONSUMED}{each}", each, "auto", {**CHEAPLY, "receipt": each})
            self._confirmed(self._connection, set(fresh))
        except ConnectionLost:
            self.deaf()
            raise
        self._followed |= set(fresh)
        return fresh

    def _confirmed(self, connection: Connection, left: set[str]) -> None:
        """Wait until every new consumption will be announced; announcements that come meanwhile are kept."""
        until = growing_s() + RECEIPT_S
        while left:
            if growing_s() > until:
                self.deaf()
                raise TimedOut(f"{connection.address}: a subscription was not confirmed")
            frames = connection.receive(0.2)
            left -= {frame.headers.get("receipt-id", "") for frame in frames if frame.cmd == "RECEIPT"}
            self._early += frames

    def heard(self, within_s: float) -> Sequence[tuple[str, str]]:
        if self._connection is None:
            raise BrokerError("nothing is listened on")
        try:
            frames = self._early or self._connection.receive(within_s)
            self._early = []
            if not frames:
                self._connection.beat(every_s=float("inf"), silent_s=SILENT_S)
        except ConnectionLost:
            self.deaf()
            raise
        return [
            (frame.headers["subscription"], frame.headers[ORIGINAL_ID])
            for frame in frames
            if frame.cmd == "MESSAGE" and ORIGINAL_ID in frame.headers
        ]

    def listed(self, queue: str, before: Count | None) -> Listed:
        return self._browser.listed(queue, before)

    def unshipped(self, queue: str, before: Count | None) -> Listed:
        return self._browser.listed(self._end.copy(queue), before)

    def deaf(self) -> None:
        self._followed.clear()
        self._early = []
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        self.deaf()
        self._browser.close()
        self._end.close()
