"""Reasons against a failover, and against taking the lost site in again; whether the site is taken in. Pure."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role, Severity, Weight, some
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.operations import FAILBACK
from dr_ctl.engine.parts import part_of
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.common.checks import Case, of_link_listeners, of_silent, of_taken, on_the_way, weighed
from dr_ctl.topologies.common.debts import document
from dr_ctl.topologies.common.nodes import of_nodes, of_obstacles
from dr_ctl.topologies.common.snapshot import Silent, Snapshot
from dr_ctl.topologies.common.view import Broker

V = TypeVar("V", bound=Broker)


def findings(snapshot: Snapshot[V], move: Move, of_broker: Callable[[V], Iterable[Finding]]) -> Iterator[Finding]:
    """Find reasons against opening the target without the lost site; only grave ones refuse the failover."""
    role = part_of(snapshot, move.ask).roles[move.source]
    opens = not all(view.open for view in snapshot.views(move.target))
    if role is Role.SERVING or (role is Role.SICK and opens):
        yield found("DR-ALIVE-001.role", source=move.source, target=move.target, role=role.value)
    for view in snapshot.views(move.target):
        yield from of_taken(view, (document(kind, move.source, view.site) for kind in DebtKind))
        for each in of_broker(view):
            if Weight.EXPECTED_WHEN_LOST not in each.weighs:
                yield weighed(each, Weight.FAILOVER)
        if (locks := view.fence.awaits) and not view.open:
            yield found("DR-ALIVE-001.lock", site=view.site, locks=some(locks), lost=move.source)
        yield from of_obstacles(view, Severity.WARNING, move.ask.includes)
        peer = snapshot.view(move.source, view.pair)
        yield from of_nodes(view, peer, Severity.WARNING)
        for each in of_link_listeners(view, peer):
            yield weighed(each, Weight.FAILOVER)
    for broker in snapshot.sites[move.source].values():
        if isinstance(broker, Silent):
            yield from (replace(each, severity=Severity.WARNING) for each in of_silent(broker))


def is_kept_out(snapshot: Snapshot[Broker], move: Move) -> bool:
    """Say whether what a lost site holds cannot reach the target, and a quarantine is owed; or that the lost site is
    closed, and was read to hold nothing. Sites with one store hold nothing of their own."""
    if snapshot.one_store:
        return True
    here, there = snapshot.views(move.target), snapshot.views(move.source)
    name = [document(DebtKind.QUARANTINE, move.source, view.site) in view.documents for view in here]
    shut = all(view.link.can_be_shut and not any(listener.started for listener in view.link.listeners) for view in here)
    nothing = len(there) == len(snapshot.sites[move.source]) and all(
        not each.open and not [*each.link.left_to_ship()] for each in there
    )
    return (all(name) and shut) or (nothing and all(view.link.unapplied == 0 for view in here))


def let_in_again(views: Iterable[Broker], lost: str) -> str | None:
    """Say that what a lost site holds is kept out no more: a quarantine ends with a restart of the broker, and where
    another node of it takes over."""
    for view in views:
        listeners = [listener.name for listener in view.link.listeners if listener.started and not view.open]
        if listeners and document(DebtKind.QUARANTINE, lost, view.site) in view.documents:
            at = f"acceptor {some(listeners)} at {view.site}/{view.pair}"
            return f"{at} is open again: its broker was started anew, or another node of it took over"
    return None


def came_back_open(snapshot: Snapshot[Broker], move: Move) -> bool:
    """Say whether the returned site lets clients in beside the one that serves."""
    return snapshot.roles[move.source] is Role.SERVING and any(view.open for view in snapshot.views(move.target))


def of_return(
    case: Case[V], of_broker: Callable[..., Iterable[Finding]], mended: frozenset[str], open_again: str
) -> Iterator[Finding]:
    """Find reasons against taking the target in beside the serving source, leaving out findings that the return itself
    has `mended`; `open_again` is the finding of a target that came back open, as its brokers can be kept closed."""
    snapshot, move = case.snapshot, case.move
    for site in (move.source, move.target):
        for broker in snapshot.sites[site].values():
            if isinstance(broker, Silent):
                yield from of_silent(broker)
            else:
                for each in on_the_way(of_broker(broker), broker, snapshot.peer(broker), move):
                    if each.id == "DR-QUEUE-003":  # the return compares such a queue by ids
                        yield replace(each, severity=Severity.WARNING)
                    elif each.id not in mended:
                        yield each
    severity = Severity.ERROR if move.ask.operation == FAILBACK else Severity.WARNING
    for here, there in ((move.target, move.source), (move.source, move.target)):
        for view in snapshot.views(here):
            yield from of_nodes(view, snapshot.view(there, view.pair), severity)
    for view in snapshot.views(move.target):
        yield from of_obstacles(view, severity, move.ask.includes)
    if snapshot.roles[move.target] is Role.SERVING and snapshot.roles[move.source] is Role.SERVING:
        yield found(open_again, target=move.target)


def is_settled(snapshot: Snapshot[Any], move: Move) -> bool:
    """Say whether no debt of the target is left, and it waits."""
    owed = any(move.target in (debt.about, debt.kept_at) for debt in snapshot.debts)
    return not owed and snapshot.roles[move.target] is Role.STANDBY


def nothing_owed(snapshot: Snapshot[Any], move: Move) -> bool:
    """Say whether the target is taken in already: no debt is left, the links that are configured ship, and no message
    or acknowledgement is under way."""
    here, there = snapshot.views(move.source), snapshot.views(move.target)
    ship = all(
        (view.link.attached or view.link.missing) and all(listener.started for listener in view.link.listeners)
        for view in (*here, *there)
    )
    shipped = not any([*view.link.left_to_ship()] for view in there if not view.link.missing)
    return is_settled(snapshot, move) and ship and shipped and all(view.link.unapplied == 0 for view in here)
