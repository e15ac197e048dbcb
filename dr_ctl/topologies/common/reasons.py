"""This module finds reasons against a failover, against taking the lost site in again, and against each single step of
a runbook, and says what holds already. Every answer rests on the present reading, not on an earlier command. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, RefusalScope, Role, Severity, brief
from dr_ctl.engine.debts import DebtKind, only_lost_site
from dr_ctl.engine.operations import ACTIVATE, DRAIN, FAILBACK, FENCE, QUIESCE, RESTART, UNFENCE
from dr_ctl.engine.ports import Move
from dr_ctl.engine.roles import moves_it, part_of, roles_text
from dr_ctl.topologies.common import receipts
from dr_ctl.topologies.common.calls import debt_name
from dr_ctl.topologies.common.checks import Case, Checks, of_link_listeners, of_silent, of_taken, on_the_way, weighed
from dr_ctl.topologies.common.group import of_nodes, of_obstacles
from dr_ctl.topologies.common.snapshot import Silent, Snapshot, paused_by_runs
from dr_ctl.topologies.common.view import Broker, Queue, V


def against_failover(
    snapshot: Snapshot[V], move: Move, of_broker: Callable[[V], Iterable[Finding]]
) -> Iterator[Finding]:
    role = part_of(snapshot, move.spec).roles[move.source]
    opens = not all(view.open for view in snapshot.views(move.target))
    if role is Role.SERVING or (role is Role.SICK and opens):
        yield found("DR-ALIVE-001.role", source=move.source, target=move.target, role=role.value)
    for view in snapshot.views(move.target):
        yield from of_taken(view, (debt_name(kind, move.source, view.site) for kind in DebtKind))
        for finding in of_broker(view):
            if RefusalScope.EXPECTED_WHEN_LOST not in finding.weighs:
                yield weighed(finding, RefusalScope.FAILOVER)
        if (locks := view.fence.awaits) and not view.open:
            yield found("DR-ALIVE-001.lock", site=view.site, locks=brief(locks), lost=move.source)
        yield from of_obstacles(view, Severity.WARNING, move.spec.includes)
        peer = snapshot.view(move.source, view.pair)
        yield from of_nodes(view, peer, Severity.WARNING)
        for finding in of_link_listeners(view, peer):
            yield weighed(finding, RefusalScope.FAILOVER)
    for broker in snapshot.sites[move.source].values():
        if isinstance(broker, Silent):
            yield from (replace(finding, severity=Severity.WARNING) for finding in of_silent(broker))


def is_kept_out(snapshot: Snapshot[Broker], move: Move) -> bool:
    """Say whether what a lost site holds cannot reach the target, and a quarantine is owed, or the lost site is closed
    and was read to hold nothing. Sites with one store hold nothing of their own."""
    if snapshot.one_store:
        return True
    targets, sources = snapshot.views(move.target), snapshot.views(move.source)
    name = [debt_name(DebtKind.QUARANTINE, move.source, view.site) in view.documents for view in targets]
    shut = all(view.link.is_shut for view in targets)
    nothing = len(sources) == len(snapshot.sites[move.source]) and all(
        not broker.open and not [*broker.link.left_to_ship()] for broker in sources
    )
    return (all(name) and shut) or (nothing and all(view.link.unapplied == 0 for view in targets))


def let_in_again(views: Iterable[Broker], lost: str) -> str | None:
    """Say that a lost site is kept out no more: a restart of the broker or a takeover has ended the quarantine."""
    for view in views:
        listeners = [listener.name for listener in view.link.listeners if listener.started and not view.open]
        if listeners and not view.link.is_shut and debt_name(DebtKind.QUARANTINE, lost, view.site) in view.documents:
            at = f"acceptor {brief(listeners)} at {view}"
            return f"{at} is open again: its broker was started anew, or another node of it took over"
    return None


def came_back_open(snapshot: Snapshot[Broker], move: Move) -> bool:
    return snapshot.roles[move.source] is Role.SERVING and any(view.open for view in snapshot.views(move.target))


def of_return(
    case: Case[V],
    of_broker: Callable[..., Iterable[Finding]],
    fixed: frozenset[str],
    open_again: str,
    of_both: Callable[[Case[V], V, V], Iterable[Finding]] | None = None,
) -> Iterator[Finding]:
    """Find reasons against taking the target in beside the serving source, but for findings that the return itself has
    `fixed`. `open_again` is the finding on a target that came back open: it says how to keep its brokers closed.
    `of_both` compares the sites of a failback to a site that nothing keeps out any more, which is a swapover."""
    snapshot, move = case.snapshot, case.move
    if of_both is not None and move.spec.operation == FAILBACK and is_settled(snapshot, move):
        for both in snapshot.both(move.source, move.target):
            yield from (finding for finding in of_both(case, *both) if finding.id not in fixed)
    for site in (move.source, move.target):
        for broker in snapshot.sites[site].values():
            if isinstance(broker, Silent):
                yield from of_silent(broker)
            else:
                for finding in on_the_way(of_broker(broker), broker, snapshot.peer(broker), move):
                    if finding.id == "DR-QUEUE-003":  # the return compares such a queue by ids
                        yield replace(finding, severity=Severity.WARNING)
                    elif finding.id not in fixed:
                        yield finding
    severity = Severity.ERROR if move.spec.operation == FAILBACK else Severity.WARNING
    for site, other in ((move.target, move.source), (move.source, move.target)):
        for view in snapshot.views(site):
            yield from of_nodes(view, snapshot.view(other, view.pair), severity)
    for view in snapshot.views(move.target):
        yield from of_obstacles(view, severity, move.spec.includes)
    if snapshot.roles[move.target] is Role.SERVING and snapshot.roles[move.source] is Role.SERVING:
        yield found(open_again, target=move.target)


def is_settled(snapshot: Snapshot[Any], move: Move) -> bool:
    owed = any(move.target in (debt.lost_site, debt.kept_at) for debt in snapshot.debts)
    return not owed and snapshot.roles[move.target] is Role.STANDBY


def nothing_owed(snapshot: Snapshot[Any], move: Move) -> bool:
    """Say whether the target is reinstated already: no debt is left, the links ship, and nothing is under way."""
    sources, targets = snapshot.views(move.source), snapshot.views(move.target)
    ship = all(
        (view.link.attached or view.link.missing)
        and all(listener.started for listener in view.link.listeners)
        and not view.link.rights_revoked
        for view in (*sources, *targets)
    )
    shipped = not any([*view.link.left_to_ship()] for view in targets if not view.link.missing)
    return is_settled(snapshot, move) and ship and shipped and all(view.link.unapplied == 0 for view in sources)


_SHUTS: Final = RefusalScope.SINGLE_STEP | RefusalScope.FENCING
_WEIGHTS: Final = {RESTART: RefusalScope.RESTART, FENCE: _SHUTS, QUIESCE: _SHUTS}
# Findings that the restart of a link fixes.
_MENDED: Final = frozenset({"DR-LINK-003", "DR-LINK-004"})


def against_step(case: Case[V], checks: Checks[V]) -> Iterator[Finding]:
    """Find reasons against a step. A step at both sites rests on all checks of a move, others on the source's."""
    snapshot, move = case.snapshot, case.move
    if move.spec.operation in (DRAIN, ACTIVATE):
        for finding in checks.of_move(case):
            # A finding on what a fence of an acceptor would cut off does not matter to a step that closes none.
            yield replace(finding, severity=Severity.WARNING) if finding.id == "DR-NODE-002" else finding
        if move.spec.operation == DRAIN:
            for view in snapshot.views(move.target):
                yield from of_taken(view, [receipts.name(view.site)])
    else:
        restarts = move.spec.operation == RESTART
        weight = _WEIGHTS.get(move.spec.operation, RefusalScope.SINGLE_STEP)
        for view in snapshot.views(move.source) if move.spec.operation == FENCE else ():
            peer = snapshot.view(move.target, view.pair)
            yield from (weighed(finding, weight) for finding in of_nodes(view, peer, Severity.WARNING))
            yield from of_link_listeners(view, peer)
            if peer is None and (locks := view.fence.contending):
                yield found("DR-DOOR-008.silent", broker=view, locks=brief(locks), peer=move.target)
        for reason in [finding for view in snapshot.views(move.source) for finding in checks.of_broker(view)]:
            if restarts and reason.id in _MENDED:
                continue
            is_uncounted = move.spec.operation == QUIESCE and reason.id == "DR-QUEUE-003"
            yield reason if is_uncounted else weighed(reason, weight)
    if move.spec.operation in (ACTIVATE, UNFENCE):
        yield from _replaced(snapshot, move)
    if move.spec.operation == ACTIVATE:
        yield from _unproven(snapshot, move)
    if move.spec.operation != UNFENCE:
        return
    yield from _coming_in(snapshot, move)
    part = part_of(snapshot, move.spec)
    if part.roles[move.target] is not Role.SERVING:
        yield from _moved_on(snapshot, move)
    elif not paused_at(snapshot, move.source):
        roles, way = roles_text(part), moves_it(snapshot, move.source)
        yield found("DR-ROLE-011", opened=move.source, other=move.target, roles=roles, way=way)


