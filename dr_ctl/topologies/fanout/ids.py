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
    """Of one queue, while `source` serves or did last. `done`: consumed there, and at the target still. `lacks`: not at
    the target. `alone`: at the target only, and nothing says that anybody has consumed them."""

    done: frozenset[str]
    lacks: frozenset[str]
    alone: frozenset[str]


def lying(access: Access, queue: Queue | None) -> frozenset[str]:
    """The ids of what lies in a queue now, in delivery included; nothing lies in a queue that is not there.

    A broker ends a listing silently where its policy says so (400 where it says nothing), and leaves one out now and
    then while clients work: one that is shorter than the queue is not believed, because what it leaves out would look
    as if it were consumed. Raises `BrokerError`."""
    if queue is None:
        return frozenset()
    until = time.monotonic() + TRYING_S
    while True:
        rows, least = _listed(access, queue)
        if len(rows) >= least:
            return frozenset(_id(access, queue.name, row) for row in rows)
        if time.monotonic() > until:
            raise BadValue(
                f"{access.site}: {queue.name} holds {least} message(s) and shows {len(rows)} of them: its broker's "
                "policy limits what a listing shows",
                remedy=f"Raise maxBrowsePageSize of the policy entry for {queue.name} at {access.site} above that.",
            )


def _listed(access: Access, queue: Queue) -> tuple[list[Any], int]:
    """What a listing shows, and how many messages it has to show at least."""
    size = Read(queue.bean, ("QueueSize",))
    before, listed, after = access.reader().look([size, Ask(queue.bean, Listing.BROWSE_ALL), size], timeout_s=BROWSE_S)
    rows = listed.value()
    if not isinstance(rows, list):
        raise BadValue(f"{access.site}: a listing of {queue.name} gave no messages")
    return rows, min(_size(before.value()), _size(after.value()))


def told_apart(
    way: Way,
    queues: tuple[Queue | None, Queue | None],
    store: Store | None,
    pause: Callable[[], None],
    within: Callable[[], bool],
) -> Apart:
    """Compare a queue of both sites; `queues` are those of the source and of the target.

    Producers write to both in the same moment and not in the same instant, and go on: so what lies at one site alone is
    looked for again, with a `pause` between, until nothing changes `within` so long. Raises `BrokerError`."""
    (source, target), (ours, theirs) = way, queues
    name = next(each.name for each in queues if each is not None)
    # The waiting one first: what lies there and not where it is served, a moment later, came or was consumed.
    there, here = lying(target, theirs), lying(source, ours)
    lacks, gone = here - there, there - here
    done = store.known(name, gone) if store is not None else frozenset[str]()
    while (lacks or gone - done) and within():
        pause()
        there, here = lying(target, theirs), lying(source, ours)
        lacks, gone = lacks & here - there, gone & there - here
        done = store.known(name, gone) if store is not None else frozenset()
    if store is None and ours is not None and len(gone) <= source.look().named[name].removed:
        done = gone
    return Apart(done & gone, lacks, gone - done)


def _size(value: Mapping[str, Any]) -> int:
    return int(value["QueueSize"])


def _id(access: Access, queue: str, row: Any) -> str:
    told = row.get("StringProperties") if isinstance(row, dict) else None
    ident = told.get(access.id_header) if isinstance(told, dict) else None
    if not isinstance(ident, str):
        raise BadValue(
            f"{access.site}: a message of {queue} has no {access.id_header}: it cannot be told from others",
            remedy="Let producers name each message by that property, or name theirs under `id_header:`.",
        )
    return ident
