"""The two brokers of a pair for the agent: announcements and browses over STOMP, counters and deletions over Jolokia.

A browse is believed only where nothing can have been left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from dr_ctl.core.errors import BrokerError, TimedOut, UsageError
from dr_ctl.core.system import growing_s
from dr_ctl.jolokia.client import Change, Changer, Read, Reader, Wire
from dr_ctl.jolokia.http import NoSuchBean
from dr_ctl.jolokia.values import Fields
from dr_ctl.settings.classic import AgentAccess, BrokerSyncBroker
from dr_ctl.settings.model import Installation
from dr_ctl.stomp_io.connection import Connection, ConnectionLost, Frame
from dr_ctl.topologies.brokersync.reading import Access
from dr_ctl.topologies.brokersync.sync.accounts import COUNTERS, counters
from dr_ctl.topologies.brokersync.sync.ports import Count, Glance, Listed, Opened, There
from dr_ctl.topologies.brokersync.view import AGENT
from dr_ctl.topologies.classic import beans
from dr_ctl.topologies.classic.browsing import browse, connected
from dr_ctl.topologies.classic.operations import REMOVE_MATCHING, by_ids
from dr_ctl.topologies.classic.reading import find_broker, open_listeners, opened
from dr_ctl.topologies.common.access import Gate
from dr_ctl.topologies.common.consumed import Consumed, NotWhole, Whole

LOOK_S: Final = 3.0
COUNT: Final = ("QueueSize", "EnqueueCount", "DequeueCount")
TRIES: Final = 5
IDLE_S: Final = 2.0
"""A session of the agent's is used for many browses, and no longer than so after the last one."""
BUSY: Final = "messages came or left while it was listed"
CONSUMED: Final = "/topic/ActiveMQ.Advisory.MessageConsumed.Queue."
ORIGINAL_ID: Final = "orignalMessageId"  # misspelt by the broker
# The broker does this anyway; without the header it builds a translator for every announcement, at four times the cost,
# and falls behind at a few hundred a second.
CHEAPLY: Final = {"transformation": "jms-advisory-json"}
BEATS: Final = "0,2000"  # the broker beats every two seconds; the agent may be busy for longer
SILENT_S: Final = 10.0
RECEIPT_S: Final = 10.0
REMOVE_S: Final = 60.0


@dataclass
class End:
    """Opened when first needed. Raises `BrokerError` from every method that needs a secret or asks the broker."""

    installation: Installation
    access: Access
    _wire: Wire | None = field(default=None, init=False)
    _broker: str | None = field(default=None, init=False)

    @property
    def site(self) -> str:
        return self.access.site

    @property
    def settings(self) -> BrokerSyncBroker:
        return self.installation.broker(self.access.site, self.access.pair, BrokerSyncBroker)

    @property
    def own(self) -> AgentAccess:
        """Raises `UsageError` where the settings do not say how the agent gets in."""
        settings = self.settings
        if settings.sync is None or settings.jolokia is None:
            lacking = "sync" if settings.jolokia else "jolokia"
            text = f"{self.access.pair} at {self.access.site} has no `{lacking}:` in the settings"
            remedy = "The agent needs a transport connector that no client uses, as `sync:`, and `jolokia:`, at each."
            raise UsageError(text, remedy=remedy)
        return settings.sync

    def gate(self) -> Gate:
        listener = self.access.agents_listener() if self.own else None
        assert listener is not None
        return listener

    def reader(self) -> Reader:
        return Reader(self._opened())

    def changer(self) -> Changer:
        return Changer(self._opened())

    @property
    def broker(self) -> str:
        if self._broker is None:
            self._broker = self.settings.broker or find_broker(self.reader())
        return self._broker

    def copy(self, queue: str) -> str:
        """The queue here that holds the copies of a queue until they are shipped."""
        return self.settings.copies.format(queue=queue)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _opened(self) -> Wire:
        if self._wire is None:
            self._wire = self.access.wire()
        return self._wire


def glance(end: End) -> Glance:
    """Look at a broker and at its queues that are copied. Raises `BrokerError`."""
    asked = [
        Read(beans.broker(end.broker), ("BrokerId",)),
        Read(beans.connector(end.broker), ("Started",)),
        Read(beans.queue(end.broker), (*COUNTERS, *COUNT[:2])),
    ]
    itself, connectors, queues = end.reader().look(asked, timeout_s=LOOK_S)
    # Use the true names of queues: names inside bean names are encoded.
    rows = {each.text("Name"): each for _, each in queues.beans()}
    copied = {name: each for name, each in rows.items() if end.copy(name) in rows}
    return Glance(
        Fields(end.site, itself.value()).text("BrokerId"),
        bool(opened(connectors, end.settings.clients)),
        {name: counters(each) for name, each in copied.items()},
        {name: _count(each) for name, each in copied.items()},
        {name: _count(rows[end.copy(name)]) for name in copied},
    )


def is_open(end: End) -> bool:
    """Say whether any client's listener of a broker is open. Raises `BrokerError`."""
    return bool(open_listeners(end.reader(), end.broker, end.settings.clients, timeout_s=LOOK_S))


def counts(end: End) -> There:
    """Count what lies in all queues of the waiting broker. Raises `BrokerError`."""
    (queues,) = end.reader().look([Read(beans.queue(end.broker), ("Name", *COUNT))], timeout_s=LOOK_S)
    rows = {each.text("Name"): _count(each) for _, each in queues.beans()}
    return There(rows, {name: rows[end.copy(name)] for name in rows if end.copy(name) in rows})


def count(reader: Reader, broker: str, queue: str) -> Count | None:
    """Count what lies in a queue; returns None where there is no such queue yet."""
    (answer,) = reader.look([Read(beans.queue(broker, beans.part(queue)), COUNT)])
    return None if isinstance(answer.error, NoSuchBean) else _count(Fields(queue, answer.value()))


def removal(broker: str, queue: str, gone: Consumed) -> Change:
    """Deletes the messages with these ids; the answer is how many there were."""
    return Change(beans.queue(broker, beans.part(queue)), REMOVE_MATCHING, (by_ids(sorted(gone.ids)),))


def _count(fields: Fields) -> Count:
    depth, came, left = (fields.number(each) for each in COUNT)
    return Count(depth, came, left)


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


class RealPrimary:
    """Implements `Primary`."""

    def __init__(self, end: End) -> None:
        self._end = end
        self._browser = Browser(end.gate, lambda queue: count(end.reader(), end.broker, queue))
        self._connection: Connection | None = None
        self._followed: set[str] = set()
        self._early: list[Frame] = []

    def glance(self) -> Glance:
        return glance(self._end)

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


class RealStandby:
    """Implements `Standby`."""

    def __init__(self, end: End) -> None:
        self._end = end
        self._browser = Browser(end.gate, lambda queue: count(end.reader(), end.broker, queue))

    def is_open(self) -> bool:
        return is_open(self._end)

    def counts(self) -> There:
        return counts(self._end)

    def remove(self, queue: str, consumed: Consumed) -> int:
        if is_open(self._end):
            raise Opened(f"{self._end.site} lets clients in")
        change = removal(self._end.broker, queue, consumed)
        (answer,) = self._end.changer().change([change], timeout_s=REMOVE_S)
        return 0 if isinstance(answer.error, NoSuchBean) else int(answer.value())

    def listed(self, queue: str, before: Count | None) -> Listed:
        return self._browser.listed(queue, before)

    def unshipped(self, queue: str, before: Count | None) -> Listed:
        return self._browser.listed(self._end.copy(queue), before)

    def close(self) -> None:
        self._browser.close()
        self._end.close()
