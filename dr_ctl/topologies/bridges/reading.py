"""Reads each broker that bridges join, and both sites, whose units are queues.

The messages of a queue are read one by one, with the names by which both sites know the same message. Buffers
show when their delayed messages are due, and which of their messages consumers have processed although no id message
announces them. Queues show messages that no divert copies, because a client set another site's origin.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from math import inf
from typing import Any, Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import Finding
from dr_ctl.engine.ports import UnitSnapshot
from dr_ctl.jolokia.client import READ_S, Listing, Post, Query, Read, Reader
from dr_ctl.jolokia.values import Fields
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.artemis import BridgesBroker
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis import reading as artemis
from dr_ctl.topologies.artemis.reading import BrowsedMessage, Origin, as_expected, identity
from dr_ctl.topologies.bridges import checks
from dr_ctl.topologies.bridges.view import ORIGIN, Bridge, BrokerView, Divert, Flow
from dr_ctl.topologies.common import observer, snapshot
from dr_ctl.topologies.common.calls import ANY_ADDRESS
from dr_ctl.topologies.common.checks import explain_quarantined_links
from dr_ctl.topologies.common.idstore import Store
from dr_ctl.topologies.common.session import ReadScope
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.view import Config, Queue
from dr_ctl.topologies.proposing import BRIDGES, DIVERTS

NUMBER: Final = "_AMQ_ORIG_MESSAGE_ID"
PAGE_SIZE: Final = 1000  # messages of one answer
_DIVERTED: Final = "_AMQ_ORIG_ADDRESS"  # the peer's divert sets it on every copy
DELAYED_UP_TO: Final = 1_000
# A message is due at a time of the broker's clock, or after a delay that started when it arrived, and so ends no later
# than if it started now.
_DUE_AT: Final = ("_AMQ_SCHED_DELIVERY", "x-opt-delivery-time")
_DUE_AFTER: Final = "x-opt-delivery-delay"
COUNTED_UP_TO: Final = 20_000  # a count by filter reads each message, from the disk if it is paged
ANNOUNCED_UP_TO: Final = 20_000


@dataclass(frozen=True, slots=True)
class Message:
    """The copy of a message may have any of `origins` as its origin. A `forwarded` message has no copy, because its
    sender set another site's origin. `copied` is the origin of a message that is a copy itself. `properties` are those
    of the sender, or None if not shown."""

    origins: frozenset[Origin]
    copied: Origin | None
    forwarded: bool
    properties: Mapping[str, Any] | None

    @property
    def is_shown(self) -> bool:
        return self.properties is not None

    @property
    def name(self) -> Origin:
        return min(self.origins)

    def id(self, header: str) -> str:
        """The id that consumers record: the producer's id, else the origin and the number."""
        value = (self.properties or {}).get(header)
        return str(value) if isinstance(value, str | int) else identity(self.name)


def read_pages(reader: Reader, queue: Queue, site: str, *, timeout_s: float) -> Iterator[list[Message]]:
    """Read a queue in pages, the newest messages first. `site` is this site in origins. Raises `BrokerError`."""
    for rows in _listings(reader, queue, timeout_s=timeout_s):
        with as_expected(reader.url, f"a message of {queue.name}"):
            messages = [_message(row, site) for row in rows]
        yield messages


