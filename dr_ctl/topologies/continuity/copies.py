"""Compares the messages of a flow at both sites by id; finds copies to remove at the site that is to be activated.

The plugin loses acknowledgements if several flows are acknowledged at once, and an acknowledgement can overtake its
message: the copy then stays, and would be delivered again. A message that is shipped back is there twice.
Only ids show this. The plugin gives each message a duplicate id, the same at both sites. Large messages, which reach a
broker in parts, get none.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final, TypeVar

from dr_ctl.core.model import brief
from dr_ctl.engine.plan import Call, Goal
from dr_ctl.jolokia.client import READ_S, Listing, Query, Reader
from dr_ctl.topologies.artemis.reading import as_expected
from dr_ctl.topologies.common.calls import batches, call, request
from dr_ctl.topologies.common.consumed import CompleteListing, Consumed, Covered, copy_exists
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.common.wants import AtBroker
from dr_ctl.topologies.continuity.view import Flow, SiteView

T = TypeVar("T")

# Deeper queues are not compared. Ids of queues deeper than `AT_ONCE` come in slices, and each slice scans the queue.
IDS_UP_TO: Final = 500_000
AT_ONCE: Final = 20_000
_DIGITS: Final = "0123456789abcdef"  # each id of the plugin begins with one of these digits
_SCANNED_A_SECOND: Final = 20_000
# Each call scans the queue. It removes this number of messages, or more if `CALLS` calls would not be enough.
BATCH: Final = 50
CALLS: Final = 200
REMOVE: Final = "removeMessages(java.lang.String)"
MOVE_ALL: Final = "moveMessages(java.lang.String,java.lang.String)"
_ID: Final = "_AMQ_DUPL_ID"
_NAMED: Final = 5  # so many ids of a queue stand in a finding
NONE: Final[Mapping[str, frozenset[str]]] = {}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The ids of one flow. At the source, `local` are in the queue and `behind` are staged; at the target, `remote` are
    in the queue and `staged` are staged. The source's queue refused `already_delivered`, because it had these messages
    before. Clients of the source have acknowledged `counted` messages since the start of its broker."""

    queue: str
    local: frozenset[str]
    behind: frozenset[str]
    remote: frozenset[str]
    staged: frozenset[str]
    already_delivered: frozenset[str] = frozenset()
    counted: int = 0

    @property
    def undelivered(self) -> frozenset[str]:
        """Ids that are staged at the source and not in its queue, and that are at the target too. Either no client got
        the message yet, or the queue refused it as a duplicate of a consumed message. Without a known refusal they
        count as not delivered, and no copy is removed."""
        return (self.behind - self.local) & (self.remote | self.staged) - self.already_delivered

    @property
    def missing(self) -> frozenset[str]:
        """Ids that are only at the source: the copy was deleted, and a move would lose the message."""
        return self.local - self.remote - self.staged

    @property
    def lacking(self) -> frozenset[str]:
        """Ids at the target that the source's queue lacks: consumed, or lost with the source's store."""
        return (self.staged | self.remote) - self.local - self.undelivered

    @property
    def unproven(self) -> frozenset[str]:
        """The lacking ids, if they are more than the messages that clients of the source have acknowledged."""
        return self.lacking if len(self.lacking) > self.counted else frozenset()

    @property
    def consumed(self) -> frozenset[str]:
        """Ids in the target's queue that were consumed at the source."""
        return self.remote & self.lacking - self.unproven

    @property
    def surplus(self) -> frozenset[str]:
        """Ids staged at the target that must not be delivered: consumed at the source, or in the target's queue too."""
        return self.staged & (self.lacking - self.unproven | self.remote)


@dataclass(frozen=True, slots=True)
class _Listing:
    """The ids in a queue. `waiting` counts the messages of each id, and those without an id as "null"; `later` are
    scheduled; `held` are held by clients, or acknowledged in an open transaction."""

    waiting: Mapping[str, int]
    later: frozenset[str]
    held: frozenset[str]

    @property
    def ids(self) -> frozenset[str]:
        return (frozenset(self.waiting) | self.later | self.held) - {"null"}

    @property
    def without_id(self) -> int:
        return self.waiting.get("null", 0)


