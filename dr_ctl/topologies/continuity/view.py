"""A broker with the continuity plugin as one reading has shown it: frozen values, and facts that follow from them.

The plugin opens and closes all client listeners at once. Documents are filters of queues, which it does not change.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Final

from dr_ctl.core.model import Json, Role, total
from dr_ctl.core.notation import duration
from dr_ctl.engine.plan import ALL, Call, Goal
from dr_ctl.jolokia.values import Fields, parts
from dr_ctl.rpo.history.row import Row
from dr_ctl.topologies.artemis import broker as artemis
from dr_ctl.topologies.common.calls import OWN, Request, call, request, resume
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.view import Acceptor, Connection, Link, PeerState, Queue, Residue, count_text
from dr_ctl.topologies.topology import LinkSnapshot, Stake, drain_s

_MARKER: Final = "dr_ctl_says"
_DOCUMENT: Final = re.compile(rf"{_MARKER} = '(.*)'", re.DOTALL)
# The longest time that the plugin waits for its peer to be drained, before it delivers. It is short if the gate has
# shown that the peer is drained, or if nothing can arrive any more. For the plugin, the peer is drained only if all
# queues are empty at the same moment. Clients that are let in meanwhile prevent that, because their acknowledgements
# use the queues.
WAITS_MS: Final = {
    PeerState.DRAINED: 1_000,
    PeerState.CLOSED: 20_000,
    PeerState.NOT_DRAINED: 5_000,
    PeerState.AWAY: 1_000,
}
# Each of these calls opens or closes all client listeners of a site's broker.
ACTIVATE_SITE: Final = "activateSite(java.lang.Long)"
DEACTIVATE_SITE: Final = "deactivateSite()"
PREFIX: Final = "continuity.cmd"


@dataclass(frozen=True, slots=True)
class FilterRequests(artemis.ArtemisRequests):
    """Requests that keep a document's text in the filter of a queue. The names of the plugin's command queues start
    with `prefix`; an address that contains it never gets a flow."""

    attributes = ("Name", "Filter")

    prefix: str = PREFIX

    def create(self, name: str, text: str, *, kind: str | None = None) -> Request:
        address = f"{kind or name}.{self.prefix}"
        return self.of_server(artemis.CREATE_FILTERED, address, "ANYCAST", name, _filter(text), True, 0, False, True)

    def update(self, name: str, text: str, *, kind: str) -> Request:
        del kind
        return self.of_server(artemis.UPDATE_FILTERED, name, "ANYCAST", _filter(text), 0, False, False, *(None,) * 6)

    def probe(self, name: str) -> Request:
        # The queue is not durable, so it never gets a flow, whatever its address.
        return self.of_server(artemis.CREATE_FILTERED, name, "ANYCAST", name, None, False, -1, False, True)

    def keep(self, name: str) -> Request:
        """Create a durable queue for messages that are kept aside, and are not shipped."""
        return self.of_server(
            artemis.CREATE_FILTERED, f"{name}.{self.prefix}", "ANYCAST", name, None, True, -1, False, True
        )

    def canary(self, name: str) -> Request:
        """Create a durable queue as clients do: the plugin makes a flow for it, at both sites."""
        return self.of_server(artemis.CREATE_FILTERED, name, "ANYCAST", name, None, True, -1, False, True)

    def text(self, fields: Fields) -> str:
        match = _DOCUMENT.fullmatch(fields.any_text("Filter"))
        return match[1].replace("''", "'") if match is not None else ""

    def is_own(self, bean: str, fields: Fields) -> bool:
        """Say whether dr-ctl made the queue: a client's queue has its name as address, and no such filter."""
        address = parts(bean)["address"]
        has_prefix = address.startswith(OWN) and address.endswith(f".{self.prefix}")
        return has_prefix and _DOCUMENT.fullmatch(fields.any_text("Filter")) is not None


def _filter(text: str) -> str:
    return f"{_MARKER} = '{text.replace(chr(39), chr(39) * 2)}'"


