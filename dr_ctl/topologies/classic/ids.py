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
    if queue is None:
        return {}
    size = Read(queue.bean, ("QueueSize",))
    before, listed, after = access.reader().look([size, Ask(queue.bean, Listing.BROWSE_ALL), size], timeout_s=BROWSE_S)
    rows = listed.value()
    if not isinstance(rows, list):
        raise BadValue(f"{access.site}: a listing of {queue.name} gave no messages")
    least = min(_size(before.value()), _size(after.value()))
    if len(rows) < least:
        raise BadValue(
            f"{access.site}: {queue.name} holds {least} message(s) and shows {len(rows)} of them: its broker's policy "
            "limits what a listing shows",
            remedy=f"Raise maxBrowsePageSize of the policy entry for {queue.name} at {access.site} above that number.",
        )
    return {_id(access, row): _origin(row) for row in rows}


def lying_at_work(access: Access[Any], queue: Queue | None) -> Mapping[str, str | None]:
    """The same of a queue that clients work on: what either of two listings shows. One leaves out a message now and
    then that is on its way to a consumer (548 of 549 were seen)."""
    return {**lying(access, queue), **lying(access, queue)}


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
