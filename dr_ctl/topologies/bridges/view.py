"""A broker with diverts and bridges as one reading has shown it: frozen values, and facts that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Final

from dr_ctl.core.model import Json, Role, by_key, total
from dr_ctl.core.notation import duration
from dr_ctl.engine.plan import Call, Goal
from dr_ctl.rpo.history.row import Row
from dr_ctl.topologies.artemis.broker import (
    ArtemisBroker,
    ArtemisRequests,
    ListenersAndRoles,
    peer_connectors,
    without_bridges,
)
from dr_ctl.topologies.common.calls import Request
from dr_ctl.topologies.common.snapshot import paused_by_runs
from dr_ctl.topologies.common.view import Acceptor, Connection, Link, Queue, ReplicationScope, Residue, count_text
from dr_ctl.topologies.topology import LinkSnapshot, Stake, drain_s

ORIGIN: Final = "ARTEMIS_MESSAGE_ORIGIN"
COMPARED: Final = 1000  # a queue with more messages than this is not compared with its copy
UnitFilter = Callable[[str | None], bool]
"""Selects units: those of the command, or those still to move."""


class UnitsFence(ListenersAndRoles):
    view: BrokerView

    def __init__(self, view: BrokerView) -> None:
        super().__init__(view)
        # No lock opens a queue that is closed by rights, whoever holds it.
        self.contending = self.awaits = self.passive = []

    @property
    def open(self) -> bool:
        return any(self.view.units.values())

    @property
    def matches(self) -> Sequence[str]:
        return [flow.unit for flow in self.view.flows]

    @property
    def roles_revoked(self) -> bool:
        return bool(self.view.flows) and all(self.view.kept_out(flow.unit) for flow in self.view.flows)

    @property
    def leaves_open(self) -> tuple[Acceptor, ...]:
        """A fence closes addresses, whatever listener a client comes through."""
        return ()

    def clients_elsewhere(self) -> list[str]:
        return []

    def holds(self, call: Call) -> bool | None:
        queue = next((queue for queue in self.view.queues if queue.bean == call.request.get("bean")), None)
        match call.goal:
            case Goal.OPEN | Goal.CLOSE if queue is not None:
                return queue.paused is (call.goal is Goal.CLOSE)
            case Goal.CUT:
                return not any(queue.consumers for queue in self.view.queues_of(call.resource))
        return super().holds(call)


class BridgesLink(Link["BrokerView"]):
    rehearsal_setup = (
        "Add a divert and a bridge for {} to broker.xml, as for the other queues, and the queue at both sites."
    )
    add_node_advice = "Name a connector to the other node in `static-connectors` of each bridge"
    records_changes = True
    """The buffers get all messages that clients send, whether bridges ship them or not."""

    def __init__(self, view: BrokerView) -> None:
        super().__init__(view)
        bridges = [bridge for flow in view.all_flows for bridge in flow.bridges]
        self.listeners = self.only_listener(lambda acceptor: "CORE" in acceptor.protocols)
        self.links_started = {bridge.name: bridge.started for bridge in bridges}
        self.peer_nodes = peer_connectors(
            bridge.connectors for bridge in bridges if len(bridge.connectors) > 1 or not bridge.ha
        )
        if view.flows:
            self.attached = all(flow.attached for flow in view.all_flows)
            self.to_ship = total(flow.to_ship for flow in view.flows)
        buffers = {flow.unit: flow.buffer for flow in view.flows}
        if None not in buffers.values():
            self.shipped = {unit: buffer.removed for unit, buffer in buffers.items() if buffer is not None}
        if view.arrived:
            # These ids of the peer are not in the id store of this site yet.
            self.unapplied = total(queue.known_depth for queue in view.arrived)

    def foreign_connections(self, peer: BrokerView | None) -> list[Connection]:
        return without_bridges(self.connections_at_listeners(), peer)

    def carries(self, queue: str) -> ReplicationScope:
        """A copy stays until it is trimmed: ids from consumers show which messages are processed."""
        copied = any(flow.unit == queue for flow in self.view.flows)
        return ReplicationScope.MESSAGES if copied else ReplicationScope.NOTHING

    @property
    def hears_peer(self) -> bool:
        """A single connected bridge shows that the peer lives: the others may be stopped."""
        return any(flow.attached for flow in self.view.all_flows)

    @property
    def arrivals(self) -> int | None:
        """Count copies for queues whose clients are kept out, and ids: only bridges add these."""
        view = self.view
        copies = (queue for unit, is_open in view.units.items() if not is_open for queue in view.queues_of(unit))
        return sum(queue.added for queue in (*copies, *view.arrived))

    def left_to_ship(self) -> Iterator[str]:
        """Report messages, and also ids: without these the peer processes messages again."""
        yield from super().left_to_ship()
        ids = self.view.ids_to_ship
        if self.view.ids is not None and ids is None:
            yield f"the processed ids of {self.view.site} were not read"
        elif ids:
            yield f"{ids} id(s) to ship at {self.view.site}"

    @property
    def counters(self) -> Iterable[Queue]:
        """Clients' queues and the buffers: each new message changes a counter of one of them."""
        return [*self.view.business.values(), *(flow.buffer for flow in self.view.flows if flow.buffer is not None)]

    @property
    def settable(self) -> Mapping[str, Json]:
        view = self.view
        units: dict[str, Json] = {
            flow.unit: {
                "kept_out": view.kept_out(flow.unit),
                "gated": [queue.name for queue in view.queues_of(flow.unit) if view.closed_by_pause(flow.unit)],
            }
            for flow in view.flows
        }
        return {"units": units}

    def holds(self, call: Call) -> bool | None:
        """Judge the calls to its listeners too, which a return opens one by one."""
        listeners = {listener.name: listener.started for listener in self.view.acceptors}
        if call.resource in listeners and call.goal in (Goal.LINK_UP, Goal.LINK_DOWN):
            return listeners[call.resource] is (call.goal is Goal.LINK_UP)
        return super().holds(call)

    def to_snapshot(self, before: BrokerView | None, took_s: float) -> LinkSnapshot:
        view, rate = self.view, self.rate(before, took_s)
        lines = []
        if not any(flow.bridges for flow in view.all_flows):
            lines.append("there is no bridge: messages stay in the buffers")
        detached = [flow.unit for flow in view.all_flows if flow.bridges and not flow.attached]
        state = f"not connected: {', '.join(detached[:3])}" if detached else "connected"
        time_s = drain_s(self.to_ship, rate)
        lines.append(
            f"bridges {state}; {count_text(self.to_ship)} message(s) and {count_text(view.ids_to_ship)} "
            f"processed id(s) to ship, {count_text(self.unapplied)} id(s) of the peer not applied"
            f"{f', {duration(time_s)} to drain' if time_s is not None else ''}"
        )
        if view.role is Role.STANDBY and any(queue.depth for queue in view.business.values()):
            lines.append(f"copies of processed messages stay here until `dr-ctl trim {view.site}`")
        started = all(self.links_started.values()) if self.links_started else None
        return LinkSnapshot(
            view.site, view.pair, "bridges", started, self.attached, self.to_ship, self.unapplied, rate, tuple(lines),
            {"ids_to_ship": view.ids_to_ship, "queues": {flow.unit: flow.to_ship for flow in view.flows}},
            without_acks=True,
        )  # fmt: skip

    def rows(self, peer: BrokerView | None, at: datetime) -> Iterator[Row]:
        """Record messages by unit, and ids together, as they have a single buffer. A message that found no buffer
        counts as one that is never shipped."""
        view = self.view
        for flow in view.flows:
            if flow.buffer is not None and flow.buffer.depth_known:
                uncopied = view.uncopied(flow)
                depth, added = flow.buffer.depth + uncopied, flow.buffer.added + uncopied
                row = replace(flow.buffer.row(view, at), kind="mirror", name=flow.unit, link=flow.attached)
                yield replace(row, depth=depth, added=added)
        if view.ids is not None and view.ids.buffer is not None and view.ids.buffer.depth_known:
            pending = peer.link.unapplied if peer is not None else None
            row = view.ids.buffer.row(view, at)
            yield replace(row, kind="acks", name="*", link=view.ids.attached, pending=pending)

    def stake(self, peer: BrokerView | None) -> Stake:
        duplicates = total((self.view.ids_to_ship, peer.link.unapplied if peer is not None else None))
        lost = {flow.unit: (total((flow.to_ship, self.view.uncopied(flow))), None) for flow in self.view.flows}
        return replace(Stake.of(lost) if lost else Stake(None, None, {}), duplicates=duplicates)

    @property
    def residue(self) -> Residue | None:
        if self.to_ship is None or self.view.ids_to_ship is None:
            return None
        duplicates = sum(map(len, (self.view.unannounced or {}).values()))
        return Residue(self.to_ship, self.view.ids_to_ship, duplicates or None)


