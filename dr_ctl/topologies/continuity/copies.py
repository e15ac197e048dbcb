"""Compares the messages of a flow at both sites by id; finds copies to remove at the site that is to be activated.

The plugin loses acknowledgements where several flows are acknowledged at once, and one can overtake its message: the
copy then stays, and would be delivered once more. A message that returns to the site where it was written lies there
twice. Only the ids show this. The plugin gives messages a duplicate id, equal at both sites. Large messages, which
reach a broker in parts, get none.
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
_DIGITS: Final = "0123456789abcdef"  # every id of the plugin begins with a digit of these
_SCANNED_A_SECOND: Final = 20_000
# A call scans the queue: it removes so many messages, or more where there would be more than `CALLS` calls.
BATCH: Final = 50
CALLS: Final = 200
REMOVE: Final = "removeMessages(java.lang.String)"
MOVE_ALL: Final = "moveMessages(java.lang.String,java.lang.String)"
_ID: Final = "_AMQ_DUPL_ID"
_NAMED: Final = 5  # ids of a queue, in a finding
NONE: Final[Mapping[str, frozenset[str]]] = {}


@dataclass(frozen=True, slots=True)
class Compared:
    """The ids of one flow. At the site that is left, `local` ones lie in the queue and `behind` ones are staged; at the
    site that is to serve these are `remote` and `staged`. The queue of the site that is left refused the ids
    `already_delivered`, because it had them before. Clients of that site have acknowledged `counted` messages since the
    start of its broker."""

    queue: str
    local: frozenset[str]
    behind: frozenset[str]
    remote: frozenset[str]
    staged: frozenset[str]
    already_delivered: frozenset[str] = frozenset()
    counted: int = 0

    @property
    def undelivered(self) -> frozenset[str]:
        """Ids that are staged at the site that is left, are not in its queue, and are at the other site too. Either no
        client had the message yet, or the queue refused it as a duplicate and the earlier copy was consumed. Where the
        refusal was not seen, no copy is removed."""
        return (self.behind - self.local) & (self.remote | self.staged) - self.already_delivered

    @property
    def missing(self) -> frozenset[str]:
        """Ids that are only at the site that is left: the copy was deleted, and moving would lose the message."""
        return self.local - self.remote - self.staged

    @property
    def lacking(self) -> frozenset[str]:
        """Ids at the other site that the queue of the site that is left lacks: consumed, or lost with its store."""
        return (self.staged | self.remote) - self.local - self.undelivered

    @property
    def unproven(self) -> frozenset[str]:
        """The lacking ids, where clients of the site that is left have not acknowledged as many."""
        return self.lacking if len(self.lacking) > self.counted else frozenset()

    @property
    def consumed(self) -> frozenset[str]:
        """Ids in the other site's queue that were consumed here: delivered once already."""
        return self.remote & self.lacking - self.unproven

    @property
    def surplus(self) -> frozenset[str]:
        """Staged ids that must not be delivered: consumed here already, or in the queue as well."""
        return self.staged & (self.lacking - self.unproven | self.remote)


@dataclass(frozen=True, slots=True)
class _Listed:
    """The ids in a queue. `waiting` counts the messages under each id, and those without one under "null"; `later` ones
    are due later; clients hold the `held` ones, or acknowledge them in a transaction that is not committed."""

    waiting: Mapping[str, int]
    later: frozenset[str]
    held: frozenset[str]

    @property
    def ids(self) -> frozenset[str]:
        return (frozenset(self.waiting) | self.later | self.held) - {"null"}

    @property
    def without_id(self) -> int:
        return self.waiting.get("null", 0)


def ids(reader: Reader, queues: Sequence[Queue]) -> list[frozenset[str] | None]:
    """List the ids of all messages of each queue; give None for a queue whose messages could not all be named."""
    return [
        # A missing or repeated id shows, and so does a queue that has moved meanwhile.
        listed.ids if len(listed.ids) == queue.depth and not listed.without_id else None
        for queue, listed in zip(queues, _read(reader, queues, held=False), strict=True)
    ]


def present(reader: Reader, queues: Sequence[Queue]) -> list[frozenset[str]]:
    """List the ids in each queue of a serving site, as far as one reading can tell, with those that clients hold."""
    return [listed.ids for listed in _read(reader, queues, held=True)]


