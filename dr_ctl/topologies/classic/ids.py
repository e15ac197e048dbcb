"""Which messages lie in a queue, by their JMSMessageID: a copy has that of its original."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dr_ctl.jolokia.client import Ask, Listing, Read
from dr_ctl.jolokia.errors import BadValue
from dr_ctl.topologies.classic.access import Access
from dr_ctl.topologies.common.view import Queue

BROWSE_S: Final = 30.0  # 20 000 messages take 6 s
TRIES: Final = 6
WHOLE: Final = 2


@dataclass(frozen=True, slots=True)
class Differing:
    """Who lies at one side alone."""

    only_here: frozenset[str]
    only_there: frozenset[str]


def lying(access: Access[Any], queue: Queue | None) -> Mapping[str, str | None]:
    """What lies in a queue now, in delivery included, by id: where it was sent before it came here, of a copy the queue
    that it arrived by. Nothing lies in a queue that is not there.

    A broker ends a listing silently where its policy says so (400 where it says nothing): one that is shorter than the
    queue is not believed, because what it leaves out would look as if it were consumed. Raises `BrokerError`."""
    found, short = _listed(access, queue)
    if short is not None:
        raise short
    return found


def lying_at_work(access: Access[Any], queue: Queue | None) -> Mapping[str, str | None]:
    """The same of a queue that clients work on: what any of several listings shows, two of them whole. One leaves out a
    message now and then that is on its way to a consumer (548 of 549 were seen); one that a policy ends always does."""
    found, shorts = dict[str, str | None](), list[BadValue]()
    for number in range(1, TRIES + 1):
        shown, short = _listed(access, queue)
        found |= shown
        shorts += [short] if short is not None else []
        if number - len(shorts) == WHOLE:
            return found
    raise shorts[-1]


def _listed(access: Access[Any], queue: Queue | None) -> tuple[dict[str, str | None], BadValue | None]:
    """What one listing shows, and what is wrong with one that is shorter than its queue."""
    if queue is None:
        return {}, None
    size = Read(queue.bean, ("QueueSize",))
    before, listed, after = access.reader().look([size, Ask(queue.bean, Listing.BROWSE_ALL), size], timeout_s=BROWSE_S)
    rows = listed.value()
    if not isinstance(rows, list):
        raise BadValue(f"{access.site}: a listing of {queue.name} gave no messages")
    least, short = min(_size(before.value()), _size(after.value())), None
    if len(rows) < least:
        short = BadValue(
            f"{access.site}: {queue.name} holds {least} message(s) and shows {len(rows)} of them: its broker's policy "
            "limits what a listing shows",
            remedy=f"Raise maxBrowsePageSize of the policy entry for {queue.name} at {access.site} above that number.",
        )
    return {_id(access, row): _origin(row) for row in rows}, short


def differing(here: Access[Any], ours: Queue | None, there: Access[Any], theirs: Queue | None) -> Differing:
    """Compare a queue that serves with its copies: these are looked at first, so that what is sent meanwhile is no
    lack."""
    copies = lying(there, theirs).keys()
    mine = lying(here, ours).keys()
    return Differing(frozenset(mine - copies), frozenset(copies - mine))


def _size(value: Mapping[str, Any]) -> int:
    return int(value["QueueSize"])


def _origin(row: Mapping[str, Any]) -> str | None:
    told = row.get("OriginalDestination")
    return told.removeprefix("queue://") if isinstance(told, str) else None


def _id(access: Access[Any], row: Any) -> str:
    told = row.get("JMSMessageID") if isinstance(row, dict) else None
    if not isinstance(told, str):
        raise BadValue(f"{access.site}: a message without a JMSMessageID")
    return told
