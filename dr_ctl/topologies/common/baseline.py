"""The state of a pair before a run, as far as dr-ctl may change it, and the calls that give it back. Pure.

An undo restores this state and nothing else. A part is what a step may change of a broker: it gives the calls for all
that the step's own calls change, or that an earlier process of the run has changed, and that was otherwise before.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dr_ctl.core.model import Json
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.lease import LOCK, LockDocument
from dr_ctl.engine.operations import FAILBACK
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Move
from dr_ctl.engine.roles import NODES, PAIRS
from dr_ctl.topologies.common.calls import close_listener, open_listener, resume
from dr_ctl.topologies.common.debts import document, is_debt, owe_again, pay
from dr_ctl.topologies.common.names import numbered
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.view import Broker, Peer

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
    return bool(before(move, view).get(START, view.start) != view.start)


def before(move: Move, view: Broker) -> dict[str, Any]:
    """One broker in the baseline of a run; a broker silent at the start counts as it is now, and the target of a return
    as closed: it came back, whether open or not, and the undo of the move back leaves it closed."""
    site: Any = move.baseline.get(view.site, {})
    state: dict[str, Any] = site[view.pair] if view.pair in site else state_of(view)
    if move.ask.operation == FAILBACK and view.site == move.target:
        return {**state, "listeners": {}, "shut_out": True, RETURNED: True}
    return state


@dataclass(frozen=True, slots=True)
class AtBroker:
    """What a step does at one broker, that is `view` now and `was` before the run; `calls` are the step's own there."""

    rules: Rules
    move: Move
    view: Any
    was: Mapping[str, Any]
    calls: Sequence[Call]

    def named(self, *goals: Goal) -> set[str]:
        return {call.thing for call in self.calls if call.goal in goals}


Aspect = Callable[[AtBroker], Iterable[Call]]


def clients(at: AtBroker) -> Iterator[Call]:
    """The clients' ways in: their listeners, and the rights of their roles."""
    was, fence, named = at.was["listeners"], at.view.fence, at.named(Goal.OPEN, Goal.CLOSE)
    changed = [
        each for each in at.view.listeners if each.started is not bool(was.get(each.name)) or named & {each.name, ALL}
    ]
    if shut := [each for each in changed if not was.get(each.name)]:
        yield from fence.closing(shut, "it is open")
    if at.was["shut_out"] and (at.named(Goal.ADMIT) or not fence.shut_out):
        yield from fence.shutting_out("they are let in")
    if not at.was["shut_out"] and (at.named(Goal.SHUT_OUT) or fence.shut_out):
        yield from fence.admitting("they are kept out")
    if opened := [each for each in changed if was.get(each.name)]:
        yield from fence.opening(opened, Peer.NOT_DRAINED, "it is closed")


def way_in(at: AtBroker) -> Iterator[Call]:
    """The listeners of the peer's link."""
    was, named = at.was["mirror"], at.named(Goal.OPEN, Goal.CLOSE)
    for each in at.view.link.listeners:
        if was.get(each.name) and not (each.started and each.name not in named):
            yield open_listener(at.view, each, "it is closed")
        if not was.get(each.name) and (each.started or each.name in named):
            yield close_listener(at.view, each, "it is open")


def links(at: AtBroker) -> Iterator[Call]:
    """What ships to the peer, where it was started."""
    starts = (call for call in at.calls if call.goal is Goal.LINK_UP and at.was["link"].get(call.thing))
    return (replace(call, when="it is stopped", at_most=1) for call in starts)


def pauses(at: AtBroker) -> Iterator[Call]:
    paused = ({*at.view.paused} | at.named(Goal.PAUSE)) - {*at.was["paused"]}
    return (resume(at.view, queue, "it is paused") for queue in at.view.business.values() if queue.name in paused)


def debts(at: AtBroker) -> Iterator[Call]:
    """What is owed of the other site."""
    about = at.move.target if at.view.site == at.move.source else at.move.source
    for kind in DebtKind:
        name = document(kind, about, at.view.site)
        if (name in at.was["debts"]) is (name in at.view.documents) and name not in at.named(Goal.WRITE, Goal.STRIKE):
            continue
        if name in at.was["debts"]:
            yield owe_again(at.view, kind, about)
        else:
            yield from pay(at.view, kind, about, "it stands there")


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
            site: [*sorted(each.pair for each in snapshot.brokers if each.site == site)] for site in snapshot.sites
        },
        NODES: {site: {view.pair: view.node for view in snapshot.views(site)} for site in snapshot.sites},
    }


def state_of(view: Broker) -> dict[str, Json]:
    by_runs = paused_by_runs(view)
    return {
        "listeners": {listener.name: listener.started for listener in view.listeners},
        "mirror": {listener.name: listener.started for listener in view.link.listeners},
        "link": dict(view.link.ships),
        "paused": [name for name in view.paused if name not in by_runs],
        "acceptors": {listener.name: listener.started for listener in view.acceptors},
        "queues": [queue.name for queue in view.business.values()],
        "shut_out": view.fence.shut_out,
        "debts": [name for name in sorted(view.documents) if is_debt(name)],
        **view.link.settable,
    }
