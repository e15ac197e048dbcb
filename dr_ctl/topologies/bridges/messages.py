"""The messages of a queue, read one by one, and the names by which both sites know the same message.

A buffer tells when its delayed messages are due, and which messages consumers have done without an announcement that is
left. A queue tells messages that no divert copies, because a client wrote where they come from.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.jolokia.client import READ_S, Listing, Query, Reader
from dr_ctl.topologies.artemis.reading import Origin, Shown, as_expected, identity
from dr_ctl.topologies.bridges.view import ORIGIN, BrokerView, Flow
from dr_ctl.topologies.common.idstore import Store
from dr_ctl.topologies.common.view import Queue

NUMBER: Final = "_AMQ_ORIG_MESSAGE_ID"
PAGE: Final = 1000  # messages of one answer
COMPARED: Final = PAGE  # so many messages of a queue are looked for in its copy, one by one
_DIVERTED: Final = "_AMQ_ORIG_ADDRESS"  # the peer's divert sets it on every copy
DELAYED_UP_TO: Final = 1_000
# A message is due at a moment of the broker's clock, or so long after it came in, which is no later than so long from
# now.
_AT: Final = ("_AMQ_SCHED_DELIVERY", "x-opt-delivery-time")
_AFTER: Final = "x-opt-delivery-delay"
COUNTED_UP_TO: Final = 20_000  # a count by filter looks at each message, and reads those that are paged
ANNOUNCED_UP_TO: Final = 20_000


@dataclass(frozen=True, slots=True)
class Message:
    """The copy of a message may have the names `origins`. A `forwarded` message has no copy, as its sender wrote that
    it comes from elsewhere. `copied` is the peer's name of a message that is a copy itself. `properties` are those of
    the sender, or None if not shown."""

    origins: frozenset[Origin]
    copied: Origin | None
    forwarded: bool
    properties: Mapping[str, Any] | None

    @property
    def named(self) -> bool:
        return self.properties is not None

    @property
    def name(self) -> Origin:
        return min(self.origins)

    def id(self, header: str) -> str:
        """The id that consumers write down: the producer's one, else the origin and the number."""
        given = (self.properties or {}).get(header)
        return str(given) if isinstance(given, str | int) else identity(self.name)


def pages(reader: Reader, queue: Queue, own: str, *, timeout_s: float) -> Iterator[list[Message]]:
    """Read a queue in pages, the newest messages first. `own` names the site in origins. Raises `BrokerError`."""
    for rows in _listings(reader, queue, timeout_s=timeout_s):
        with as_expected(reader.url, f"a message of {queue.name}"):
            messages = [_message(row, own) for row in rows]
        yield messages


