"""Which messages lie in a queue, by the ids that producers gave them, what two sites hold apart, and what of that is
proven to be consumed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.system import boottime_s
from dr_ctl.jolokia.http import BadValue
from dr_ctl.settings.model import Queues
from dr_ctl.topologies.classic.checks import counts
from dr_ctl.topologies.classic.ids import rows_of
from dr_ctl.topologies.common import observer
from dr_ctl.topologies.common.consumed import CompleteListing, Consumed, Covered, IncompleteListing, done_in_both_stores
from dr_ctl.topologies.common.idstore import Store
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.fanout import checks
from dr_ctl.topologies.fanout.checks import NOT_COUNTED, ONE_SITE_ALONE, TAKEN, UNMATCHED, Undecided
from dr_ctl.topologies.fanout.counting import (
    CHECKPOINTS,
    EMPTY,
    Checkpoint,
    Checkpoints,
    Counted,
    Counters,
    Mark,
    QueueAtSite,
)
from dr_ctl.topologies.fanout.reading import COUNTERS, LinkEnds, Session, counters, counters_in
from dr_ctl.topologies.fanout.view import BrokerView

TRYING_S: Final = 5.0
_NOTHING: Final = frozenset[str]()
NONE_PROVEN: Final = Consumed(_NOTHING, done_in_both_stores(_NOTHING, _NOTHING))

Both = tuple[Queue | None, Queue | None]
"""One queue at both sites, the source's first; None where a site has no such queue."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A listing of one queue, with its counters before and after."""

    queue: str
    rows: Mapping[str, Mapping[str, Any]]
    count: int
    before: Counters
    after: Counters

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self.rows)

    @property
    def entered(self) -> int | None:
        """How many messages had come in since the broker's start when the listing was made, as long as none left the
        queue meanwhile; else None."""
        came, most = self.count - self.before.depth, self.after.added - self.before.added
        stood = (self.before.removed, self.before.expired) == (self.after.removed, self.after.expired)
        return self.before.added + came if stood and 0 <= came <= most else None

    @property
    def least(self) -> int:
        return min(self.before.depth, self.after.depth)

    def complete(self) -> CompleteListing:
        """Raises `IncompleteListing`. A second message of one id is listed, and adds no id. What comes meanwhile hides
        nothing of what lay there before."""
        before, after = self.before.depth, self.after.depth
        if self.entered is not None:
            before = after = self.count
        return CompleteListing(self.queue, self.ids, before, after, hidden=self.count - len(self.rows))


@dataclass(frozen=True, slots=True)
class QueueDifference:
    """The difference of a queue, while `source` serves or did last. `consumed`: there, and at the target still.
    `lacks`: not at the target. `unmatched`: at the target only, and nothing proves that a client consumed them."""

    consumed: Consumed
    lacks: frozenset[str]
    unmatched: frozenset[str]
    rows: Mapping[str, Mapping[str, Any]]
    """How the source's broker shows the messages that the target lacks."""
    known: frozenset[str] = frozenset()
    """Those alone at the target that a checkpoint names already."""
    why: str = ""
    """Why the messages that lie there alone are not proven to be consumed."""
    marks: Mapping[str, Mark] | None = None
    """Where this reading can be a checkpoint: its marks by site, before anything is removed."""


def listed(session: Session, queue: Queue | None) -> Listed:
    """List a queue once, whatever the listing leaves out; an absent queue has no messages. Raises `BrokerError`."""
    if queue is None:
        return Listed("", {}, 0, EMPTY, EMPTY)
    rows, *figures = rows_of(session, queue, COUNTERS)
    by_id = {_id(session, queue.name, row): row for row in rows}
    return Listed(queue.name, by_id, len(rows), *map(counters_in, figures))