def every_unit(unit: str | None) -> bool:
    return unit is not None


@dataclass(frozen=True, slots=True)
class Bridge:
    """A bridge writes `origin` into each message as its site. `connected` is None if the broker's version does not
    report it. Each of `connectors` leads to a node of its peer; with `ha` it finds further nodes by the cluster. After
    a failed link it tries `retries` times to connect, -1 for ever, and waits up to `retry_s` in between; if it
    `repeats`, the peer keeps what is shipped again as second copies. A bridge's own counters are not read, because they
    stay wrong after a failed link."""

    name: str
    bean: str
    queue: str
    started: bool
    connected: bool | None
    origin: str | None
    connectors: tuple[str, ...] = ()
    ha: bool = False
    retries: int = -1
    retry_s: float = 2.0
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Divert:
    """A divert sends messages for `address` `to` another one as well, or only there if it is `exclusive`. `routing`
    is the setting for their routing type, or None if the broker's version does not report it."""

    name: str
    address: str
    to: str
    filter: str | None
    exclusive: bool
    routing: str | None = "STRIP"


@dataclass(frozen=True, slots=True)
class Flow:
    """The divert puts messages for one address into the buffer, and the bridges ship them. `buffer` is None if there is
    no such queue. Each delayed message is due within `due_s` at the latest."""

    divert: Divert
    buffer: Queue | None
    bridges: tuple[Bridge, ...]
    due_s: tuple[float, ...] | None = None

    @property
    def unit(self) -> str:
        return self.divert.address

    @property
    def attached(self) -> bool:
        """Say whether the flow ships: a bridge that is connected is a consumer of the buffer."""
        bridges = self.bridges if self.buffer is not None and self.buffer.consumers > 0 else ()
        return bool(bridges) and all(bridge.started and bridge.connected is not False for bridge in bridges)

    @property
    def to_ship(self) -> int | None:
        """Messages in the buffer, in delivery to the bridge included."""
        return self.buffer.known_depth if self.buffer is not None else None

    @property
    def not_due(self) -> int:
        return self.buffer.scheduled if self.buffer is not None else 0

    def to_ship_now(self, accepted: Mapping[str, int]) -> int | None:
        """Count the messages that a move waits for, without delayed ones if a person accepts their number."""
        later = self.not_due if accepted.get(self.unit, 0) >= self.not_due else 0
        return self.to_ship - later if self.to_ship is not None else None


