"""The two brokers of a pair as the agent uses them: over STOMP for announcements and browses, and over Jolokia for
counters and deletions."""

from collections.abc import Sequence
from typing import Final

from dr_ctl.core.errors import BrokerError, TimedOut, UsageError
from dr_ctl.core.system import boottime_s
from dr_ctl.jolokia.client import Answer, Change, Read, Search, Transport, make_changes
from dr_ctl.jolokia.http import NoSuchBean
from dr_ctl.jolokia.values import Fields
from dr_ctl.stomp_io.client import Connection, ConnectionLost, Frame
from dr_ctl.topologies.brokersync.reading import Session
from dr_ctl.topologies.brokersync.sync.queue import COUNTERS, Counters, IsOpen, Listing, ServingReading, StandbyReading
from dr_ctl.topologies.brokersync.view import AGENT
from dr_ctl.topologies.classic import beans
from dr_ctl.topologies.classic.beans import COUNT, REMOVE_MATCHING, Count, by_ids
from dr_ctl.topologies.classic.ids import browse, connected, whole
from dr_ctl.topologies.classic.reading import opened
from dr_ctl.topologies.common.consumed import CompleteListing, Consumed, IncompleteListing

READ_WITHIN_S: Final = 3.0
TRIES: Final = 5
IDLE_S: Final = 2.0
"""The agent keeps its STOMP connection for this time after the last browse."""
CONSUMED: Final = "/topic/ActiveMQ.Advisory.MessageConsumed.Queue."
ORIGINAL_ID: Final = "orignalMessageId"  # misspelt by the broker
# The broker sends this format anyway. Without the header it builds a translator for each announcement, at four times
# the cost, and falls behind at a few hundred a second.
JSON_ADVISORY: Final = {"transformation": "jms-advisory-json"}
HEARTBEATS: Final = "0,2000"  # the broker sends one every two seconds; the agent may be busy for longer
SILENT_S: Final = 10.0
RECEIPT_S: Final = 10.0
REMOVE_S: Final = 60.0


class PairBroker:
    """A broker of the pair, over the agent's own connections. Each method that reads raises `BrokerError`."""

    def __init__(self, session: Session) -> None:
        """Raises `UsageError` if the settings name no access for the agent."""
        self.site, self._session = session.site, session
        if session.settings.sync is None or not session.has_console:
            missing = "sync" if session.has_console else "jolokia"
            text = f"{session.pair} at {session.site} has no `{missing}:` in the settings"
            remedy = "The agent needs `jolokia:`, and as `sync:` a transport connector that no client uses, at both."
            raise UsageError(text, remedy=remedy)
        self._change_transport: Transport | None = None
        self._stomp: Connection | None = None
        self._last_used_s, self._browse_number = 0.0, 0

    @property
    def broker(self) -> str:
        return self._session.last_view().broker

    def ask(self, *reads: Read | Search) -> list[Answer]:
        return self._session.reader().read(reads, timeout_s=READ_WITHIN_S)

    def connect(self, beats: str | None = None) -> Connection:
        listener = self._session.agents_listener()
        assert listener is not None  # the settings name one
        return connected(listener, beats=beats, client=AGENT)

    def copy_queue(self, queue: str) -> str:
        return self._session.settings.copies.format(queue=queue)

    def is_open(self) -> bool:
        return bool(self._session.open_listeners(timeout_s=READ_WITHIN_S))

    def count(self, queue: str) -> Count | None:
        """Count the messages in a queue; None if there is no such queue yet."""
        (answer,) = self.ask(Read(beans.queue(self.broker, beans.part(queue)), COUNT))
        return None if isinstance(answer.error, NoSuchBean) else Count.of(Fields(queue, answer.value()))

    def list_queue(self, queue: str, before: Count | None, *, grows: bool = False) -> Listing:
        """Browse a few times until no message can be missing: one browse may show messages that another missed.
        `before` is a count that was read just before, or None. An empty queue is not browsed. If a queue only `grows`,
        a new message hides no earlier one."""
        browses: list[tuple[Count, frozenset[str]]] = []
        shown, why_not = 0, ""
        now = before or self.count(queue)
        while now is not None and now.depth:
            if len(browses) == TRIES:
                return Listing(browses[-1][1], None, shown, why_not)
            browsed = self._browse(queue)
            browses.append((now, frozenset(browsed)))
            shown += len(browsed)
            if (now := self.count(queue)) is None:
                break
            ids = frozenset[str]()
            for first_count, browse_ids in reversed(browses):
                ids |= browse_ids
                try:
                    return Listing(ids, whole(queue, ids, first_count, now, grows=grows), shown)
                except IncompleteListing as error:
                    why_not = str(error)
        return Listing(frozenset(), CompleteListing(queue, frozenset(), 0, 0), shown)

    def unshipped(self, queue: str, before: Count | None) -> Listing:
        """List the copies that are not shipped. The other site never got those of the standby."""
        return self.list_queue(self.copy_queue(queue), before)

    def _browse(self, queue: str) -> list[str]:
        if boottime_s() - self._last_used_s > IDLE_S:
            self._disconnect()
        try:
            if self._stomp is None:
                self._stomp = self.connect()
            self._browse_number += 1
            frames = browse(self._stomp, queue, f"browse-{self._browse_number}")
            message_ids = [frame.headers["message-id"] for frame in frames]
        except BrokerError:
            self._disconnect()
            raise
        self._last_used_s = boottime_s()
        return message_ids

    def _disconnect(self) -> None:
        if self._stomp is not None:
            self._stomp.close()
            self._stomp = None

    def close(self) -> None:
        self._disconnect()
        if self._change_transport is not None:
            self._change_transport.close()
            self._change_transport = None


