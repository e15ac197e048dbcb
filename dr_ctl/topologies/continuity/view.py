"""What one look at a broker with the continuity plugin told: frozen values, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from dr_ctl.core.model import Json, Role
from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.plan import Call
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.artemis.broker import ArtemisBroker
from dr_ctl.topologies.artemis.operations import request
from dr_ctl.topologies.artemis.papers import Operation
from dr_ctl.topologies.common.calls import call, resume
from dr_ctl.topologies.common.evidence import total
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.view import Acceptor, Peer, Queue
from dr_ctl.topologies.continuity.figures import depth_of, late, lying, said, twice
from dr_ctl.topologies.continuity.papers import InFilter
from dr_ctl.topologies.topology import LinkSeen, Stake, drain_s

# How long the plugin waits for its peer to be drained before it delivers anyway: short where the gate has shown that it
# is, or nothing can come any more. The plugin itself takes the peer for drained only once all of its queues were empty
# in one moment, which clients that are let in meanwhile keep from coming: their acknowledgements go there.
WAITS_MS: Final = {Peer.DRAINED: 1_000, Peer.CLOSED: 20_000, Peer.NOT_DRAINED: 5_000, Peer.AWAY: 1_000}
PREFIX: Final = "continuity.cmd"
# The one call that opens or closes all client doors of a site's broker.
ACTIVATE_SITE: Final = "activateSite(java.lang.Long)"
DEACTIVATE_SITE: Final = "deactivateSite()"


@dataclass(frozen=True, slots=True)
class Service:
    """The plugin itself. `suffixes` name its queues: outflow of messages, of acknowledgements, inflow of both."""

    bean: str
    site_id: str
    activated: bool
    delivering: bool
    started: bool
    staging_ms: int
    interval_ms: float
    suffixes: tuple[str, str, str, str]
    prefix: str


@dataclass(frozen=True, slots=True)
class Bridge:
    """One bridge. Both counters only ever grow; what is between them is under way."""

    name: str
    bean: str
    started: bool
    forwarded: int
    acked: int


@dataclass(frozen=True, slots=True)
class Flow:
    """What carries one queue: its four queues, the two bridges that ship and the one that delivers."""

    queue: str
    address: str
    out_mirror: Queue
    out_acks: Queue
    in_mirror: Queue
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
        """Say whether all that is staged has been handed to the queue and was not taken: it lies there already, or the
        queue takes nothing. Only the ids tell these apart."""
        staged = self.in_mirror
        return staged.depth > 0 and staged.scheduled == 0 and staged.delivering == staged.depth


@dataclass(frozen=True, slots=True)
class Commands:
    """How the two plugins talk to each other."""

    out: Queue
    into: Queue
    bridge: Bridge


@dataclass(frozen=True, slots=True)
class SiteView(ArtemisBroker):
    """One broker as it answered. `service` is None where the plugin has not started."""

    service: Service | None
    flows: tuple[Flow, ...]
    commands: Commands | None
    _flows: Mapping[str, Flow] = field(init=False, repr=False, compare=False)
    _bridges: Mapping[str, Bridge] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ArtemisBroker.__post_init__(self)
        bridges = [bridge for flow in self.flows for bridge in (*flow.shipping, flow.target_bridge)]
        object.__setattr__(self, "_flows", {flow.queue: flow for flow in self.flows})
        object.__setattr__(self, "_bridges", {bridge.name: bridge for bridge in bridges})

    @property
    def open(self) -> bool:
        """Clients may get in as soon as the plugin is activated, delivering or not."""
        return any(door.started for door in self.doors) or (self.service is not None and self.service.activated)

    @property
    def role(self) -> Role:
        if self.service is None or not self.service.started or self.missing_doors:
            return Role.UNKNOWN
        return Role.SERVING if self.open else Role.STANDBY

    @property
    def delivers(self) -> bool:
        return self.service is not None and self.service.activated and self.service.delivering

    @property
    def half_open(self) -> bool:
        """Clients may get in, and nothing that is staged is delivered yet."""
        return self.service is not None and self.service.activated and not self.service.delivering

    @property
    def mirror_doors(self) -> tuple[Acceptor, ...]:
        """The acceptors that the peer's bridges use: as set, else the only one with a port that is not for clients."""
        if self.config.mirror is not None:
            return tuple(each for each in self.acceptors if each.name in self.config.mirror)
        clients = self.config.clients
        others = [each for each in self.acceptors if each.name not in clients and each.port is not None]
        return tuple(others) if len(others) == 1 else ()

    @property
    def other_doors(self) -> tuple[Acceptor, ...]:
        """Doors of the host itself, as the plugin's own sessions use one, are no doors."""
        mine = {each.name for each in (*self.doors, *self.mirror_doors)}
        return tuple(each for each in self.acceptors if each.name not in mine and each.port is not None)

    @property
    def attached(self) -> bool | None:
        """A bridge that is connected is a consumer of the queue that it ships."""
        if self.commands is None:
            return None
        return all(queue.consumers for flow in self.flows for queue in flow.outflow) and self.commands.out.consumers > 0

    @property
    def hears_peer(self) -> bool:
        """Its own bridges only. Those of the peer come over the Core protocol, which may reconnect: a broker lists such
        a connection for its time to live, a minute, after the other end was killed (seen for 53 s)."""
        return bool(self.attached)

    @property
    def to_ship(self) -> int | None:
        if self.service is None:
            return None
        return total(depth_of(queue) for flow in self.flows for queue in flow.outflow)

    @property
    def unapplied(self) -> int | None:
        if self.service is None:
            return None
        return total(depth_of(flow.in_acks) for flow in self.flows)

    @property
    def ships(self) -> Mapping[str, bool]:
        told = {bridge.name: bridge.started for flow in self.flows for bridge in flow.shipping}
        return told | ({self.commands.bridge.name: self.commands.bridge.started} if self.commands is not None else {})

    @property
    def counted(self) -> Iterable[Queue]:
        flows = [queue for flow in self.flows for queue in (*flow.outflow, flow.in_mirror, flow.in_acks)]
        return [*self.business.values(), *flows]

    @property
    def boots_closed(self) -> bool | None:
        """The plugin closes its doors at every start; whether it opens them again when the peer talks, it keeps."""
        return None

    @property
    def settable(self) -> Mapping[str, Json]:
        return {
            "commands_paused": self.commands is not None and self.commands.out.paused,
            "staging_paused": [flow.queue for flow in self.flows if flow.in_mirror.paused],
        }

    @property
    def papers(self) -> InFilter:
        return InFilter(self.service.prefix if self.service is not None else PREFIX)

    def flow(self, queue: str) -> Flow | None:
        return self._flows.get(queue)

    def places(self, queue: str) -> tuple[Queue, Queue]:
        """Where the messages of a flow lie: in the clients' queue, and staged. LookupError where there is no flow."""
        flow = self.flow(queue)
        if flow is None:
            raise LookupError(f"{self.site} has no flow of {queue}")
        return self.business[queue], flow.in_mirror

    def lying(self, queue: str) -> list[Queue]:
        """The same, of what there is, in the order in which a message goes through them."""
        flow, there = self.flow(queue), self.business.get(queue)
        return [*([flow.in_mirror] if flow is not None else []), *([there] if there is not None else [])]

    def lies(self, queue: str) -> int:
        """How many messages of a queue lie here, delivered or staged."""
        return sum(each.depth for each in self.lying(queue))

    def unsettled(self) -> Iterator[str]:
        yield from self.uncomparable()
        if self.commands is not None:
            for queue in (self.commands.out, self.commands.into):
                if queue.depth:
                    yield f"{self.site}: {queue.depth} command(s) in {queue.name}"

    def uncomparable(self) -> Iterator[str]:
        """What keeps the messages of both sites from being compared by id: all but commands, which say nothing of
        them."""
        if self.service is None or self.commands is None:
            yield f"{self.site}: the continuity plugin has not started"
            return
        if stopped := [name for name, started in self.ships.items() if not started]:
            yield f"{self.site}: bridge {', '.join(stopped[:3])} is stopped"
        elif not self.attached:
            yield f"{self.site}: a bridge is not connected to its peer"
        yield from self.under_way()
        for flow in self.flows:
            if flow.in_mirror.scheduled:
                yield f"{self.site}: {flow.in_mirror.scheduled} in {flow.in_mirror.name} for the staging delay"

    def under_way(self) -> Iterator[str]:
        """What of messages and acknowledgements is on its way between the sites. What waits for the staging delay has
        arrived, and a command says nothing of them."""
        for flow in self.flows:
            for queue in (*flow.outflow, flow.in_acks):
                if queue.depth:
                    what = "not applied yet in" if queue is flow.in_acks else "to ship in"
                    yield f"{self.site}: {queue.depth} {what} {queue.name}"

    def opening(self, doors: Iterable[Acceptor], peer: Peer, when: str | None = None) -> tuple[Call, ...]:
        if not (list(doors) or self.half_open):
            return ()
        return (self._call(Goal.OPEN, (ACTIVATE_SITE, (WAITS_MS[peer],)), "activate the site", when),)

    def closing(self, doors: Iterable[Acceptor], when: str | None = None) -> tuple[Call, ...]:
        activated = self.service is not None and self.service.activated
        if not (list(doors) or activated):
            return ()
        return (self._call(Goal.CLOSE, (DEACTIVATE_SITE, ()), "deactivate the site", when),)

    def holds(self, call: Call) -> bool:
        match call.goal:
            case Goal.OPEN if call.thing == ALL:
                return self.delivers and all(door.started for door in self.doors)
            case Goal.CLOSE if call.thing == ALL:
                return not self.open
            case Goal.LINK_UP | Goal.LINK_DOWN:
                bridge = self._bridges.get(call.thing)
                return bridge is not None and bridge.started is (call.goal is Goal.LINK_UP)
        return ArtemisBroker.holds(self, call)

    def gone_with_its_queue(self, call: Call) -> bool:
        """Say whether a call is for a bridge that is not there any more: a queue takes its flow along."""
        return call.goal in (Goal.LINK_UP, Goal.LINK_DOWN) and call.thing not in self._bridges

    def as_it_lies(self, call: Call) -> Call:
        """The same, by the bean that a staging queue has now where the queue that it was for was deleted. What lies in
        it was not compared: then it stays held."""
        carried = {flow.in_mirror.name for flow in self.flows}
        left = next((each for each in self.queues if each.name == call.thing and each.name not in carried), None)
        if call.goal is not Goal.RESUME or left is None or left.depth:
            return call
        return replace(call, request=resume(self, left).request)

    def linked(self, before: SiteView | None, took_s: float) -> LinkSeen:
        """All bridges as one, with the four figures that the plugin's own design asked for: what may be lost, what may
        come twice, how old the oldest of it is, how long it would take to be even."""
        rate = self._shipping_rate(before, took_s)
        messages = acks = unapplied = even_s = oldest_s = None
        if self.service is not None:
            messages = total(depth_of(flow.out_mirror) for flow in self.flows)
            acks = total(depth_of(flow.out_acks) for flow in self.flows)
            unapplied = self.unapplied
            even_s = drain_s(total((messages, acks, unapplied)), rate)
            ages = [flow.out_mirror.oldest_ms for flow in self.flows if flow.out_mirror.oldest_ms is not None]
            oldest_s = 0.0 if messages == 0 else round(max(ages) / 1000, 3) if ages else None
        started = all(self.ships.values()) if self.service is not None else None
        line = "the continuity plugin has not started: what its bridges hold was not read"
        if self.service is not None:
            state = "connected" if self.attached else "started, not connected" if started else "stopped"
            oldest = f", the oldest {duration(oldest_s)} old" if oldest_s else ""
            time = f"{duration(even_s)} to be even" if even_s is not None else "time to be even not known"
            line = (
                f"bridges {state}; {said(messages)} message(s) to ship{oldest}, "
                f"{said(acks)} acknowledgement(s) to ship, {said(unapplied)} not applied; {time}"
            )
        more: dict[str, Json] = {
            "loss_risk": messages,
            "duplicate_risk": acks,
            "recovery_point_s": oldest_s,
            "recovery_time_s": even_s,
        }
        return LinkSeen(
            self.site, self.pair, "bridges", started, self.attached, self.to_ship, unapplied, rate, (line,), more
        )

    def _shipping_rate(self, before: SiteView | None, took_s: float) -> float | None:
        """What was confirmed between two looks at one start of the broker, a second."""
        if before is None or before.start != self.start or self.service is None or before.service is None:
            return None
        was = {flow.queue: flow for flow in before.flows}
        if any(flow.queue not in was for flow in self.flows):
            return None
        shipped = sum(
            bridge.acked - old.acked
            for flow in self.flows
            for bridge, old in zip(flow.shipping, was[flow.queue].shipping, strict=True)
        )
        return shipped / took_s

    def outflow_rows(self, peer: SiteView | None, at: datetime) -> Iterator[Row]:
        """Each flow carries messages and acknowledgements by themselves.

        Depths saw-tooth by up to two seconds of traffic because confirmations come in batches: an upper bound, as it
        must. What lies at the peer goes with it: lost acknowledgements show nowhere else.
        """
        for flow in self.flows:
            other = peer.flow(flow.queue) if peer is not None else None
            if peer is not None and other is not None and lying(peer, flow.queue) is not None:
                there = replace(other.in_mirror.row(self, at), delivering=None, added=None, removed=None)
                yield replace(there, kind="staged", name=flow.queue, depth=peer.lies(flow.queue))
            for kind, queue, bridge in (
                ("mirror", flow.out_mirror, flow.mirror_bridge),
                ("acks", flow.out_acks, flow.acks_bridge),
            ):
                if not queue.counted:
                    continue
                pending = depth_of(other.in_acks) if kind == "acks" and other is not None else None
                connected = bridge.started and queue.consumers > 0
                yield replace(queue.row(self, at), kind=kind, name=flow.queue, link=connected, pending=pending)

    def stake(self, peer: SiteView | None) -> Stake:
        """By flow."""
        if self.service is None:
            return Stake(None, None, None)
        flows = {flow.queue: (depth_of(flow.out_mirror), twice(self, flow, peer)) for flow in self.flows}
        queues = {name: (lost, twice) for name, (lost, twice) in flows.items() if lost is not None}
        return Stake(
            total(lost for lost, _ in flows.values()),
            total(twice for _, twice in flows.values()),
            queues if len(queues) == len(flows) else None,
        )

    @property
    def residue(self) -> Residue | None:
        """A message that comes in late comes twice only if it is to be shipped and still lies in its queue,
        unacknowledged: never more than either. None where the plugin has not started, or the broker counts wrongly."""
        if self.service is None:
            return None
        messages = total(depth_of(flow.out_mirror) for flow in self.flows)
        acks = total(depth_of(flow.out_acks) for flow in self.flows)
        again = total(late(self, flow) for flow in self.flows)
        return (
            Residue(messages, acks, again) if messages is not None and acks is not None and again is not None else None
        )

    def _call(self, goal: Goal, operation: Operation, about: str, when: str | None) -> Call:
        """The plugin opens and closes all client doors of its broker at once."""
        bean = self.service.bean if self.service is not None else ""
        return call(self, goal, ALL, request(bean, *operation), about, when)


ContinuitySeen = Seen[SiteView]
