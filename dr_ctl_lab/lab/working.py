"""Work of a consumer on one connection: it works on a message, acknowledges it, and notes both in the ledger.

With a store of ids it is idempotent. Messages that its site knows as processed are acknowledged without work. Otherwise
the id is written down and told to the peer after the work and before the acknowledgement: a crash at any moment then
brings the message again instead of losing it. And one message is in hand at a time: a lost site has then no more than
one of each consumer that its peer was not told of.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING

from dr_ctl.core.system import system
from dr_ctl_lab.lab.ids import QUEUE_HEADER, IdStore, Where
from dr_ctl_lab.lab.ledger import Event, Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dr_ctl.stomp_io.connection import Connection
    from dr_ctl.stomp_io.dialect import Dialect
    from dr_ctl.stomp_io.frames import Frame

ID_HEADER = "order_id"
WINDOW_BYTES = 4096
SUBSCRIBED = "subscribed"


class Store:
    """Means to be idempotent: the store of the site where the consumer is connected, and where it tells its ids."""

    def __init__(self, ids: IdStore, address: str | None) -> None:
        self._ids = ids
        self._address = address

    def skips(self, connection: Connection, queue: str, ident: str) -> bool:
        """Say whether there is nothing to do. Ids that a consumer of this site processed are told once more: a message
        comes again only where the acknowledgement did not arrive, and then the first telling may not have either."""
        known = self._ids.known(queue, ident)
        if known is Where.HERE:
            self._tell(connection, queue, ident)
        return known is not None

    def done(self, connection: Connection, queue: str, ident: str) -> None:
        self._ids.add([(queue, ident)], Where.HERE)
        self._tell(connection, queue, ident)

    def close(self) -> None:
        self._ids.close()

    def _tell(self, connection: Connection, queue: str, ident: str) -> None:
        if self._address is None:
            return
        headers = {"destination-type": "ANYCAST", "persistent": "true", QUEUE_HEADER: queue}
        connection.stomp.send(self._address, ident, headers=headers)


class Work:
    """A consumer of some queues on one connection."""

    def __init__(
        self,
        connection: Connection,
        site: str,
        queues: Sequence[str],
        ledger: Ledger,
        *,
        work_s: Callable[[], float],
        store: Store | None,
        dialect: Dialect,
    ) -> None:
        self.let_in = store is None  # with one, once a broker confirms the subscription: a queue may be closed alone
        self._connection, self._site, self._queues, self._ledger = connection, site, queues, ledger
        self._work_s, self._store, self._dialect = work_s, store, dialect
        self._receipts = itertools.count(1)
        self._unconfirmed: dict[str, tuple[str, str]] = {}
        self._waiting: deque[Frame] = deque()

    def subscribe(self) -> None:
        for number, queue in enumerate(self._queues):
            receipt = SUBSCRIBED if self._store else None
            subscribe(self._connection, self._dialect, str(number), queue, receipt=receipt)

    @property
    def unconfirmed(self) -> bool:
        """Say whether an acknowledgement has no receipt yet."""
        return bool(self._unconfirmed)

    def take(self, frame: Frame, *, begin: bool) -> None:
        """Take what came; without `begin` no work is begun any more."""
        if frame.cmd == "RECEIPT":
            self.let_in = True
            done = self._unconfirmed.pop(frame.headers.get("receipt-id", ""), None)
            if done is not None:
                self._ledger.record(Event.CONSUMED, *done, self._site)
        elif frame.cmd == "MESSAGE":
            self._waiting.append(frame)
        while begin and self._waiting and not (self._store and self._unconfirmed):
            self._work(self._waiting.popleft())

    def give_up(self) -> None:
        """The connection broke: messages acknowledged without a receipt may rightly come again."""
        for queue, ident in self._unconfirmed.values():
            self._ledger.record(Event.ACK_IN_DOUBT, queue, ident, self._site)
        self._unconfirmed.clear()

    def _work(self, frame: Frame) -> None:
        queue, ident = self._queues[int(frame.headers["subscription"])], identify(frame)
        if self._store and self._store.skips(self._connection, queue, ident):
            self._connection.stomp.ack(frame.headers["ack"])
            return
        if (work_s := self._work_s()) > 0:
            system().sleep(work_s)
        self._ledger.record(Event.RECEIVED, queue, ident, self._site)
        if self._store:
            self._store.done(self._connection, queue, ident)
        receipt = f"ack-{next(self._receipts)}"
        self._unconfirmed[receipt] = (queue, ident)
        self._connection.stomp.ack(frame.headers["ack"], receipt=receipt)


def subscribe(
    connection: Connection,
    dialect: Dialect,
    ident: str,
    queue: str,
    *,
    window: int = WINDOW_BYTES,
    receipt: str | None = None,
) -> None:
    """Subscribe to a queue so that every message is acknowledged by itself; `window` is in bytes."""
    confirmed = {} if receipt is None else {"receipt": receipt}
    headers = {**dialect.subscribing(window), **confirmed}
    connection.stomp.subscribe(dialect.queue(queue), ident, "client-individual", headers)


def identify(frame: Frame) -> str:
    """Name a message: by the id that a load gave it, else by the broker's."""
    return str(frame.headers.get(ID_HEADER) or frame.headers.get("message-id", "?"))