def not_taken_in(snapshot: Snapshot[Broker], move: Move) -> Iterator[Finding]:
    """Refuse a move to a lost site that is not taken in again: without a link nothing else stops it."""
    if only_lost_site(snapshot.debts) == move.target and not move.activation_sent:
        yield found("DR-RETURN-008.move", lost=move.target, served=move.source)


def _replaced(snapshot: Snapshot[Broker], move: Move) -> Iterator[Finding]:
    """Find that the site which was lost last lacks what clients of the other site did since, where both are closed."""
    unfence = move.spec.operation == UNFENCE
    opened, other = (move.source, move.target) if unfence else (move.target, move.source)
    if only_lost_site(snapshot.debts) == opened and part_of(snapshot, move.spec).roles[other] is Role.STANDBY:
        yield found("DR-RETURN-008.open", lost=opened, served=other)


def _coming_in(snapshot: Snapshot[Broker], move: Move) -> Iterator[Finding]:
    """Find pauses that a return holds, because acknowledgements of the paused messages are on the way."""
    debts = [debt for debt in snapshot.debts if debt.kind is DebtKind.QUARANTINE and debt.kept_at == move.source]
    listeners = [listener for view, _ in paused_at(snapshot, move.source) for listener in view.link.listeners]
    if debts and any(listener.started for listener in listeners):
        yield found("DR-UNFENCE-002", lost=debts[0].lost_site, source=move.source)