def followed(local: Reader, peer: Reader, source: SiteView, target: SiteView) -> tuple[SiteView, SiteView]:
    """Add to both views the messages that the plugin does not follow while the source serves: `uncopied` and
    `without_id`. Raises `BrokerError`.

    A message comes to the outflow together with its queue, and leaves the outflow once it is staged. An id that is seen
    in the queue, then not in the outflow, then not at the target has no copy if the queue has it still. Two such
    readings are needed, since a bridge may have had the message in hand. They prove nothing of a message that a client
    holds (`held`), because the plugin tells an acknowledgement before its transaction is committed. The deepest queues
    are left out, beyond `AT_ONCE` messages."""
    lacking = one_sided(source, target)
    depths = {flow.queue: source.depth_of(flow.queue) + target.depth_of(flow.queue) for flow in source.flows}
    flows = [flow for flow in source.flows if depths[flow.queue] and flow.queue not in lacking]
    flows.sort(key=lambda flow: depths[flow.queue])
    together = accumulate(depths[flow.queue] for flow in flows)
    left_out = [flow.queue for flow, messages in zip(flows, together, strict=True) if messages > AT_ONCE]
    flows = flows[: len(flows) - len(left_out)]
    first = _unmatched(local, peer, source, target, flows)
    uncopied = {queue: ids for queue, (_, ids, _) in first.items() if ids}
    again = _unmatched(local, peer, source, target, [flow for flow in flows if flow.queue in uncopied])
    left = dict(zip(uncopied, _read(local, [source.business[queue] for queue in uncopied], held=True), strict=True))
    still = {queue: ids & again[queue][1] & left[queue].ids for queue, ids in uncopied.items()}
    without_id = {queue: (in_queue.without_id, there) for queue, (in_queue, _, there) in first.items()}
    return (
        replace(
            source,
            compared=len(flows),
            left_out=left_out,
            uncopied={flow.queue: still.get(flow.queue, frozenset()) for flow in flows},
            held={
                queue: ids & (first[queue][0].held | again[queue][0].held | left[queue].held)
                for queue, ids in still.items()
            },
            without_id={queue: here for queue, (here, _) in without_id.items() if here},
        ),
        replace(
            target, compared=len(flows), without_id={queue: there for queue, (_, there) in without_id.items() if there}
        ),
    )


def _unmatched(
    local: Reader, peer: Reader, source: SiteView, target: SiteView, flows: Sequence[Flow]
) -> dict[str, tuple[_Listed, frozenset[str], int]]:
    """Give for each queue its listing, the ids in it that lie neither in its outflow nor at the target, and the number
    of messages without an id at the target."""
    queues = [queue for flow in flows for queue in (source.business[flow.queue], flow.out_mirror)]
    own = _both(_read(local, queues, held=True))
    remote = _both(_read(peer, [queue for flow in flows for queue in target.places(flow.queue)], held=True))
    return {
        flow.queue: (
            in_queue,
            in_queue.ids - shipping.ids - delivered.ids - staged.ids,
            delivered.without_id + staged.without_id,
        )
        for flow, (in_queue, shipping), (delivered, staged) in zip(flows, own, remote, strict=True)
    }


def named(messages: Mapping[str, Collection[str]]) -> str:
    """Count the messages of each queue, and name the first ids: the journal has all."""
    counts = {name: f"{len(ids_)} ({', '.join(sorted(ids_)[:_NAMED])}" for name, ids_ in messages.items()}
    return brief([f"{name}: {text}{', …' if len(messages[name]) > _NAMED else ''})" for name, text in counts.items()])


def _read(reader: Reader, queues: Sequence[Queue], *, held: bool) -> list[_Listed]:
    """List shallow queues in one POST, and each deep one in several; with `held`, list what clients hold too. A message
    becomes due, waits, and is handed to a client: listings in this order miss no message on its way."""
    asked = [_asks(queue, held=held) for queue in queues]
    at_once = [
        query for queue, queries in zip(queues, asked, strict=True) if queue.depth <= AT_ONCE for query in queries
    ]
    answers = dict(zip(at_once, _answered(reader, at_once), strict=True))
    for queue, queries in zip(queues, asked, strict=True):
        for query in queries if queue.depth > AT_ONCE else ():
            [answers[query]] = _answered(reader, [query], queue.depth)
    with as_expected(reader.url, "a list of ids"):
        return [
            _Listed(
                {id_: count for query in queries if query.arguments for id_, count in answers[query].items()},
                _rows(answers[queries[0]]),
                _rows(answers[queries[-1]]) if held else frozenset(),
            )
            for queries in asked
        ]


def _asks(queue: Queue, *, held: bool) -> list[Query]:
    """Ask for the messages that are due later, for the ids of the others, slice by slice of a deep queue, and for those
    that clients hold."""
    counts = [
        Query(queue.bean, Listing.COUNT_BY, (part, _ID)) for part in (slices() if queue.depth > AT_ONCE else [""])
    ]
    return [Query(queue.bean, Listing.SCHEDULED), *counts, *([Query(queue.bean, Listing.DELIVERING)] if held else [])]


def slices() -> list[str]:
    """Give filters so that each message with an id passes exactly one."""
    return [*(f"{_ID} LIKE '{digit}%'" for digit in _DIGITS), " AND ".join(f"{_ID} NOT LIKE '{d}%'" for d in _DIGITS)]


def _answered(reader: Reader, asked: Sequence[Query], depth: int = 0) -> list[Any]:
    if not asked:
        return []
    answers = reader.read(asked, timeout_s=READ_S + depth / _SCANNED_A_SECOND)
    with as_expected(reader.url, "a list of ids"):
        return [json.loads(str(answer.value())) for answer in answers]


