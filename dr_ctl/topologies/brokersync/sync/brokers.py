"""The two brokers of a pair as the agent asks them: over STOMP for announcements and browses, and over Jolokia for
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
from dr_ctl.topologies.brokersync.sync.queue import COUNTERS, Counters, Listed, Opened, ServingReading, StandbyReading
from dr_ctl.topologies.brokersync.view import AGENT
from dr_ctl.topologies.classic import beans
from dr_ctl.topologies.classic.beans import COUNT, REMOVE_MATCHING, Count, by_ids
from dr_ctl.topologies.classic.ids import browse, connected, whole
from dr_ctl.topologies.classic.reading import opened
from dr_ctl.topologies.common.consumed import CompleteListing, Consumed, IncompleteListing

LOOK_S: Final = 3.0
TRIES: Final = 5
IDLE_S: Final = 2.0
"""The agent uses a session for many browses, until so long after the last one."""
CONSUMED: Final = "/topic/ActiveMQ.Advisory.MessageConsumed.Queue."
ORIGINAL_ID: Final = "orignalMessageId"  # misspelt by the broker
# The broker answers so anyway. Without the header it builds a translator for every announcement, at four times the
# cost, and falls behind at a few hundred a second.
CHEAPLY: Final = {"transformation": "jms-advisory-json"}
BEATS: Final = "0,2000"  # the broker beats every two seconds; the agent may be busy for longer
SILENT_S: Final = 10.0
RECEIPT_S: Final = 10.0
REMOVE_S: Final = 60.0


class End:
    """A broker of the pair, over connections of the agent's own. Every method that asks raises `BrokerError`."""

    def __init__(self, session: Session) -> None:
        """Raises `UsageError` where the settings do not say how the agent gets in."""
        self.site, self._session = session.site, session
        if session.settings.sync is None or not session.has_console:
            lacking = "sync" if session.has_console else "jolokia"
            text = f"{session.pair} at {session.site} has no `{lacking}:` in the settings"
            remedy = "The agent needs a transport connector that no client uses, as `sync:`, and `jolokia:`, at each."
            raise UsageError(text, remedy=remedy)
        self._changing: Transport | None = None
        self._stomp: Connection | None = None
        self._used, self._number = 0.0, 0

    @property
    def broker(self) -> str:
        return self._session.last_view().broker

    def ask(self, *reads: Read | Search) -> list[Answer]:
        return self._session.reader().read(reads, timeout_s=LOOK_S)

    def connect(self, beats: str | None = None) -> Connection:
        listener = self._session.agents_listener()
        assert listener is not None  # the settings name one
        return connected(listener, beats=beats, client=AGENT)

    def copy(self, queue: str) -> str:
        return self._session.settings.copies.format(queue=queue)

    def is_open(self) -> bool:
        return bool(self._session.open_listeners(timeout_s=LOOK_S))

    def count(self, queue: str) -> Count | None:
        """Count the messages in a queue; None if there is no such queue yet."""
        (answer,) = self.ask(Read(beans.queue(self.broker, beans.part(queue)), COUNT))
        return None if isinstance(answer.error, NoSuchBean) else Count.of(Fields(queue, answer.value()))

    def listed(self, queue: str, before: Count | None, *, grows: bool = False) -> Listed:
        """Browse a few times until no message can have been left out: one browse may show what another was too early or
        too late for. The count `before` was read just before, or is read now if None. A queue that was read as empty is
        not browsed. A message that comes to a queue that only `grows` hides no earlier one."""
        browses: list[tuple[Count, frozenset[str]]] = []
        shown, why_not = 0, ""
        now = before or self.count(queue)
        while now is not None and now.depth:
            if len(browses) == TRIES:
                return Listed(browses[-1][1], None, shown, why_not)
            browsed = self._browsed(queue)
            browses.append((now, frozenset(browsed)))
            shown += len(browsed)
            if (now := self.count(queue)) is None:
                break
            ids = frozenset[str]()
            for first, more in reversed(browses):
                ids |= more
                try:
                    return Listed(ids, whole(queue, ids, first, now, grows=grows), shown)
                except IncompleteListing as error:
                    why_not = str(error)
        return Listed(frozenset(), CompleteListing(queue, frozenset(), 0, 0), shown)

    def unshipped(self, queue: str, before: Count | None) -> Listed:
        """List the copies that are not shipped; if this is the standby, the other never got them."""
        return self.listed(self.copy(queue), before)

    def _browsed(self, queue: str) -> list[str]:
        if boottime_s() - self._used > IDLE_S:
            self._let_go()
        try:
            if self._stomp is None:
                self._stomp = self.connect()
            self._number += 1
            frames = browse(self._stomp, queue, f"browse-{self._number}")
            message_ids = [frame.headers["message-id"] for frame in frames]
        except BrokerError:
            self._let_go()
            raise
        self._used = boottime_s()
        return message_ids

    def _let_go(self) -> None:
        if self._stomp is not None:
            self._stomp.close()
            self._stomp = None

    def close(self) -> None:
        self._let_go()
        if self._changing is not None:
            self._changing.close()
            self._changing = None