def _listings(reader: Reader, queue: Queue, *, timeout_s: float) -> Iterator[Any]:
    for page in range(-(-queue.depth // PAGE_SIZE), 0, -1):
        [answer] = reader.read([Query(queue.bean, Listing.BROWSE, (page, PAGE_SIZE))], timeout_s=timeout_s)
        yield answer.value()


def list_messages(reader: Reader, queue: Queue, site: str, *, timeout_s: float) -> list[Message] | None:
    """List all messages but delayed ones; None if one is missing, or not shown completely."""
    messages = [message for page in read_pages(reader, queue, site, timeout_s=timeout_s) for message in page]
    is_whole = len(messages) + queue.scheduled == queue.depth and all(message.is_shown for message in messages)
    return messages if is_whole else None


def _message(row: Mapping[str, Any], site: str) -> Message:
    shown = BrowsedMessage.of(row)
    local_name = (site, shown.number)
    if shown.sender is None or shown.broker is None:
        return Message(frozenset({local_name}), None, forwarded=False, properties=None)
    # A bridge sets the origin as a property, like a sender.
    origin, number = shown.sender.get(ORIGIN), shown.broker.get(NUMBER)
    peer_origin = (str(origin), int(number)) if origin is not None and origin != site and number is not None else None
    if peer_origin is not None and _DIVERTED in shown.broker:
        return Message(frozenset({peer_origin}), peer_origin, forwarded=False, properties=shown.sender)
    origins = {local_name} if number is None else {local_name, (site, int(number))}
    return Message(frozenset(origins), None, forwarded=origin not in (None, site), properties=shown.sender)


def add_due_times(reader: Reader, view: BrokerView) -> BrokerView:
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
    if (at := next((int(row[name]) for name in _DUE_AT if name in row), None)) is not None:
        return (at - now_ms) / 1000
    return int(row[_DUE_AFTER]) / 1000 if _DUE_AFTER in row else inf


def forwarded(reader: Reader, view: BrokerView) -> Mapping[str, int]:
    """Count the forwarded messages of each served unit; the deepest units, which are not read, are left out."""
    served = [
        (unit, queue, origin)
        for unit in view.open_units(lambda _: True)
        if (origin := view.origin_of(unit)) is not None
        for queue in view.queues_of(unit)
        if queue.depth_known
    ]
    counts = {unit: 0 for unit, queue, _ in served if not queue.depth}
    unit_by_query, budget = dict[Query, str](), COUNTED_UP_TO
    for unit, queue, origin in sorted((queue for queue in served if queue[1].depth), key=lambda queue: queue[1].depth):
        if (budget := budget - queue.depth) < 0:
            break
        quoted = origin.replace("'", "''")
        unit_by_query[Query(queue.bean, Listing.COUNT, (f"{ORIGIN} <> '{quoted}' AND {_DIVERTED} IS NULL",))] = unit
    try:
        answers = reader.read([*unit_by_query]) if unit_by_query else []
    except BrokerError:
        return counts
    for unit, answer in zip(unit_by_query.values(), answers, strict=True):
        if answer.error is None and isinstance(count := answer.value(), int):
            counts[unit] = counts.get(unit, 0) + count
    return counts


def unannounced(
    reader: Reader, view: BrokerView, store: Store | None, header: str
) -> Mapping[str, Sequence[str]] | None:
    flows = [flow for flow in view.flows if flow.to_ship]
    buffers = [flow.buffer for flow in (*flows, *([view.ids] if view.ids is not None else []))]
    if not flows:
        return {}
    if store is None or any(buffer is not None and buffer.depth > ANNOUNCED_UP_TO for buffer in buffers):
        return None
    ids = view.ids.buffer if view.ids is not None else None
    try:
        rows = [row for page in _listings(reader, ids, timeout_s=READ_S) for row in page] if ids is not None else []
        processed = {flow.unit: _processed_ids(reader, view, flow, store, header) for flow in flows}
    except BrokerError:
        return None
    if (ids is not None and len(rows) != ids.depth) or None in processed.values():
        return None
    announced = json.dumps(rows, ensure_ascii=False)  # consumers may write announcements in any form
    return {unit: sorted(id_ for id_ in of_unit or () if id_ not in announced) for unit, of_unit in processed.items()}


def _processed_ids(reader: Reader, view: BrokerView, flow: Flow, store: Store, header: str) -> set[str] | None:
    assert flow.buffer is not None
    messages = list_messages(reader, flow.buffer, view.origin_of(flow.unit) or view.site, timeout_s=READ_S)
    if messages is None or flow.buffer.scheduled:
        return None
    ids = [message.id(header) for message in messages]
    return {id_ for queue in view.queues_of(flow.unit) for id_ in store.known(queue.name, ids)}


_QUEUE: Final = (*artemis.QUEUE, "RoutingType")
_BRIDGE: Final = (
    "Name", "QueueName", "Started", "Connected", "TransformerPropertiesAsJSON", "StaticConnectors", "HA",
    "ReconnectAttempts", "RetryInterval", "RetryIntervalMultiplier", "MaxRetryInterval", "UseDuplicateDetection",
)  # fmt: skip
_DIVERT: Final = ("UniqueName", "Address", "ForwardingAddress", "Filter", "Exclusive", "RoutingType")
_ADDRESS: Final = ("RolesAsJSON", "UnRoutedMessageCount")
# A buffer is found by the bridge that reads it, and by this prefix where a broker has stopped its bridges.
BUFFERS: Final = "mirror."


def join_flows(diverts: Iterable[Divert], queues: Sequence[Queue], bridges: Sequence[Bridge]) -> list[Flow]:
    """Join diverts, buffers and bridges to flows. A divert makes no flow if no bridge reads its queue,
    its address does not have a buffer's name, and its filter does not name the origin."""
    flows = []
    for divert in sorted(diverts, key=lambda divert: divert.name):
        fed = [queue for queue in queues if queue.address == divert.to]
        bridged = {bridge.queue for bridge in bridges}
        buffer = next((queue for queue in fed if queue.name in bridged), next(iter(fed), None))
        readers = tuple(bridge for bridge in bridges if buffer is not None and bridge.queue == buffer.name)
        if readers or divert.to.startswith(BUFFERS) or ORIGIN in (divert.filter or ""):
            flows.append(Flow(divert, buffer, readers))
    return flows


def _bridge(bean: str, fields: Fields) -> Bridge:
    name = "TransformerPropertiesAsJSON"
    text = fields.optional_text(name) if fields.has(name) else None
    properties: Mapping[str, object] = json.loads(text) if text else {}
    name, queue, started = fields.text("Name"), fields.text("QueueName"), fields.flag("Started")
    connected = fields.flag("Connected") if fields.has("Connected") else None
    origin, ha = str(properties[ORIGIN]) if ORIGIN in properties else None, fields.has("HA") and fields.flag("HA")
    # The interval grows to its maximum where it is multiplied, and is never longer.
    most_ms, grows = fields.number("MaxRetryInterval"), (fields.optional_share("RetryIntervalMultiplier") or 1) > 1
    retry_s = (most_ms if grows else min(most_ms, fields.number("RetryInterval"))) / 1000
    retries, repeats = fields.number("ReconnectAttempts"), not fields.flag("UseDuplicateDetection")
    connectors = fields.texts("StaticConnectors")
    return Bridge(name, bean, queue, started, connected, origin, connectors, ha, retries, retry_s, repeats)


def _divert(fields: Fields) -> Divert:
    name, address, to = map(fields.text, ("UniqueName", "Address", "ForwardingAddress"))
    routing = fields.optional_text("RoutingType") if fields.has("RoutingType") else None
    return Divert(name, address, to, fields.optional_text("Filter"), fields.flag("Exclusive"), routing)


def _queue(queue: Queue, fields: Fields) -> Queue:
    """Add the present routing type: the bean's name keeps the original one when broker.xml changes."""
    routing = fields.text("RoutingType").lower() if fields.has("RoutingType") else queue.routing
    return replace(queue, routing=routing)


@dataclass(frozen=True)
class BridgesSnapshot(snapshot.Snapshot[BrokerView]):
    @cached_property
    def units(self) -> Sequence[UnitSnapshot]:
        names = sorted({flow.unit for site in self.sites for view in self.views(site) for flow in view.flows})
        brokers = {site: list(by_pair.values()) for site, by_pair in self.sites.items()}
        return [self.unit(name, brokers) for name in names]

    def findings(self) -> Sequence[Finding]:
        views = [(view, self.peer(view)) for view in self._all()]
        links = (finding for pair in views for finding in checks.of_links(*pair))
        reached = [(flow.unit, view, peer) for view, peer in views if peer is not None for flow in view.flows]
        reachable = [finding for copy in reached for finding in checks.of_reachable_copy(*copy)]
        return [*snapshot.Snapshot.findings(self), *explain_quarantined_links(self, links), *reachable]

    def rows(self, at: datetime) -> Sequence[Row]:
        """Leave out dead letters and expired messages, which no divert copies."""
        ends = {(view.site, view.pair, queue) for view in self._all() for queue in view.dead_letter_queues}
        rows = snapshot.Snapshot.rows(self, at)
        return [row for row in rows if row.kind != "queue" or (row.site, row.pair, row.name) not in ends]


class Session(artemis.Session[BrokerView]):
    fenced_by_listener = False

    settings_of = BridgesBroker
    settings: BridgesBroker
    readable_alone = ReadScope.OUTFLOW

    def _config(self) -> Config:
        return replace(super()._config(), lasting=self.settings.lasting_fence)

    def processed(self, queue: str, messages: Sequence[Message]) -> frozenset[Origin] | None:
        """Find the messages that the site's id store knows; None if the settings name no store. Raises `NotRead`."""
        if (store := self.ids) is None:
            return None
        ids = {message.id(self.id_header): message.name for message in messages}
        return frozenset(ids[id_] for id_ in store.known(queue, ids))

    @property
    def ids(self) -> Store | None:
        if (settings := self.settings.ids) is None:
            return None
        return Store(self._installation.path(settings.sqlite), settings.table, settings.queue, settings.id)

    @property
    def id_header(self) -> str:
        """The property by which a producer names a message; empty where the settings name no store."""
        return self.settings.ids.header if self.settings.ids is not None else ""

    def _ask(self, broker: str, timeout_s: float) -> BrokerView:
        server = beans.server(broker)
        post = Post()
        common_reads = artemis.CommonReads(post, broker, self.dialect)
        queue_reads = post.ask(Read(beans.queue(broker), _QUEUE))
        bridge_reads = post.ask(Read(server + BRIDGES, _BRIDGE))
        divert_reads = post.ask(Read(server + DIVERTS, _DIVERT))
        address_reads = post.ask(Read(beans.address(broker), _ADDRESS))
        user_reads = post.ask(Query(server, Listing.USERS, ("",)))
        default_roles = post.ask(Query(server, Listing.ROLES, (ANY_ADDRESS,)))
        lock_reads = post.ask(Query(server, Listing.LOCK_COORDINATORS))
        post.send(self.reader(), timeout_s=timeout_s)
        with artemis.as_expected(self.reader().url):
            values = common_reads.values(self.reader())
            all_queues = [_queue(artemis.queue(bean, row), row) for bean, row in queue_reads.beans()]
            bridges = [_bridge(bean, row) for bean, row in bridge_reads.beans()]
            flows = join_flows([_divert(row) for _, row in divert_reads.beans()], all_queues, bridges)
            ids = next((flow for flow in flows if flow.divert.exclusive), None)
            addresses = {beans.parts(bean)["address"]: row for bean, row in address_reads.beans()}
            # Buffers, and the queues of ids, are internal; others are clients' queues.
            internal = {flow.divert.to for flow in flows} | ({ids.unit} if ids is not None else set())
            queues = [replace(queue, internal=True) if queue.address in internal else queue for queue in all_queues]
            return BrokerView(
                pair=self.pair,
                site=self.site,
                config=self.config,
                broker=broker,
                **values,
                queues=tuple(sorted(queues, key=lambda queue: queue.name)),
                flows=tuple(flow for flow in flows if not flow.divert.exclusive),
                ids=ids,
                arrived=tuple(queue for queue in all_queues if ids is not None and queue.address == ids.unit),
                unrouted={name: row.number("UnRoutedMessageCount") for name, row in addresses.items()},
                grants={name: artemis.grants(row.text("RolesAsJSON")) for name, row in addresses.items()},
                users=artemis.users(user_reads),
                usual=artemis.grants(default_roles.value()),
                coordinators=artemis.coordinators(lock_reads),
            )

    def _reread(self, known: BrokerView, _wanted: ReadScope, timeout_s: float) -> BrokerView:
        """Read listeners, buffers and arrived ids again. Closed queues and clients stay as in the last reading."""
        buffers = [flow.buffer for flow in known.all_flows if flow.buffer is not None]
        post = Post()
        common_reads = artemis.CommonReads(post, known.broker, self.dialect, known=known)
        queue_reads = [(queue, post.ask(Read(queue.bean, artemis.QUEUE))) for queue in (*buffers, *known.arrived)]
        post.send(self.reader(), timeout_s=timeout_s)
        queues = {
            queue.bean: replace(
                artemis.queue(queue.bean, counts.fields()), internal=queue.internal, routing=queue.routing
            )
            for queue, counts in queue_reads
        }

        def with_counts(flow: Flow) -> Flow:
            return replace(flow, buffer=queues[flow.buffer.bean]) if flow.buffer is not None else flow

        return replace(
            known,
            **common_reads.moving(self.reader()),
            flows=tuple(map(with_counts, known.flows)),
            ids=with_counts(known.ids) if known.ids is not None else None,
            arrived=tuple(queues[queue.bean] for queue in known.arrived),
        )

    def open_listeners(self, *, timeout_s: float) -> tuple[str, ...]:
        view = self.read(timeout_s=timeout_s)
        return tuple(listener.name for listener in view.listeners if listener.started) if view.open else ()


LinkEnds = tuple[Session, Session]
Observer = observer.Observer[BrokerView, Session]


def _observe_all(observer: Observer, observe: Callable[[], Snapshot[BrokerView]]) -> Snapshot[BrokerView]:
    """Read both sites, with due times and with messages that clients sent with another site's origin. Waits read
    without these, to be quick."""
    snapshot = observe()
    lost_sites = {debt.lost_site for debt in snapshot.debts}

    def complete(view: BrokerView) -> BrokerView:
        session = observer.brokers[view.site][view.pair]
        reader = session.reader()
        view = replace(add_due_times(reader, view), forwarded=forwarded(reader, view))
        if view.site not in lost_sites:
            return view
        return replace(view, unannounced=unannounced(reader, view, session.ids, session.id_header))

    return snapshot.map_brokers(complete)


def mark_idle(sites: Mapping[str, Mapping[str, BrokerView | snapshot.Silent]]) -> BridgesSnapshot:
    both = BridgesSnapshot(sites)

    def marked(view: BrokerView) -> BrokerView:
        peer = both.peer(view)
        idle = [unit for unit in view.units if view.is_idle(unit, peer)] if peer is not None else ()
        return replace(view, idle=frozenset(idle))

    return both.map_brokers(marked)


READS: Final = observer.Reads(Session.each, mark_idle, observed=_observe_all, moves_parts=True)
