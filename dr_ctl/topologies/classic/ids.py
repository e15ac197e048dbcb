"""Which messages lie in a queue, by their JMSMessageID: a copy has the id of its original."""

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
    """Ids of messages that lie at one side alone."""

    only_here: frozenset[str]
    only_there: frozenset[str]


def lying(access: Access[Any], queue: Queue | None) -> Mapping[str, str | None]:
    """Messages of a queue by id, in delivery included, with the destination they had before; for a copy, the queue it
    arrived by. A queue that is not there has no messages.

    A broker ends a listing silently where its policy says so (400 by default). A listing shorter than the queue is
    refused, because a message left out would look consumed. Raises `BrokerError`."""
    found, short = _listed(access, queue)
    if short is not None:
        raise short
    return found


def lying_at_work(access: Access[Any], queue: Queue | None) -> Mapping[str, str | None]:
    """Read a queue that clients work on: messages that any of several listings shows, two of them whole. A listing
    leaves out a message now and then that is on its way to a consumer (548 of 549 were seen). A listing that a policy
    ends always leaves some out."""
    found, shorts = dict[str, str | None](), list[BadValue]()
    for number in range(1, TRIES + 1):
        shown, short = _listed(access, queue)
        found |= shown
        shorts += [short] if short is not None else []
        if number - len(shorts) == WHOLE:
            return found
    raise shorts[-1]


def _listed(access: Access[Any], queue: Queue | None) -> tuple[dict[str, str | None], BadValue | None]:
    """The messages of a listing, and an error where the listing is shorter than its queue."""
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
    """Compare a serving queue with its copies: copies are read first, so a message sent meanwhile is no lack."""
    copies = lying(there, theirs).keys()
    mine = lying(here, ours).keys()
    return Differing(frozenset(mine - copies), frozenset(copies - mine))


def _size(value: Mapping[str, Any]) -> int:
    return int(value["QueueSize"])


def _origin(row: Mapping[str, Any]) -> str | None:
    destination = row.get("OriginalDestination")
    return destination.removeprefix("queue://") if isinstance(destination, str) else None


def _id(access: Access[Any], row: Any) -> str:
    message_id = row.get("JMSMessageID") if isinstance(row, dict) else None
    if not isinstance(message_id, str):
        raise BadValue(f"{access.site}: a message without a JMSMessageID")
    return message_id