def _unproven(snapshot: Snapshot[Broker], move: Move) -> Iterator[Finding]:
    """Opening a site needs the receipt of a drain; without a receipt, outflows that were read as empty."""
    for local, peer in snapshot.both(move.source, move.target):
        if peer.role is Role.SERVING:
            continue
        receipt = receipts.held_at(peer)
        if receipt is not None:
            for text in receipts.changes_since(receipt, (local, peer), move.spec):
                key = "DR-RECEIPT-001.begun" if move.activation_sent else "DR-RECEIPT-001"
                yield found(key, why=text, source=move.source, target=move.target)
            continue
        ships = [view for view in (local, peer) if view is local or not view.link.missing]
        left = [text for view in ships for text in view.link.left_to_ship()]
        if left := [*left, *_unapplied(local), *_unapplied(peer)]:
            key = "DR-RECEIPT-002.no_link" if local.link.missing else "DR-RECEIPT-002"
            yield found(key, left=brief(left), source=move.source, target=move.target)


def _moved_on(snapshot: Snapshot[Broker], move: Move) -> Iterator[Finding]:
    """A site may be opened again only while the other holds nothing that it lacks, and it has applied all."""
    for view, peer in snapshot.both(move.source, move.target):  # a pair with a silent broker is not opened
        if view.open:
            continue
        # A lost site's messages are kept out, and come in when the site is taken in again.
        holds = [] if only_lost_site(snapshot.debts) == move.target else peer.link.left_to_ship()
        if left := [*holds, *_unapplied(view)]:
            key = "DR-UNFENCE-001.no_link" if peer.link.missing else "DR-UNFENCE-001"
            yield found(key, left=brief(left), source=move.source, target=move.target)


def surplus_at_closed_sites(case: Case[V], surplus: Callable[[Case[V], V, V], Mapping[str, int]]) -> Iterator[Finding]:
    """Find what lies at a site that is to be opened by itself, and not at the other site, which is closed too.
    `surplus` says by queue how many more messages lie at the first of two brokers than what is under way explains. A
    receipt that stands makes the comparison unnecessary."""
    snapshot, move = case.snapshot, case.move
    unfence = move.spec.operation == UNFENCE
    if not (unfence or move.spec.operation == ACTIVATE) or only_lost_site(snapshot.debts) == move.target:
        return
    opened, other = (move.source, move.target) if unfence else (move.target, move.source)
    for view, peer in snapshot.both(opened, other):
        receipt = receipts.held_at(view)
        stands = receipt is not None and not receipts.changes_since(receipt, (view, peer))
        if view.open or peer.open or view.link.missing or stands:
            continue
        if more := [f"{queue}: {count}" for queue, count in surplus(case, view, peer).items() if count > 0]:
            key = "DR-UNFENCE-003" if unfence else "DR-UNFENCE-003.activated"
            yield found(key, site=view.site, other_site=peer.site, queues=brief(more))


def _unapplied(view: Broker) -> Iterator[str]:
    if view.link.unapplied is None:
        yield f"which acknowledgements are not applied at {view.site} was not read"
    elif view.link.unapplied:
        yield f"{view.link.unapplied} acknowledgement(s) not applied at {view.site}"


def holds_already(snapshot: Snapshot[Broker], move: Move) -> str | None:
    site, role = move.source, part_of(snapshot, move.spec).roles[move.source]
    if move.spec.operation == QUIESCE and role is Role.STANDBY:
        return f"{site} is closed to clients already"
    views = snapshot.views(site)
    lasts = all(view.fence.roles_revoked for view in views if view.config.lasting is not None)
    owed = any(debt.kind is DebtKind.FENCE and debt.lost_site == site for debt in snapshot.debts)
    if move.spec.operation == FENCE and role is Role.STANDBY and lasts and not owed:
        return f"clients are kept out of {site} already"
    served = all(unit.open_at for unit in snapshot.units if move.spec.includes(unit.name))
    whole = served and all(view.open and not view.fence.roles_revoked for view in views)
    if move.spec.operation == UNFENCE and role is Role.SERVING and whole and not paused_at(snapshot, site):
        return f"{site} serves already, and no run has paused anything there"
    return None


def paused_at(snapshot: Snapshot[Broker], site: str) -> Sequence[tuple[Broker, Queue]]:
    views = [(view, paused_by_runs(view)) for view in snapshot.views(site)]
    return [
        (view, queue)
        for view, by_runs in views
        for queue in view.business.values()
        if queue.paused and queue.name in by_runs
    ]