class Primary(PairBroker):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._connection: Connection | None = None
        self._subscribed_queues: set[str] = set()
        self._early_frames: list[Frame] = []

    def read(self) -> ServingReading:
        broker, connectors, queues = self.ask(
            Read(beans.broker(self.broker), ("BrokerId",)),
            Read(beans.connector(self.broker), ("Started",)),
            Read(beans.queue(self.broker), (*COUNTERS, *COUNT)),
        )
        # Use the true names of queues: names inside bean names are encoded.
        rows = {row.text("Name"): row for _, row in queues.beans()}
        copied = {name: row for name, row in rows.items() if self.copy_queue(name) in rows}
        return ServingReading(
            Fields(self.site, broker.value()).text("BrokerId"),
            bool(opened(connectors, self._session.config.clients)),
            {name: Counters.of(row) for name, row in copied.items()},
            {name: Count.of(rows[self.copy_queue(name)]) for name in copied},
        )

    def subscribe(self, queues: Sequence[str]) -> Sequence[str]:
        """Subscribe to announcements of consumed messages. Return the new queues, which may have missed some."""
        new = [queue for queue in queues if queue not in self._subscribed_queues]
        if self._connection is None:
            self._connection = self.connect(HEARTBEATS)
        try:
            for name in new:
                self._connection.stomp.subscribe(f"{CONSUMED}{name}", name, "auto", {**JSON_ADVISORY, "receipt": name})
            self._await_receipts(self._connection, set(new))
        except ConnectionLost:
            self.unsubscribe()
            raise
        self._subscribed_queues |= set(new)
        return new

    def _await_receipts(self, connection: Connection, unconfirmed: set[str]) -> None:
        """Wait for the receipts of subscriptions, and keep announcements that arrive before."""
        deadline = boottime_s() + RECEIPT_S
        while unconfirmed:
            if boottime_s() > deadline:
                self.unsubscribe()
                raise TimedOut(f"{connection.address}: a subscription was not confirmed")
            frames = connection.receive(0.2)
            unconfirmed -= {frame.headers.get("receipt-id", "") for frame in frames if frame.cmd == "RECEIPT"}
            self._early_frames += frames

    def receive(self, within_s: float) -> Sequence[tuple[str, str]]:
        if self._connection is None:
            raise BrokerError("no queue is subscribed")
        try:
            frames = self._early_frames or self._connection.receive(within_s)
            self._early_frames = []
            if not frames:
                self._connection.beat(every_s=float("inf"), silent_s=SILENT_S)
        except ConnectionLost:
            self.unsubscribe()
            raise
        return [
            (frame.headers["subscription"], frame.headers[ORIGINAL_ID])
            for frame in frames
            if frame.cmd == "MESSAGE" and ORIGINAL_ID in frame.headers
        ]

    def unsubscribe(self) -> None:
        self._subscribed_queues.clear()
        self._early_frames = []
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        self.unsubscribe()
        super().close()


class Standby(PairBroker):
    def read_counts(self) -> StandbyReading:
        queues, prepared = self.ask(
            Read(beans.queue(self.broker), ("Name", *COUNT)), Search(beans.all_transactions(self.broker))
        )
        rows = {row.text("Name"): Count.of(row) for _, row in queues.beans()}
        unshipped = {name: rows[self.copy_queue(name)] for name in rows if self.copy_queue(name) in rows}
        return StandbyReading(rows, unshipped, bool(prepared.value()))

    def remove(self, queue: str, consumed: Consumed) -> int:
        """Delete these copies, and return how many were there. The clients' listeners are read just before. Raises
        `Opened` where one is open, and `PolicyRefused` where the console's policy forbids the deletion."""
        if self.is_open():
            raise IsOpen(f"{self.site} lets clients in")
        change = Change(beans.queue(self.broker, beans.part(queue)), REMOVE_MATCHING, (by_ids(sorted(consumed.ids)),))
        self._change_transport = self._change_transport or self._session.wire()
        (answer,) = make_changes(self._change_transport, [change], timeout_s=REMOVE_S)
        return 0 if isinstance(answer.error, NoSuchBean) else int(answer.value())
