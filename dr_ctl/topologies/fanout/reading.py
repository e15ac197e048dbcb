"""Reads and changes each broker of a fan-out installation; compares queues, and copies messages, by producers' ids."""

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
from dr_ctl.topologies.fanout.checks import CLIENTS_WORKED, NOT_COUNTED, ONE_SITE_ONLY, UNMATCHED, Undecided
from dr_ctl.topologies.fanout.counting import Checkpoint, Checkpoints, Counted, Counters, Mark, QueueAtSite
from dr_ctl.topologies.fanout.view import COPY, IDS, BrokerView, FanoutConfig

CONFIRM_WITHIN_S: Final = 10.0
WITHOUT_RECEIPT: Final = 100  # messages that are sent before their receipts are awaited
# The broker adds these headers to a message. `content-length` is not among them: it marks the body as bytes.
_BROKER_HEADERS: Final = frozenset(
    {"destination", "subscription", "message-id", "ack", "redelivered", "receipt", "original-destination"}
)
_BODIES: Final = frozenset({"Text", "BodyLength"})
_TYPED: Final = ("Boolean", "Byte", "Double", "Float", "Int", "Long", "Short")
CopiedMessage = tuple[Mapping[str, str], bytes]
"""The headers and the body of a message, as a producer would send them."""


def can_be_copied(row: Mapping[str, Any]) -> bool:
    """Say whether STOMP shows a message completely: it is text or bytes, and its properties are texts. Only management
    shows that: over STOMP any other message has an empty body."""
    return not _BODIES.isdisjoint(row) and not any(row.get(f"{kind}Properties") for kind in _TYPED)


def read(account: StompAccount, queue: str, header: str, wanted: Collection[str]) -> dict[str, CopiedMessage]:
    copies: dict[str, CopiedMessage] = {}
    for frame in browsed(account, queue):
        ident = frame.headers.get(header)
        if ident is not None and ident in wanted:
            read_checkpoints = {name: value for name, value in frame.headers.items() if name not in _BROKER_HEADERS}
            copies[ident] = (read_checkpoints, frame.body or b"")
    return copies


def put(account: StompAccount, queue: str, messages: Sequence[CopiedMessage]) -> None:
    """Send durable messages. Raises `BrokerError` unless the broker confirms each; confirmed messages stay there."""
    connection = connected(account)
    try:
        for start in range(0, len(messages), WITHOUT_RECEIPT):
            unconfirmed = set()
            for number, (headers, body) in enumerate(messages[start : start + WITHOUT_RECEIPT], start):
                sent_headers = {**headers, "persistent": "true", "receipt": str(number)}
                connection.stomp.send(f"/queue/{queue}", body, headers=sent_headers)
                unconfirmed.add(str(number))
            deadline = boottime_s() + CONFIRM_WITHIN_S
            while unconfirmed:
                frames = connection.receive(0.5)
                unconfirmed -= {frame.headers.get("receipt-id", "") for frame in frames if frame.cmd == "RECEIPT"}
                if unconfirmed and boottime_s() > deadline:
                    raise TimedOut(f"{account.address}: {len(unconfirmed)} message(s) of {queue} were not confirmed")
    finally:
        connection.close()


COUNTERS: Final = ("QueueSize", "EnqueueCount", "DequeueCount", "ExpiredCount", "DispatchCount", "InFlightCount")


def counters(reader: Reader, queues: Sequence[Queue | None]) -> list[Counters]:
    """Read the counters of these queues at once; those of an absent queue are zero."""
    present = [queue for queue in queues if queue is not None]
    answers = reader.read([Read(queue.bean, COUNTERS) for queue in present]) if present else ()
    counted = {
        queue.name: counters_of(Fields(queue.bean, answer.value()))
        for queue, answer in zip(present, answers, strict=True)
        if not isinstance(answer.error, NoSuchBean)
    }
    return [counted.get(queue.name, counting.EMPTY) if queue is not None else counting.EMPTY for queue in queues]


def counters_of(fields: Fields) -> Counters:
    depth, added, removed, expired, dispatched, in_delivery = map(fields.number, COUNTERS)
    # A client that disconnects during a delivery may be counted twice; the count in delivery is then below zero.
    return Counters(depth, added, removed, expired, dispatched - max(0, in_delivery))


