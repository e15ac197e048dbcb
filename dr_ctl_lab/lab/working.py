"""A consumer on one connection: it processes messages, acknowledges them, and records both in the ledger.

With a store of ids it is idempotent. It acknowledges processed messages without work. For others it stores the id and
sends it to the peer, after the work and before the acknowledgement: a crash at any moment repeats a message instead of
losing it. It processes one message at a time, so that a lost site has at most one per consumer that the peer does not
know of.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING

from dr_ctl.core.system import system
from dr_ctl_lab.lab.clients.client import Confirmed, Outgoing, Received
from dr_ctl_lab.lab.ids import QUEUE_HEADER, IdStore, ProcessedAt
from dr_ctl_lab.lab.ledger import Event, Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dr_ctl_lab.lab.clients.client import Client

SUBSCRIBED = "subscribed"
MAX_UNCONFIRMED = 10


class Store:
    """The store of the consumer's site, and the address for ids to the peer."""

    def __init__(self, ids: IdStore, address: str | None) -> None:
        self._ids = ids
        self._address = address

    def is_processed(self, client: Client, queue: str, ident: str) -> bool:
        """Say whether a message is processed. An id of this site is sent to the peer again: the message was redelivered
        because its acknowledgement was lost, and the first notice may be lost too."""
        known = self._ids.known(queue, ident)
        if known is ProcessedAt.HERE:
            self._notify_peer(client, queue, ident)
        return known is not None

    def message(self, client: Client, queue: str, ident: str) -> None:
        self._ids.add([(queue, ident)], ProcessedAt.HERE)
        self._notify_peer(client, queue, ident)

    def close(self) -> None:
        self._ids.close()

    def _notify_peer(self, client: Client, queue: str, ident: str) -> None:
        if self._address is not None:
            client.send(Outgoing("", self._address, ident, headers={QUEUE_HEADER: queue}), confirm=None)


class Consumer:
    """A consumer of some queues on one connection."""

    def __init__(
        self,
        client: Client,
        site: str,
        queues: Sequence[str],
        ledger: Ledger,
        *,
        work_s: Callable[[], float],
        store: Store | None,
        selector: str = "",
    ) -> None:
        self.accepted = store is None  # with a store: once the subscription is confirmed
        self._client, self._site, self._queues, self._ledger = client, site, queues, ledger
        self._work_s, self._store, self._selector = work_s, store, selector
        self._receipts = itertools.count(1)
        self._unconfirmed: dict[str, tuple[str, str]] = {}
        self._waiting: deque[Received] = deque()

    def subscribe(self) -> None:
        confirm = SUBSCRIBED if self._store else None
        self._client.subscribe(self._queues, confirm=confirm, selector=self._selector)

    @property
    def unconfirmed(self) -> bool:
        """Say whether any acknowledgement has no receipt."""
        return bool(self._unconfirmed)

    def handle(self, received: Received | Confirmed, *, start_work: bool) -> None:
        """Handle a message or a receipt; without `start_work` no message is processed."""
        if isinstance(received, Confirmed):
            self.accepted = True
            message = self._unconfirmed.pop(received.name, None)
            if message is not None:
                self._ledger.record(Event.CONSUMED, *message, self._site)
        else:
            self._waiting.append(received)
        while start_work and self._waiting and len(self._unconfirmed) < (1 if self._store else MAX_UNCONFIRMED):
            self._work(self._waiting.popleft())

    def give_up(self) -> None:
        """Record acknowledgements without a receipt as in doubt, because the connection is lost."""
        for queue, ident in self._unconfirmed.values():
            self._ledger.record(Event.ACK_IN_DOUBT, queue, ident, self._site)
        self._unconfirmed.clear()

    def _work(self, received: Received) -> None:
        if self._store and self._store.is_processed(self._client, received.queue, received.ident):
            self._client.ack(received, confirm=None)
            return
        if (work_s := self._work_s()) > 0:
            system().sleep(work_s)
        self._ledger.record(Event.RECEIVED, received.queue, received.ident, self._site)
        if self._store:
            self._store.message(self._client, received.queue, received.ident)
        receipt = f"ack-{next(self._receipts)}"
        self._unconfirmed[receipt] = (received.queue, received.ident)
        self._client.ack(received, confirm=receipt)
