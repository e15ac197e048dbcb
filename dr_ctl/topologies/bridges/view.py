"""A broker with diverts and bridges as one reading has shown it: frozen values, and facts that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Final

from dr_ctl.core.model import Json, Role, total
from dr_ctl.core.notation import duration, if_known
from dr_ctl.engine.plan import Call, Goal
from dr_ctl.rpo.history.row import Row
from dr_ctl.topologies.artemis.broker import ArtemisBroker, ArtemisRequests, ListenersAndRoles, nodes, others
from dr_ctl.topologies.common.calls import Request
from dr_ctl.topologies.common.snapshot import paused_by_runs
from dr_ctl.topologies.common.view import Acceptor, Connection, Link, Queue, ReplicationScope, Residue, count_text
from dr_ctl.topologies.topology import LinkSnapshot, Stake, drain_s

ORIGIN: Final = "ARTEMIS_MESSAGE_ORIGIN"
# Chooses units: the units that are asked for, or the units still to move.
Chosen = Callable[[str | None], bool]


class Queues(ListenersAndRoles):
    view: BrokerView

    def __init__(self, view: BrokerView) -> None:
        """No lock opens a queue that is closed by rights, whoever holds it."""
        super().__init__(view)
        self.contenders = self.awaits = self.passive = []

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
        """The fence is by address, whatever listener a client comes through."""
        return ()

    def clients_elsewhere(self) -> list[str]:
        return []

    def holds(self, call: Call) -> bool | None:
        queue = next((queue for queue in self.view.queues if queue.bean == call.request.get("bean")), None)
        match call.goal:
            case Goal.OPEN | Goal.CLOSE if queue is not None:
                return queue.paused is (call.goal is Goal.CLOSE)
            case Goal.CUT:
                return not any(queue.consumers for queue in self.view.queues_of(call.thing))
        return super().holds(call)


class BridgesLink(Link["BrokerView"]):
    needs = "Add a divert and a bridge for {} to broker.xml, as for the other queues, and the queue at both sites."
    adds_node = "Name a connector to the other node in `static-connectors` of each bridge"
    records_changes = True
    """The buffers take what clients send, whether bridges ship it or not."""

    def __init__(self, view: BrokerView) -> None:
        super().__init__(view)
        bridges = [bridge for flow in view.carrying for bridge in flow.bridges]
        self.listeners = self.only_listener(lambda acceptor: "CORE" in acceptor.protocols)
        self.ships = {bridge.name: bridge.started for bridge in bridges}
        self.peer_nodes = nodes(bridge.connectors for bridge in bridges if len(bridge.connectors) > 1 or not bridge.ha)
        if view.flows:
            self.attached = all(flow.attached for flow in view.carrying)
            self.to_ship = total(flow.to_ship for flow in view.flows)
        buffers = {flow.unit: flow.buffer for flow in view.flows}
        if None not in buffers.values():
            self.shipped = {unit: buffer.removed for unit, buffer in buffers.items() if buffer is not None}
        if view.arrived:
            # Ids of the peer that are not in the id store of this site yet.
            self.unapplied = total(queue.known_depth for queue in view.arrived)

    def foreign_connections(self, peer: BrokerView | None) -> list[Connection]:
        return others(self.at_listeners(), peer.link if peer is not None else None)

    def carries(self, queue: str) -> ReplicationScope:
        """A copy stays until it is trimmed: what is processed is told by ids, which consumers send."""
        copied = any(flow.unit == queue for flow in self.view.flows)
        return ReplicationScope.MESSAGES if copied else ReplicationScope.NOTHING

    @property
    def hears_peer(self) -> bool:
        """One bridge is enough: the others may be stopped."""
        return any(flow.attached for flow in self.view.carrying)

    @property
    def arrivals(self) -> int | None:
        """Copies for queues whose clients are kept out, and ids: bridges alone bring these."""
        view = self.view
        copies = (queue for unit, is_open in view.units.items() if not is_open for queue in view.queues_of(unit))
        return sum(queue.added for queue in (*copies, *view.arrived))

    def left_to_ship(self) -> Iterator[str]:
        """Messages, and the ids of processed messages: without these the peer processes them again."""
        yield from super().left_to_ship()
        ids = self.view.ids_to_ship
        if self.view.ids is not None and ids is None:
            yield f"the processed ids of {self.view.site} were not read"
        elif ids:
            yield f"{ids} id(s) to ship at {self.view.site}"

    def unsettled(self) -> Iterator[str]:
        view = self.view
        for flow in view.carrying:
            if not flow.attached:
                yield f"{view.site}: the bridge of {flow.unit} is not connected"
            if flow.to_ship != 0:
                yield f"{view.site}: {if_known(flow.to_ship)} to ship of {flow.unit}"
        if self.unapplied != 0:
            yield f"{view.site}: {count_text(self.unapplied)} id(s) not applied yet"

    @property
    def counters(self) -> Iterable[Queue]:
        """Clients' queues and the buffers: a message that came for one of them moves a counter of it."""
        return [*self.view.business.values(), *(flow.buffer for flow in self.view.flows if flow.buffer is not None)]

    @property
    def settable(self) -> Mapping[str, Json]:
        view = self.view
        units: dict[str, Json] = {
            flow.unit: {
                "kept_out": view.kept_out(flow.unit),
                "gated": [queue.name for queue in view.queues_of(flow.unit) if queue.paused and view.gated(flow.unit)],
            }
            for flow in view.flows
        }
        return {"units": units}

    def holds(self, call: Call) -> bool | None:
        """Of its listeners too, which a return opens one by one."""
        listeners = {listener.name: listener.started for listener in self.view.acceptors}
        if call.thing in listeners and call.goal in (Goal.LINK_UP, Goal.LINK_DOWN):
            return listeners[call.thing] is (call.goal is Goal.LINK_UP)
        return super().holds(call)

    def linked(self, before: BrokerView | None, took_s: float) -> LinkSnapshot:
        view, rate = self.view, self.rate(before, took_s)
        lines = []
        if not any(flow.bridges for flow in view.carrying):
            lines.append("no bridge is there: what the buffers hold stays where it is")
        away = [flow.unit for flow in view.carrying if flow.bridges and not flow.attached]
        state, even_s = f"not connected: {', '.join(away[:3])}" if away else "connected", drain_s(self.to_ship, rate)
        lines.append(
            f"bridges {state}; {count_text(self.to_ship)} message(s) and {count_text(view.ids_to_ship)} "
            f"processed id(s) to ship, {count_text(self.unapplied)} id(s) of the peer not applied"
            f"{f', {duration(even_s)} to drain' if even_s is not None else ''}"
        )
        if view.role is Role.STANDBY and any(queue.depth for queue in view.business.values()):
            lines.append(f"copies of processed messages stay here until `dr-ctl trim {view.site}`")
        started = all(self.ships.values()) if self.ships else None
        return LinkSnapshot(
            view.site, view.pair, "bridges", started, self.attached, self.to_ship, self.unapplied, rate, tuple(lines),
            {"ids_to_ship": view.ids_to_ship, "queues": {flow.unit: flow.to_ship for flow in view.flows}},
            messages_alone=True,
        )  # fmt: skip

    def rows(self, peer: BrokerView | None, at: datetime) -> Iterator[Row]:
        """The messages by unit; the ids together, as their buffer is one. What found no buffer waits for ever."""
        view = self.view
        for flow in view.flows:
            if flow.buffer is not None and flow.buffer.counted:
                uncopied = view.uncopied(flow)
                depth, added = flow.buffer.depth + uncopied, flow.buffer.added + uncopied
                row = replace(flow.buffer.row(view, at), kind="mirror", name=flow.unit, link=flow.attached)
                yield replace(row, depth=depth, added=added)
        if view.ids is not None and view.ids.buffer is not None and view.ids.buffer.counted:
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
        doubled = sum(map(len, (self.view.unannounced or {}).values()))
        return Residue(self.to_ship, self.view.ids_to_ship, doubled or None)


