"""Which messages lie in a queue, by the ids that producers gave them, and what two sites hold apart."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dr_ctl.core.clock import growing_s
from dr_ctl.jolokia.client import Ask, Listing, Read
from dr_ctl.jolokia.errors import BadValue
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.common.consumed import Consumed, Covered, InBothStores, NotWhole, Whole
from dr_ctl.topologies.common.idstore import Store
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.fanout.access import Access, Way

BROWSE_S: Final = 30.0  # 20 000 messages take 6 s
TRYING_S: Final = 5.0
_COUNTERS: Final = ("QueueSize", "EnqueueCount", "DequeueCount", "ExpiredCount", "DispatchCount")
_NOTHING: Final = frozenset[str]()
NONE_PROVEN: Final = Consumed(_NOTHING, InBothStores(_NOTHING, _NOTHING))

Both = tuple[Queue | None, Queue | None]
"""One queue at both sites, the source's first; None where a site has no such queue."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Figures of a queue since its broker's start. A message that was purged or moved was never `dispatched`."""

    depth: int
    added: int
    removed: int
    expired: int
    dispatched: int

    @property
    def cover_all(self) -> bool:
        """Say whether every message that lay in the queue since that start came in since."""
        return self.depth == self.added - self.removed


_EMPTY: Final = Counters(0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Listed:
    """A listing of one queue, with its counters before and after."""

    queue: str
    rows: Mapping[str, Mapping[str, Any]]
    count: int
    before: Counters
    after: Counters

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self.rows)

    @property
    def least(self) -> int:
        """How many messages the listing has to show at least."""
        return min(self.before.depth, self.after.depth)

    def whole(self) -> Whole:
        """Raises `NotWhole`. A second message of one id is listed, and adds no id."""
        return Whole(self.queue, self.ids, self.before.depth, self.after.depth, hidden=self.count - len(self.rows))


@dataclass(frozen=True, slots=True)
class Apart:
    """The difference of a queue, while `source` serves or did last. `done`: consumed there, and at the target still.
    `lacks`: not at the target. `alone`: at the target only, and nothing proves that a client consumed them."""

    done: Consumed
    lacks: frozenset[str]
    alone: frozenset[str]
    rows: Mapping[str, Mapping[str, Any]]
    """How the source's broker shows the messages that the target lacks."""


def listed(access: Access, queue: Queue | None, name: str) -> Listed:
    """List a queue once, whatever the listing leaves out; an absent queue has no messages. Raises `BrokerError`."""
    if queue is None:
        return Listed(name, {}, 0, _EMPTY, _EMPTY)
    figures = Read(queue.bean, _COUNTERS)
    before, shown, after = access.reader().look(
        [figures, Ask(queue.bean, Listing.BROWSE_ALL), figures], timeout_s=BROWSE_S
    )
    rows = shown.value()
    if not isinstance(rows, list):
        raise BadValue(f"{access.site}: a listing of {name} gave no messages")
    by_id = {_id(access, name, row): row for row in rows}
    return Listed(name, by_id, len(rows), *(_counters(Fields(queue.bean, each.value())) for each in (before, after)))


def lying(access: Access, queue: Queue | None) -> frozenset[str]:
    """The ids of all messages in a queue now, in delivery included. Raises `BrokerError`."""
    return listed_to_the_end(access, queue, queue.name if queue is not None else "").ids


def listed_to_the_end(access: Access, queue: Queue | None, name: str) -> Listed:
    """A listing that shows at least as many messages as the queue holds.

    A broker cuts a listing silently where its policy says so (400 by default), and leaves messages out while consumers
    take some: a shorter listing is asked for again, and then not believed. Raises `BrokerError`.
    """
    # A law of its own: no hand is here, and a listing that was cut by a consumer is asked for again at once.
    until = growing_s() + TRYING_S
    while True:
        found = listed(access, queue, name)
        if found.count >= found.least:
            return found
        if growing_s() > until:
            raise BadValue(
                f"{access.site}: {name} holds {found.least} message(s) and shows {found.count} of them: its broker's "
                "policy limits what a listing shows, or clients hold some in a transaction",
                remedy=f"Raise maxBrowsePageSize of the policy entry for {name} at {access.site} above that.",
            )