def list_ids(reader: Reader, queues: Sequence[Queue]) -> list[frozenset[str] | None]:
    """List the ids of all messages of each queue, or None if a message of the queue has no id or was not listed."""
    return [
        # The count shows a missing or repeated id, and a queue that has changed meanwhile.
        listed.ids if len(listed.ids) == queue.depth and not listed.without_id else None
        for queue, listed in zip(queues, _list(reader, queues, held=False), strict=True)
    ]


def read_ids(reader: Reader, queues: Sequence[Queue]) -> list[frozenset[str]]:
    """List the ids in each queue of a serving site, those that clients hold included, as of one reading."""
    return [listed.ids for listed in _list(reader, queues, held=True)]


def add_uncopied(local: Reader, peer: Reader, source: SiteView, target: SiteView) -> tuple[SiteView, SiteView]:
    """Add to both views the messages that the plugin does not follow while the source serves: `uncopied` and
    `without_id`. Raises `BrokerError`.

    A message enters the outflow and its queue together, and leaves the outflow once it is staged. An id that is in the
    queue, then not in the outflow, then not at the target, and then still in the queue has no copy. Two such readings
    are needed, because a bridge may have been shipping the message. They prove nothing about a message that a client
    holds (`held`), because the plugin ships an acknowledgement before its transaction is committed. The deepest queues
    are left out, beyond `AT_ONCE` messages in total."""
    one_sided = one_sided_queues(source, target)
    depths = {flow.queue: source.depth_of(flow.queue) + target.depth_of(flow.queue) for flow in source.flows}
    flows = [flow for flow in source.flows if depths[flow.queue] and flow.queue not in one_sided]
    flows.sort(key=lambda flow: depths[flow.queue])
    totals = accumulate(depths[flow.queue] for flow in flows)
    left_out = [flow.queue for flow, messages in zip(flows, totals, strict=True) if messages > AT_ONCE]
    flows = flows[: len(flows) - len(left_out)]
    first = _unmatched(local, peer, source, target, flows)
    candidates = {queue: ids for queue, (_, ids, _) in first.items() if ids}
    second = _unmatched(local, peer, source, target, [flow for flow in flows if flow.queue in candidates])
    last = dict(zip(candidates, _list(local, [source.business[queue] for queue in candidates], held=True), strict=True))
    uncopied = {queue: ids & second[queue][1] & last[queue].ids for queue, ids in candidates.items()}
    without_id = {queue: (in_queue.without_id, there) for queue, (in_queue, _, there) in first.items()}
    return (
        replace(
            source,
            compared=len(flows),
            left_out=left_out,
            uncopied={flow.queue: uncopied.get(flow.queue, frozenset()) for flow in flows},
            held={
                queue: ids & (first[queue][0].held | second[queue][0].held | last[queue].held)
                for queue, ids in uncopied.items()
            },
            without_id={queue: count for queue, (count, _) in without_id.items() if count},
        ),
        replace(
            target, compared=len(flows), without_id={queue: there for queue, (_, there) in without_id.items() if there}
        ),
    )


def _unmatched(
    local: Reader, peer: Reader, source: SiteView, target: SiteView, flows: Sequence[Flow]
) -> dict[str, tuple[_Listing, frozenset[str], int]]:
    """Return for each queue its listing, the ids in it that are neither in its outflow nor at the target, and the
    number of messages without an id at the target."""
    queues = [queue for flow in flows for queue in (source.business[flow.queue], flow.out_mirror)]
    local_ids = _pairs(_list(local, queues, held=True))
    remote_ids = _pairs(_list(peer, [queue for flow in flows for queue in target.places(flow.queue)], held=True))
    return {
        flow.queue: (
            in_queue,
            in_queue.ids - shipping.ids - delivered.ids - staged.ids,
            delivered.without_id + staged.without_id,
        )
        for flow, (in_queue, shipping), (delivered, staged) in zip(flows, local_ids, remote_ids, strict=True)
    }