class Session(session.Session[BrokerView]):
    """`carries` has messages of the peer that a call copies to this broker; `ids` is the consumers' id store."""

    settings_of = FanoutBroker
    settings: FanoutBroker

    def __init__(self, installation: Installation, site: str, pair: str, documents: Path) -> None:
        super().__init__(installation, site, pair, documents)
        ids = (settings := installation.of(ClassicFanout)).ids
        self.ids = Store(installation.path(ids.sqlite), ids.table, ids.queue, ids.id) if ids else None
        self.fanout = FanoutConfig(self.settings.producers, settings.id_header, self.ids is not None)
        self.carries: dict[tuple[str, str], CopiedMessage] = {}

    def _ask(self, broker: str, timeout_s: float) -> BrokerView:
        values = self.values(ask(self.reader(), broker, timeout_s=timeout_s))
        # A browse of dr-ctl counts as a consumer, but consumes nothing.
        values["consumers"] = tuple(value for value in values["consumers"] if not value.client.startswith(OWN_CLIENT))
        unread = self.ids.unread() if self.ids is not None else None
        return BrokerView(**values, fanout=replace(self.fanout, unread=unread))

    def _own_account(self) -> StompAccount:
        if (listener := self.agents_listener()) is None:
            raise BrokerError(
                f"{self.site}/{self.pair}: the settings name no `sync:`, so no message can be copied",
                remedy="Name a STOMP connector that no client uses.",
            )
        return listener

    def messages(self, queue: str, wanted: Collection[str]) -> Mapping[str, CopiedMessage]:
        return read(self._own_account(), queue, self.fanout.id_header, wanted)

    def is_own(self, call: Call) -> bool:
        return COPY in call.request or super().is_own(call)

    def do(self, call: Call) -> Outcome:
        if COPY not in call.request:
            return super().do(call)
        queue, ids = str(call.request[COPY]), map(str, items(call.request, IDS))
        if copies := [self.carries[queue, id_] for id_ in ids if (queue, id_) in self.carries]:
            put(self._own_account(), queue, copies)
        return Done(f"{len(copies)} copied")


LIST_WITHIN_S: Final = 5.0
_NOTHING: Final = frozenset[str]()
NONE_PROVEN: Final = Consumed(_NOTHING, done_in_both_stores(_NOTHING, _NOTHING))

QueueAtBoth = tuple[Queue | None, Queue | None]
"""A queue at both sites, the source's first; None if a site has no such queue."""


@dataclass(frozen=True, slots=True)
class ListedQueue:
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
        """Count the messages added from the broker's start to the listing; None if any left during the listing."""
        arrived, at_most = self.count - self.before.depth, self.after.added - self.before.added
        unchanged = (self.before.removed, self.before.expired) == (self.after.removed, self.after.expired)
        return self.before.added + arrived if unchanged and 0 <= arrived <= at_most else None

    @property
    def least(self) -> int:
        return min(self.before.depth, self.after.depth)

    def complete(self) -> CompleteListing:
        """Return the listing as a complete one. A second message with the same id, or a new message during the listing,
        hides no id. Raises `IncompleteListing`."""
        before, after = self.before.depth, self.after.depth
        if self.entered is not None:
            before = after = self.count
        return CompleteListing(self.queue, self.ids, before, after, hidden=self.count - len(self.rows))


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of a queue between the source, which serves or served last, and the target. The target still has
    messages that were `consumed` at the source, and `lacks` others. The messages `unmatched` are at the target only,
    without a proof that a client consumed them."""

    consumed: Consumed
    lacks: Mapping[str, Any]
    """Each message with the row that the source's broker shows."""
    unmatched: frozenset[str]
    known: frozenset[str] = frozenset()
    """The messages at the target only, as of the latest checkpoint."""
    why: str = ""
    """Why nothing proves that the `unmatched` messages were consumed."""
    marks: Mapping[str, Mark] | None = None
    """The marks for a new checkpoint, by site, from before any removal, if this reading can be one."""


def nonempty_queues(source: BrokerView, target: BrokerView) -> Mapping[str, QueueAtBoth]:
    either = [counted.queue for counted in both_counts(source, target, Queues()) if counted.source or counted.target]
    return {name: (source.by_name.get(name), target.by_name.get(name)) for name in either}


