"""What `status`, the history and a failover's price take from a look at a pair with the continuity plugin. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from dr_ctl.core.model import Json
from dr_ctl.rpo.row import Row
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.artemis.showing import Carried, counted, drain_s, of_queue
from dr_ctl.topologies.continuity import taken_in
from dr_ctl.topologies.continuity.view import SiteView


def link(view: SiteView, before: SiteView | None, took_s: float) -> dict[str, Json]:
    """The bridges of one broker, for `data.links`, with the four figures that the plugin's own design asked for:
    what may be lost, what may come twice, how old the oldest of it is, how long it would take to be even."""
    same = before is not None and before.start == view.start
    was = {flow.queue: flow for flow in before.flows} if before is not None and same else {}
    messages, acks = sum(f.out_mirror.depth for f in view.flows), sum(f.out_acks.depth for f in view.flows)
    known = same and all(flow.queue in was for flow in view.flows)
    shipped = sum(
        bridge.acked - old.acked
        for flow in view.flows
        if flow.queue in was
        for bridge, old in zip(flow.shipping, was[flow.queue].shipping, strict=True)
    )
    rate = shipped / took_s if known else None
    ages = [flow.out_mirror.oldest_ms for flow in view.flows if flow.out_mirror.oldest_ms is not None]
    return {
        "from": view.site,
        "pair": view.pair,
        "name": "bridges",
        "started": bool(view.ships) and all(view.ships.values()),
        "attached": view.attached,
        "outflow": view.to_ship,
        "rate": round(rate, 1) if rate is not None else None,
        "drain_s": drain_s(view.to_ship, rate),
        "pending_acks": view.unapplied,
        "loss_risk": messages,
        "duplicate_risk": acks,
        "recovery_point_s": 0.0 if messages == 0 else round(max(ages) / 1000, 3) if ages else None,
        "recovery_time_s": drain_s((view.to_ship or 0) + (view.unapplied or 0), rate),
    }


def lines(told: Mapping[str, Json]) -> list[str]:
    """The same in words."""
    state = "connected" if told["attached"] else "started, not connected" if told["started"] else "stopped"
    age, even = told["recovery_point_s"], told["recovery_time_s"]
    oldest = f", the oldest {duration(float(str(age)))} old" if age else ""
    time = f"{duration(float(str(even)))} to be even" if even is not None else "time to be even not known"
    acks = f"{told['duplicate_risk']} acknowledgement(s) to ship, {told['pending_acks']} not applied"
    return [f"bridges {state}; {told['loss_risk']} message(s) to ship{oldest}, {acks}; {time}"]


def rows(view: SiteView, peer: SiteView | None, at: datetime) -> list[Row]:
    """The history of one broker: each flow carries messages and acknowledgements by themselves.

    Depths saw-tooth by up to two seconds of traffic because confirmations come in batches: an upper bound, as it must.
    """
    found = []
    for flow in view.flows:
        other = peer.flow(flow.queue) if peer is not None else None
        for kind, queue, bridge in (
            ("mirror", flow.out_mirror, flow.mirror_bridge),
            ("acks", flow.out_acks, flow.acks_bridge),
        ):
            row = replace(
                counted(view, queue, at),
                kind=kind,
                name=flow.queue,
                link=bridge.started and queue.consumers > 0,
                pending=other.in_acks.depth if kind == "acks" and other is not None else None,
            )
            found.append(row)
    return found + [of_queue(view, queue, at) for queue in view.business.values()]


def carried(view: SiteView, peer: SiteView | None) -> Carried:
    """What a closed site may take with it, by flow."""
    queues: dict[str, tuple[int, int | None]] = {}
    for flow in view.flows:
        other = peer.flow(flow.queue) if peer is not None else None
        queues[flow.queue] = (flow.out_mirror.depth, flow.out_acks.depth + other.in_acks.depth if other else None)
    if view.service is None:
        return Carried(None, None, None)
    twice = [each for _, each in queues.values()]
    return Carried(
        sum(lost for lost, _ in queues.values()),
        None if None in twice else sum(each or 0 for each in twice),
        queues,
    )


def residue(views: Iterable[SiteView]) -> dict[str, Json]:
    """What a returned site still holds for the other, for `data.residue`: said before a return changes anything."""
    return sum((taken_in.held(view) for view in views), taken_in.Held()).as_json()
