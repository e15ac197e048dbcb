"""Figures from depths of the plugin's queues; unknown where a broker counts one below zero. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dr_ctl.topologies.common.evidence import total

if TYPE_CHECKING:
    from dr_ctl.topologies.common.view import Queue
    from dr_ctl.topologies.continuity.view import Flow, SiteView


def depth_of(queue: Queue) -> int | None:
    """The depth of a queue; returns None where the counters cannot be believed."""
    return queue.depth if queue.counted else None


def lying(view: SiteView, queue: str) -> int | None:
    """How many messages of a queue lie at a broker, delivered or staged."""
    return total(depth_of(each) for each in view.lying(queue))


def duplicates(view: SiteView, flow: Flow, peer: SiteView | None) -> int | None:
    """How much of one flow may come twice at the peer."""
    other = peer.flow(flow.queue) if peer is not None else None
    if peer is None or other is None:
        return None
    acks = total((depth_of(flow.out_acks), depth_of(other.in_acks)))
    if acks is None or flow.queue not in view.business:
        return acks
    # The count includes lost acknowledgements: messages there, less messages here that have been shipped.
    here, there, to_ship = depth_of(view.business[flow.queue]), lying(peer, flow.queue), depth_of(flow.out_mirror)
    if here is None or there is None or to_ship is None:
        return None
    return max(acks, there - max(0, here - to_ship))


def late(view: SiteView, flow: Flow) -> int | None:
    """How much of what one flow is to ship still lies in its queue."""
    to_ship, queue = depth_of(flow.out_mirror), view.business.get(flow.queue)
    here = depth_of(queue) if queue is not None else to_ship
    return min(to_ship, here) if to_ship is not None and here is not None else None