def list_queue(session: Session, queue: Queue | None) -> ListedQueue:
    """List a queue once, even if the listing is incomplete; an absent queue has no messages. Raises `BrokerError`."""
    if queue is None:
        return ListedQueue("", {}, 0, counting.EMPTY, counting.EMPTY)
    rows, *figures = rows_of(session, queue, COUNTERS)
    by_id = {_id(session, queue.name, row): row for row in rows}
    return ListedQueue(queue.name, by_id, len(rows), *map(counters_of, figures))


def list_completely(session: Session, queue: Queue | None) -> ListedQueue:
    """List a queue again while its listing is shorter than the queue, up to a time limit. A broker truncates a listing
    silently by its policy (400 by default), and omits messages while consumers take some. Raises `BrokerError`."""
    # This is independent of a step's wait: a listing that a consumer has shortened is repeated at once.
    deadline = boottime_s() + LIST_WITHIN_S
    while True:
        listing = list_queue(session, queue)
        if listing.count >= listing.least:
            return listing
        if boottime_s() > deadline:
            name, site = listing.queue, session.site
            raise BadValue(
                f"{site}: {name} has {listing.least} message(s) and shows {listing.count} of them: its broker's "
                "policy limits listings, or clients hold some in a transaction",
                remedy=f"Raise maxBrowsePageSize of the policy entry for {name} at {site} above that.",
            )


def find_consumed(store: Store, target: Session, queue: Queue | None) -> Consumed:
    """Find the target's messages that are in the id store, to which consumers of both sites write. The serving site is
    not listed."""
    known = store.known(queue.name, list_completely(target, queue).ids) if queue is not None else _NOTHING
    return Consumed(known, done_in_both_stores(known, known))


def prove_consumed(local: ListedQueue, peer: ListedQueue, since: Checkpoint) -> Consumed:
    """Find the messages that counters since a checkpoint prove to be consumed: all messages that the source lacks, and
    that were added at the target since or were at both sites then; or none. The same number must have been added at
    both sites; ids show the messages that are under way."""
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
    """How a comparison deals with working clients of the serving site."""

    ONCE = "one reading, whatever clients do"
    WORKING = "messages at one site only are read again"
    RESTING = "the same, and no client takes a message meanwhile"