def _listings(reader: Reader, queue: Queue, *, timeout_s: float) -> Iterator[Any]:
    for page in range(-(-queue.depth // PAGE), 0, -1):
        [answer] = reader.read([Query(queue.bean, Listing.BROWSE, (page, PAGE))], timeout_s=timeout_s)
        yield answer.value()


def listed(reader: Reader, queue: Queue, own: str, *, timeout_s: float) -> list[Message] | None:
    """List all messages but delayed ones; None if one is left out, or the broker does not show its name."""
    messages = [message for page in pages(reader, queue, own, timeout_s=timeout_s) for message in page]
    is_whole = len(messages) + queue.scheduled == queue.depth and all(message.named for message in messages)
    return messages if is_whole else None


def _message(row: Mapping[str, Any], own: str) -> Message:
    shown = Shown.of(row)
    view = (own, shown.number)
    if shown.sender is None or shown.broker is None:
        return Message(frozenset({view}), None, forwarded=False, properties=None)
    # A bridge writes the origin as a sender would.
    origin, number = shown.sender.get(ORIGIN), shown.broker.get(NUMBER)
    stamped = (str(origin), int(number)) if origin is not None and origin != own and number is not None else None
    if stamped is not None and _DIVERTED in shown.broker:
        return Message(frozenset({stamped}), stamped, forwarded=False, properties=shown.sender)
    origins = {view} if number is None else {view, (own, int(number))}
    return Message(frozenset(origins), None, forwarded=origin not in (None, own), properties=shown.sender)


def with_due(reader: Reader, view: BrokerView) -> BrokerView:
    def read(flow: Flow) -> Flow:
        if flow.buffer is None or not 0 < flow.not_due <= DELAYED_UP_TO:
            return flow
        try:
            [answer] = reader.read([Query(flow.buffer.bean, Listing.SCHEDULED)])
            return replace(flow, due_s=tuple(_latest_s(row, view.now_ms) for row in json.loads(str(answer.value()))))
        except (BrokerError, ValueError, TypeError, AttributeError):
            return flow

    return replace(view, flows=tuple(map(read, view.flows)))


def _latest_s(row: Mapping[str, Any], now_ms: int) -> float:
    if (at := next((int(row[name]) for name in _AT if name in row), None)) is not None:
        return (at - now_ms) / 1000
    return int(row[_AFTER]) / 1000 if _AFTER in row else inf


def forwarded(reader: Reader, view: BrokerView) -> Mapping[str, int]:
    """Count forwarded messages by unit that is served there, without the deepest units, which were not read."""
    served = [
        (unit, queue, origin)
        for unit in view.open_among(lambda _: True)
        if (origin := view.origin_of(unit)) is not None
        for queue in view.queues_of(unit)
        if queue.depth_known
    ]
    counts = {unit: 0 for unit, queue, _ in served if not queue.depth}
    asked, left = dict[Query, str](), COUNTED_UP_TO
    for unit, queue, origin in sorted((queue for queue in served if queue[1].depth), key=lambda queue: queue[1].depth):
        if (left := left - queue.depth) < 0:
            break
        own = origin.replace("'", "''")
        asked[Query(queue.bean, Listing.COUNT, (f"{ORIGIN} <> '{own}' AND {_DIVERTED} IS NULL",))] = unit
    try:
        answers = reader.read([*asked]) if asked else []
    except BrokerError:
        return counts
    for unit, answer in zip(asked.values(), answers, strict=True):
        if answer.error is None and isinstance(count := answer.value(), int):
            counts[unit] = counts.get(unit, 0) + count
    return counts


def unannounced(
    reader: Reader, view: BrokerView, store: Store | None, header: str
) -> Mapping[str, Sequence[str]] | None:
    held = [flow for flow in view.flows if flow.to_ship]
    buffers = [flow.buffer for flow in (*held, *([view.ids] if view.ids is not None else []))]
    if not held:
        return {}
    if store is None or any(buffer is not None and buffer.depth > ANNOUNCED_UP_TO for buffer in buffers):
        return None
    ids = view.ids.buffer if view.ids is not None else None
    try:
        rows = [row for page in _listings(reader, ids, timeout_s=READ_S) for row in page] if ids is not None else []
        done = {flow.unit: _done(reader, view, flow, store, header) for flow in held}
    except BrokerError:
        return None
    if (ids is not None and len(rows) != ids.depth) or None in done.values():
        return None
    announced = json.dumps(rows, ensure_ascii=False)  # consumers word their announcements as they like
    return {unit: sorted(id_ for id_ in of_unit or () if id_ not in announced) for unit, of_unit in done.items()}


def _done(reader: Reader, view: BrokerView, flow: Flow, store: Store, header: str) -> set[str] | None:
    assert flow.buffer is not None
    held = listed(reader, flow.buffer, view.origin_of(flow.unit) or view.site, timeout_s=READ_S)
    if held is None or flow.buffer.scheduled:
        return None
    ids = [message.id(header) for message in held]
    return {id_ for queue in view.queues_of(flow.unit) for id_ in store.known(queue.name, ids)}
