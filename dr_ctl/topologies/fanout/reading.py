"""The way to each broker of a fan-out installation: readings, changes, and the messages that are copied to the other
site, by the ids that producers gave them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from dr_ctl.core.errors import BrokerError, TimedOut
from dr_ctl.core.system import Clock, boottime_s
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Done, Outcome
from dr_ctl.jolokia.client import Read, Reader
from dr_ctl.jolokia.http import NoSuchBean
from dr_ctl.jolokia.values import Fields
from dr_ctl.settings.classic import ClassicFanout, FanoutBroker
from dr_ctl.settings.model import Installation
from dr_ctl.stomp_io.address import StompAccount
from dr_ctl.topologies.classic import session
from dr_ctl.topologies.classic.broker import OWN_CLIENT
from dr_ctl.topologies.classic.ids import browsed, connected
from dr_ctl.topologies.classic.reading import ask
from dr_ctl.topologies.common.calls import items
from dr_ctl.topologies.common.idstore import Store
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.fanout.counting import EMPTY, Counters
from dr_ctl.topologies.fanout.view import COPY, IDS, BrokerView, FanoutConfig

SILENT_S: Final = 10.0
AT_ONCE: Final = 100  # on their way without a receipt
# Headers that the broker adds to a message, not its producer; `content-length` tells bytes from text.
_ITS: Final = frozenset(
    {"destination", "subscription", "message-id", "ack", "redelivered", "receipt", "original-destination"}
)
_BODIES: Final = frozenset({"Text", "BodyLength"})
_TYPED: Final = ("Boolean", "Byte", "Double", "Float", "Int", "Long", "Short")


CopiedMessage = tuple[Mapping[str, str], bytes]
"""The headers and the body of a message, as a producer would send it again."""


def is_carried(row: Mapping[str, Any]) -> bool:
    """Say whether STOMP carries a message whole, as it is text or bytes and its properties are texts. That is told by
    how the console shows it: STOMP itself gives any other an empty body, and no sign."""
    return not _BODIES.isdisjoint(row) and not any(row.get(f"{kind}Properties") for kind in _TYPED)


class CannotCopy(BrokerError):
    """A message cannot be read whole, or cannot be put down."""


def read(account: StompAccount, queue: str, header: str, wanted: Collection[str]) -> dict[str, CopiedMessage]:
    copies: dict[str, CopiedMessage] = {}
    for frame in browsed(account, queue):
        ident = frame.headers.get(header)
        if ident is not None and ident in wanted:
            kept = {name: value for name, value in frame.headers.items() if name not in _ITS}
            copies[ident] = (kept, frame.body or b"")
    return copies


def put(account: StompAccount, queue: str, messages: Sequence[CopiedMessage]) -> None:
    """Send these messages as durable, and wait until the broker confirms each. Raises `BrokerError`: confirmed messages
    stay there."""
    connection = connected(account)
    try:
        for start in range(0, len(messages), AT_ONCE):
            waiting = set()
            for number, (headers, body) in enumerate(messages[start : start + AT_ONCE], start):
                lasting = {**headers, "persistent": "true", "receipt": str(number)}
                connection.stomp.send(f"/queue/{queue}", body, headers=lasting)
                waiting.add(str(number))
            until = boottime_s() + SILENT_S
            while waiting:
                frames = connection.receive(0.5)
                waiting -= {frame.headers.get("receipt-id", "") for frame in frames if frame.cmd == "RECEIPT"}
                if waiting and boottime_s() > until:
                    raise TimedOut(f"{account.address}: {len(waiting)} message(s) of {queue} were not confirmed")
    finally:
        connection.close()


COUNTERS: Final = ("QueueSize", "EnqueueCount", "DequeueCount", "ExpiredCount", "DispatchCount", "InFlightCount")


def counters(reader: Reader, queues: Sequence[Queue | None]) -> list[Counters]:
    """The counters of these queues in one small reading; of one that is not there none ever counted."""
    present = [queue for queue in queues if queue is not None]
    answers = reader.read([Read(queue.bean, COUNTERS) for queue in present]) if present else ()
    counted = {
        queue.name: counters_in(Fields(queue.bean, answer.value()))
        for queue, answer in zip(present, answers, strict=True)
        if not isinstance(answer.error, NoSuchBean)
    }
    return [counted.get(queue.name, EMPTY) if queue is not None else EMPTY for queue in queues]


def counters_in(fields: Fields) -> Counters:
    depth, added, removed, expired, dispatched, in_hand = map(fields.number, COUNTERS)
    # A client that leaves while it takes is counted twice at times: in hand is then below zero for a while.
    return Counters(depth, added, removed, expired, dispatched - max(0, in_hand))


class Session(session.Session[BrokerView]):
    """`carries` holds messages read at the peer that are to be put down here, by queue and id; `ids` is the store of
    ids that the consumers of both sites share, if they have one."""

    settings_of = FanoutBroker
    settings: FanoutBroker

    def __init__(self, installation: Installation, site: str, pair: str, documents: Path, clock: Clock) -> None:
        super().__init__(installation, site, pair, documents, clock)
        sync, settings = self.settings.sync, installation.of(ClassicFanout)
        connector, ids = sync.connector if sync is not None else None, settings.ids
        self.ids = Store(installation.path(ids.sqlite), ids.table, ids.queue, ids.id) if ids else None
        self.own = FanoutConfig(self.settings.producers, connector, settings.id_header, self.ids is not None)
        self.carries: dict[tuple[str, str], CopiedMessage] = {}

    def _ask(self, broker: str, timeout_s: float) -> BrokerView:
        values = self.values(ask(self.reader(), broker, timeout_s=timeout_s))
        # A browse of dr-ctl's own counts as a consumer and takes nothing.
        values["consumers"] = tuple(value for value in values["consumers"] if not value.client.startswith(OWN_CLIENT))
        return BrokerView(**values, own=replace(self.own, unread=self.ids.unread() if self.ids is not None else None))

    def _own_account(self) -> StompAccount:
        """dr-ctl's own way in for messages. Raises `BrokerError`."""
        listener = self.agents_listener()
        if listener is None:
            raise CannotCopy(
                f"{self.site}/{self.pair}: the settings name no `sync:`, so no message can be copied",
                remedy="Name there a STOMP connector that no client uses.",
            )
        return listener

    def messages(self, queue: str, wanted: Collection[str]) -> Mapping[str, CopiedMessage]:
        return read(self._own_account(), queue, self.own.id_header, wanted)

    def put(self, queue: str, ids: Sequence[str]) -> int:
        """Put down those of these that it carries, and say how many. Raises `BrokerError`."""
        copies = [self.carries[queue, id_] for id_ in ids if (queue, id_) in self.carries]
        if copies:
            put(self._own_account(), queue, copies)
        return len(copies)

    def is_own(self, call: Call) -> bool:
        """Messages are put down by STOMP."""
        return COPY in call.request or super().is_own(call)

    def do(self, call: Call) -> Outcome:
        if COPY not in call.request:
            return super().do(call)
        ids = [str(id_) for id_ in items(call.request, IDS)]
        return Done(f"{self.put(str(call.request[COPY]), ids)} put down")


LinkEnds = tuple[Session, Session]
