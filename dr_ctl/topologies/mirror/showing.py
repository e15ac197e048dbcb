"""What `status`, the history and a failover's price take from a look at a mirrored pair. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from dr_ctl.core.model import Json
from dr_ctl.rpo.row import Row
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.artemis.showing import Carried, counted, drain_s, of_queue
from dr_ctl.topologies.mirror.view import BrokerView


def link(view: BrokerView, before: BrokerView | None, took_s: float) -> dict[str, Json]:
    """The link of one broker, for `data.links`; the rate is None where two looks do not tell."""
    named, outflow = view.link, view.outflow
    was = before.outflow if before is not None and before.start == view.start else None
    rate = (outflow.removed - was.removed) / took_s if outflow is not None and was is not None else None
    depth = outflow.depth if outflow is not None else None
    return {
        "from": view.site,
        "pair": view.pair,
        "name": named.name if named is not None else None,
        "started": named.started if named is not None else None,
        "attached": view.attached,
        "outflow": depth,
        "rate": round(rate, 1) if rate is not None else None,
        "drain_s": drain_s(depth, rate),
        "pending_acks": view.pending_acks,
    }


def lines(told: Mapping[str, Json]) -> list[str]:
    """The same in words."""
    state = "attached" if told["attached"] else "started, not attached" if told["started"] else "not started"
    drain = told["drain_s"]
    left = f", {duration(float(str(drain)))} to drain" if drain is not None else ", time to drain not known"
    rate = f" at {told['rate']}/s" if told["rate"] is not None else ""
    return [f"link {told['name']} {state}; {told['outflow']} to ship{rate}{left}"]


def rows(view: BrokerView, peer: BrokerView | None, at: datetime) -> list[Row]:
    """The history of one broker: a single stream carries messages and acknowledgements for all queues."""
    found = []
    if view.outflow is not None and view.link is not None:
        pending = peer.pending_acks if peer is not None else None
        found.append(
            replace(counted(view, view.outflow, at), kind="mixed", name="*", pending=pending, link=view.attached)
        )
    return found + [of_queue(view, queue, at) for queue in view.business.values()]


def carried(view: BrokerView, peer: BrokerView | None) -> Carried:
    """What a closed site may take with it: its outflow holds both, and does not say of which queue."""
    shipping = view.outflow.depth if view.outflow is not None else None
    pending = peer.pending_acks if peer is not None else None
    return Carried(shipping, None if shipping is None or pending is None else shipping + pending, None)
