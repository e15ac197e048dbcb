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
from dr_ctl_lab.lab.clients.client import Came, Confirmed, Outgoing
from dr_ctl_lab.lab.ids import QUEUE_HEADER, IdStore, Where
from dr_ctl_lab.lab.ledger import Event, Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dr_ctl_lab.lab.clients.client import Client

SUBSCRIBED = "subscribed"
MOST_UNCONFIRMED = 10


class Store:
    """Means to be idempotent: the store of the site where the consumer is connected, and where it tells its ids."""

    def __init__(self, ids: IdStore, address: str | None) -> None:
        self._ids = ids
        self._address = address

    def skips(self, client: Client, queue: str, ident: str) -> bool:
        """Say whether there is nothing to do. Ids that a consumer of this site processed are told once more: a message
        comes again only where the acknowledgement did not arrive, and then the first telling may not have either."""
        known = self._ids.known(queue, ident)
        if known is Where.HERE:
            self._tell(client, queue, ident)
        return known is not None

    def done(self, client: Client, queue: str, ident: str) -> None:
        self._ids.add([(queue, ident)], Where.HERE)
        self._tell(client, queue, ident)

    def close(self) -> None:
        self._ids.close()

    def _tell(self, client: Client, queue: str, ident: str) -> None:
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
        self.let_in = store is None  # with one, once a broker confirms the subscription: a queue may be closed alone
        self._client, self._site, self._queues, self._ledger = client, site, queues, ledger
        self._work_s, self._store, self._selector = work_s, store, selector
        self._receipts = itertools.count(1)
        self._unconfirmed: dict[str, tuple[str, str]] = {}
        self._waiting: deque[Came] = deque()

    def subscribe(self) -> None:
        confirm = SUBSCRIBED if self._store else None
        self._client.subscribe(self._queues, confirm=confirm, selector=self._selector)

    @property
    def unconfirmed(self) -> bool:
        """Say whether an acknowledgement has no receipt yet."""
        return bool(self._unconfirmed)

    def take(self, came: Came | Confirmed, *, begin: bool) -> None:
        """Take what came; without `begin` no work is begun any more."""
        if isinstance(came, Confirmed):
            self.let_in = True
            done = self._unconfirmed.pop(came.name, None)
            if done is not None:
                self._ledger.record(Event.CONSUMED, *done, self._site)
        else:
            self._waiting.append(came)
        while begin and self._waiting and len(self._unconfirmed) < (1 if self._store else MOST_UNCONFIRMED):
            self._work(self._waiting.popleft())

    def give_up(self) -> None:
        """The connection broke: messages acknowledged without a receipt may rightly come again."""
        for queue, ident in self._unconfirmed.values():
            self._ledger.record(Event.ACK_IN_DOUBT, queue, ident, self._site)
        self._unconfirmed.clear()

    def _work(self, came: Came) -> None:
        if self._store and self._store.skips(self._client, came.queue, came.ident):
            self._client.ack(came, confirm=None)
            return
        if (work_s := self._work_s()) > 0:
            system().sleep(work_s)
        self._ledger.record(Event.RECEIVED, came.queue, came.ident, self._site)
        if self._store:
            self._store.done(self._client, came.queue, came.ident)
        receipt = f"ack-{next(self._receipts)}"
        self._unconfirmed[receipt] = (came.queue, came.ident)
        self._client.ack(came, confirm=receipt)
