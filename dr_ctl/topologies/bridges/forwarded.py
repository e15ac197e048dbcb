"""Counts messages that no divert copies because a client wrote where they come from: a client that forwards a message
with all its headers marks it as the other site's."""

from collections.abc import Iterator, Mapping
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.jolokia.client import Answer, Ask, Listing, Reader
from dr_ctl.topologies.bridges.view import ORIGIN, BrokerView
from dr_ctl.topologies.common.view import Queue

COUNTED_UP_TO: Final = 20_000  # a count by filter looks at each message, and reads those that are paged
_COPIED: Final = "_AMQ_ORIG_ADDRESS"  # the peer's divert sets it on every copy


def forwarded(reader: Reader, view: BrokerView) -> Mapping[str, int]:
    """How many lie in the queues that are served there, by unit; without those that were not read."""
    asked = list(_asked(view))
    counts = {unit: 0 for unit, queue, _ in _served(view) if not queue.depth}
    try:
        answers = reader.look([ask for _, ask in asked]) if asked else []
    except BrokerError:
        return counts
    for (unit, _), answer in zip(asked, answers, strict=True):
        if (count := _number(answer)) is not None:
            counts[unit] = counts.get(unit, 0) + count
    return counts


def _asked(view: BrokerView) -> Iterator[tuple[str, Ask]]:
    """The shallowest queues first, as many as can be counted in a moment."""
    left = COUNTED_UP_TO
    filled = (each for each in _served(view) if each[1].depth)
    for unit, queue, origin in sorted(filled, key=lambda each: each[1].depth):
        left -= queue.depth
        if left < 0:
            return
        own = origin.replace("'", "''")
        yield unit, Ask(queue.bean, Listing.COUNT, (f"{ORIGIN} <> '{own}' AND {_COPIED} IS NULL",))


def _served(view: BrokerView) -> Iterator[tuple[str, Queue, str]]:
    for unit in view.open_among(lambda _: True):
        flow = view.flow(unit)
        origin = next((each.origin for each in flow.bridges if each.origin), None) if flow is not None else None
        if origin is not None:
            yield from ((unit, queue, origin) for queue in view.queues_of(unit) if queue.counted)


def _number(answer: Answer) -> int | None:
    try:
        number = answer.value()
    except BrokerError:
        return None
    return number if isinstance(number, int) else None
