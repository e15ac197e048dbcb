"""Reads and changes each broker of a fan-out installation, and copies messages to the other site by producers' ids."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

from dr_ctl.core.errors import BrokerError, TimedOut
from dr_ctl.core.system import boottime_s, system
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Done, Outcome
from dr_ctl.jolokia.client import Read, Reader
from dr_ctl.jolokia.http import BadValue, NoSuchBean
from dr_ctl.jolokia.values import Fields
from dr_ctl.settings.classic import ClassicFanout, FanoutBroker
from dr_ctl.settings.model import Installation, Queues
from dr_ctl.stomp_io.address import StompAccount
from dr_ctl.topologies.classic import session
from dr_ctl.topologies.classic.broker import OWN_CLIENT, both_counts, lacking
from dr_ctl.topologies.classic.ids import browsed, connected, rows_of
from dr_ctl.topologies.classic.reading import ask
from dr_ctl.topologies.common import observer
from dr_ctl.topologies.common.calls import items
from dr_ctl.topologies.common.consumed import CompleteListing, Consumed, Covered, IncompleteListing, done_in_both_stores
from dr_ctl.topologies.common.idstore import Store
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.fanout import checks, counting
from dr_ctl.topologies.fanout.checks import NOT_COUNTED, ONE_SITE_ALONE, TAKEN, UNMATCHED, Undecided
from dr_ctl.topologies.fanout.counting import Checkpoint, Checkpoints, Counted, Counters, Mark, QueueAtSite
from dr_ctl.topologies.fanout.view import COPY, IDS, BrokerView, FanoutConfig

SILENT_S: Final = 10.0
AT_ONCE: Final = 100  # so many messages are on their way without a receipt
# The broker adds these headers to a message, not its producer. `content-length` stays: it tells bytes from text.
_ITS: Final = frozenset(
    {"destination", "subscription", "message-id", "ack", "redelivered", "receipt", "original-destination"}
)
_BODIES: Final = frozenset({"Text", "BodyLength"})
_TYPED: Final = ("Boolean", "Byte", "Double", "Float", "Int", "Long", "Short")
CopiedMessage = tuple[Mapping[str, str], bytes]
"""The headers and the body of a message, as a producer would send it again."""


def is_carried(row: Mapping[str, Any]) -> bool:
    """Say whether STOMP carries a message whole, because it is text or bytes and its properties are texts. The console
    shows that: STOMP itself gives any other message an empty body, and no sign."""
    return not _BODIES.isdisjoint(row) and not any(row.get(f"{kind}Properties") for kind in _TYPED)


def read(account: StompAccount, queue: str, header: str, wanted: Collection[str]) -> dict[str, CopiedMessage]:
    copies: dict[str, CopiedMessage] = {}
    for frame in browsed(account, queue):
        ident = frame.headers.get(header)
        if ident is not None and ident in wanted:
            kept = {name: value for name, value in frame.headers.items() if name not in _ITS}
            copies[ident] = (kept, frame.body or b"")
    return copies


def put(account: StompAccount, queue: str, messages: Sequence[CopiedMessage]) -> None:
    """Send durable messages; raises `BrokerError` unless the broker confirms each. Confirmed messages stay there."""
    connection = connected(account)
    try:
        for start in range(0, len(messages), AT_ONCE):
            waiting = set()
            for number, (headers, body) in enumerate(messages[start : start + AT_ONCE], start):
                lasting = {**headers, "persistent": "true", "receipt": str(number)}
                connection.stomp.send(f"/queue/{queue}", body, headers=lasting)
                waiting.add(str(number))
            until = boottime_s() + SILENT_S
            while waiting:
                frames = connection.receive(0.5)
                waiting -= {frame.headers.get("receipt-id", "") for frame in frames if frame.cmd == "RECEIPT"}
                if waiting and boottime_s() > until:
                    raise TimedOut(f"{account.address}: {len(waiting)} message(s) of {queue} were not confirmed")
    finally:
        connection.close()


COUNTERS: Final = ("QueueSize", "EnqueueCount", "DequeueCount", "ExpiredCount", "DispatchCount", "InFlightCount")


def counters(reader: Reader, queues: Sequence[Queue | None]) -> list[Counters]:
    """Read the counters of these queues at once; those of an absent queue are zero."""
    present = [queue for queue in queues if queue is not None]
    answers = reader.read([Read(queue.bean, COUNTERS) for queue in present]) if present else ()
    counted = {
        queue.name: counters_in(Fields(queue.bean, answer.value()))
        for queue, answer in zip(present, answers, strict=True)
        if not isinstance(answer.error, NoSuchBean)
    }
    return [counted.get(queue.name, counting.EMPTY) if queue is not None else counting.EMPTY for queue in queues]


def counters_in(fields: Fields) -> Counters:
    depth, added, removed, expired, dispatched, in_hand = map(fields.number, COUNTERS)
    # A client that leaves while it takes is counted twice at times, and the count in hand is below zero then.
    return Counters(depth, added, removed, expired, dispatched - max(0, in_hand))


class Session(session.Session[BrokerView]):
    """`carries` holds messages of the peer that are to be put down here; `ids` is the consumers' store of ids."""

    settings_of = FanoutBroker
    settings: FanoutBroker

    def __init__(self, installation: Installation, site: str, pair: str, documents: Path) -> None:
        super().__init__(installation, site, pair, documents)
        settings = installation.of(ClassicFanout)
        ids = settings.ids
        self.ids = Store(installation.path(ids.sqlite), ids.table, ids.queue, ids.id) if ids else None
        self.own = FanoutConfig(self.settings.producers, settings.id_header, self.ids is not None)
        self.carries: dict[tuple[str, str], CopiedMessage] = {}

    def _ask(self, broker: str, timeout_s: float) -> BrokerView:
        values = self.values(ask(self.reader(), broker, timeout_s=timeout_s))
        # A browse of dr-ctl's own counts as a consumer and takes nothing.
        values["consumers"] = tuple(value for value in values["consumers"] if not value.client.startswith(OWN_CLIENT))
        return BrokerView(**values, own=replace(self.own, unread=self.ids.unread() if self.ids is not None else None))

    def _own_account(self) -> StompAccount:
        if (listener := self.agents_listener()) is None:
            raise BrokerError(
                f"{self.site}/{self.pair}: the settings name no `sync:`, so no message can be copied",
                remedy="Name there a STOMP connector that no client uses.",
            )
        return listener

    def messages(self, queue: str, wanted: Collection[str]) -> Mapping[str, CopiedMessage]:
        return read(self._own_account(), queue, self.own.id_header, wanted)

    def is_own(self, call: Call) -> bool:
        return COPY in call.request or super().is_own(call)

    def do(self, call: Call) -> Outcome:
        if COPY not in call.request:
            return super().do(call)
        queue, ids = str(call.request[COPY]), map(str, items(call.request, IDS))
        if copies := [self.carries[queue, id_] for id_ in ids if (queue, id_) in self.carries]:
            put(self._own_account(), queue, copies)
        return Done(f"{len(copies)} put down")