def every_unit(unit: str | None) -> bool:
    return unit is not None


@dataclass(frozen=True, slots=True)
class Bridge:
    """One bridge. `origin` is what it writes into each message about where it comes from; `connected` is None where the
    version does not tell; `connectors` lead to its peer, each to another node, and with `ha` it finds others by the
    cluster. Its own counters are not read: after a failed link they stay apart for good."""

    name: str
    bean: str
    queue: str
    started: bool
    connected: bool | None
    origin: str | None
    connectors: tuple[str, ...] = ()
    ha: bool = False


@dataclass(frozen=True, slots=True)
class Divert:
    """A divert: messages sent to `address` go `to` another one as well, or only there if it is `exclusive`. `routing`
    is what it makes of their routing type, None where the version does not tell."""

    name: str
    address: str
    to: str
    filter: str | None
    exclusive: bool
    routing: str | None = "STRIP"


@dataclass(frozen=True, slots=True)
class Flow:
    """The divert puts messages sent to one address into the buffer, the bridges ship them. `buffer` is None where no
    queue stands there; `due_s`: when each delayed message is due at the latest."""

    divert: Divert
    buffer: Queue | None
    bridges: tuple[Bridge, ...]
    due_s: tuple[float, ...] | None = None

    @property
    def unit(self) -> str:
        return self.divert.address

    @property
    def attached(self) -> bool:
        """A bridge that is connected is a consumer of the buffer."""
        bridges = self.bridges if self.buffer is not None and self.buffer.consumers > 0 else ()
        return bool(bridges) and all(bridge.started and bridge.connected is not False for bridge in bridges)

    @property
    def to_ship(self) -> int | None:
        """Messages in the buffer, in delivery to the bridge included. A bridge's own counters are never asked."""
        return self.buffer.known_depth if self.buffer is not None else None

    @property
    def not_due(self) -> int:
        return self.buffer.scheduled if self.buffer is not None else 0

    def to_ship_now(self, accepted: Mapping[str, int]) -> int | None:
        """What a move waits for: delayed messages too, but where a person lets so many be behind."""
        later = self.not_due if accepted.get(self.unit, 0) >= self.not_due else 0
        return self.to_ship - later if self.to_ship is not None else None