def consumed(store: Store, target: Access, queue: Queue | None) -> Consumed:
    """The messages at the target that the store knows: the consumers of both sites write to that one. The serving site
    need not be listed for that. Raises `BrokerError`."""
    known = store.known(queue.name, lying(target, queue)) if queue is not None else _NOTHING
    return Consumed(known, InBothStores(known, known))


def covered(here: Listed, there: Listed) -> Consumed:
    """The messages at the target that the source's counters prove to be consumed: all that the source lacks, or none.

    Nothing joins the brokers, so both sites' counters are needed: of one start each that covers every message, and of
    as many messages at both. A message that came to the target alone ends the proof for all.
    """
    covering = all(each.before == each.after and each.before.cover_all for each in (here, there))
    if not covering or here.before.added != there.before.added:
        return NONE_PROVEN
    left = here.before.removed - here.before.expired - there.before.removed
    try:
        there.whole()
        evidence = Covered(there.ids, here.whole(), min(left, here.before.dispatched))
    except NotWhole:
        return NONE_PROVEN
    lacking = there.ids - here.ids
    return Consumed(lacking, evidence) if evidence.proves(lacking) else NONE_PROVEN


class Comparing:
    """Compares queues of both sites for one command, and remembers ids that stay alone: only the first comparison
    waits, once for all queues."""

    def __init__(self, store: Store | None, within_s: float) -> None:
        self.store, self._within_s = store, within_s
        self._alone: dict[tuple[str, str], frozenset[str]] = {}

    def apart(
        self, way: Way, queues: Mapping[str, Both], pause: Callable[[], None], now: Callable[[], float]
    ) -> Mapping[str, Apart]:
        """The difference of each queue.

        Producers write to both sites, but not in the same instant. Queues with ids at one site alone are looked at
        again, with a `pause` between, for as long as was set; all of them together. Raises `BrokerError`.
        """
        found = {name: self._looked(way, name, both) for name, both in queues.items()}
        until = now() + self._within_s
        while (again := self._not_settled(way, found)) and now() < until:
            pause()
            for name in again:
                found[name] = _still(found[name], self._looked(way, name, queues[name]))
        self._alone.update({(way[1].site, name): each.alone for name, each in found.items()})
        return found

    def _not_settled(self, way: Way, found: Mapping[str, Apart]) -> Collection[str]:
        known = {name: self._alone.get((way[1].site, name), _NOTHING) for name in found}
        return [name for name, each in found.items() if each.lacks or each.alone - known[name]]

    def _looked(self, way: Way, name: str, both: Both) -> Apart:
        """List the waiting site first: an id that is not at the serving site a moment later was consumed, or never
        came there."""
        there = listed_to_the_end(way[1], both[1], name)
        here = listed_to_the_end(way[0], both[0], name)
        if self.store is None:
            done, known = covered(here, there), _NOTHING
        else:
            known = self.store.known(name, here.ids | there.ids)
            done = Consumed(there.ids & known, InBothStores(known, known))
        lacks = here.ids - there.ids - known
        return Apart(done, lacks, there.ids - here.ids - done.ids, {each: here.rows[each] for each in lacks})


def _still(before: Apart, now: Apart) -> Apart:
    """The ids that two looks found apart, and the evidence of the later one."""
    lacks = before.lacks & now.lacks
    return Apart(now.done, lacks, before.alone & now.alone, {each: now.rows[each] for each in lacks})


def _counters(fields: Fields) -> Counters:
    return Counters(*map(fields.number, _COUNTERS))


def _id(access: Access, queue: str, row: Any) -> str:
    properties = row.get("StringProperties") if isinstance(row, dict) else None
    ident = properties.get(access.own.id_header) if isinstance(properties, dict) else None
    if not isinstance(ident, str):
        raise BadValue(
            f"{access.site}: a message of {queue} has no {access.own.id_header}: it cannot be told from others",
            remedy="Let producers name each message by that property, or name theirs under `id_header:`.",
        )
    return ident