TRYING_S: Final = 5.0
_NOTHING: Final = frozenset[str]()
NONE_PROVEN: Final = Consumed(_NOTHING, done_in_both_stores(_NOTHING, _NOTHING))

Both = tuple[Queue | None, Queue | None]
"""A queue at both sites, the source's first; None where a site has no such queue."""


@dataclass(frozen=True, slots=True)
class Listed:
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
        """Count the messages that had come in since the broker's start by the listing; None if any left meanwhile."""
        came, most = self.count - self.before.depth, self.after.added - self.before.added
        stood = (self.before.removed, self.before.expired) == (self.after.removed, self.after.expired)
        return self.before.added + came if stood and 0 <= came <= most else None

    @property
    def least(self) -> int:
        return min(self.before.depth, self.after.depth)

    def complete(self) -> CompleteListing:
        """Believe the listing, where a second message of one id adds no id, and a message that comes meanwhile hides
        none. Raises `IncompleteListing`."""
        before, after = self.before.depth, self.after.depth
        if self.entered is not None:
            before = after = self.count
        return CompleteListing(self.queue, self.ids, before, after, hidden=self.count - len(self.rows))


@dataclass(frozen=True, slots=True)
class QueueDifference:
    """The difference of a queue between the source, which serves or did last, and the target. The target still has
    messages that were `consumed` at the source, and `lacks` others. The messages `unmatched` lie at the target alone,
    and nothing proves that a client consumed them."""

    consumed: Consumed
    lacks: Mapping[str, Any]
    """The source's broker shows each of these messages so."""
    unmatched: frozenset[str]
    known: frozenset[str] = frozenset()
    """A checkpoint names these messages of the target already."""
    why: str = ""
    """Why the messages that lie there alone are not proven to be consumed."""
    marks: Mapping[str, Mark] | None = None
    """The marks of a checkpoint by site, if this reading can be one, before anything is removed."""