class Primary(End):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._connection: Connection | None = None
        self._followed: set[str] = set()
        self._early: list[Frame] = []

    def read(self) -> ServingReading:
        itself, connectors, queues = self.ask(
            Read(beans.broker(self.broker), ("BrokerId",)),
            Read(beans.connector(self.broker), ("Started",)),
            Read(beans.queue(self.broker), (*COUNTERS, *COUNT)),
        )
        # Use the true names of queues: names inside bean names are encoded.
        rows = {row.text("Name"): row for _, row in queues.beans()}
        copied = {name: row for name, row in rows.items() if self.copy(name) in rows}
        return ServingReading(
            Fields(self.site, itself.value()).text("BrokerId"),
            bool(opened(connectors, self._session.config.clients)),
            {name: Counters.of(row) for name, row in copied.items()},
            {name: Count.of(rows[self.copy(name)]) for name in copied},
        )

    def listen(self, queues: Sequence[str]) -> Sequence[str]:
        """Follow what these queues announce as consumed; gives the queues followed anew, which may have missed some."""
        fresh = [queue for queue in queues if queue not in self._followed]
        if self._connection is None:
            self._connection = self.connect(BEATS)
        try:
            for name in fresh:
                self._connection.stomp.subscribe(f"{CONSUMED}{name}", name, "auto", {**CHEAPLY, "receipt": name})
            self._confirmed(self._connection, set(fresh))
        except ConnectionLost:
            self.deaf()
            raise
        self._followed |= set(fresh)
        return fresh

    def _confirmed(self, connection: Connection, unconfirmed: set[str]) -> None:
        """Wait until every new consumption will be announced, and keep announcements that come meanwhile."""
        until = boottime_s() + RECEIPT_S
        while unconfirmed:
            if boottime_s() > until:
                self.deaf()
                raise TimedOut(f"{connection.address}: a subscription was not confirmed")
            frames = connection.receive(0.2)
            unconfirmed -= {frame.headers.get("receipt-id", "") for frame in frames if frame.cmd == "RECEIPT"}
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

    def deaf(self) -> None:
        self._followed.clear()
        self._early = []
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        self.deaf()
        super().close()


class Standby(End):
    def counts(self) -> StandbyReading:
        queues, prepared = self.ask(
            Read(beans.queue(self.broker), ("Name", *COUNT)), Search(beans.all_transactions(self.broker))
        )
        rows = {row.text("Name"): Count.of(row) for _, row in queues.beans()}
        unshipped = {name: rows[self.copy(name)] for name in rows if self.copy(name) in rows}
        return StandbyReading(rows, unshipped, bool(prepared.value()))

    def remove(self, queue: str, gone: Consumed) -> int:
        """Delete these copies, and give the number that were there. The clients' listeners are read just before. Raises
        `Opened` where one is open, and `PolicyRefused` where the console's policy forbids the deletion."""
        if self.is_open():
            raise Opened(f"{self.site} lets clients in")
        change = Change(beans.queue(self.broker, beans.part(queue)), REMOVE_MATCHING, (by_ids(sorted(gone.ids)),))
        self._changing = self._changing or self._session.wire()
        (answer,) = make_changes(self._changing, [change], timeout_s=REMOVE_S)
        return 0 if isinstance(answer.error, NoSuchBean) else int(answer.value())