def _rows(listed: list[dict[str, Any]]) -> frozenset[str]:
    """Read the ids out of a listing: messages in delivery are listed by consumer."""
    rows = (row for page in listed for row in page.get("elements", [page]))
    return frozenset(str(row[_ID]) for row in rows if _ID in row)


def one_sided(source: SiteView, target: SiteView) -> list[str]:
    """Name the queues with messages whose flow one site lacks: a queue that is deleted takes its flow along."""
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
) -> tuple[list[Compared], list[str]]:
    """Compare every flow with messages at any site, and name the queues that are too deep, or could not be read whole.
    `Compared` tells what is `already_delivered` by queue. Raises `BrokerError`."""
    flows = [flow for flow in target.flows if source.depth_of(flow.queue) or target.depth_of(flow.queue)]
    shallow = [flow for flow in flows if max(source.depth_of(flow.queue), target.depth_of(flow.queue)) <= IDS_UP_TO]
    at_source = _both(ids(local, [queue for flow in shallow for queue in source.places(flow.queue)]))
    at_target = _both(ids(peer, [queue for flow in shallow for queue in target.places(flow.queue)]))
    compared = []
    for flow, (own, behind), (remote, staged) in zip(shallow, at_source, at_target, strict=True):
        if own is not None and behind is not None and remote is not None and staged is not None:
            refused, acked = already_delivered.get(flow.queue, frozenset()), source.business[flow.queue].acked
            compared.append(Compared(flow.queue, own, behind, remote, staged, refused, acked))
    return compared, sorted({flow.queue for flow in flows} - {comparison.queue for comparison in compared})


def _both(sets: Sequence[T]) -> list[tuple[T, T]]:
    return list(zip(sets[::2], sets[1::2], strict=True))


def removals(source: SiteView, target: SiteView, compared: Iterable[Compared]) -> Iterator[Call]:
    """Remove staged messages that lie in the queue too, and messages that were consumed at the site that is left.
    `source` is a reading from after the comparison. Raises `IncompleteListing` where its queue has moved meanwhile."""
    for comparison in compared:
        flow = target.flow(comparison.queue)
        if flow is None:
            continue
        delivered, staged, ids_left = comparison.remote, comparison.staged, comparison.local
        in_queue = target.business[comparison.queue]
        yield from remove(target, flow.staging, Consumed(staged & delivered, copy_exists(in_queue.name, delivered)))
        if gone := comparison.lacking - comparison.unproven:
            depth = source.business[comparison.queue].depth if comparison.queue in source.business else 0
            listing = CompleteListing(comparison.queue, ids_left, before=len(ids_left), after=depth)
            covered = Covered((delivered | staged) - comparison.undelivered, listing, comparison.counted)
            yield from remove(target, flow.staging, Consumed(gone & staged - delivered, covered))
            yield from remove(target, in_queue, Consumed(gone & delivered, covered))


def second_copies(peer: Reader, target: SiteView) -> dict[str, Consumed]:
    """Find by queue the staged messages of a closed site that lie in its queue too: a moved message came back. The site
    needs a single copy, whatever the other site's clients do meanwhile."""
    flows = [
        flow
        for flow in target.flows
        if flow.staging.depth
        and target.depth_of(flow.queue) > flow.staging.depth
        and target.depth_of(flow.queue) <= IDS_UP_TO
        # Messages that a bridge has taken cannot be removed from the queue.
        and not flow.target_bridge.started
    ]
    sets = present(peer, [queue for flow in flows for queue in target.places(flow.queue)])
    both = zip(flows, sets[::2], sets[1::2], strict=True)
    return {
        flow.queue: Consumed(twice, copy_exists(flow.queue, in_queue))
        for flow, in_queue, staged in both
        if (twice := in_queue & staged)
    }


def remove(view: SiteView, queue: Queue, gone: Consumed) -> Iterator[Call]:
    for batch in in_calls(gone.ids):
        text = f"remove {len(batch)} message(s) from {queue.name}: {gone.by.text}"
        yield call(view, Goal.REMOVE, queue.name, request(queue.bean, REMOVE, (chosen(batch),)), text)


def in_calls(names: Collection[str]) -> Iterator[list[str]]:
    """Divide messages among calls: a call is for few of them, unless that takes too many calls."""
    return batches(names, max(BATCH, -(-len(names) // CALLS)))


def chosen(names: Iterable[str]) -> str:
    listed = ", ".join("'" + name.replace("'", "''") + "'" for name in names)
    return f"{_ID} IN ({listed})"


def staged_removed(at: AtBroker, when: str | None = None) -> Iterator[Call]:
    return planned_removals(at, (flow.staging for flow in at.view.flows), when)


def planned_removals(at: AtBroker, queues: Iterable[Queue], when: str | None = None) -> Iterator[Call]:
    """Plan removals, before anything was compared."""
    when = when or f"it was acknowledged at {at.other_site}, or is duplicated at {at.view.site}"
    for queue in queues:
        asked = request(queue.bean, REMOVE, ("…",))
        yield call(at.view, Goal.REMOVE, queue.name, asked, f"remove by id from {queue.name}", when, CALLS)
