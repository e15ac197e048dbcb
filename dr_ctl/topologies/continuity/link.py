"""The plugin's bridges of one broker, which carry messages and acknowledgements by themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from dr_ctl.core.model import Json
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.artemis.bridging import nodes, others
from dr_ctl.topologies.common.evidence import said, total
from dr_ctl.topologies.common.link import Link
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.common.view import Acceptor, Connection, Queue
from dr_ctl.topologies.continuity.figures import depth_of, duplicates, late, lying
from dr_ctl.topologies.topology import LinkSeen, Stake, drain_s

if TYPE_CHECKING:
    from dr_ctl.topologies.continuity.view import SiteView


class ContinuityLink(Link["SiteView"]):
    def guests(self, peer: SiteView | None) -> list[Connection]:
        return others(self.at_doors(), peer.link if peer is not None else None)

    @property
    def doors(self) -> tuple[Acceptor, ...]:
        return self.only_door(lambda each: each.port is not None)

    @property
    def reserved(self) -> Collection[str]:
        """Doors without a port, too: the plugin's own sessions use one."""
        return {*super().reserved, *(each.name for each in self.view.acceptors if each.port is None)}

    @property
    def attached(self) -> bool | None:
        """A bridge that is connected is a consumer of the queue that it ships."""
        view = self.view
        if view.commands is None:
            return None
        return all(queue.consumers for flow in view.flows for queue in flow.outflow) and view.commands.out.consumers > 0

    @property
    def peer_nodes(self) -> Sequence[str]:
        return nodes([self.view.service.connectors] if self.view.service is not None else [])

    def holds_of(self, queue: str) -> int | None:
        """Messages that have arrived lie staged until this site is activated."""
        lying = self.view.lying(queue)
        return sum(each.depth for each in lying) if lying and all(each.counted for each in lying) else None

    # The plugin goes on asking for the queues of a flow that were removed, until its broker is started again.
    keeps = True

    @property
    def hears_peer(self) -> bool:
        """One bridge is enough: the others may be stopped."""
        view = self.view
        shipping = [queue for flow in view.flows for queue in flow.outflow]
        return any(queue.consumers for queue in (*shipping, *([view.commands.out] if view.commands else [])))

    @property
    def arrivals(self) -> int | None:
        return sum(queue.added for flow in self.view.flows for queue in (flow.in_mirror, flow.in_acks))

    @property
    def to_ship(self) -> int | None:
        if self.view.service is None:
            return None
        return total(depth_of(queue) for flow in self.view.flows for queue in flow.outflow)

    @property
    def unapplied(self) -> int | None:
        if self.view.service is None:
            return None
        return total(depth_of(flow.in_acks) for flow in self.view.flows)

    @property
    def ships(self) -> Mapping[str, bool]:
        view = self.view
        bridges = {bridge.name: bridge.started for flow in view.flows for bridge in flow.shipping}
        return bridges | (
            {view.commands.bridge.name: view.commands.bridge.started} if view.commands is not None else {}
        )

    @property
    def counters(self) -> Iterable[Queue]:
        flows = [queue for flow in self.view.flows for queue in (*flow.outflow, flow.in_mirror, flow.in_acks)]
        return [*self.view.business.values(), *flows]

    @property
    def settable(self) -> Mapping[str, Json]:
        view = self.view
        return {
            "commands_paused": view.commands is not None and view.commands.out.paused,
            "staging_paused": [flow.queue for flow in view.flows if flow.in_mirror.paused],
        }

    def unsettled(self) -> Iterator[str]:
        view = self.view
        yield from view.uncomparable()
        if view.commands is not None:
            for queue in (view.commands.out, view.commands.into):
                if queue.depth:
                    yield f"{view.site}: {queue.depth} command(s) in {queue.name}"

    def holds(self, call: Call) -> bool | None:
        if call.goal not in (Goal.LINK_UP, Goal.LINK_DOWN):
            return None
        bridge = self.view.bridges.get(call.thing)
        return bridge is not None and bridge.started is (call.goal is Goal.LINK_UP)

    def linked(self, before: SiteView | None, took_s: float) -> LinkSeen:
        """The bridges as one link, with the four figures that the plugin's own design asked for: loss risk, duplicate
        risk, recovery point, recovery time."""
        view = self.view
        rate = self._shipping_rate(before, took_s)
        messages = acks = unapplied = even_s = oldest_s = None
        if view.service is not None:
            messages = total(depth_of(flow.out_mirror) for flow in view.flows)
            acks = total(depth_of(flow.out_acks) for flow in view.flows)
            unapplied = self.unapplied
            even_s = drain_s(total((messages, acks, unapplied)), rate)
            ages = [flow.out_mirror.oldest_ms for flow in view.flows if flow.out_mirror.oldest_ms is not None]
            oldest_s = 0.0 if messages == 0 else round(max(ages) / 1000, 3) if ages else None
        started = all(self.ships.values()) if view.service is not None else None
        line = "the continuity plugin has not started: what its bridges hold was not read"
        if view.service is not None:
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
            view.site, view.pair, "bridges", started, self.attached, self.to_ship, unapplied, rate, (line,), more
        )

    def _shipping_rate(self, before: SiteView | None, took_s: float) -> float | None:
        """Messages a second that were confirmed between two looks at one start of the broker."""
        view = self.view
        if before is None or before.start != view.start or view.service is None or before.service is None:
            return None
        was = {flow.queue: flow for flow in before.flows}
        if any(flow.queue not in was for flow in view.flows):
            return None
        shipped = sum(
            bridge.acked - old.acked
            for flow in view.flows
            for bridge, old in zip(flow.shipping, was[flow.queue].shipping, strict=True)
        )
        return shipped / took_s

    def rows(self, peer: SiteView | None, at: datetime) -> Iterator[Row]:
        """The flows carry messages and acknowledgements by themselves.

        Depths saw-tooth by up to two seconds of traffic because confirmations come in batches: the depth is an upper
        bound. Messages at the peer are shown too: lost acknowledgements show nowhere else.
        """
        view = self.view
        for flow in view.flows:
            other = peer.flow(flow.queue) if peer is not None else None
            if peer is not None and other is not None and lying(peer, flow.queue) is not None:
                there = replace(other.in_mirror.row(view, at), delivering=None, added=None, removed=None)
                yield replace(there, kind="staged", name=flow.queue, depth=peer.lies(flow.queue))
            for kind, queue, bridge in (
                ("mirror", flow.out_mirror, flow.mirror_bridge),
                ("acks", flow.out_acks, flow.acks_bridge),
            ):
                if not queue.counted:
                    continue
                pending = depth_of(other.in_acks) if kind == "acks" and other is not None else None
                connected = bridge.started and queue.consumers > 0
                yield replace(queue.row(view, at), kind=kind, name=flow.queue, link=connected, pending=pending)

    def stake(self, peer: SiteView | None) -> Stake:
        """By flow."""
        view = self.view
        if view.service is None:
            return Stake(None, None, None)
        flows = {flow.queue: (depth_of(flow.out_mirror), duplicates(view, flow, peer)) for flow in view.flows}
        queues = {name: (lost, duplicates) for name, (lost, duplicates) in flows.items() if lost is not None}
        return Stake(
            total(lost for lost, _ in flows.values()),
            total(duplicates for _, duplicates in flows.values()),
            queues if len(queues) == len(flows) else None,
        )

    @property
    def residue(self) -> Residue | None:
        """A late message comes twice only if it is to be shipped and still lies in its queue, unacknowledged. Gives
        None if the plugin has not started, or the broker counts wrongly."""
        view = self.view
        if view.service is None:
            return None
        messages = total(depth_of(flow.out_mirror) for flow in view.flows)
        acks = total(depth_of(flow.out_acks) for flow in view.flows)
        again = total(late(view, flow) for flow in view.flows)
        return (
            Residue(messages, acks, again) if messages is not None and acks is not None and again is not None else None
        )