def with_messages(source: BrokerView, target: BrokerView) -> Mapping[str, Both]:
    either = [counted.queue for counted in both_counts(source, target, Queues()) if counted.source or counted.target]
    return {name: (source.by_name.get(name), target.by_name.get(name)) for name in either}


def listed(session: Session, queue: Queue | None) -> Listed:
    """List a queue once, whatever the listing leaves out; an absent queue has no messages. Raises `BrokerError`."""
    if queue is None:
        return Listed("", {}, 0, counting.EMPTY, counting.EMPTY)
    rows, *figures = rows_of(session, queue, COUNTERS)
    by_id = {_id(session, queue.name, row): row for row in rows}
    return Listed(queue.name, by_id, len(rows), *map(counters_in, figures))


def listed_to_the_end(session: Session, queue: Queue | None) -> Listed:
    """List a queue again while its listing is shorter than the queue, and then do not believe it. A broker cuts a
    listing silently where its policy says so (400 by default), and leaves messages out while consumers take some.
    Raises `BrokerError`."""
    # No step's wait applies here: a listing that was cut by a consumer is asked for again at once.
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
    """Find the target's messages that the store knows, as consumers of both sites write to it. The serving site is not
    listed."""
    known = store.known(queue.name, listed_to_the_end(target, queue).ids) if queue is not None else _NOTHING
    return Consumed(known, done_in_both_stores(known, known))