class Comparer:
    """Compares queues for one command. Remembers ids that stay at one site only: only the first comparison waits."""

    def __init__(self, store: Store | None, within_s: float) -> None:
        self.store, self._within_s = store, within_s
        self._unmatched: dict[tuple[str, str], frozenset[str]] = {}

    def compare(
        self,
        ends: LinkEnds,
        queues: Mapping[str, QueueAtBoth],
        pause: Callable[[], None],
        mode: ComparisonMode = ComparisonMode.WORKING,
    ) -> Mapping[str, Difference]:
        """Compare queues again, with a `pause` between, while ids are at one site only: producers write to both sites,
        but not at the same moment. All queues share one time limit. Raises `BrokerError`."""
        checkpoints = read_checkpoints(ends)
        differences = {name: self._compare_queue(ends, name, both, checkpoints, mode) for name, both in queues.items()}
        deadline = system().monotonic() + self._within_s
        known = {name: self._unmatched.get((ends[1].site, name), _NOTHING) for name in differences}
        while mode is not ComparisonMode.ONCE and system().monotonic() < deadline:
            rows = differences.items()
            names = [name for name, row in rows if row.lacks or row.unmatched - row.known - known[name]]
            if not names:
                break
            pause()
            for name in names:
                differences[name] = self._compare_queue(ends, name, queues[name], checkpoints, mode, differences[name])
        if mode is not ComparisonMode.ONCE:  # a single reading does not show which messages are under way
            self._unmatched |= {(ends[1].site, name): row.unmatched for name, row in differences.items()}
        return differences

    def undecided(self, differences: Mapping[str, Difference]) -> dict[str, Undecided]:
        """Return the messages without a proof that they were consumed, or not. With an id store there are none."""
        if self.store is not None:
            return {}
        return {
            name: Undecided(len(difference.unmatched), difference.why)
            for name, difference in differences.items()
            if difference.unmatched
        }

    def _compare_queue(
        self,
        ends: LinkEnds,
        name: str,
        both: QueueAtBoth,
        checkpoints: Checkpoints,
        mode: ComparisonMode,
        before: Difference | None = None,
    ) -> Difference:
        """List the standby between two listings of the serving site. An id that is missing in the later listing was
        consumed, or never added; an id of the earlier listing has had time to reach the standby. Other messages are
        under way."""
        first = list_completely(ends[0], both[0])
        standby = list_completely(ends[1], both[1])
        second = list_completely(ends[0], both[0])
        missing = first.ids & second.ids - standby.ids
        lacks = missing & before.lacks.keys() if before is not None else missing
        if self.store is not None:
            known = self.store.known(name, second.ids | standby.ids)
            proven = Consumed(standby.ids & known, done_in_both_stores(known, known))
            lacks -= known
            unmatched = _unmatched_again(standby.ids - second.ids - proven.ids, before)
            return Difference(proven, {id_: second.rows[id_] for id_ in lacks}, unmatched)
        sites = [
            QueueAtSite(session.site, session.last_view().start, listed.before)
            for session, listed in zip(ends, (second, standby), strict=True)
        ]
        since = checkpoints.since(name, *sites)
        # Messages may have been added and consumed unseen if clients took any while both sites were listed.
        quiet = first.before.removed == second.after.removed
        proven = prove_consumed(second, standby, since) if quiet and since is not None else NONE_PROVEN
        only = standby.ids - second.ids - proven.ids
        unmatched = _unmatched_again(only, before)
        known = since.remote.unmatched if since is not None else _NOTHING
        clients_work = ends[0].last_view().open and mode is not ComparisonMode.RESTING
        coming = _NOTHING if clients_work else only - unmatched
        marks = _marks(sites, second, standby, (lacks, only - coming), coming, first.before) if quiet else None
        is_steady = first.before.added == second.after.added and standby.before.added == standby.after.added
        is_uncertain = only and not proven.ids and not is_steady
        if clients_work and (is_uncertain or mode is ComparisonMode.ONCE or (since is not None and unmatched <= known)):
            marks = None  # a comparison beside clients is less certain, so an older checkpoint that proves all is kept
        why = NOT_COUNTED if since is None else UNMATCHED if unmatched <= known else ONE_SITE_ONLY
        return Difference(
            proven, {id_: second.rows[id_] for id_ in lacks}, unmatched, known, why if quiet else CLIENTS_WORKED, marks
        )


def _unmatched_again(unmatched: frozenset[str], before: Difference | None) -> frozenset[str]:
    """Keep the messages that the reading before also found at the target only, consumed or not."""
    return unmatched & (before.unmatched | before.consumed.ids) if before is not None else unmatched


def _marks(
    sites: Sequence[QueueAtSite],
    local: ListedQueue,
    peer: ListedQueue,
    unmatched: tuple[frozenset[str], frozenset[str]],
    coming: frozenset[str],
    first: Counters,
) -> Mapping[str, Mark] | None:
    """Make the marks of both sites. A message that was added at one site counts as added at the other too; those under
    way to the source are `coming`. `first` are the source's counters from before its first listing: a message that
    clients have finished since may leave it later."""
    if local.entered is None or peer.entered is None:
        return None
    added = local.entered + len(coming), peer.entered + len(local.ids - peer.ids - unmatched[0])
    rows = zip(sites, (local.before, peer.before), (first, peer.before), added, unmatched, strict=True)
    return {
        queue.site: Mark(queue.start, entered, counters.removed, counters.expired, counters_before.finished, ids)
        for queue, counters, counters_before, entered, ids in rows
    }


def read_checkpoints(ends: Sequence[Session]) -> Checkpoints:
    return Checkpoints.read(_checkpoint_session(ends).document_files.texts())


def write_checkpoints(ends: LinkEnds, differences: Mapping[str, Difference]) -> None:
    """Store new checkpoints, from which counters prove what is consumed. If no document can be written, the older ones
    stay valid."""
    marks, target = {}, ends[1].site
    for name, difference in differences.items():
        if difference.marks is not None:
            mark = difference.marks[target]
            removed = mark.removed + len(difference.consumed.ids)
            marks[name] = {**difference.marks, target: replace(mark, removed=removed)}
    if marks:
        text = read_checkpoints(ends).with_marks(marks).text
        _checkpoint_session(ends).document_files.write(counting.CHECKPOINTS, text)


