"""Reads a broker with the plugin in one POST, and both sites, whose messages are compared by id."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.system import BackgroundTask, in_background, system
from dr_ctl.jolokia.client import READ_S, Answer, Listing, Post, Query, Read, Reader, Search
from dr_ctl.jolokia.http import NoSuchBean
from dr_ctl.jolokia.values import Fields
from dr_ctl.settings.artemis import ContinuityBroker
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis import reading as artemis
from dr_ctl.topologies.common import observer
from dr_ctl.topologies.common.calls import OWN
from dr_ctl.topologies.common.session import ReadScope
from dr_ctl.topologies.common.view import Config, Queue
from dr_ctl.topologies.continuity import copies
from dr_ctl.topologies.continuity.view import Bridge, Commands, ContinuitySnapshot, Flow, Service, SiteView

_BRIDGE: Final = ("Name", "Started", "MessagesAcknowledged")
# An attribute of thirty queues costs these versions two milliseconds, so only what changes is read of the plugin's.
_COUNTS: Final = (
    "MessageCount", "DeliveringCount", "ScheduledCount", "ConsumerCount", "Paused", "MessagesAdded",
    "MessagesAcknowledged",
)  # fmt: skip
_MOVING: Final = ("MessageCount", "DeliveringCount", "ConsumerCount", "MessagesAdded", "MessagesAcknowledged")
_SUFFIXES: Final = ("OutflowMirrorSuffix", "OutflowAcksSuffix", "InflowMirrorSuffix", "InflowAcksSuffix")
_SERVICE: Final = (
    "SiteId", "SiteActivated", "Delivering", "ServiceStarted", "CommandManagerStarted", "InflowStagingDelay",
    "BridgeInterval", *_SUFFIXES, "CommandDestinationPrefix", "RemoteConnectors",
)  # fmt: skip
_FLOW: Final = (
    "SubjectQueueName", "SubjectAddressName", "OutflowMirrorName", "OutflowAcksName", "InflowMirrorName",
    "InflowAcksName", "OutflowMirrorBridgeName", "OutflowAcksBridgeName", "TargetBridgeName",
)  # fmt: skip
_DIALECT: Final = artemis.Dialect(("NodeID",), ("StartTime", "Uptime"), documents=False)


def service_bean(broker: str) -> str:
    return f'{beans.server(broker)},component=continuity,name="continuity.service"'


def read(reader: Reader, *, pair: str, site: str, config: Config, broker: str, timeout_s: float = READ_S) -> SiteView:
    """Read everything in one POST. Raises `BrokerError`."""
    server, service = beans.server(broker), service_bean(broker)
    post = Post()
    common_reads = artemis.CommonReads(post, broker, _DIALECT)
    # The plugin has moved its queues to its own beans. Other queues have their usual beans, and are read completely.
    plugin_reads = post.ask(Read(f"{server},component=continuity,queue=*,*", _COUNTS))
    queue_reads = post.ask(Read(beans.queue(broker), (*artemis.QUEUE, "Filter")))
    bridge_reads = (
        post.ask(Read(f"{server},bridge=*,*", _BRIDGE)),
        post.ask(Read(f"{server},component=bridges,name=*", _BRIDGE)),
    )
    services = post.ask(Search(service))
    flow_reads = post.ask(Read(f"{service},subcomponent=flows,flow=*", _FLOW))
    # The service comes last: if its bean is missing, these versions answer that reading it is forbidden.
    service_read = post.ask(Read(service, _SERVICE))
    post.send(reader, timeout_s=timeout_s)
    with artemis.as_expected(reader.url):
        values = common_reads.values(reader)
        plugin = _service(service_read) if services.value() else None
        rows = queue_reads.beans()
        counted = [replace(artemis.queue_by_counters(bean, row), internal=True) for bean, row in plugin_reads.beans()]
        queues = {queue.name: queue for queue in (*counted, *(artemis.queue(bean, row) for bean, row in rows))}
        found = (_bridge(bean, row) for reads in bridge_reads for bean, row in reads.beans())
        bridges = {bridge.name: bridge for bridge in found}
        flows = [_flow(row, queues, bridges) for _, row in flow_reads.beans()] if plugin is not None else []
        internal = {queue.name for flow in flows for queue in (*flow.outflow, flow.staging, flow.in_acks)}
        commands = _commands(plugin, queues, bridges)
        internal |= {commands.out.name, commands.into.name} if commands is not None else set()
        document_rows = [row for row in rows if beans.parts(row[0])["queue"].startswith(OWN)]
        view = SiteView(
            pair=pair,
            site=site,
            config=config,
            broker=broker,
            **values,
            queues=tuple(
                replace(queue, internal=queue.internal or name in internal) for name, queue in sorted(queues.items())
            ),
            service=plugin,
            flows=tuple(sorted(flows, key=lambda flow: flow.queue)),
            commands=commands,
        )
        queues_now = _correct_deliveries(reader, view.queues, timeout_s)
        return replace(view, **artemis.documents(view.requests, document_rows), queues=queues_now)


def refresh(reader: Reader, view: SiteView, *, timeout_s: float) -> SiteView:
    """Read a broker's role, listeners and outflows again, without deleted flows. Depths in staging stay those of the
    last complete reading."""
    service = service_bean(view.broker)
    changing = [queue for flow in view.flows for queue in (*flow.outflow, flow.in_acks)]
    post = Post()
    common_reads = artemis.CommonReads(post, view.broker, _DIALECT, known=view)
    queue_reads = [(queue, post.ask(Read(queue.bean, _MOVING))) for queue in changing]
    services = post.ask(Search(service))
    service_read = post.ask(Read(service, _SERVICE))
    post.send(reader, timeout_s=timeout_s)
    queues = {
        queue.name: _moved(queue, answer.fields())
        for queue, answer in queue_reads
        if not isinstance(answer.error, NoSuchBean)
    }
    return replace(
        view,
        **common_reads.moving(reader),
        node=common_reads.server.text("NodeID"),
        # A service that had not started is read by the next complete reading.
        service=_service(service_read) if view.service is not None and services.value() else None,
        flows=tuple(
            replace(
                flow,
                out_mirror=queues[flow.out_mirror.name],
                out_acks=queues[flow.out_acks.name],
                in_acks=queues[flow.in_acks.name],
            )
            for flow in view.flows
            if all(queue.name in queues for queue in (*flow.outflow, flow.in_acks))
        ),
    )


def _moved(queue: Queue, fields: Fields) -> Queue:
    acked = fields.number("MessagesAcknowledged")
    return replace(
        queue,
        depth=fields.number("MessageCount"),
        delivering=fields.number("DeliveringCount"),
        consumers=fields.number("ConsumerCount"),
        added=fields.number("MessagesAdded"),
        acked=acked,
        removed=acked,
    )


def _correct_deliveries(reader: Reader, queues: tuple[Queue, ...], timeout_s: float) -> tuple[Queue, ...]:
    """Correct the count in delivery of queues without consumers by the listed messages. After a client was cut off, the
    count in these versions can stay too high, and so can the depth. A queue with consumers keeps its count: messages
    that a cut would roll back are not listed."""
    counted = [queue for queue in queues if queue.business and queue.delivering and not queue.consumers]
    counts = count_delivering(reader, counted, timeout_s=timeout_s)
    held = dict(zip((queue.name for queue in counted), counts, strict=True))
    return tuple(
        replace(queue, delivering=delivering, depth=queue.depth - queue.delivering + delivering)
        if (delivering := held.get(queue.name)) is not None and delivering < queue.delivering
        else queue
        for queue in queues
    )


def count_delivering(reader: Reader, queues: Sequence[Queue], *, timeout_s: float = READ_S) -> list[int]:
    if not queues:
        return []
    answers = reader.read([Query(queue.bean, Listing.DELIVERING) for queue in queues], timeout_s=timeout_s)
    with artemis.as_expected(reader.url, "a list of messages in delivery"):
        return [sum(len(load["elements"]) for load in json.loads(str(answer.value()))) for answer in answers]


def read_serving(reader: Reader, broker: str, *, timeout_s: float) -> tuple[bool, tuple[str, ...]]:
    """Read whether the plugin delivers, and which acceptors are started."""
    service = service_bean(broker)
    post = Post()
    services = post.ask(Search(service))
    acceptors = post.ask(Read(beans.acceptor(broker), ("Name", "Started")))
    service_read = post.ask(Read(service, ("SiteActivated", "Delivering")))
    post.send(reader, timeout_s=timeout_s)
    started = tuple(row.text("Name") for _, row in acceptors.beans() if row.flag("Started"))
    if not services.value():
        return False, started
    fields = service_read.fields()
    return fields.flag("SiteActivated") and fields.flag("Delivering"), started


def _service(answer: Answer) -> Service:
    fields = answer.fields()
    return Service(
        bean=answer.bean,
        site_id=fields.text("SiteId"),
        activated=fields.flag("SiteActivated"),
        delivering=fields.flag("Delivering"),
        started=fields.text("ServiceStarted") == fields.text("CommandManagerStarted") == "true",
        staging_ms=int(fields.text("InflowStagingDelay")),
        interval_ms=float(fields.text("BridgeInterval")),
        suffixes=tuple(map(fields.text, _SUFFIXES)),
        prefix=fields.text("CommandDestinationPrefix"),
        connectors=fields.texts("RemoteConnectors"),
    )


def _bridge(bean: str, fields: Fields) -> Bridge:
    return Bridge(fields.text("Name"), bean, fields.flag("Started"), fields.number("MessagesAcknowledged"))


def _flow(fields: Fields, queues: Mapping[str, Queue], bridges: Mapping[str, Bridge]) -> Flow:
    return Flow(
        queue=fields.text("SubjectQueueName"),
        address=fields.text("SubjectAddressName"),
        out_mirror=queues[fields.text("OutflowMirrorName")],
        out_acks=queues[fields.text("OutflowAcksName")],
        staging=queues[fields.text("InflowMirrorName")],
        in_acks=queues[fields.text("InflowAcksName")],
        mirror_bridge=bridges[fields.text("OutflowMirrorBridgeName")],
        acks_bridge=bridges[fields.text("OutflowAcksBridgeName")],
        target_bridge=bridges[fields.text("TargetBridgeName")],
    )


def _commands(plugin: Service | None, queues: Mapping[str, Queue], bridges: Mapping[str, Bridge]) -> Commands | None:
    if plugin is None:
        return None
    out = f"{plugin.prefix}.out"
    return Commands(queues[out], queues[f"{plugin.prefix}.in"], bridges[f"{out}.bridge"])


class Session(artemis.Session[SiteView]):
    settings_of = ContinuityBroker
    settings: ContinuityBroker
    dialect = _DIALECT
    readable_alone = ReadScope.OUTFLOW

    def _config(self) -> Config:
        return replace(super()._config(), id_cache=self.settings.id_cache_size)

    def _ask(self, broker: str, timeout_s: float) -> SiteView:
        return read(
            self.reader(), pair=self.pair, site=self.site, config=self.config, broker=broker, timeout_s=timeout_s
        )

    def _reread(self, known: SiteView, _wanted: ReadScope, timeout_s: float) -> SiteView:
        return refresh(self.reader(), known, timeout_s=timeout_s)

    def open_listeners(self, *, timeout_s: float) -> tuple[str, ...]:
        """Return none while the plugin does not deliver: an acceptor without its port also reports that it is
        started."""
        delivers, started = read_serving(self.reader(), self.last_view().broker, timeout_s=timeout_s)
        return started if delivers else ()


LinkEnds = tuple[Session, Session]
Observer = observer.Observer[SiteView, Session]
Views = dict[tuple[str, str], SiteView]
COMPARE_CLOSED_S: Final = 2.0
"""The time limit for comparing two closed sites, one of which may be lost."""
COMPARE_EVERY_S: Final = 5.0
IDLE_FACTOR: Final = 10
"""A watch compares at most every `COMPARE_EVERY_S`, and a tenth of the time: each comparison scans the queues."""


def _observe(observer: Observer, read: Callable[[], ContinuitySnapshot]) -> ContinuitySnapshot:
    """Read both sites; compare by id each pair with a closed broker, to find messages that have no copy."""
    snapshot = read()
    closed = not any(view.open for pair in snapshot.both(*snapshot.sites) for view in pair)
    if not closed:
        return _add_comparison(snapshot, _compare(observer, snapshot))
    comparing = in_background(partial(_compare, observer, snapshot), "compare")
    return _add_comparison(snapshot, comparing.result()) if comparing.wait(COMPARE_CLOSED_S) else snapshot


def _compare(observer: Observer, snapshot: ContinuitySnapshot) -> Views:
    """Compare each pair with a closed broker, an open broker with its peer, two closed ones in both directions. Return
    the changed views."""
    views: Views = {}
    for pair in snapshot.both(*snapshot.sites):
        source, target = sorted(pair, key=lambda view: not view.open)
        if target.open:
            continue
        is_open = source.open
        source, target = (replace(view, to_compare=is_open) for view in (source, target))
        views |= {(view.site, view.pair): view for view in (source, target)}
        local, peer = (observer.brokers[view.site][view.pair].reader() for view in (source, target))
        with suppress(BrokerError):  # the checks report what was not read
            source, target = copies.add_uncopied(local, peer, source, target)
            if not is_open:
                target, source = copies.add_uncopied(peer, local, target, source)
            views |= {(view.site, view.pair): view for view in (source, target)}
    return views


def _add_comparison(snapshot: ContinuitySnapshot, views: Views) -> ContinuitySnapshot:
    """Add to a reading the comparison of each broker that was not restarted after it."""

    def add(view: SiteView) -> SiteView:
        earlier = views.get((view.site, view.pair), view)
        if view.start != earlier.start:
            return view
        fields = ("to_compare", "compared", "left_out", "uncopied", "held", "without_id")
        return replace(view, **{name: getattr(earlier, name) for name in fields})

    return snapshot.map_brokers(add)


class _Comparer(observer.Supplement[SiteView]):
    """Compares in the background of a watch: each reading gets the comparison that ended since the reading before."""

    def __init__(self) -> None:
        self._work: BackgroundTask[tuple[Views, float]] | None = None
        self._due_s = 0.0

    def add(self, observer: Observer, snapshot: ContinuitySnapshot) -> ContinuitySnapshot:
        views = Views()
        if self._work is not None and self._work.wait(0):
            views, took_s = self._work.result()
            self._work, self._due_s = (None, system().monotonic() + max(COMPARE_EVERY_S, IDLE_FACTOR * took_s) - took_s)
        if self._work is None and system().monotonic() >= self._due_s:
            self._work = in_background(partial(self._timed, observer, snapshot), "compare")
        return _add_comparison(snapshot, views)

    def close(self) -> None:
        if self._work is not None:
            self._work.wait(READ_S)

    @staticmethod
    def _timed(observer: Observer, snapshot: ContinuitySnapshot) -> tuple[Views, float]:
        began_s = system().monotonic()
        return _compare(observer, snapshot), system().monotonic() - began_s


READS: Final[observer.Reads[SiteView, Session]] = observer.Reads(Session.each, observed=_observe, supplement=_Comparer)