def listed_to_the_end(session: Session, queue: Queue | None) -> Listed:
    """A listing that shows at least as many messages as the queue holds, those in delivery included.

    A broker cuts a listing silently where its policy says so (400 by default), and leaves messages out while consumers
    take some: a shorter listing is asked for again, and then not believed. Raises `BrokerError`.
    """
    # A law of its own: no hand is here, and a listing that was cut by a consumer is asked for again at once.
    until = boottime_s() + TRYING_S
    while True:
        listing = listed(session, queue)
        if listing.count >= listing.least:
            return listing
        if boottime_s() > until:
            name, site = listing.queue, session.site
            raise BadValue(
                f"{site}: {name} holds {listing.least} message(s) and shows {listing.count} of them: its broker's "
                "policy limits what a listing shows, or clients hold some in a transaction",
                remedy=f"Raise maxBrowsePageSize of the policy entry for {name} at {site} above that.",
            )


def consumed(store: Store, target: Session, queue: Queue | None) -> Consumed:
    """The messages at the target that the store knows: the consumers of both sites write to that one. The serving site
    need not be listed for that. Raises `BrokerError`."""
    known = store.known(queue.name, listed_to_the_end(target, queue).ids) if queue is not None else _NOTHING
    return Consumed(known, done_in_both_stores(known, known))


def covered(local: Listed, peer: Listed, since: Checkpoint) -> Consumed:
    """The messages at the target that counters since a checkpoint prove to be consumed: all that came to it since, or
    lay at both then, and that the source lacks; or none.

    As many messages have to have come to both: those that are listed at one site and not at the other yet are told by
    their ids.
    """
    if local.entered is None or peer.entered is None:
        return NONE_PROVEN
    under_way = len(local.ids - peer.ids - since.local.unmatched)
    late = len(since.remote.unmatched & local.ids) - len(since.local.unmatched & peer.ids)
    if since.ahead(local.entered, peer.entered) + under_way + late != 0:
        return NONE_PROVEN
    copies = peer.ids - since.remote.unmatched
    try:
        peer.complete()
        evidence = Covered(copies, local.complete(), since.consumed(local.before, peer.before))
    except IncompleteListing:
        return NONE_PROVEN
    lacking = copies - local.ids
    return Consumed(lacking, evidence) if evidence.proves(lacking) else NONE_PROVEN


class ComparisonMode(Enum):
    """How a comparison goes on beside the clients of the serving site."""

    ONCE = "one reading, whatever clients do"
    WORKING = "what lies at one site alone is looked at again"
    RESTING = "the same, and nobody takes anything meanwhile"