class PluginFence(artemis.ListenersAndRoles):
    view: SiteView

    def __init__(self, view: SiteView) -> None:
        super().__init__(view)
        # The plugin closes its listeners at every start, and may open them again on a command of its peer.
        self.boots_closed = None

    @property
    def open(self) -> bool:
        """Clients may connect once the plugin is activated, even before it delivers."""
        service = self.view.service
        return any(listener.started for listener in self.view.listeners) or (service is not None and service.activated)

    def opening(self, listeners: Iterable[Acceptor], peer: PeerState, when: str | None = None) -> tuple[Call, ...]:
        if not (list(listeners) or self.view.activating):
            return ()
        return (self._call(Goal.OPEN, "activate the site", when, ACTIVATE_SITE, WAITS_MS[peer]),)

    def closing(self, listeners: Iterable[Acceptor], when: str | None = None) -> tuple[Call, ...]:
        activated = self.view.service is not None and self.view.service.activated
        if not (list(listeners) or activated):
            return ()
        return (self._call(Goal.CLOSE, "deactivate the site", when, DEACTIVATE_SITE),)

    def holds(self, call: Call) -> bool | None:
        match call.goal:
            case Goal.OPEN if call.resource == ALL:
                return self.view.delivers and all(listener.started for listener in self.view.listeners)
            case Goal.CLOSE if call.resource == ALL:
                return not self.open
        return super().holds(call)

    def _call(self, goal: Goal, summary: str, when: str | None, operation: str, *arguments: Json) -> Call:
        bean = self.view.service.bean if self.view.service is not None else ""
        return call(self.view, goal, ALL, request(bean, operation, arguments), summary, when)


def depth_at(view: SiteView, queue: str) -> int | None:
    """Count the messages of a queue at a broker, delivered and staged."""
    return total(place.known_depth for place in view.places_of(queue))


def count_duplicates(view: SiteView, flow: Flow, peer: SiteView | None) -> int | None:
    other = peer.flow(flow.queue) if peer is not None else None
    if peer is None or other is None:
        return None
    acks = total((flow.out_acks.known_depth, other.in_acks.known_depth))
    if acks is None or flow.queue not in view.business:
        return acks
    # Lost acknowledgements count too: the peer has more messages than this site has shipped and still holds. If ids
    # were not compared, no message here is known to have a copy.
    local, remote, to_ship = (
        view.business[flow.queue].known_depth,
        depth_at(peer, flow.queue),
        flow.out_mirror.known_depth,
    )
    if local is None or remote is None or to_ship is None:
        return None
    uncopied = view.count_uncopied(flow.queue)
    return max(acks, remote - max(0, local - to_ship - uncopied) if uncopied is not None else remote)


def count_lost(view: SiteView, flow: Flow) -> int | None:
    """Count the messages of a flow that are lost with a closed site: messages to ship and messages without a copy, or
    all messages here if ids were not compared."""
    to_ship, uncopied = flow.out_mirror.known_depth, view.count_uncopied(flow.queue)
    if to_ship is None or uncopied is not None:
        return total((to_ship, uncopied))
    local = view.business[flow.queue].known_depth
    return None if local is None else max(to_ship, local)


def count_late(view: SiteView, flow: Flow) -> int | None:
    """Count the messages to ship of a flow that are still in its queue."""
    to_ship, queue = flow.out_mirror.known_depth, view.business.get(flow.queue)
    local = queue.known_depth if queue is not None else to_ship
    return min(to_ship, local) if to_ship is not None and local is not None else None