class Requests(ArtemisRequests):
    """A pause outlasts a restart of the broker: paused queues keep clients out here."""

    def pause(self, queue: Queue) -> Request:
        return self.pause_lasting(queue)


@dataclass(frozen=True, slots=True)
class BrokerView(ArtemisBroker):
    """`ids` ships the ids processed here, `arrived` are the queues where the peer's wait to be applied, `unrouted`
    counts by address what found no queue. `idle`: units where no client works while one does at the peer, though
    nothing keeps clients out. `forwarded`: messages that clients sent with another site's origin, which no divert
    copied. `unannounced`: ids in a returned site's buffers that its consumers have done and no id announces: they are
    done again; None where nobody can tell."""

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
    def fence(self) -> Queues:
        return Queues(self)

    @cached_property
    def _by_unit(self) -> tuple[Mapping[str, Flow], Mapping[str, Sequence[Queue]], Mapping[str, str]]:
        """By unit the flows and clients' queues, by queue the units: a broker may have ten thousand queues."""
        queues: dict[str, list[Queue]] = {}
        for queue in self.business.values():
            queues.setdefault(queue.address, []).append(queue)
        buffers = {flow.buffer.name: flow.unit for flow in self.flows if flow.buffer is not None}
        moving = {queue.name: flow.unit for flow in self.flows for queue in queues.get(flow.unit, ())}
        return {flow.unit: flow for flow in self.flows}, queues, moving | buffers

    def flow(self, unit: str) -> Flow | None:
        return self._by_unit[0].get(unit)

    @property
    def dead_ends(self) -> set[str]:
        """The queues where the broker puts what failed or expired, and that no divert copies."""
        to = {address for queue in self.queues for address in (queue.dead_letter_address, queue.expiry_address)}
        return {queue.name for queue in self.queues if queue.address in to and self.flow(queue.address) is None}

    def uncopied(self, flow: Flow) -> int:
        """How many messages of a unit its divert put where no queue took them, since the broker's start."""
        return self.unrouted.get(flow.divert.to, 0) if flow.buffer is not None else 0

    def repels(self, flow: Flow) -> bool:
        """JMS over AMQP writes what kind of queue a message is for: a divert strips that from other messages alone."""
        ids = self.arrived if flow is self.ids else ()
        kinds = {queue.routing for queue in (*self.queues_of(flow.unit), *ids)}
        buffer, routing = flow.buffer, flow.divert.routing
        if buffer is None or not kinds or routing is None:
            return False
        return buffer.routing not in {*kinds, routing.lower()}

    def queues_of(self, unit: str) -> Sequence[Queue]:
        return self._by_unit[1].get(unit, ())

    def origin_of(self, unit: str) -> str | None:
        """The name that its bridges write into a unit's copies as the site where they come from."""
        flow = self.flow(unit)
        return next((bridge.origin for bridge in flow.bridges if bridge.origin), None) if flow is not None else None

    # Access of clients, unit by unit.

    def kept_out(self, unit: str) -> bool:
        """Say whether the clients' roles may do nothing at a unit's address; where the settings name none, no."""
        return self.config.lasting is not None and not self.lets_in(unit)

    def gated(self, unit: str) -> bool:
        """Say whether all its queues are paused, and not by a run that will lift that."""
        queues = self.queues_of(unit)
        return bool(queues) and all(queue.paused and queue.name not in self._by_runs for queue in queues)

    @cached_property
    def _by_runs(self) -> frozenset[str]:
        return paused_by_runs(self)

    def is_shut(self, unit: str) -> bool:
        """Say whether rights or a pause keep clients out of a unit, whatever listeners are open."""
        return self.kept_out(unit) or self.gated(unit)

    def among(self, chosen: Chosen) -> list[str]:
        return [flow.unit for flow in self.flows if chosen(flow.unit)]

    def open_among(self, chosen: Chosen) -> list[str]:
        return [unit for unit, is_open in self.units.items() if is_open and chosen(unit)]

    def carrying_among(self, chosen: Chosen) -> list[Flow]:
        return [flow for flow in self.carrying if flow is self.ids or chosen(flow.unit)]

    @cached_property
    def units(self) -> Mapping[str, bool]:
        listeners = any(listener.started for listener in self.listeners)
        return {
            flow.unit: listeners and not self.is_shut(flow.unit) and flow.unit not in self.idle for flow in self.flows
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
        closed = {flow.unit for flow in self.flows if self.is_shut(flow.unit)}
        held = (queue for queue in self.business.values() if queue.paused and queue.address not in closed)
        return tuple(sorted(queue.name for queue in held))

    @property
    def carrying(self) -> tuple[Flow, ...]:
        return self.flows if self.ids is None else (*self.flows, self.ids)

    @property
    def ids_to_ship(self) -> int | None:
        """Processed ids that the peer does not have yet: their messages come twice there."""
        return self.ids.to_ship if self.ids is not None else None

    @property
    def requests(self) -> Requests:
        return Requests(self.broker, self.document_queue)

    def is_idle(self, unit: str, peer: BrokerView) -> bool:
        """Where nothing keeps the clients of a unit out at either site, it serves where they work."""
        here, there = (any(queue.consumers for queue in view.queues_of(unit)) for view in (self, peer))
        return bool(self.units[unit] and peer.units.get(unit)) and there and not here