class Comparing:
    """Compares queues for one command, and remembers ids that stay alone: only the first comparison waits."""

    def __init__(self, store: Store | None, within_s: float) -> None:
        self.store, self._within_s = store, within_s
        self._unmatched: dict[tuple[str, str], frozenset[str]] = {}

    def apart(
        self,
        ends: LinkEnds,
        queues: Mapping[str, Both],
        pause: Callable[[], None],
        now: Callable[[], float],
        pace: ComparisonMode = ComparisonMode.WORKING,
    ) -> Mapping[str, QueueDifference]:
        """The difference of each queue.

        Producers write to both sites, but not in the same instant. Queues with ids at one site alone are looked at
        again, with a `pause` between, for as long as was set; all of them together. Raises `BrokerError`.
        """
        checkpoints = kept(ends)
        differences = {name: self._compared(ends, name, both, checkpoints, pace) for name, both in queues.items()}
        until = now() + self._within_s

        def not_settled() -> list[str]:
            known = {name: self._unmatched.get((ends[1].site, name), _NOTHING) for name in differences}
            return [
                name
                for name, difference in differences.items()
                if difference.lacks or difference.unmatched - difference.known - known[name]
            ]

        while pace is not ComparisonMode.ONCE and (again := not_settled()) and now() < until:
            pause()
            for name in again:
                differences[name] = self._compared(ends, name, queues[name], checkpoints, pace, differences[name])
        if pace is not ComparisonMode.ONCE:  # what one reading finds alone may be on its way
            self._unmatched |= {(ends[1].site, name): apart.unmatched for name, apart in differences.items()}
        return differences

    def undecided(self, differences: Mapping[str, QueueDifference]) -> dict[str, Undecided]:
        """The messages that nothing proves to be consumed or not. A store of ids leaves none."""
        if self.store is not None:
            return {}
        return {
            name: Undecided(len(difference.unmatched), difference.why)
            for name, difference in differences.items()
            if difference.unmatched
        }

    def _compared(
        self,
        ends: LinkEnds,
        name: str,
        both: Both,
        checkpoints: Checkpoints,
        pace: ComparisonMode,
        before: QueueDifference | None = None,
    ) -> QueueDifference:
        """List the waiting site between two listings of the serving one: an id that is not at the serving site a moment
        later was consumed, or never came there; and one that was there a moment before has had time to come to both.
        What the reading before it did not find apart is on its way."""
        first = listed_to_the_end(ends[0], both[0])
        waiting = listed_to_the_end(ends[1], both[1])
        again = listed_to_the_end(ends[0], both[0])
        late = first.ids & again.ids - waiting.ids
        lacks = late & before.lacks if before is not None else late
        if self.store is not None:
            known = self.store.known(name, again.ids | waiting.ids)
            proven = Consumed(waiting.ids & known, done_in_both_stores(known, known))
            lacks -= known
            unmatched = _again(waiting.ids - again.ids - proven.ids, before)
            return QueueDifference(proven, lacks, unmatched, {id_: again.rows[id_] for id_ in lacks})
        sites = [
            QueueAtSite(session.site, session.names().start, listed.before)
            for session, listed in zip(ends, (again, waiting), strict=True)
        ]
        since = checkpoints.since(name, *sites)
        # What clients take while both sites are listed could have come and gone unseen.
        rests = first.before.removed == again.after.removed
        proven = covered(again, waiting, since) if rests and since is not None else NONE_PROVEN
        only = waiting.ids - again.ids - proven.ids
        unmatched = _again(only, before)
        known = since.remote.unmatched if since is not None else _NOTHING
        works = ends[0].names().open and pace is not ComparisonMode.RESTING
        coming = _NOTHING if works else only - unmatched
        marks = _marks(sites, again, waiting, (lacks, only - coming), coming, first.before) if rests else None
        calm = first.before.added == again.after.added and waiting.before.added == waiting.after.added
        hurried = only and not proven.ids and not calm
        if works and (hurried or pace is ComparisonMode.ONCE or (since is not None and unmatched <= known)):
            marks = None  # while clients work less is certain: an older one goes on for as long as it proves everything
        why = NOT_COUNTED if since is None else UNMATCHED if unmatched <= known else ONE_SITE_ALONE
        return QueueDifference(
            proven, lacks, unmatched, {id_: again.rows[id_] for id_ in lacks}, known, why if rests else TAKEN, marks
        )


def _again(unmatched: frozenset[str], before: QueueDifference | None) -> frozenset[str]:
    """Those that lay at the target alone at the reading before too, whatever was proven of them then."""
    return unmatched & (before.unmatched | before.consumed.ids) if before is not None else unmatched


def _marks(
    sites: Sequence[QueueAtSite],
    local: Listed,
    peer: Listed,
    unmatched: tuple[frozenset[str], frozenset[str]],
    coming: frozenset[str],
    first: Counters,
) -> Mapping[str, Mark] | None:
    """`unmatched`: at each site. What came to one site a moment ago, and is not at the other yet, counts as come there
    too; `coming` are those to the source. `first`: the source's before its queue was listed: what clients have finished
    since, and has not left the queue, leaves it later."""
    if local.entered is None or peer.entered is None:
        return None
    came = local.entered + len(coming), peer.entered + len(local.ids - peer.ids - unmatched[0])
    rows = zip(sites, (local.before, peer.before), (first, peer.before), came, unmatched, strict=True)
    return {
        at.site: Mark(at.start, entered, was.removed, was.expired, finished.finished, ids)
        for at, was, finished, entered, ids in rows
    }


def kept(ends: Sequence[Session]) -> Checkpoints:
    return Checkpoints.read(_keeper(ends).document_files.texts())


def keep(ends: LinkEnds, differences: Mapping[str, QueueDifference]) -> None:
    """Note what both sites hold now, consumed messages removed: from here on counters tell what is consumed. That is no
    change of a broker; where it cannot be written, the older checkpoints go on."""
    marks, target = {}, ends[1].site
    for name, difference in differences.items():
        if difference.marks is not None:
            mark = difference.marks[target]
            removed = mark.removed + len(difference.consumed.ids)
            marks[name] = {**difference.marks, target: replace(mark, removed=removed)}
    if marks:
        _keeper(ends).document_files.write(CHECKPOINTS, kept(ends).noted(marks).text)


