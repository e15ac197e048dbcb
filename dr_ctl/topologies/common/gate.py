"""The gate: the conditions that must hold together, over a window, before the target may be opened. Pure.

Zero in the outflows is not enough: an acknowledgement may wait at the target, a consumer there may hold what it names,
a prepared transaction may show nowhere. The whole is therefore judged on full looks, several in a row, with nothing
added at either site in between.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic

from dr_ctl.topologies.common.names import CLUSTER_PREFIX
from dr_ctl.topologies.common.seen import V_co
from dr_ctl.topologies.common.view import Broker


@dataclass(frozen=True, slots=True)
class Sample(Generic[V_co]):
    at_s: float
    source: V_co
    target: V_co


def why_not_yet(now: Sample[Any], before: Sample[Any] | None) -> list[str]:
    """Say everything that keeps the gate shut; `before` is the sample that began the window."""
    found = []
    if now.source.link.missing:
        found.append(f"{now.source.site} has no link to {now.target.site}: nothing is shipped")
    for view in (now.source, now.target):
        found += list(clients_of(view))
        found += list(view.link.unsettled())
        found += list(_between_brokers(view))
    for view, peer in ((now.source, now.target), (now.target, now.source)):
        found += [f"{view.site} has a client on the door of the link: {each}" for each in view.fence.beside_link(peer)]
    found += [f"{now.target.site}: {each.text}" for each in now.target.obstacles if not each.addresses]
    return found + (moved(before, now) if before is not None else [])


def moved(before: Sample[Any], now: Sample[Any]) -> list[str]:
    """Say what came in between two samples, or why that cannot be told."""
    both = ((before.source, now.source), (before.target, now.target))
    return [reason for was, view in both for reason in _unmoved(was, view)]


def clients_of(view: Broker) -> Iterator[str]:
    """Say what clients still have to do with a broker: a way in, a connection, messages that may yet come back to their
    queue."""
    if view.open:
        yield f"{view.site} lets clients in"
    doors = {door.port for door in (*view.doors, *view.fence.leaves_open) if door.port is not None}
    if there := [each for each in view.connections if each.port in doors and not view.is_within(each)]:
        yield f"{view.site} has {len(there)} client connection(s), the first from {there[0].remote}"
    if held := [each for each in view.consumers if each.queue in view.business]:
        yield f"{view.site} has a consumer of {held[0].queue}: {held[0].told}"
    if busy := [queue.name for queue in view.business.values() if queue.delivering > 0]:
        yield f"{view.site} has messages in delivery: {', '.join(busy[:3])}"
    if unknown := [queue.name for queue in view.business.values() if not queue.counted]:
        yield f"{view.site}: what lies in {', '.join(unknown[:3])} cannot be told"
    if view.prepared:
        yield f"{view.site} has {len(view.prepared)} prepared transaction(s)"


def _between_brokers(view: Broker) -> Iterator[str]:
    for queue in view.queues:
        if queue.name.startswith(CLUSTER_PREFIX) and queue.depth:
            yield f"{view.site}: {queue.depth} between brokers of the site in {queue.name}"


def _unmoved(before: Broker, now: Broker) -> Iterator[str]:
    if before.start != now.start:
        yield f"{now.site} was restarted"
        return
    was = {queue.bean: queue.added for queue in before.link.counters}
    for queue in now.link.counters:
        if queue.added != was.get(queue.bean, 0):
            yield f"{now.site}: {queue.name} is still being added to"