def ids_text(messages: Mapping[str, Collection[str]]) -> str:
    """Count the messages of each queue, and name the first ids; the journal has all."""
    counts = {name: f"{len(ids_)} ({', '.join(sorted(ids_)[:_NAMED])}" for name, ids_ in messages.items()}
    return brief([f"{name}: {text}{', …' if len(messages[name]) > _NAMED else ''})" for name, text in counts.items()])


def _list(reader: Reader, queues: Sequence[Queue], *, held: bool) -> list[_Listing]:
    """List shallow queues in one POST, and each deep one in several; with `held`, list what clients hold too. A message
    becomes due, waits, and is delivered to a client: listings in this order miss no message in between."""
    asked = [_queries(queue, held=held) for queue in queues]
    at_once = [
        query for queue, queries in zip(queues, asked, strict=True) if queue.depth <= AT_ONCE for query in queries
    ]
    answers = dict(zip(at_once, _read_answers(reader, at_once), strict=True))
    for queue, queries in zip(queues, asked, strict=True):
        for query in queries if queue.depth > AT_ONCE else ():
            [answers[query]] = _read_answers(reader, [query], queue.depth)
    with as_expected(reader.url, "a list of ids"):
        return [
            _Listing(
                {id_: count for query in queries if query.arguments for id_, count in answers[query].items()},
                _ids_of(answers[queries[0]]),
                _ids_of(answers[queries[-1]]) if held else frozenset(),
            )
            for queries in asked
        ]


def _queries(queue: Queue, *, held: bool) -> list[Query]:
    """Make the queries for scheduled messages, for the ids of others, by slices of a deep queue, and for messages that
    clients hold."""
    counts = [
        Query(queue.bean, Listing.COUNT_BY, (part, _ID)) for part in (id_slices() if queue.depth > AT_ONCE else [""])
    ]
    return [Query(queue.bean, Listing.SCHEDULED), *counts, *([Query(queue.bean, Listing.DELIVERING)] if held else [])]


def id_slices() -> list[str]:
    """Return filters of which each message with an id passes exactly one."""
    return [*(f"{_ID} LIKE '{digit}%'" for digit in _DIGITS), " AND ".join(f"{_ID} NOT LIKE '{d}%'" for d in _DIGITS)]


def _read_answers(reader: Reader, queries: Sequence[Query], depth: int = 0) -> list[Any]:
    if not queries:
        return []
    answers = reader.read(queries, timeout_s=READ_S + depth / _SCANNED_A_SECOND)
    with as_expected(reader.url, "a list of ids"):
        return [json.loads(str(answer.value())) for answer in answers]


def _ids_of(listed: list[dict[str, Any]]) -> frozenset[str]:
    """Read the ids out of a listing: messages in delivery are listed by consumer."""
    rows = (row for page in listed for row in page.get("elements", [page]))
    return frozenset(str(row[_ID]) for row in rows if _ID in row)


def one_sided_queues(source: SiteView, target: SiteView) -> list[str]:
    """Name the queues with messages whose flow is missing at one site: a queue is deleted together with its flow."""
    names = {flow.queue for view in (source, target) for flow in view.flows if view.depth_of(flow.queue)}
    return sorted(
        name for name in names for view in (source, target) if name not in view.business or not view.flow(name)
    )


def compare(
    local: Reader,
    peer: Reader,
    source: SiteView,
    target: SiteView,
    already_delivered: Mapping[str, frozenset[str]] = NONE,
) -> tuple[list[Comparison], list[str]]:
    """Compare each flow that has messages, and name the queues that are too deep, or could not be read completely. For
    `already_delivered` see `Comparison`. Raises `BrokerError`."""
    flows = [flow for flow in target.flows if source.depth_of(flow.queue) or target.depth_of(flow.queue)]
    shallow = [flow for flow in flows if max(source.depth_of(flow.queue), target.depth_of(flow.queue)) <= IDS_UP_TO]
    at_source = _pairs(list_ids(local, [queue for flow in shallow for queue in source.places(flow.queue)]))
    at_target = _pairs(list_ids(peer, [queue for flow in shallow for queue in target.places(flow.queue)]))
    compared = []
    for flow, (ids, behind), (remote, staged) in zip(shallow, at_source, at_target, strict=True):
        if ids is not None and behind is not None and remote is not None and staged is not None:
            refused, acked = already_delivered.get(flow.queue, frozenset()), source.business[flow.queue].acked
            compared.append(Comparison(flow.queue, ids, behind, remote, staged, refused, acked))
    return compared, sorted({flow.queue for flow in flows} - {comparison.queue for comparison in compared})