class ContinuityLink(Link["SiteView"]):
    # The plugin keeps requesting the removed queues of a flow until its broker is restarted.
    keeps_queues = True
    messages: int | None = None
    acks: int | None = None

    def __init__(self, view: SiteView) -> None:
        super().__init__(view)
        outflow = [queue for flow in view.flows for queue in flow.outflow]
        self.listeners = self.only_listener(lambda acceptor: acceptor.port is not None)
        self.links_started = {bridge.name: bridge.started for flow in view.flows for bridge in flow.shipping}
        if view.commands is not None:
            # A bridge that is connected is a consumer of the queue that it ships.
            self.attached = all(queue.consumers for queue in (*outflow, view.commands.out))
            self.links_started |= {view.commands.bridge.name: view.commands.bridge.started}
        if view.service is not None:
            self.messages = total(flow.out_mirror.known_depth for flow in view.flows)
            self.acks = total(flow.out_acks.known_depth for flow in view.flows)
            self.to_ship = total((self.messages, self.acks))
            self.unapplied = total(flow.in_acks.known_depth for flow in view.flows)
            # With a single connector, its bridges find the other nodes by the cluster, because they use HA.
            self.peer_nodes = artemis.peer_connectors(
                [view.service.connectors] if len(view.service.connectors) > 1 else []
            )
            self.shipped = {flow.queue: sum(bridge.acked for bridge in flow.shipping) for flow in view.flows}

    def foreign_connections(self, peer: SiteView | None) -> list[Connection]:
        return artemis.without_bridges(self.connections_at_listeners(), peer)

    @property
    def reserved(self) -> Collection[str]:
        """Listeners without a port are reserved too, because the plugin's own sessions use one."""
        return {*super().reserved, *(acceptor.name for acceptor in self.view.acceptors if acceptor.port is None)}

    def depth_of(self, queue: str) -> int | None:
        """Count staged messages too: a message that arrives is staged until this site is activated."""
        return depth_at(self.view, queue) if self.view.places_of(queue) else None

    @property
    def hears_peer(self) -> bool:
        """A single connected bridge shows that the peer lives: the others may be stopped."""
        view = self.view
        shipping = [queue for flow in view.flows for queue in flow.outflow]
        return any(queue.consumers for queue in (*shipping, *([view.commands.out] if view.commands else [])))

    @property
    def arrivals(self) -> int | None:
        return sum(queue.added for flow in self.view.flows for queue in (flow.staging, flow.in_acks))

    @property
    def counters(self) -> Iterable[Queue]:
        flows = [queue for flow in self.view.flows for queue in (*flow.outflow, flow.staging, flow.in_acks)]
        return [*self.view.business.values(), *flows]

    @property
    def settable(self) -> Mapping[str, Json]:
        view = self.view
        return {
            "commands_paused": view.commands is not None and view.commands.out.paused,
            "staging_paused": [flow.queue for flow in view.flows if flow.staging.paused],
        }

    def unsettled(self) -> Iterator[str]:
        view = self.view
        yield from view.uncomparable()
        if view.commands is not None:
            for queue in (view.commands.out, view.commands.into):
                if queue.depth:
                    yield f"{view.site}: {queue.depth} command(s) in {queue.name}"

    def holds(self, call: Call) -> bool | None:
        commands = self.view.commands
        if call.goal is Goal.REMOVE and commands is not None and call.resource == commands.out.name:
            return not commands.out.depth
        if call.goal not in (Goal.LINK_UP, Goal.LINK_DOWN):
            return None
        bridge = self.view.bridges.get(call.resource)
        return bridge is not None and bridge.started is (call.goal is Goal.LINK_UP)

    def to_snapshot(self, before: SiteView | None, took_s: float) -> LinkSnapshot:
        """The bridges as one link, with the four figures of the plugin's design: loss risk, duplicate risk, recovery
        point, recovery time."""
        view, rate = self.view, self.rate(before, took_s)
        messages, acks, unapplied = self.messages, self.acks, self.unapplied
        to_drain_s = drain_s(total((messages, acks, unapplied)), rate)
        started = all(self.links_started.values()) if view.service is not None else None
        state = "connected" if self.attached else "started, not connected" if started else "stopped"
        line = (
            f"bridges {state}; {count_text(messages)} message(s) to ship, {count_text(acks)} "
            f"acknowledgement(s) to ship, {count_text(unapplied)} not applied; "
            f"{f'{duration(to_drain_s)} to drain' if to_drain_s is not None else 'time to drain not known'}"
        )
        if view.service is None:
            line = "the continuity plugin has not started: its outflow was not read"
        risks: dict[str, Json] = {"loss_risk": messages, "duplicate_risk": acks}
        # A broker tells the age of the most urgent message, which is not the oldest.
        recovery_point_s = 0.0 if messages == 0 else None
        times: dict[str, Json] = {"recovery_point_s": recovery_point_s, "recovery_time_s": to_drain_s}
        figures = (started, self.attached, self.to_ship, unapplied, rate)
        return LinkSnapshot(view.site, view.pair, "bridges", *figures, (line,), risks | times)

    def rows(self, peer: SiteView | None, at: datetime) -> Iterator[Row]:
        """Record each flow, whose messages and acknowledgements have a queue each.

        Depths saw-tooth by up to two seconds of traffic because confirmations come in batches: the depth is an upper
        bound. Messages at the peer are recorded too: only these show lost acknowledgements.
        """
        view = self.view
        if view.flows:  # the row shows that this topology compares ids, even if none are compared now
            yield Row(site=view.site, ts=at, pair=view.pair, kind="uncopied", name="*", start=view.start)
        for flow in view.flows:
            other = peer.flow(flow.queue) if peer is not None else None
            if peer is not None and other is not None and depth_at(peer, flow.queue) is not None:
                remote = replace(other.staging.row(view, at), delivering=None, added=None, removed=None)
                yield replace(remote, kind="staged", name=flow.queue, depth=peer.depth_of(flow.queue))
            if flow.queue in view.uncopied and flow.queue not in view.without_id:
                row = replace(flow.staging.row(view, at), delivering=None, added=None, removed=None)
                depth, held = view.count_uncopied(flow.queue), len(view.held.get(flow.queue, ())) or None
                yield replace(row, kind="uncopied", name=flow.queue, depth=depth, delivering=held)
            for kind, queue, bridge in (
                ("mirror", flow.out_mirror, flow.mirror_bridge),
                ("acks", flow.out_acks, flow.acks_bridge),
            ):
                if not queue.depth_known:
                    continue
                pending = other.in_acks.known_depth if kind == "acks" and other is not None else None
                connected = bridge.started and queue.consumers > 0
                yield replace(queue.row(view, at), kind=kind, name=flow.queue, link=connected, pending=pending)

    def stake(self, peer: SiteView | None) -> Stake:
        view = self.view
        if view.service is None:
            return Stake(None, None, None)
        return Stake.of({f.queue: (count_lost(view, f), count_duplicates(view, f, peer)) for f in view.flows})

    @property
    def residue(self) -> Residue | None:
        """A late message is a duplicate only if it is to be shipped and is still in its queue, unacknowledged. The
        residue is None if the plugin has not started, or the broker counts wrongly."""
        duplicates = total(count_late(self.view, flow) for flow in self.view.flows)
        if self.messages is None or self.acks is None or duplicates is None:
            return None
        return Residue(self.messages, self.acks, duplicates)


