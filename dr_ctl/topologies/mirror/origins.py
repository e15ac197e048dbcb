"""Reads who the messages of a queue are, and what an outflow still holds, message by message.

A message is the same one at both sites by its origin: the node where it was born, and its id there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dr_ctl.jolokia.client import READ_S, Ask, Listing, Reader
from dr_ctl.jolokia.http import BadValue, NoSuchBean
from dr_ctl.topologies.artemis.reading import Shown
from dr_ctl.topologies.common.figures import Residue
from dr_ctl.topologies.common.view import Broker, Queue
from dr_ctl.topologies.mirror.view import BrokerView

Origin = tuple[str, int]

RESIDUE_UP_TO: Final = 5000
_PAGE: Final = 1000
_SCANNED_A_SECOND: Final = 20_000  # a count by filter looks at each message, paged ones too
_KIND: Final = "x-opt-amq-mr-ev-type"
# Every event says of which address it is; which event it is, the broker cuts off where names are long.
_OF_ADDRESS: Final = "messageAnnotations.x-opt-amq-mr-adr"
_OF_QUEUE: Final = "messageAnnotations.x-opt-amq-mr-qu"
_BORN: Final = "x-opt-amq-bkr-id"
_NUMBER: Final = "x-opt-amq-mr-id"


def told(origin: Origin) -> str:
    """A message's identity as journal, report and operator see it."""
    return f"{origin[0]}:{origin[1]}"


@dataclass(frozen=True, slots=True)
class Browsed:
    """The messages that a browse of a queue shows, each with the number that this broker gave it. `unnamed` counts
    messages whose origin it does not show: any of these may be the same as any at the other site."""

    numbers: Mapping[Origin, int]
    unnamed: int = 0

    @property
    def ids(self) -> frozenset[Origin]:
        return frozenset(self.numbers)


def browsed(reader: Reader, view: Broker, queues: Sequence[Queue], *, limit: int) -> list[Browsed]:
    """The messages of each queue, in one POST; at most `limit` messages of a queue are read. Raises `BadValue`."""
    answers = reader.look([Ask(queue.bean, Listing.BROWSE, (1, limit)) for queue in queues]) if queues else []
    try:
        return [_of_rows(answer.value(), view.node) for answer in answers]
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise BadValue(f"{reader.url}: a browsed message is not as expected: {error}") from error


def _of_rows(rows: Sequence[Mapping[str, Any]], node: str) -> Browsed:
    origins = [(_origin(row, node), int(str(row["messageID"]))) for row in rows]
    named = {origin: number for origin, number in origins if origin is not None}
    return Browsed(named, sum(origin is None for origin, _ in origins))


def residue(reader: Reader, view: BrokerView) -> Residue:
    """Count it, and look at each where it is shallow enough. Raises `BrokerError`."""
    if view.outflow is None:
        raise NoSuchBean(f"{reader.url}: no link to the peer, so no outflow to count")
    counted = [Ask(view.outflow.bean, Listing.COUNT, (f'"m.{_KIND}" IS {what}',)) for what in ("NULL", "NOT NULL")]
    within_s = READ_S + view.outflow.depth / _SCANNED_A_SECOND
    counts = [answer.value() for answer in reader.look(counted, timeout_s=within_s)]
    if not all(isinstance(count, int) for count in counts):
        raise BadValue(f"{reader.url}: a count of messages is no number: {counts}")
    messages, acks = counts
    if messages + acks > RESIDUE_UP_TO:
        return Residue(messages, acks)
    pages = range(1, -(-(messages + acks) // _PAGE) + 1)
    answers = reader.look([Ask(view.outflow.bean, Listing.BROWSE, (page, _PAGE)) for page in pages]) if pages else []
    try:
        rows = [row for answer in answers for row in answer.value()]
        # A message that moved between the count and the browse was not read.
        if len(rows) != messages + acks:
            return Residue(messages, acks)
        events = _Told.of(rows, view.node)
        if events is None:
            return Residue(messages, acks)
        acked = {queue: origins - events.unshipped for queue, origins in events.done.items()}
        number = sum(len(origins) for origins in events.done.values())
        return Residue(messages, number, acked=acked, done=events.done, since=events.since)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise BadValue(f"{reader.url}: an event of the outflow is not as expected: {error}") from error


@dataclass(frozen=True, slots=True)
class _Told:
    """Messages that an outflow acknowledges, by queue; those done `since` its broker's last start; and messages not
    shipped."""

    done: Mapping[str, frozenset[Origin]]
    since: Mapping[str, frozenset[Origin]]
    unshipped: frozenset[Origin]

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], node: str) -> _Told | None:
        """None where the origin of a message is not shown: it may be one of those acknowledged."""
        before: dict[str, set[Origin]] = {}
        since: dict[str, set[Origin]] = {}
        unshipped: set[Origin] = set()
        for row in rows:
            texts = row.get("StringProperties") or {}
            queue = texts.get(_OF_QUEUE)
            if _OF_ADDRESS not in texts:
                if (origin := _origin(row, node)) is None:
                    return None
                unshipped.add(origin)
            elif queue is not None and str(row["text"]).isdecimal():
                # Of all events only an acknowledgement has a number for its body: the number of the message.
                born = str(texts.get(f"messageAnnotations.{_BORN}", node))
                (since if queue in since else before).setdefault(queue, set()).add((born, int(row["text"])))
            elif queue is not None:
                # A broker that starts announces each queue again. A queue that was made only now is announced too: its
                # acknowledgements lie behind that, and so do its messages, which are not shipped either.
                before.setdefault(queue, set()).update(since.get(queue, ()))
                since[queue] = set()
        last = {queue: frozenset(each) for queue, each in since.items() if each}
        done = {queue: frozenset(before.get(queue, ())) | last.get(queue, frozenset()) for queue in {*before, *last}}
        return cls({queue: each for queue, each in done.items() if each}, last, frozenset(unshipped))


def _origin(row: Mapping[str, Any], node: str) -> Origin | None:
    """A message that bears no origin was born here. None where the row does not tell."""
    shown = Shown.of(row)
    if shown.broker is None:
        return None
    born, number = shown.broker.get(_BORN), shown.broker.get(_NUMBER)
    if born is None and number is None:
        return node, shown.number
    return (str(born), int(number)) if born is not None and number is not None else None
