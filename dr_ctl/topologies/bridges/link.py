"""The bridges of one broker, and the ids that it ships beside the messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from dr_ctl.core.model import Json
from dr_ctl.core.printable import if_known
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.artemis.bridging import nodes, others
from dr_ctl.topologies.common.evidence import said, total
from dr_ctl.topologies.common.link import Carries, Link
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.common.view import Acceptor, Connection, Queue
from dr_ctl.topologies.topology import LinkSeen, Stake, drain_s

if TYPE_CHECKING:
    from dr_ctl.topologies.bridges.view import BrokerView


class BridgesLink(Link["BrokerView"]):
    def guests(self, peer: BrokerView | None) -> list[Connection]:
        return others(self.at_doors(), peer.link if peer is not None else None)

    @property
    def doors(self) -> tuple[Acceptor, ...]:
        return self.only_door(lambda each: "CORE" in each.protocols)

    @property
    def attached(self) -> bool | None:
        return all(flow.attached for flow in self.view.carrying) if self.view.flows else None

    def carries(self, queue: str) -> Carries:
        """A copy stays until it is trimmed: what is processed is told by ids, which consumers send."""
        return Carries.MESSAGES if any(flow.unit == queue for flow in self.view.flows) else Carries.NOTHING

    @property
    def needs(self) -> str:
        return "Add a divert and a bridge for {} to broker.xml, as for the other queues, and the queue at both sites."

    @property
    def hears_peer(self) -> bool:
        """One bridge is enough: the others may be stopped."""
        return any(flow.attached for flow in self.view.carrying)

    @property
    def peer_nodes(self) -> Sequence[str]:
        return nodes(bridge.connectors for flow in self.view.carrying for bridge in flow.bridges)

    @property
    def arrivals(self) -> int | None:
        """Copies for queues whose clients are kept out, and ids: bridges alone bring these."""
        view = self.view
        copies = (queue for unit, is_open in view.units.items() if not is_open for queue in view.queues_of(unit))
        return sum(queue.added for queue in (*copies, *view.arrived))

    @property
    def to_ship(self) -> int | None:
        return total(flow.to_ship for flow in self.view.flows) if self.view.flows else None

    def left_to_ship(self) -> Iterator[str]:
        """Messages, and the ids of processed messages: without these the peer processes them again."""
        yield from super().left_to_ship()
        ids = self.view.ids_to_ship
        if self.view.ids is not None and ids is None:
            yield f"the processed ids of {self.view.site} were not read"
        elif ids:
            yield f"{ids} id(s) to ship at {self.view.site}"

    @property
    def unapplied(self) -> int | None:
        """Ids of the peer that arrived and are not in the id store of this site yet."""
        return (
            total(queue.depth if queue.counted else None for queue in self.view.arrived) if self.view.arrived else None
        )

    def unsettled(self) -> Iterator[str]:
        view = self.view
        for flow in view.carrying:
            if not flow.attached:
                yield f"{view.site}: the bridge of {flow.unit} is not connected"
            if flow.to_ship != 0:
                yield f"{view.site}: {if_known(flow.to_ship)} to ship of {flow.unit}"
        if self.unapplied != 0:
            yield f"{view.site}: {said(self.unapplied)} id(s) not applied yet"

    @property
    def ships(self) -> Mapping[str, bool]:
        return {bridge.name: bridge.started for flow in self.view.carrying for bridge in flow.bridges}

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
        """Of its doors too, which a return opens one by one."""
        if call.goal not in (Goal.LINK_UP, Goal.LINK_DOWN):
            return None
        doors = {door.name: door.started for door in self.view.acceptors}
        return (doors | {**self.ships}).get(call.thing) is (call.goal is Goal.LINK_UP)

    def linked(self, before: BrokerView | None, took_s: float) -> LinkSeen:
        view = self.view
        rate = self._rate(before, took_s)
        started = all(self.ships.values()) if self.ships else None
        even_s = drain_s(self.to_ship, rate)
        return LinkSeen(
            view.site, view.pair, "bridges", started, self.attached, self.to_ship, self.unapplied, rate,
            tuple(self._lines(even_s)),
            {"ids_to_ship": view.ids_to_ship, "queues": {flow.unit: flow.to_ship for flow in view.flows}},
            messages_alone=True,
        )  # fmt: skip

    def _lines(self, even_s: float | None) -> Iterator[str]:
        view = self.view
        if not any(flow.bridges for flow in view.carrying):
            yield "no bridge is there: what the buffers hold stays where it is"
        away = [flow.unit for flow in view.carrying if flow.bridges and not flow.attached]
        state = f"not connected: {', '.join(away[:3])}" if away else "connected"
        left = f", {duration(even_s)} to drain" if even_s is not None else ""
        yield (
            f"bridges {state}; {said(self.to_ship)} message(s) and {said(view.ids_to_ship)} processed id(s) to ship, "
            f"{said(self.unapplied)} id(s) of the peer not applied{left}"
        )

    def _rate(self, before: BrokerView | None, took_s: float) -> float | None:
        """Messages a second that left the buffers between two looks at one start of the broker."""
        view = self.view
        if before is None or before.start != view.start:
            return None
        pairs = [(flow.buffer, was.buffer) for flow in view.flows if (was := before.flow(flow.unit)) is not None]
        if len(pairs) < len(view.flows) or any(None in pair for pair in pairs):
            return None
        return sum(now.removed - was.removed for now, was in pairs if now is not None and was is not None) / took_s

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
        lost = {flow.unit: total((flow.to_ship, self.view.uncopied(flow))) for flow in self.view.flows}
        queues = {unit: (depth, None) for unit, depth in lost.items() if depth is not None}
        return Stake(total(lost.values()) if lost else None, duplicates, queues if len(queues) == len(lost) else None)

    @property
    def residue(self) -> Residue | None:
        if self.to_ship is None or self.view.ids_to_ship is None:
            return None
        doubled = sum(map(len, (self.view.unannounced or {}).values()))
        return Residue(self.to_ship, self.view.ids_to_ship, doubled or None)