@dataclass(frozen=True, slots=True)
class Service:
    """The plugin itself. `suffixes` are those of its queues' names: the outflows of messages and of acknowledgements,
    and the inflows of both. Each of `connectors` leads to a node of its peer."""

    bean: str
    site_id: str
    activated: bool
    delivering: bool
    started: bool
    staging_ms: int
    interval_ms: float
    suffixes: tuple[str, ...]
    prefix: str
    connectors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bridge:
    """A bridge; its peer has confirmed `acked` messages."""

    name: str
    bean: str
    started: bool
    acked: int


@dataclass(frozen=True, slots=True)
class Flow:
    """The path of one queue's messages: four queues, the two bridges that ship and the one that delivers."""

    queue: str
    address: str
    out_mirror: Queue
    out_acks: Queue
    staging: Queue
    in_acks: Queue
    mirror_bridge: Bridge
    acks_bridge: Bridge
    target_bridge: Bridge

    @property
    def outflow(self) -> tuple[Queue, Queue]:
        return self.out_mirror, self.out_acks

    @property
    def shipping(self) -> tuple[Bridge, Bridge]:
        return self.mirror_bridge, self.acks_bridge

    @property
    def stuck(self) -> bool:
        """True if all staged messages were sent to the queue and not accepted: the queue has them already, or accepts
        no message. Only ids distinguish the two."""
        staged = self.staging
        return staged.depth > 0 and staged.scheduled == 0 and staged.delivering == staged.depth

    @property
    def delivery(self) -> tuple[int, int]:
        """The number of staged messages, and of confirmed messages."""
        return self.staging.depth, self.target_bridge.acked


@dataclass(frozen=True, slots=True)
class Commands:
    """The queues of commands between the two plugins."""

    out: Queue
    into: Queue
    bridge: Bridge

    @property
    def under_way(self) -> int:
        return self.out.depth + self.into.depth


