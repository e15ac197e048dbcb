"""The state of a pair before a run, as far as dr-ctl may change it: an undo restores this, and nothing else. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from dr_ctl.core.model import Json
from dr_ctl.engine.lease import LOCK, LockDocument
from dr_ctl.engine.operations import FAILBACK
from dr_ctl.engine.ports import Move
from dr_ctl.engine.roles import NODES, PAIRS
from dr_ctl.rpo.core.starts import same_start
from dr_ctl.topologies.common.debts import is_debt
from dr_ctl.topologies.common.names import numbered
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.view import Broker

START: Final = "start"
RETURNED: Final = "returned"


def baseline(snapshot: Snapshot[Broker]) -> Mapping[str, Json]:
    """Listeners, links, pauses and debts of every broker that answered, and its start, by site and pair."""
    return {
        site: {view.pair: {**state_of(view), START: view.start} for view in snapshot.views(site)}
        for site in snapshot.sites
    }


def started_since(move: Move, view: Broker) -> bool:
    """Say whether a broker was started anew since the run began, as far as that is known."""
    return not same_start(before(move, view).get(START, view.start), view.start)


def was_open(move: Move, view: Broker) -> bool:
    """Say whether a listener of clients was open there before the run."""
    return any(before(move, view)["listeners"].values())


def before(move: Move, view: Broker) -> dict[str, Any]:
    """One broker in the baseline of a run; a broker silent at the start counts as it is now, and the target of a return
    as closed: it came back, whether open or not, and the undo of the move back leaves it closed."""
    site: Any = move.baseline.get(view.site, {})
    state: dict[str, Any] = site[view.pair] if view.pair in site else state_of(view)
    if move.ask.operation == FAILBACK and view.site == move.target:
        return {**state, "listeners": {}, "shut_out": True, RETURNED: True}
    return state


def paused_by_runs(view: Broker) -> frozenset[str]:
    """The queues that runs paused, by their locks: a later run must lift these pauses."""
    locks = [LockDocument.of_text(*each) for each in numbered(view.documents, LOCK)]
    return frozenset(queue for lock in locks for queues in lock.paused.values() for queue in queues)


def basis(snapshot: Snapshot[Broker]) -> Mapping[str, Json]:
    """The facts a plan rests on, by site and pair. Messages that come and go change none of them."""
    return {
        "brokers": {
            site: {view.pair: {**state_of(view), "version": view.version} for view in snapshot.views(site)}
            for site in snapshot.sites
        },
        PAIRS: {
            site: [*sorted(broker.pair for broker in snapshot.brokers if broker.site == site)]
            for site in snapshot.sites
        },
        NODES: {site: {view.pair: view.node for view in snapshot.views(site)} for site in snapshot.sites},
    }


def state_of(view: Broker) -> dict[str, Json]:
    by_runs = paused_by_runs(view)
    locks: dict[str, Json] = {name: name in view.fence.contends for name in (*view.fence.contends, *view.fence.rests)}
    return {
        "listeners": {listener.name: listener.started for listener in view.listeners},
        "mirror": {listener.name: listener.started for listener in view.link.listeners},
        "barred": view.link.barred,
        "link": dict(view.link.ships),
        "paused": [name for name in view.paused if name not in by_runs],
        "acceptors": {listener.name: listener.started for listener in view.acceptors},
        "queues": [queue.name for queue in view.business.values()],
        "shut_out": view.fence.shut_out,
        "debts": [name for name in sorted(view.documents) if is_debt(name)],
        **view.link.settable,
        **({"locks": locks} if locks else {}),
    }
