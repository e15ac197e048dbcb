"""Which copies at a waiting site are of messages that were processed at the other: by the number that each got where it
was sent. A broker gives its messages rising numbers, every number below the lowest that still lies there is done."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from dr_ctl.jolokia.client import Ask, Listing, Read, Reader
from dr_ctl.jolokia.errors import BadValue
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.bridges.view import ORIGIN
from dr_ctl.topologies.common.view import Queue

NUMBER: Final = "_AMQ_ORIG_MESSAGE_ID"
COMPARED: Final = 1000  # messages of a queue that are looked for in its copy, one by one
PAGES: Final = 5  # of the copy
LOOKED_AT: Final = 5000  # messages of a queue that is served; a deeper one cannot be looked at in a moment


def lowest(reader: Reader, queue: Queue, origin: str, *, timeout_s: float) -> tuple[int | None, bool]:
    """The lowest number of a message that lies in a served queue, in delivery included; returns None where the queue
    holds no such message. The second value says whether the listing is complete: a message of some transactions is in
    no listing.

    A message moves between waiting and delivery while this looks: the waiting ones are read before and after the
    others. Raises `BrokerError`, also for a message whose number does not show its copy: a sender wrote the site's own
    origin, or the number is from another place."""
    waiting, depth = Ask(queue.bean, Listing.BROWSE, (1, LOOKED_AT + 1)), Read(queue.bean, ("MessageCount",))
    before, first, held, last, after = reader.look(
        [depth, waiting, Ask(queue.bean, Listing.DELIVERING), waiting, depth], timeout_s=timeout_s
    )
    depths = {Fields(queue.bean, each.value()).number("MessageCount") for each in (before, after)}
    try:
        rows = [*first.value(), *last.value(), *_delivering(str(held.value()))]
        if max(len(first.value()), len(last.value())) > LOOKED_AT:
            raise BadValue(
                f"{queue.name} holds more than {LOOKED_AT} messages: which of them are the oldest is not known"
            )
        messages = {row["messageID"]: _all(row) for row in rows}
        _must_be_told(queue, messages.values(), origin)
        oldest = min((number for row in rows if (number := _number(row)) is not None), default=None)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise BadValue(f"{reader.url}: a message of {queue.name} is not as expected: {error}") from error
    return oldest, depths == {len(messages)}


def highest(reader: Reader, copy: Queue, origin: str, *, timeout_s: float) -> int | None:
    """The highest number among the last copies that came from `origin`; returns None if no copy did."""
    page = max(1, -(-copy.depth // _PAGE))
    answers = reader.look(
        [Ask(copy.bean, Listing.BROWSE, (each, _PAGE)) for each in (page - 1, page) if each], timeout_s=timeout_s
    )
    numbers = [_copied(row, origin) for answer in answers for row in answer.value()]
    return max((number for number in numbers if number is not None), default=None)


def missing(here: Reader, queue: Queue, there: Reader, copy: Queue, origin: str, *, timeout_s: float) -> int | None:
    """How many messages of a fenced queue have no copy; returns None where they are too many, or the copy holds none to
    compare by. A message older than every copy was consumed there when that site served. Raises `BrokerError`."""
    if queue.depth > COMPARED or queue.scheduled:  # delayed messages are in no listing
        return None
    page_read = here.look([Ask(queue.bean, Listing.BROWSE, (1, COMPARED))], timeout_s=timeout_s)[0]
    first = there.look([Ask(copy.bean, Listing.BROWSE, (1, 1))], timeout_s=timeout_s)[0]
    try:
        lie = {number for row in page_read.value() if (number := _number(row)) is not None}
        never = sum(_is_forwarded(row, origin) for row in page_read.value())
        oldest = next((number for row in first.value() if (number := _copied(row, origin)) is not None), None)
        if oldest is None:
            return None if lie else never
        wanted = {number for number in lie if number >= oldest}
        # Copies lie in the order in which they came, and what is left is mostly new.
        for page in range(-(-copy.depth // _PAGE), 0, -1)[:PAGES]:
            rows = there.look([Ask(copy.bean, Listing.BROWSE, (page, _PAGE))], timeout_s=timeout_s)[0].value()
            copied = {number for row in rows if (number := _copied(row, origin)) is not None}
            wanted -= copied
            if not wanted or (copied and min(copied) < min(wanted)):
                return len(wanted) + never
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise BadValue(f"{here.url}: a message of {queue.name} is not as expected: {error}") from error
    return None if wanted else never


def below(origin: str, number: int) -> str:
    """The filter of copies that came from there with a lower number."""
    return f"{ORIGIN} = '{origin}' AND {NUMBER} < {number}"


def _must_be_told(queue: Queue, rows: Collection[Mapping[str, Any]], origin: str) -> None:
    if any(row.get(ORIGIN) == origin for row in rows):
        raise BadValue(f"{queue.name} holds messages whose sender wrote {ORIGIN} = {origin}: {_UNPROVEN}")
    if any(ORIGIN not in row and NUMBER in row for row in rows):
        raise BadValue(f"{queue.name} holds messages that bear the number of another place: {_UNPROVEN}")


_UNPROVEN: Final = "which copies are theirs is not proven"
_PAGE: Final = 1000
_DIVERTED: Final = "_AMQ_ORIG_ADDRESS"


def _delivering(text: str) -> Iterator[Mapping[str, Any]]:
    for each in json.loads(text):
        yield from each["elements"]


def _number(row: Mapping[str, Any]) -> int | None:
    """The number of a message that its copy bears; returns None where the message came from the other site."""
    if ORIGIN in _all(row):
        return None
    return int(str(_all(row).get(NUMBER, row["messageID"])))


def _copied(row: Mapping[str, Any], origin: str) -> int | None:
    properties = _all(row)
    return int(properties[NUMBER]) if properties.get(ORIGIN) == origin and NUMBER in properties else None


def _is_forwarded(row: Mapping[str, Any], origin: str) -> bool:
    """Say whether a sender marked the message as from elsewhere: no divert took it."""
    properties = _all(row)
    return properties.get(ORIGIN, origin) != origin and _DIVERTED not in properties


def _all(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """All properties of a message: a browsed message has them by kind, a message in delivery among its other fields."""
    return {**row, **(row.get("StringProperties") or {}), **(row.get("LongProperties") or {})}
