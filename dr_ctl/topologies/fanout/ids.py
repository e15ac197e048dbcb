"""Which messages lie in a queue, by the ids that producers gave them, and what two sites hold apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dr_ctl.jolokia.client import Ask, Listing, Read
from dr_ctl.jolokia.errors import BadValue
from dr_ctl.topologies.common.idstore import Store
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.fanout.access import Access, Way

BROWSE_S: Final = 30.0  # 20 000 messages take 6 s
TRYING_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Apart:
    """The difference of a queue, while `source` serves or did last. `done`: consumed there, and at the target still.
    `lacks`: not at the target. `alone`: at the target only, and not known to be consumed."""

    done: frozenset[str]
    lacks: frozenset[str]
    alone: frozenset[str]


def lying(access: Access, queue: Queue | None, *, whole: bool = True) -> frozenset[str]:
    """The ids of all messages in a queue now, in delivery included; an absent queue has no ids.

    A broker cuts a listing silently where its policy says so (400 by default), and leaves messages out while consumers
    take some. If `whole`, a listing shorter than the queue is not believed: the messages left out would look consumed.
    Raises `BrokerError`.
    """
    if queue is None:
        return frozenset()
    # A law of its own: no hand is here, and a listing that was cut by a consumer is asked for again at once.
    until = time.monotonic() + TRYING_S
    while True:
        rows, least = _listed(access, queue)
        if len(rows) >= least or not whole:
            return frozenset(_id(access, queue.name, row) for row in rows)
        if time.monotonic() > until:
            raise BadValue(
                f"{access.site}: {queue.name} holds {least} message(s) and shows {len(rows)} of them: its broker's "
                "policy limits what a listing shows",
                remedy=f"Raise maxBrowsePageSize of the policy entry for {queue.name} at {access.site} above that.",
            )


def _listed(access: Access, queue: Queue) -> tuple[list[Any], int]:
    """The rows of a listing, and how many messages it has to show at least."""
    size = Read(queue.bean, ("QueueSize",))
    before, listed, after = access.reader().look([size, Ask(queue.bean, Listing.BROWSE_ALL), size], timeout_s=BROWSE_S)
    rows = listed.value()
    if not isinstance(rows, list):
        raise BadValue(f"{access.site}: a listing of {queue.name} gave no messages")
    return rows, min(_size(before.value()), _size(after.value()))


class Comparing:
    """Compares queues of both sites for one command, and remembers ids that stay alone: only the first comparison
    waits."""

    def __init__(self, store: Store | None, within_s: float) -> None:
        self._store, self._within_s = store, within_s
        self._alone: dict[tuple[str, str], frozenset[str]] = {}

    def done(self, target: Access, queue: Queue | None) -> frozenset[str] | None:
        """The ids at the target that the store knows as consumed, or None without a store. The serving site need not be
        listed for that. Raises `BrokerError`."""
        if self._store is None or queue is None:
            return None if self._store is None else frozenset()
        return self._store.known(queue.name, lying(target, queue))

    def apart(
        self,
        way: Way,
        queues: tuple[Queue | None, Queue | None],
        pause: Callable[[], None],
        now: Callable[[], float],
        *,
        busy: bool = False,
    ) -> Apart:
        """`queues` are those of the source and of the target; `busy`: consumers work at the source.

        Producers write to both sites, but not in the same instant. Ids at one site alone are looked for again, with a
        `pause` between, for as long as was set. Raises `BrokerError`.
        """
        name = next(each.name for each in queues if each is not None)
        settled = self._alone.get((way[1].site, name), frozenset())
        # Where the store says what was consumed, nothing rests on what a listing of a busy queue leaves out.
        whole = not busy or self._store is None
        lacks, gone, done = self._looked(name, way, queues, whole=whole)
        until = now() + self._within_s
        while (lacks or gone - settled) and now() < until:
            pause()
            again, gone_again, done = self._looked(name, way, queues, whole=whole)
            lacks, gone = lacks & again, gone & gone_again
        if self._store is None and queues[0] is not None and len(gone) <= way[0].look().named[name].removed:
            done, gone = gone, frozenset()
        self._alone[way[1].site, name] = gone
        return Apart(done, lacks, gone)

    def _looked(
        self, name: str, way: Way, queues: tuple[Queue | None, Queue | None], *, whole: bool
    ) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
        """The ids at the source only and at the target only, unless the store knows them; the ids at the target that
        the store knows. List the waiting site first: an id that is not at the serving site a moment later was consumed,
        or never came there."""
        there = lying(way[1], queues[1])
        here = lying(way[0], queues[0], whole=whole)
        known = self._store.known(name, here ^ there) if self._store is not None else frozenset[str]()
        return here - there - known, there - here - known, there & known


def _size(value: Mapping[str, Any]) -> int:
    return int(value["QueueSize"])


def _id(access: Access, queue: str, row: Any) -> str:
    properties = row.get("StringProperties") if isinstance(row, dict) else None
    ident = properties.get(access.id_header) if isinstance(properties, dict) else None
    if not isinstance(ident, str):
        raise BadValue(
            f"{access.site}: a message of {queue} has no {access.id_header}: it cannot be told from others",
            remedy="Let producers name each message by that property, or name theirs under `id_header:`.",
        )
    return ident