class Requests(ArtemisRequests):
    """Every pause outlasts a restart of the broker, because paused queues keep clients out."""

    def pause(self, queue: Queue, *, lasting: bool = True) -> Request:  # noqa: ARG002
        return super().pause(queue, lasting=True)


@dataclass(frozen=True, slots=True)
class BrokerView(ArtemisBroker):
    """The flow `ids` ships the ids processed here; the peer's ids wait in the queues `arrived` to be applied.
    `unrouted` counts by address the messages that found no queue. The units `idle` have consumers at the peer only,
    although clients could connect here. `forwarded` counts messages that clients sent with another site's origin, and
    that no divert copied. `unannounced` has the ids of messages in a returned site's buffers that its consumers have
    processed and that no id message announces: these are duplicates at the peer. It is None if not known."""

    requests_of = Requests

    flows: tuple[Flow, ...]
    ids: Flow | None
    arrived: tuple[Queue, ...]
    unrouted: Mapping[str, int]
    idle: frozenset[str] = frozenset()
    forwarded: Mapping[str, int] = field(default_factory=dict)
    unannounced: Mapping[str, Sequence[str]] | None = field(default_factory=dict)

    @cached_property
    def link(self) -> BridgesLink:
        return BridgesLink(self)

    @property
    def fence(self) -> UnitsFence:
        return UnitsFence(self)

    @cached_property
    def _by_unit(self) -> tuple[Mapping[str, Flow], Mapping[str, Sequence[Queue]], Mapping[str, str]]:
        """Index flows and clients' queues by unit, and units by queue, as a broker may have ten thousand queues."""
        queues = by_key((queue.address, queue) for queue in self.business.values())
        buffers = {flow.buffer.name: flow.unit for flow in self.flows if flow.buffer is not None}
        moving = {queue.name: flow.unit for flow in self.flows for queue in queues.get(flow.unit, ())}
        return {flow.unit: flow for flow in self.flows}, queues, moving | buffers

    def flow(self, unit: str) -> Flow | None:
        return self._by_unit[0].get(unit)

    @property
    def dead_letter_queues(self) -> set[str]:
        """The queues of failed and expired messages that no divert copies."""
        addresses = {address for queue in self.queues for address in (queue.dead_letter_address, queue.expiry_address)}
        return {queue.name for queue in self.queues if queue.address in addresses and self.flow(queue.address) is None}

    def uncopied(self, flow: Flow) -> int:
        """Count the messages of a unit since the broker's start that found no buffer."""
        return self.unrouted.get(flow.divert.to, 0) if flow.buffer is not None else 0

    def refuses_amqp(self, flow: Flow) -> bool:
        """Say whether a buffer refuses messages of JMS over AMQP. These name a routing type, which a divert strips
        from other messages only."""
        ids = self.arrived if flow is self.ids else ()
        routing_types = {queue.routing for queue in (*self.queues_of(flow.unit), *ids)}
        buffer, routing = flow.buffer, flow.divert.routing
        if buffer is None or not routing_types or routing is None:
            return False
        return buffer.routing not in {*routing_types, routing.lower()}

    def queues_of(self, unit: str) -> Sequence[Queue]:
        return self._by_unit[1].get(unit, ())

    def origin_of(self, unit: str) -> str | None:
        """The site name that its bridges write into a unit's copies."""
        flow = self.flow(unit)
        return next((bridge.origin for bridge in flow.bridges if bridge.origin), None) if flow is not None else None

    # Access of clients, unit by unit.

    def kept_out(self, unit: str) -> bool:
        """Say whether the clients' roles may do nothing at a unit's address; no, if the settings name no roles."""
        return self.config.lasting is not None and not self.lets_in(unit)

    def closed_by_pause(self, unit: str) -> bool:
        """Say whether all queues of a unit are paused, and not by a run, which would lift the pauses again."""
        queues = self.queues_of(unit)
        return bool(queues) and all(queue.paused and queue.name not in self._paused_by_runs for queue in queues)

    @cached_property
    def _paused_by_runs(self) -> frozenset[str]:
        return paused_by_runs(self)

    def is_closed(self, unit: str) -> bool:
        """Say whether rights or a pause keep clients out of a unit, even if listeners are open."""
        return self.kept_out(unit) or self.closed_by_pause(unit)

    def chosen_units(self, chosen: UnitFilter) -> list[str]:
        return [flow.unit for flow in self.flows if chosen(flow.unit)]

    def open_units(self, chosen: UnitFilter) -> list[str]:
        return [unit for unit, is_open in self.units.items() if is_open and chosen(unit)]

    def chosen_flows(self, chosen: UnitFilter) -> list[Flow]:
        return [flow for flow in self.all_flows if flow is self.ids or chosen(flow.unit)]

    @cached_property
    def units(self) -> Mapping[str, bool]:
        listeners = any(listener.started for listener in self.listeners)
        return {
            flow.unit: listeners and not self.is_closed(flow.unit) and flow.unit not in self.idle for flow in self.flows
        }

    def unit_of(self, queue: str) -> str | None:
        return self._by_unit[2].get(queue)

    @property
    def role(self) -> Role:
        if self.missing_listeners or not self.flows:
            return Role.UNKNOWN
        return Role.SERVING if self.open else Role.STANDBY

    @cached_property
    def paused(self) -> tuple[str, ...]:
        """The paused queues, without queues of a closed unit, where a pause keeps clients out."""
        closed = {flow.unit for flow in self.flows if self.is_closed(flow.unit)}
        held = (queue for queue in self.business.values() if queue.paused and queue.address not in closed)
        return tuple(sorted(queue.name for queue in held))

    @property
    def all_flows(self) -> tuple[Flow, ...]:
        return self.flows if self.ids is None else (*self.flows, self.ids)

    @property
    def ids_to_ship(self) -> int | None:
        """Count the processed ids that the peer does not have yet: their messages are duplicates there."""
        return self.ids.to_ship if self.ids is not None else None

    def is_idle(self, unit: str, peer: BrokerView) -> bool:
        """Say whether a unit that is open at both sites has consumers at the peer only."""
        used_here, used_at_peer = (any(queue.consumers for queue in view.queues_of(unit)) for view in (self, peer))
        return bool(self.units[unit] and peer.units.get(unit)) and used_at_peer and not used_here
