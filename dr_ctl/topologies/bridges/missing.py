"""Counts the messages of a fenced queue that are neither in its copy nor known to be processed."""

from dataclasses import dataclass
from typing import Final

from dr_ctl.topologies.bridges.access import Access
from dr_ctl.topologies.bridges.messages import COMPARED, Message, Origin, pages
from dr_ctl.topologies.common.view import Queue

PAGES: Final = 20  # of the copy: each page of a deep queue takes longer than the one before


@dataclass(frozen=True, slots=True)
class Side:
    """One broker's queue, None where there is none; `origin` is the name of its site in origins."""

    access: Access
    queue: Queue | None
    origin: str


def missing(here: Side, there: Side, *, timeout_s: float) -> int | None:
    """How many messages lie here, are not there, and are in no id store; without the delayed ones, which no listing
    has. None where that cannot be told: they are too many, a broker does not show where one comes from, or nothing says
    what was processed there. Raises `BrokerError`."""
    queue, copy = here.queue, there.queue
    assert queue is not None
    if copy is None:
        return queue.depth
    if queue.depth > COMPARED:
        return None
    lying = [each for page in pages(here.access.reader(), queue, here.origin, timeout_s=timeout_s) for each in page]
    if len(lying) + queue.scheduled != queue.depth or not all(each.named for each in lying):
        return None
    forwarded = sum(each.forwarded for each in lying)
    wanted, oldest, looked = [each for each in lying if not each.forwarded], None, 0
    for page in pages(there.access.reader(), copy, there.origin, timeout_s=timeout_s):
        if not wanted or looked == PAGES:
            break
        looked += 1
        if not all(each.named for each in page):
            return None
        found = {origin for each in page for origin in each.origins}
        wanted = [each for each in wanted if not each.origins & found]
        numbers = [each.copied[1] for each in page if each.copied is not None and each.copied[0] == here.origin]
        oldest = min([*numbers, *([oldest] if oldest is not None else [])], default=None)
    # A delay that AMQP tells in milliseconds begins anew at the copy, which is in no listing until then.
    if wanted and (looked == PAGES or copy.scheduled):
        return None
    if not wanted:
        return forwarded
    processed = [side.access.processed(queue.name, wanted) for side in (here, there)]
    done = frozenset[Origin]().union(*(each for each in processed if each is not None))
    wanted = [each for each in wanted if each.name not in done]
    if None in processed:
        # Nobody can say of a message older than every copy whether it was processed there, or never came.
        newer = [each for each in wanted if oldest is not None and _number(each, here.origin) >= oldest]
        return forwarded + len(newer) if newer or not wanted else None
    return forwarded + len(wanted)


def _number(message: Message, own: str) -> int:
    return max((number for origin, number in message.origins if origin == own), default=-1)