def _keeper(ends: Sequence[Session]) -> Session:
    return min(ends, key=lambda session: session.site)


def _id(session: Session, queue: str, row: Any) -> str:
    properties = row.get("StringProperties") if isinstance(row, dict) else None
    ident = properties.get(session.own.id_header) if isinstance(properties, dict) else None
    if not isinstance(ident, str):
        raise BadValue(
            f"{session.site}: a message of {queue} has no {session.own.id_header}: it cannot be told from others",
            remedy="Let producers name each message by that property, or name theirs under `id_header:`.",
        )
    return ident


READINGS: Final = 15  # of counters, where messages come all the time
RESTS: Final = 3
LISTED_UP_TO: Final = 1000
Reading = tuple[Sequence[Counters], Sequence[Counters]]
"""The counters of several queues at the first site, and at the second."""
Observer = observer.Observer[BrokerView, Session]


def with_counters(observer: Observer, read: Callable[[], Snapshot[BrokerView]]) -> Snapshot[BrokerView]:
    """Look, and read the counters of queues that do not hold the same several times: what is on its way to one of the
    sites differs each time, and a message that came to one site alone does not."""
    snapshot = read()
    if observer.all()[0].ids is not None:
        return snapshot
    counted = {}
    for local, peer in snapshot.both(*snapshot.sites):
        ends = tuple(observer.brokers[view.site][view.pair] for view in (local, peer))
        counted[local.pair] = _counted(observer, ends, local, peer)
    return snapshot.changed(lambda view: replace(view, counted=counted.get(view.pair, {})))


def _counted(
    observer: Observer, ends: tuple[Session, ...], view: BrokerView, peer: BrokerView
) -> Mapping[str, Counted]:
    def read(names: Sequence[str]) -> dict[str, Counted]:
        began = observer.clock.monotonic()
        readings = _readings(observer, ends, names)
        took_s = observer.clock.monotonic() - began
        return {
            name: checks.counted(view, peer, [(one[at], other[at]) for one, other in readings], took_s)
            for at, name in enumerate(names)
        }

    try:
        now = read([counted.queue for counted in counts(view, peer, Queues()) if counted.more])
        since = {name: kept(ends).since(name, counted.first, counted.second) for name, counted in now.items()}
        if apart := [name for name, at in since.items() if at is not None and not now[name].level(at.local, at.remote)]:
            observer.clock.sleep(observer.timeouts.apart_s)  # a message may have been on its way all that time
            now |= read(apart)
    except BrokerError:
        return {}  # it has just answered: what its counters say now the next reading tells
    return {name: _listed_by_id(ends, name, counted) for name, counted in now.items()}


def _readings(observer: Observer, ends: tuple[Session, ...], names: Sequence[str]) -> list[Reading]:
    readings: list[Reading] = []

    def read(session: Session) -> Sequence[Counters]:
        return counters(session.reader(), [session.names().by_name.get(name) for name in names])

    while names and len(readings) < READINGS:
        if len(readings) >= RESTS and all(reading == readings[-1] for reading in readings[-RESTS:]):
            break  # nothing came or left between the last ones: more of them would say the same
        if readings:
            observer.clock.sleep(observer.timeouts.poll_s)
        first, second = observer.ask_all(read, ends)
        readings.append((first, second))
    return readings


def _listed_by_id(ends: tuple[Session, ...], name: str, now: Counted) -> Counted:
    """With the ids of both sites, where no counter tells anything and the queue is shallow enough."""
    if kept(ends).since(name, now.first, now.second) is not None:
        return now
    if max(at.counters.depth for at in (now.first, now.second)) > LISTED_UP_TO:
        return now
    try:
        first, second = (listed_to_the_end(session, session.names().by_name.get(name)).ids for session in ends)
    except BrokerError:
        return now
    unmatched = {now.first.site: len(first - second), now.second.site: len(second - first)}
    return replace(now, unmatched=unmatched)


READS: Final = observer.Reads(
    Session.each,
    unlike=lambda source, *more: source.open and bool(checks.lacking(source, *more)),
    observed=with_counters,
)
