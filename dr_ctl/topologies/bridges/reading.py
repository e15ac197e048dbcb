"""Reads each broker that bridges join, and both sites, whose units are queues."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Final

from dr_ctl.core.model import Finding
from dr_ctl.engine.ports import UnitSnapshot
from dr_ctl.jolokia.client import Listing, Post, Query, Read
from dr_ctl.jolokia.values import Fields
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.artemis import BridgesBroker
from dr_ctl.topologies.artemis import beans, session
from dr_ctl.topologies.artemis import reading as artemis
from dr_ctl.topologies.artemis.reading import Origin
from dr_ctl.topologies.bridges import checks
from dr_ctl.topologies.bridges.messages import Message, forwarded, unannounced, with_due
from dr_ctl.topologies.bridges.view import ORIGIN, Bridge, BrokerView, Divert, Flow
from dr_ctl.topologies.common import observer, snapshot
from dr_ctl.topologies.common.calls import ANY_ADDRESS
from dr_ctl.topologies.common.checks import on_purpose
from dr_ctl.topologies.common.idstore import Store
from dr_ctl.topologies.common.session import ReadScope
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.view import Config, Queue
from dr_ctl.topologies.proposing import BRIDGES, DIVERTS

_DIALECT: Final = artemis.Dialect()
_QUEUE: Final = (*artemis.QUEUE, "FirstMessageAge", "RoutingType")
_BRIDGE: Final = (
    "Name", "QueueName", "Started", "Connected", "TransformerPropertiesAsJSON", "StaticConnectors", "HA",
)  # fmt: skip
_DIVERT: Final = ("UniqueName", "Address", "ForwardingAddress", "Filter", "Exclusive", "RoutingType")
_ADDRESS: Final = ("RolesAsJSON", "UnRoutedMessageCount")
# A buffer is found by the bridge that reads it, and by this prefix where a broker has stopped its bridges.
BUFFERS: Final = "mirror."


def joined(diverts: Iterable[Divert], queues: Sequence[Queue], bridges: Sequence[Bridge]) -> list[Flow]:
    """Join diverts, buffers and bridges to flows. A divert that feeds no bridge, and no buffer by its name, and asks
    for no origin makes none."""
    flows = []
    for divert in sorted(diverts, key=lambda by_name: by_name.name):
        filled = [queue for queue in queues if queue.address == divert.to]
        read = {bridge.queue for bridge in bridges}
        buffer = next((queue for queue in filled if queue.name in read), next(iter(filled), None))
        reading = tuple(bridge for bridge in bridges if buffer is not None and bridge.queue == buffer.name)
        if reading or divert.to.startswith(BUFFERS) or ORIGIN in (divert.filter or ""):
            flows.append(Flow(divert, buffer, reading))
    return flows


def _bridge(bean: str, fields: Fields) -> Bridge:
    name = "TransformerPropertiesAsJSON"
    properties = fields.optional_text(name) if fields.has(name) else None
    written: Mapping[str, object] = json.loads(properties) if properties else {}
    name, queue, started = fields.text("Name"), fields.text("QueueName"), fields.flag("Started")
    connected = fields.flag("Connected") if fields.has("Connected") else None
    origin, ha = str(written[ORIGIN]) if ORIGIN in written else None, fields.has("HA") and fields.flag("HA")
    return Bridge(name, bean, queue, started, connected, origin, fields.texts("StaticConnectors"), ha)


def _divert(fields: Fields) -> Divert:
    name, address, to = map(fields.text, ("UniqueName", "Address", "ForwardingAddress"))
    routing = fields.optional_text("RoutingType") if fields.has("RoutingType") else None
    return Divert(name, address, to, fields.optional_text("Filter"), fields.flag("Exclusive"), routing)


def _queue(queue: Queue, fields: Fields) -> Queue:
    """Add the age of the oldest message, which the broker does not always tell, and the present routing type: the name
    of the bean keeps the one that the queue was made with, whatever broker.xml says since."""
    age = fields.optional_number("FirstMessageAge") if fields.has("FirstMessageAge") and queue.depth else None
    routing = fields.text("RoutingType").lower() if fields.has("RoutingType") else queue.routing
    return replace(queue, oldest_ms=age if age is not None and age >= 0 else None, routing=routing)


@dataclass(frozen=True)
class BridgesSnapshot(snapshot.Snapshot[BrokerView]):
    @cached_property
    def units(self) -> Sequence[UnitSnapshot]:
        names = sorted({flow.unit for site in self.sites for view in self.views(site) for flow in view.flows})
        brokers = {site: list(by_pair.values()) for site, by_pair in self.sites.items()}
        return [self.unit(name, brokers) for name in names]

    def findings(self) -> Sequence[Finding]:
        views = [(view, self.peer(view)) for view in self._all()]
        links = (finding for both in views for finding in checks.of_ways(*both))
        reached = [(flow.unit, view, peer) for view, peer in views if peer is not None for flow in view.flows]
        loose = [finding for copy in reached for finding in checks.of_reached_copy(*copy)]
        return [*snapshot.Snapshot.findings(self), *on_purpose(self, links), *loose]

    def rows(self, at: datetime) -> Sequence[Row]:
        """Leave out dead letters and expired messages: no divert copies these, and a failover brings none of them."""
        ends = {(view.site, view.pair, queue) for view in self._all() for queue in view.dead_ends}
        rows = snapshot.Snapshot.rows(self, at)
        return [row for row in rows if row.kind != "queue" or (row.site, row.pair, row.name) not in ends]


class Session(session.Session[BrokerView]):
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
        basis = artemis.CommonQuestions(post, broker, _DIALECT)
        queueing = post.ask(Read(beans.queue(broker), _QUEUE))
        bridging = post.ask(Read(server + BRIDGES, _BRIDGE))
        diverting = post.ask(Read(server + DIVERTS, _DIVERT))
        addressing = post.ask(Read(beans.address(broker), _ADDRESS))
        users = post.ask(Query(server, Listing.USERS, ("",)))
        usual = post.ask(Query(server, Listing.ROLES, (ANY_ADDRESS,)))
        locking = post.ask(Query(server, Listing.LOCK_COORDINATORS))
        post.send(self.reader(), timeout_s=timeout_s)
        with artemis.as_expected(self.reader().url):
            values = basis.values(self.reader())
            listed = [_queue(artemis.queue(bean, row), row) for bean, row in queueing.beans()]
            bridges = [_bridge(bean, row) for bean, row in bridging.beans()]
            flows = joined([_divert(row) for _, row in diverting.beans()], listed, bridges)
            ids = next((flow for flow in flows if flow.divert.exclusive), None)
            addresses = {beans.parts(bean)["address"]: row for bean, row in addressing.beans()}
            # Queues that carry messages and ids count as the broker's own; others are clients' queues.
            own = {flow.divert.to for flow in flows} | ({ids.unit} if ids is not None else set())
            queues = [replace(queue, internal=True) if queue.address in own else queue for queue in listed]
            return BrokerView(
                pair=self.pair,
                site=self.site,
                config=self.config,
                broker=broker,
                **values,
                queues=tuple(sorted(queues, key=lambda queue: queue.name)),
                flows=tuple(flow for flow in flows if not flow.divert.exclusive),
                ids=ids,
                arrived=tuple(queue for queue in listed if ids is not None and queue.address == ids.unit),
                unrouted={name: row.number("UnRoutedMessageCount") for name, row in addresses.items()},
                grants={name: artemis.grants(row.text("RolesAsJSON")) for name, row in addresses.items()},
                users=artemis.users(users),
                usual=artemis.grants(usual.value()),
                coordinators=artemis.coordinators(locking),
            )

    def _reread(self, known: BrokerView, _wanted: ReadScope, timeout_s: float) -> BrokerView:
        """Read listeners, buffers and arrived ids again. Closed queues and clients stay as in the last reading."""
        own = [flow.buffer for flow in known.carrying if flow.buffer is not None]
        post = Post()
        basis = artemis.CommonQuestions(post, known.broker, _DIALECT, known=known)
        counting = [(queue, post.ask(Read(queue.bean, artemis.QUEUE))) for queue in (*own, *known.arrived)]
        post.send(self.reader(), timeout_s=timeout_s)
        queues = {
            queue.bean: replace(
                artemis.queue(queue.bean, counts.fields()), internal=queue.internal, routing=queue.routing
            )
            for queue, counts in counting
        }

        def now(flow: Flow) -> Flow:
            return replace(flow, buffer=queues[flow.buffer.bean]) if flow.buffer is not None else flow

        return replace(
            known,
            **basis.moving(self.reader()),
            flows=tuple(map(now, known.flows)),
            ids=now(known.ids) if known.ids is not None else None,
            arrived=tuple(queues[queue.bean] for queue in known.arrived),
        )

    def open_listeners(self, *, timeout_s: float) -> tuple[str, ...]:
        view = self.read(timeout_s=timeout_s)
        return tuple(listener.name for listener in view.listeners if listener.started) if view.open else ()


LinkEnds = tuple[Session, Session]
Observer = observer.Observer[BrokerView, Session]


def _with_what_is_forwarded(observer: Observer, observe: Callable[[], Snapshot[BrokerView]]) -> Snapshot[BrokerView]:
    """Read both sites, with messages that clients forward with another site's origin, and with due times. No wait does
    so, because it takes a moment."""
    snapshot = observe()
    owed = {debt.lost_site for debt in snapshot.debts}

    def read(view: BrokerView) -> BrokerView:
        session = observer.brokers[view.site][view.pair]
        reader = session.reader()
        view = replace(with_due(reader, view), forwarded=forwarded(reader, view))
        if view.site not in owed:
            return view
        return replace(view, unannounced=unannounced(reader, view, session.ids, session.id_header))

    return snapshot.changed(read)


def with_idle(sites: Mapping[str, Mapping[str, BrokerView | snapshot.Silent]]) -> BridgesSnapshot:
    both = BridgesSnapshot(sites)

    def marked(view: BrokerView) -> BrokerView:
        peer = both.peer(view)
        idle = [unit for unit in view.units if view.is_idle(unit, peer)] if peer is not None else ()
        return replace(view, idle=frozenset(idle))

    return both.changed(marked)


READS: Final = observer.Reads(Session.each, with_idle, observed=_with_what_is_forwarded, moves_parts=True)
