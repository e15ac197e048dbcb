"""Reads a mirrored broker in one POST, browses the messages of a queue, and counts the events of an outflow. Two
messages at both sites are the same if they have the same origin: the node that received it first, and its number there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from dr_ctl.core.errors import TimedOut, TooOld
from dr_ctl.jolokia.client import READ_S, Listing, Post, Query, Read, Reader
from dr_ctl.jolokia.http import BadValue, NoSuchBean
from dr_ctl.jolokia.values import Fields
from dr_ctl.settings.artemis import MirrorBroker
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis import reading as artemis
from dr_ctl.topologies.artemis.broker import is_since
from dr_ctl.topologies.artemis.reading import BrowsedMessage, Origin
from dr_ctl.topologies.common import observer
from dr_ctl.topologies.common.calls import ANY_ADDRESS, OUTFLOW_PREFIX
from dr_ctl.topologies.common.session import A_QUEUE_S, EVERYTHING, ReadScope
from dr_ctl.topologies.common.view import Broker, Config, Queue, Residue
from dr_ctl.topologies.mirror.view import BrokerConnection, BrokerView, unexplained

_DIALECT: Final = artemis.Dialect(("Active", "CurrentTimeMillis", "PendingMirrorAcks"))
_REPORTED_SINCE: Final = (2, 40)  # older versions do not report how many acknowledgements they have not applied
_LINK: Final = ("Name", "Started", "Connected", "Protocol", "Uri", "ReconnectAttempts")
ANY_LINK: Final = "*.#"
MAX_SINGLE_READS: Final = 100
"""The largest number of queues that are read one by one; above it the broker is read completely."""
# With this number of queues a reading may exceed its time limit; the number itself is read in this time.
MANY_QUEUES: Final = 1000
COUNT_WITHIN_S: Final = 2.0


def read(reader: Reader, *, pair: str, site: str, config: Config, broker: str, timeout_s: float = READ_S) -> BrokerView:
    """Read everything in one POST. Raises `BrokerError`."""
    post = Post()
    reads = _BrokerReads(post, broker, config, EVERYTHING)
    post.send(reader, timeout_s=timeout_s)
    with artemis.as_expected(reader.url):
        values, queues = reads.values(reader), {bean: artemis.queue(bean, row) for bean, row in reads.rows()}
        return BrokerView(pair=pair, site=site, config=config, broker=broker, **values, queues=reads.sorted(queues))


def reread(reader: Reader, known: BrokerView, wanted: ReadScope, *, timeout_s: float) -> BrokerView:
    """Read a part; the rest stays as in the earlier reading `known`. A restarted broker, or one with many new queues,
    is read completely; so are a few new queues. Raises `BrokerError`."""
    post = Post()
    if ReadScope.STATE not in wanted:
        rights = _Rights(post, known.broker, known.config)
        post.send(reader, timeout_s=timeout_s)
        return replace(known, **rights.values())
    reads = _BrokerReads(post, known.broker, known.config, wanted, with_locks=bool(known.coordinators))
    post.send(reader, timeout_s=timeout_s)
    with artemis.as_expected(reader.url):
        values, rows = reads.values(reader), reads.rows()
        queues = {queue.bean: queue for queue in known.queues}
        others = [bean for bean, _ in rows if bean not in queues]
        if known.start != values["start"] or len(others) > MAX_SINGLE_READS:
            at = {"pair": known.pair, "site": known.site, "config": known.config, "broker": known.broker}
            return read(reader, **at, timeout_s=timeout_s)  # type: ignore[arg-type]
        if others:
            answers = reader.read([Read(bean, artemis.QUEUE) for bean in others], timeout_s=timeout_s)
            # Clients remove their temporary queues at any time: a queue that was removed meanwhile is left out.
            queues |= {
                bean: artemis.queue(bean, Fields(bean, answer.value()))
                for bean, answer in zip(others, answers, strict=True)
                if not isinstance(answer.error, NoSuchBean)
            }
        if reads.attributes:
            queues = {
                bean: artemis.updated_queue(queues[bean], row, reads.attributes) for bean, row in rows if bean in queues
            }
        return replace(known, **values, queues=reads.sorted(queues))


class _BrokerReads:
    def __init__(self, post: Post, broker: str, config: Config, wanted: ReadScope, *, with_locks: bool = False) -> None:
        server, lasting = beans.server(broker), config.lasting is not None
        self.attributes = artemis.queue_attributes(wanted)
        self._common_reads = artemis.CommonReads(post, broker, _DIALECT, clients=ReadScope.CLIENTS in wanted)
        self._links = post.ask(Read(beans.broker_connection(broker), _LINK))
        self._outflows = post.ask(Read(beans.outflows(broker), artemis.QUEUE))
        self._rights = _Rights(post, broker, config) if ReadScope.RIGHTS in wanted else None
        with_locks |= ReadScope.CLIENTS in wanted
        self._coordinators = post.ask(Query(server, Listing.LOCK_COORDINATORS)) if with_locks else None
        self._users = post.ask(Query(server, Listing.USERS, ("",))) if lasting and ReadScope.QUEUES in wanted else None
        self._queue_reads = post.ask(Read(beans.queue(broker), self.attributes)) if self.attributes else None

    def values(self, reader: Reader) -> dict[str, Any]:
        """Return the fields of a view, without the queues. Raises `TooOld`."""
        server = self._common_reads.server
        if server.has("Version") and not is_since(version := server.text("Version"), _REPORTED_SINCE):
            first = ".".join(map(str, _REPORTED_SINCE))
            text = f"Artemis {version} does not report what its mirror has to ship and to apply: no proof is possible"
            raise TooOld(f"{reader.url}: {text}. {first} is the first version that does")
        values = self._common_reads.values(reader) | (self._rights.values() if self._rights is not None else {})
        values["pending_acks"] = server.number("PendingMirrorAcks")
        values["links"] = tuple(
            BrokerConnection(
                row.text("Name"),
                row.flag("Started"),
                row.flag("Connected"),
                row.text("Protocol"),
                row.any_text("Uri"),
                row.number("ReconnectAttempts"),
            )
            for _, row in self._links.beans()
        )
        if self._coordinators is not None:
            values["coordinators"] = artemis.coordinators(self._coordinators)
        if self._users is not None:
            values["users"] = artemis.users(self._users)
        return values

    def rows(self) -> list[tuple[str, Fields]]:
        return self._queue_reads.beans() if self._queue_reads is not None else []

    def sorted(self, queues: Mapping[str, Queue]) -> tuple[Queue, ...]:
        """Return these queues, and the outflows as they are now."""
        outflows = {bean: artemis.queue(bean, row) for bean, row in self._outflows.beans()}
        return tuple(sorted({**queues, **outflows}.values(), key=lambda queue: queue.name))


class _Rights:
    """The rights of roles at the lasting fence's addresses, and at the addresses to which the peer's mirror sends."""

    def __init__(self, post: Post, broker: str, config: Config) -> None:
        server, lasting, self._mirrored = beans.server(broker), config.lasting, config.mirrored
        matches = lasting.matches if lasting is not None else ()
        self._grants = {match: post.ask(Query(server, Listing.ROLES, (match,))) for match in matches}
        self._usual = post.ask(Query(server, Listing.ROLES, (ANY_ADDRESS,))) if lasting is not None else None
        self._of_mirror = post.ask(Query(server, Listing.ROLES, (config.mirrored,)))
        self._checked = post.ask(Read(server, ("SecurityEnabled",)))

    def values(self) -> dict[str, Any]:
        grants = {match: artemis.grants(answer.value()) for match, answer in self._grants.items()}
        # Rights that the broker does not check, or that its console does not show, keep no link out.
        checked = self._checked.fields()
        if self._of_mirror.error is None and checked.has("SecurityEnabled") and checked.flag("SecurityEnabled"):
            grants[self._mirrored] = artemis.grants(self._of_mirror.value())
        return {"grants": grants, "usual": artemis.grants(self._usual.value()) if self._usual is not None else None}


def refresh(reader: Reader, view: BrokerView, *, timeout_s: float) -> BrokerView:
    """Read a broker's role, link, messages to ship, and acknowledgements that are not applied; the only queue is the
    outflow. Raises `BrokerError` if the link or the outflow is missing."""
    post, link, outflow = Post(), view.broker_connection, view.outflow
    common_reads = artemis.CommonReads(post, view.broker, _DIALECT, known=view)
    state = post.ask(Read(beans.broker_connection(view.broker, link.name), ("Started", "Connected"))) if link else None
    outflow_state = post.ask(Read(outflow.bean, artemis.QUEUE)) if outflow is not None else None
    post.send(reader, timeout_s=timeout_s)
    fields = state.fields() if state is not None else None
    return replace(
        view,
        **common_reads.moving(reader),
        pending_acks=common_reads.server.number("PendingMirrorAcks"),
        links=tuple(
            replace(connection, started=fields.flag("Started"), connected=fields.flag("Connected"))
            if connection is link and fields is not None
            else connection
            for connection in view.links
        ),
        queues=(artemis.queue(outflow_state.bean, outflow_state.fields()),) if outflow_state is not None else (),
    )


def count_scheduled(reader: Reader, queues: Sequence[Queue]) -> list[int]:
    answers = reader.read([Read(queue.bean, ("ScheduledCount",)) for queue in queues], timeout_s=READ_S)
    return [
        Fields(queue.bean, answer.value()).number("ScheduledCount")
        for queue, answer in zip(queues, answers, strict=True)
    ]


class Session(artemis.Session[BrokerView]):
    settings_of = MirrorBroker
    settings: MirrorBroker
    readable_alone = ~ReadScope(0)

    def _config(self) -> Config:
        peer = self._installation.broker(self._installation.other(self.site), self.pair, MirrorBroker)
        return replace(
            super()._config(),
            link=self.settings.link,
            lasting=self.settings.lasting_fence,
            mirrored=f"{OUTFLOW_PREFIX}{peer.link or ANY_LINK}",
        )

    def _ask(self, broker: str, timeout_s: float) -> BrokerView:
        ask = partial(read, self.reader(), pair=self.pair, site=self.site, config=self.config, broker=broker)
        try:
            return ask(timeout_s=timeout_s)
        except TimedOut:
            # A broker is not sick only because it cannot list its many queues in this time.
            if self.newest_view is not None or timeout_s < READ_S:
                raise
            [answer] = self.reader().read([Read(beans.server(broker), ("QueueCount",))], timeout_s=COUNT_WITHIN_S)
            if (count := Fields(broker, answer.value()).count("QueueCount")) < MANY_QUEUES:
                raise
            return ask(timeout_s=timeout_s + count * A_QUEUE_S)

    def _reread(self, known: BrokerView, wanted: ReadScope, timeout_s: float) -> BrokerView:
        if wanted is ReadScope.OUTFLOW:
            return refresh(self.reader(), known, timeout_s=timeout_s)
        return reread(self.reader(), known, wanted, timeout_s=timeout_s)


Observer = observer.Observer[BrokerView, Session]
READS: Final[observer.Reads[BrokerView, Session]] = observer.Reads(
    Session.each, unlike=lambda *seen: bool(unexplained(*seen))
)


RESIDUE_UP_TO: Final = 5000
_PAGE: Final = 1000
_SCANNED_A_SECOND: Final = 20_000  # a count by filter reads each message, paged messages too
_KIND: Final = "x-opt-amq-mr-ev-type"
# Each event has an address; the broker truncates the kind of event if names are long.
_OF_ADDRESS: Final = "messageAnnotations.x-opt-amq-mr-adr"
_OF_QUEUE: Final = "messageAnnotations.x-opt-amq-mr-qu"
_BORN: Final = "x-opt-amq-bkr-id"
_NUMBER: Final = "x-opt-amq-mr-id"


@dataclass(frozen=True, slots=True)
class BrowsedQueue:
    """The messages that a browse of a queue shows, each with its number at this broker. `unnamed` messages have no
    shown origin: each may be the same as any message at the other site."""

    numbers: Mapping[Origin, int]
    unnamed: int = 0

    @property
    def ids(self) -> frozenset[Origin]:
        return frozenset(self.numbers)


def browse(reader: Reader, view: Broker, queues: Sequence[Queue], *, limit: int) -> list[BrowsedQueue]:
    """Browse each queue, in one POST; at most `limit` messages of a queue are read. Raises `BadValue`."""
    answers = reader.read([Query(queue.bean, Listing.BROWSE, (1, limit)) for queue in queues]) if queues else []
    shown = []
    with artemis.as_expected(reader.url, "a browsed message"):
        for answer in answers:
            origins = [(_origin(row, view.node), int(str(row["messageID"]))) for row in answer.value()]
            numbers = {origin: number for origin, number in origins if origin is not None}
            shown.append(BrowsedQueue(numbers, sum(origin is None for origin, _ in origins)))
    return shown


def read_residue(reader: Reader, view: BrokerView) -> Residue:
    """Count the events of the outflow, and browse them if they are few enough. Raises `BrokerError`."""
    if view.outflow is None:
        raise NoSuchBean(f"{reader.url}: no link to the peer, so no outflow to count")
    queries = [Query(view.outflow.bean, Listing.COUNT, (f'"m.{_KIND}" IS {what}',)) for what in ("NULL", "NOT NULL")]
    within_s = READ_S + view.outflow.depth / _SCANNED_A_SECOND
    counts = [answer.value() for answer in reader.read(queries, timeout_s=within_s)]
    if not all(isinstance(count, int) for count in counts):
        raise BadValue(f"{reader.url}: a count of messages is no number: {counts}")
    messages, acks = counts
    if messages + acks > RESIDUE_UP_TO:
        return Residue(messages, acks)
    pages = range(1, -(-(messages + acks) // _PAGE) + 1)
    answers = reader.read([Query(view.outflow.bean, Listing.BROWSE, (page, _PAGE)) for page in pages]) if pages else []
    with artemis.as_expected(reader.url, "an event of the outflow"):
        rows = [row for answer in answers for row in answer.value()]
        # A message that moved between the count and the browse was not read.
        events = _read_events(rows, view.node) if len(rows) == messages + acks else None
    if events is None:
        return Residue(messages, acks)
    consumed, since, unshipped = events
    acked = {queue: origins - unshipped for queue, origins in consumed.items()}
    return Residue(messages, sum(map(len, consumed.values())), acked=acked, consumed=consumed, since=since)


_ByQueue = Mapping[str, frozenset[Origin]]


def _read_events(rows: Iterable[Mapping[str, Any]], node: str) -> tuple[_ByQueue, _ByQueue, frozenset[Origin]] | None:
    """Return the messages that an outflow acknowledges, those of them since its broker's last start, and messages not
    shipped. Return None if a message's origin is not shown: it may be an acknowledged one."""
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
            # Only an acknowledgement has a number for its body: the number of the message.
            born = str(texts.get(f"messageAnnotations.{_BORN}", node))
            (since if queue in since else before).setdefault(queue, set()).add((born, int(row["text"])))
        elif queue is not None:
            # A broker that starts announces each queue again. A new queue is announced too: its acknowledgements come
            # after that event, and so do its messages, which are not shipped either.
            before.setdefault(queue, set()).update(since.get(queue, ()))
            since[queue] = set()
    last = {queue: frozenset(origins) for queue, origins in since.items() if origins}
    consumed = {queue: frozenset(before.get(queue, ())) | last.get(queue, frozenset()) for queue in {*before, *last}}
    return {queue: origins for queue, origins in consumed.items() if origins}, last, frozenset(unshipped)


def _origin(row: Mapping[str, Any], node: str) -> Origin | None:
    """Return the origin of a message: without one in the row, this broker. Return None if the row does not show it."""
    shown = BrowsedMessage.of(row)
    if shown.broker is None:
        return None
    born, number = shown.broker.get(_BORN), shown.broker.get(_NUMBER)
    if born is None and number is None:
        return node, shown.number
    return (str(born), int(number)) if born is not None and number is not None else None