@dataclass(frozen=True, slots=True)
class SiteView(artemis.ArtemisBroker):
    """A broker as it answered. `service` is None if the plugin has not started. `to_compare` says that a pair's
    messages are compared by id, because one broker serves and the other is closed. `compared` is the number of compared
    queues, or None if they could not be read; `left_out` have too many messages. For each compared queue, `uncopied`
    has the ids without a copy at the other site, and `held` those that clients hold. `without_id` counts messages
    without an id."""

    service: Service | None
    flows: tuple[Flow, ...]
    commands: Commands | None
    to_compare: bool = False
    compared: int | None = None
    left_out: Sequence[str] = ()
    uncopied: Mapping[str, frozenset[str]] = field(default_factory=dict)
    held: Mapping[str, frozenset[str]] = field(default_factory=dict)
    without_id: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def link(self) -> ContinuityLink:
        return ContinuityLink(self)

    @property
    def fence(self) -> PluginFence:
        return PluginFence(self)

    @cached_property
    def bridges(self) -> Mapping[str, Bridge]:
        bridges = (bridge for flow in self.flows for bridge in (*flow.shipping, flow.target_bridge))
        return {bridge.name: bridge for bridge in bridges}

    @cached_property
    def _flows(self) -> Mapping[str, Flow]:
        return {flow.queue: flow for flow in self.flows}

    @property
    def role(self) -> Role:
        if self.service is None or not self.service.started or self.missing_listeners:
            return Role.UNKNOWN
        return Role.SERVING if self.open else Role.STANDBY

    @property
    def delivers(self) -> bool:
        return self.service is not None and self.service.activated and self.service.delivering

    @property
    def activating(self) -> bool:
        """Clients may connect, and staged messages are not delivered yet."""
        return self.service is not None and self.service.activated and not self.service.delivering

    @property
    def requests(self) -> FilterRequests:
        return FilterRequests(self.broker, prefix=self.service.prefix if self.service is not None else PREFIX)

    def flow(self, queue: str) -> Flow | None:
        return self._flows.get(queue)

    def places(self, queue: str) -> tuple[Queue, Queue]:
        """Return the clients' queue of a flow and its staging queue. Raises LookupError if there is no such flow."""
        flow = self.flow(queue)
        if flow is None:
            raise LookupError(f"{self.site} has no flow of {queue}")
        return self.business[queue], flow.staging

    def places_of(self, queue: str) -> list[Queue]:
        """The queues of a flow that exist here, in the order in which a message goes through them."""
        flow, business = self.flow(queue), self.business.get(queue)
        return [*([flow.staging] if flow is not None else []), *([business] if business is not None else [])]

    def depth_of(self, queue: str) -> int:
        """Count the messages of a queue here, delivered and staged, even if the broker counts wrongly."""
        return sum(place.depth for place in self.places_of(queue))

    def count_uncopied(self, queue: str) -> int | None:
        """Count the messages of a queue here that have no copy at the other site; None if ids were not compared."""
        business = self.business.get(queue)
        if business is None or business.known_depth == 0:
            return 0
        return len(self.uncopied[queue]) if queue in self.uncopied and queue not in self.without_id else None

    def uncomparable(self) -> Iterator[str]:
        """Say why messages of both sites cannot be compared by id. Commands are left out, because they
        are not about messages."""
        if self.service is None or self.commands is None:
            yield f"{self.site}: the continuity plugin has not started"
            return
        if stopped := [name for name, started in self.link.links_started.items() if not started]:
            yield f"{self.site}: bridge {', '.join(stopped[:3])} is stopped"
        elif not self.link.attached:
            yield f"{self.site}: a bridge is not connected to its peer"
        yield from self.under_way()
        for flow in self.flows:
            if flow.staging.scheduled:
                yield f"{self.site}: {flow.staging.scheduled} in {flow.staging.name} for the staging delay"

    def under_way(self) -> Iterator[str]:
        """Name the messages and acknowledgements under way between the sites. Messages in the staging delay have
        arrived."""
        for flow in self.flows:
            for queue in (*flow.outflow, flow.in_acks):
                if queue.depth:
                    what = "not applied yet in" if queue is flow.in_acks else "to ship in"
                    yield f"{self.site}: {queue.depth} {what} {queue.name}"

    def lacks_bridge(self, call: Call) -> bool:
        """Say whether a call is for a deleted bridge: the plugin deletes a flow together with its queue."""
        return call.goal in (Goal.LINK_UP, Goal.LINK_DOWN) and call.resource not in self.bridges

    def with_present_bean(self, call: Call) -> Call:
        """Give the call the present bean of a staging queue whose flow was deleted. A staging queue with messages stays
        paused, because its messages were not compared."""
        queue = self.by_name.get(call.resource)
        has_flow = any(flow.staging.name == call.resource for flow in self.flows)
        if call.goal is not Goal.RESUME or queue is None or queue.depth or has_flow:
            return call
        return replace(call, request=resume(self, queue).request)


ContinuitySnapshot = Snapshot[SiteView]