def _pairs(sets: Sequence[T]) -> list[tuple[T, T]]:
    return list(zip(sets[::2], sets[1::2], strict=True))


def removal_calls(source: SiteView, target: SiteView, compared: Iterable[Comparison]) -> Iterator[Call]:
    """Remove staged messages that are in the queue too, and messages that were consumed at the source. `source` is a
    reading from after the comparison. Raises `IncompleteListing` if its queue has changed since."""
    for comparison in compared:
        flow = target.flow(comparison.queue)
        if flow is None:
            continue
        delivered, staged, source_ids = comparison.remote, comparison.staged, comparison.local
        in_queue = target.business[comparison.queue]
        second = Consumed(staged & delivered, copy_exists(in_queue.name, delivered))
        yield from calls_to_remove(target, flow.staging, second)
        if consumed := comparison.lacking - comparison.unproven:
            depth = source.business[comparison.queue].depth if comparison.queue in source.business else 0
            listing = CompleteListing(comparison.queue, source_ids, before=len(source_ids), after=depth)
            covered = Covered((delivered | staged) - comparison.undelivered, listing, comparison.counted)
            yield from calls_to_remove(target, flow.staging, Consumed(consumed & staged - delivered, covered))
            yield from calls_to_remove(target, in_queue, Consumed(consumed & delivered, covered))


def second_copies(peer: Reader, target: SiteView) -> dict[str, Consumed]:
    """Find by queue the staged messages of a closed site that are in its queue too, because a moved message came back.
    One copy is enough, whatever clients of the other site do meanwhile."""
    flows = [
        flow
        for flow in target.flows
        if flow.staging.depth
        and target.depth_of(flow.queue) > flow.staging.depth
        and target.depth_of(flow.queue) <= IDS_UP_TO
        # Messages that a bridge delivers cannot be removed from the queue.
        and not flow.target_bridge.started
    ]
    sets = read_ids(peer, [queue for flow in flows for queue in target.places(flow.queue)])
    pairs = zip(flows, sets[::2], sets[1::2], strict=True)
    return {
        flow.queue: Consumed(ids, copy_exists(flow.queue, in_queue))
        for flow, in_queue, staged in pairs
        if (ids := in_queue & staged)
    }


def calls_to_remove(view: SiteView, queue: Queue, consumed: Consumed) -> Iterator[Call]:
    for batch in id_batches(consumed.ids):
        text = f"remove {len(batch)} message(s) from {queue.name}: {consumed.by.text}"
        yield call(view, Goal.REMOVE, queue.name, request(queue.bean, REMOVE, (selector(batch),)), text)


def id_batches(names: Collection[str]) -> Iterator[list[str]]:
    """Divide messages into batches, one for each call: small ones, unless that takes too many calls."""
    return batches(names, max(BATCH, -(-len(names) // CALLS)))


def selector(names: Iterable[str]) -> str:
    listed = ", ".join("'" + name.replace("'", "''") + "'" for name in names)
    return f"{_ID} IN ({listed})"


def staged_removed(at: AtBroker, when: str | None = None) -> Iterator[Call]:
    return planned_removals(at, (flow.staging for flow in at.view.flows), when)


def planned_removals(at: AtBroker, queues: Iterable[Queue], when: str | None = None) -> Iterator[Call]:
    when = when or f"it was acknowledged at {at.other_site}, or is duplicated at {at.view.site}"
    for queue in queues:
        removal = request(queue.bean, REMOVE, ("…",))
        yield call(at.view, Goal.REMOVE, queue.name, removal, f"remove by id from {queue.name}", when, CALLS)