def _checkpoint_session(ends: Sequence[Session]) -> Session:
    return min(ends, key=lambda session: session.site)


def _id(session: Session, queue: str, row: Any) -> str:
    properties = row.get("StringProperties") if isinstance(row, dict) else None
    ident = properties.get(session.fanout.id_header) if isinstance(properties, dict) else None
    if not isinstance(ident, str):
        raise BadValue(
            f"{session.site}: a message of {queue} has no {session.fanout.id_header}, so it cannot be identified",
            remedy="Let producers set that property on each message, or name their property under `id_header:`.",
        )
    return ident


MAX_READINGS: Final = 15  # the largest number of readings of counters, while messages arrive all the time
EQUAL_READINGS: Final = 3
LISTED_UP_TO: Final = 1000
Observer = observer.Observer[BrokerView, Session]


def observe_counters(observer: Observer, read: Callable[[], Snapshot[BrokerView]]) -> Snapshot[BrokerView]:
    """Read both sites, and several times the counters of queues that differ: the number of messages under way changes
    from reading to reading, a message that was added at one site only stays."""
    snapshot = read()
    if observer.all()[0].ids is not None:
        return snapshot
    counted = {}
    for local, peer in snapshot.both(*snapshot.sites):
        ends = tuple(observer.brokers[view.site][view.pair] for view in (local, peer))
        counted[local.pair] = _count(observer, ends, local, peer)
    return snapshot.map_brokers(lambda view: replace(view, counted=counted.get(view.pair, {})))


def _count(observer: Observer, ends: tuple[Session, ...], view: BrokerView, peer: BrokerView) -> Mapping[str, Counted]:
    def read(names: Sequence[str]) -> dict[str, Counted]:
        began = system().monotonic()
        readings = _readings(observer, ends, names)
        took_s = system().monotonic() - began
        return {
            name: checks.counted(view, peer, [(first[index], second[index]) for first, second in readings], took_s)
            for index, name in enumerate(names)
        }

    try:
        counts = read([counted.queue for counted in both_counts(view, peer, Queues()) if counted.difference])
        stored = read_checkpoints(ends)
        since = {name: stored.since(name, row.first, row.second) for name, row in counts.items()}
        if uneven := [name for name, at in since.items() if at and not counts[name].level(at.local, at.remote)]:
            system().sleep(observer.timeouts.apart_s)  # a message may have been under way all that time
            counts |= read(uneven)
    except BrokerError:
        return {}  # the next reading shows the counters
    return {name: _listed_by_id(ends, name, counted) for name, counted in counts.items()}


def _readings(
    observer: Observer, ends: tuple[Session, ...], names: Sequence[str]
) -> list[tuple[Sequence[Counters], ...]]:
    readings: list[tuple[Sequence[Counters], ...]] = []

    def read(session: Session) -> Sequence[Counters]:
        return counters(session.reader(), [session.last_view().by_name.get(name) for name in names])

    while names and len(readings) < MAX_READINGS:
        if len(readings) >= EQUAL_READINGS and all(reading == readings[-1] for reading in readings[-EQUAL_READINGS:]):
            break  # the last readings are equal, so more of them would be equal too
        if readings:
            system().sleep(observer.timeouts.poll_s)
        readings.append(tuple(observer.ask_all(read, ends)))
    return readings


def _listed_by_id(ends: tuple[Session, ...], name: str, counted: Counted) -> Counted:
    """Compare the ids of both sites if counters prove nothing, and the queue is shallow enough."""
    if read_checkpoints(ends).since(name, counted.first, counted.second) is not None:
        return counted
    if max(at.counters.depth for at in (counted.first, counted.second)) > LISTED_UP_TO:
        return counted
    try:
        first, second = (list_completely(session, session.last_view().by_name.get(name)).ids for session in ends)
    except BrokerError:
        return counted
    unmatched = {counted.first.site: len(first - second), counted.second.site: len(second - first)}
    return replace(counted, unmatched=unmatched)


READS: Final = observer.Reads(
    Session.each, unlike=lambda source, *more: source.open and bool(lacking(source, *more)), observed=observe_counters
)
LinkEnds = tuple[Session, Session]