def covered(local: Listed, peer: Listed, since: Checkpoint) -> Consumed:
    """Find the messages that counters since a checkpoint prove to be consumed: all that came to the target since, or
    lay at both sites then, and that the source lacks; or none. The same number has to have come to both sites, and ids
    name the messages that are on their way."""
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
    """The way in which a comparison goes on beside the clients of the serving site."""

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
        pace: ComparisonMode = ComparisonMode.WORKING,
    ) -> Mapping[str, QueueDifference]:
        """Compare queues again, with a `pause` between, while ids lie at one site alone: producers write to both sites,
        but not in the same instant. All queues share the time that was set. Raises `BrokerError`."""
        checkpoints = kept(ends)
        differences = {name: self._compared(ends, name, both, checkpoints, pace) for name, both in queues.items()}
        until = system().monotonic() + self._within_s
        known = {name: self._unmatched.get((ends[1].site, name), _NOTHING) for name in differences}
        while pace is not ComparisonMode.ONCE and system().monotonic() < until:
            rows = differences.items()
            again = [name for name, row in rows if row.lacks or row.unmatched - row.known - known[name]]
            if not again:
                break
            pause()
            for name in again:
                differences[name] = self._compared(ends, name, queues[name], checkpoints, pace, differences[name])
        if pace is not ComparisonMode.ONCE:  # a single reading does not tell which messages are on their way
            self._unmatched |= {(ends[1].site, name): apart.unmatched for name, apart in differences.items()}
        return differences

    def undecided(self, differences: Mapping[str, QueueDifference]) -> dict[str, Undecided]:
        """Tell which messages nothing proves to be consumed or not. A store of ids leaves none."""
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
        """List the standby between two listings of the serving one. An id that the serving site lacks a moment
        later was consumed, or never came, and one that it had a moment before has had time to come. Other messages are
        on their way."""
        first = listed_to_the_end(ends[0], both[0])
        waiting = listed_to_the_end(ends[1], both[1])
        again = listed_to_the_end(ends[0], both[0])
        late = first.ids & again.ids - waiting.ids
        lacks = late & before.lacks.keys() if before is not None else late
        if self.store is not None:
            known = self.store.known(name, again.ids | waiting.ids)
            proven = Consumed(waiting.ids & known, done_in_both_stores(known, known))
            lacks -= known
            unmatched = _again(waiting.ids - again.ids - proven.ids, before)
            return QueueDifference(proven, {id_: again.rows[id_] for id_ in lacks}, unmatched)
        sites = [
            QueueAtSite(session.site, session.last_view().start, listed.before)
            for session, listed in zip(ends, (again, waiting), strict=True)
        ]
        since = checkpoints.since(name, *sites)
        # Messages could have come and gone unseen if clients took any while both sites were listed.
        rests = first.before.removed == again.after.removed
        proven = covered(again, waiting, since) if rests and since is not None else NONE_PROVEN
        only = waiting.ids - again.ids - proven.ids
        unmatched = _again(only, before)
        known = since.remote.unmatched if since is not None else _NOTHING
        works = ends[0].last_view().open and pace is not ComparisonMode.RESTING
        coming = _NOTHING if works else only - unmatched
        marks = _marks(sites, again, waiting, (lacks, only - coming), coming, first.before) if rests else None
        calm = first.before.added == again.after.added and waiting.before.added == waiting.after.added
        hurried = only and not proven.ids and not calm
        if works and (hurried or pace is ComparisonMode.ONCE or (since is not None and unmatched <= known)):
            marks = (
                None  # less is certain while clients work, so an older checkpoint goes on while it proves everything
            )
        why = NOT_COUNTED if since is None else UNMATCHED if unmatched <= known else ONE_SITE_ALONE
        return QueueDifference(
            proven, {id_: again.rows[id_] for id_ in lacks}, unmatched, known, why if rests else TAKEN, marks
        )


def _again(unmatched: frozenset[str], before: QueueDifference | None) -> frozenset[str]:
    """Keep the messages that lay at the target alone at the reading before too, whatever was proven of them then."""
    return unmatched & (before.unmatched | before.consumed.ids) if before is not None else unmatched


def _marks(
    sites: Sequence[QueueAtSite],
    local: Listed,
    peer: Listed,
    unmatched: tuple[frozenset[str], frozenset[str]],
    coming: frozenset[str],
    first: Counters,
) -> Mapping[str, Mark] | None:
    """Mark both sites. A message that came to one site a moment ago counts as come to the other too, as the `coming`
    ones to the source. `first` are the source's counters from before its listing: a message that clients have finished
    since may leave it later."""
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
    """Keep new checkpoints, from which counters tell what is consumed. Where no document can be written, the older ones
    go on."""
    marks, target = {}, ends[1].site
    for name, difference in differences.items():
        if difference.marks is not None:
            mark = difference.marks[target]
            removed = mark.removed + len(difference.consumed.ids)
            marks[name] = {**difference.marks, target: replace(mark, removed=removed)}
    if marks:
        _keeper(ends).document_files.write(counting.CHECKPOINTS, kept(ends).noted(marks).text)


def _keeper(ends: Sequence[Session]) -> Session:
    return min(ends, key=lambda session: session.site)


def _id(session: Session, queue: str, row: Any) -> str:
    properties = row.get("StringProperties") if isinstance(row, dict) else None
    ident = properties.get(session.own.id_header) if isinstance(properties, dict) else None
    if not isinstance(ident, str):
        raise BadValue(
            f"{session.site}: a message of {queue} has no {session.own.id_header}, so it looks like any other",
            remedy="Let producers name each message by that property, or name theirs under `id_header:`.",
        )
    return ident


READINGS: Final = 15  # counters are read at most so often, where messages come all the time
RESTS: Final = 3
LISTED_UP_TO: Final = 1000
Observer = observer.Observer[BrokerView, Session]


def with_counters(observer: Observer, read: Callable[[], Snapshot[BrokerView]]) -> Snapshot[BrokerView]:
    """Read both sites, and several times the counters of queues that do not hold the same. The messages on their way to
    a site differ each time, and a message that came to one site alone stays."""
    snapshot = read()
    if observer.all()[0].ids is not None:
        return snapshot
    counted = {}
    for local, peer in snapshot.both(*snapshot.sites):
        ends = tuple(observer.brokers[view.site][view.pair] for view in (local, peer))
        counted[local.pair] = _counted(observer, ends, local, peer)
    return snapshot.map_brokers(lambda view: replace(view, counted=counted.get(view.pair, {})))


def _counted(
    observer: Observer, ends: tuple[Session, ...], view: BrokerView, peer: BrokerView
) -> Mapping[str, Counted]:
    def read(names: Sequence[str]) -> dict[str, Counted]:
        began = system().monotonic()
        readings = _readings(observer, ends, names)
        took_s = system().monotonic() - began
        return {
            name: checks.counted(view, peer, [(one[at], other[at]) for one, other in readings], took_s)
            for at, name in enumerate(names)
        }

    try:
        now = read([counted.queue for counted in both_counts(view, peer, Queues()) if counted.difference])
        since = {name: kept(ends).since(name, counted.first, counted.second) for name, counted in now.items()}
        if apart := [name for name, at in since.items() if at is not None and not now[name].level(at.local, at.remote)]:
            system().sleep(observer.timeouts.apart_s)  # a message may have been on its way all that time
            now |= read(apart)
    except BrokerError:
        return {}  # the broker has just answered, and the next reading tells its counters
    return {name: _listed_by_id(ends, name, counted) for name, counted in now.items()}


def _readings(
    observer: Observer, ends: tuple[Session, ...], names: Sequence[str]
) -> list[tuple[Sequence[Counters], ...]]:
    readings: list[tuple[Sequence[Counters], ...]] = []

    def read(session: Session) -> Sequence[Counters]:
        return counters(session.reader(), [session.last_view().by_name.get(name) for name in names])

    while names and len(readings) < READINGS:
        if len(readings) >= RESTS and all(reading == readings[-1] for reading in readings[-RESTS:]):
            break  # no message came or left between the last readings, so more of them would say the same
        if readings:
            system().sleep(observer.timeouts.poll_s)
        readings.append(tuple(observer.ask_all(read, ends)))
    return readings


def _listed_by_id(ends: tuple[Session, ...], name: str, now: Counted) -> Counted:
    """Compare the ids of both sites where no counter tells anything and the queue is shallow enough."""
    if kept(ends).since(name, now.first, now.second) is not None:
        return now
    if max(at.counters.depth for at in (now.first, now.second)) > LISTED_UP_TO:
        return now
    try:
        first, second = (listed_to_the_end(session, session.last_view().by_name.get(name)).ids for session in ends)
    except BrokerError:
        return now
    unmatched = {now.first.site: len(first - second), now.second.site: len(second - first)}
    return replace(now, unmatched=unmatched)


READS: Final = observer.Reads(
    Session.each, unlike=lambda source, *more: source.open and bool(lacking(source, *more)), observed=with_counters
)
LinkEnds = tuple[Session, Session]
