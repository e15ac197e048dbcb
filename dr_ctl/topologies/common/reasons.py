"""Finds reasons against a failover, against the reinstatement of a lost site, and against each single step of a
runbook, and says what holds already. Every answer follows from the present reading, not from an earlier command.
Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, RefusalScope, Role, Severity, brief
from dr_ctl.engine.debts import DebtKind, only_lost_site
from dr_ctl.engine.operations import ACTIVATE, DRAIN, FAILBACK, FENCE, QUIESCE, RESTART, UNFENCE
from dr_ctl.engine.ports import Move
from dr_ctl.engine.roles import move_command, part_of, roles_text
from dr_ctl.topologies.common import checks, receipts
from dr_ctl.topologies.common.calls import debt_name
from dr_ctl.topologies.common.checks import Case, Checks
from dr_ctl.topologies.common.group import node_findings, obstacle_findings
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
        yield from checks.taken_name_findings(view, (debt_name(kind, move.source, view.site) for kind in DebtKind))
        for finding in of_broker(view):
            if RefusalScope.EXPECTED_WHEN_LOST not in finding.weighs:
                yield checks.warn_outside(finding, RefusalScope.FAILOVER)
        if (locks := view.fence.awaits) and not view.open:
            yield found("DR-ALIVE-001.lock", site=view.site, locks=brief(locks), lost=move.source)
        yield from obstacle_findings(view, Severity.WARNING, move.spec.includes)
        peer = snapshot.view(move.source, view.pair)
        yield from node_findings(view, peer, Severity.WARNING)
        for finding in checks.link_listener_findings(view, peer):
            yield checks.warn_outside(finding, RefusalScope.FAILOVER)
    for broker in snapshot.sites[move.source].values():
        if isinstance(broker, Silent):
            yield from (replace(finding, severity=Severity.WARNING) for finding in checks.silence_findings(broker))


def is_kept_out(snapshot: Snapshot[Broker], move: Move) -> bool:
    """Say whether nothing of a lost site can reach the target: the link is closed and a quarantine is recorded, or the
    lost site is closed and a reading shows that it holds nothing. Sites with one store hold nothing of their own."""
    if snapshot.one_store:
        return True
    targets, sources = snapshot.views(move.target), snapshot.views(move.source)
    recorded = [debt_name(DebtKind.QUARANTINE, move.source, view.site) in view.documents for view in targets]
    is_shut = all(view.link.is_shut for view in targets)
    holds_nothing = len(sources) == len(snapshot.sites[move.source]) and all(
        not broker.open and not [*broker.link.left_to_ship()] for broker in sources
    )
    return (all(recorded) and is_shut) or (holds_nothing and all(view.link.unapplied == 0 for view in targets))


def ended_quarantine(views: Iterable[Broker], lost: str) -> str | None:
    """Return the text on a quarantine that a restart of the broker or a takeover has ended, or None."""
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
    """Find reasons against the reinstatement of the target beside the serving source, except the findings in `fixed`,
    which the reinstatement removes. `open_again` is the finding on a target that came back open: it says how to keep
    its brokers closed. A failback to a site that is reinstated already is a swapover: `of_both` then compares both."""
    snapshot, move = case.snapshot, case.move
    if of_both is not None and move.spec.operation == FAILBACK and is_settled(snapshot, move):
        for both in snapshot.both(move.source, move.target):
            yield from (finding for finding in of_both(case, *both) if finding.id not in fixed)
    for site in (move.source, move.target):
        for broker in snapshot.sites[site].values():
            if isinstance(broker, Silent):
                yield from checks.silence_findings(broker)
            else:
                for finding in checks.weigh_for_move(of_broker(broker), broker, snapshot.peer(broker), move):
                    if finding.id == "DR-QUEUE-003":  # the reinstatement compares it by ids
                        yield replace(finding, severity=Severity.WARNING)
                    elif finding.id not in fixed:
                        yield finding
    severity = Severity.ERROR if move.spec.operation == FAILBACK else Severity.WARNING
    for site, other in ((move.target, move.source), (move.source, move.target)):
        for view in snapshot.views(site):
            yield from node_findings(view, snapshot.view(other, view.pair), severity)
    for view in snapshot.views(move.target):
        yield from obstacle_findings(view, severity, move.spec.includes)
    if snapshot.roles[move.target] is Role.SERVING and snapshot.roles[move.source] is Role.SERVING:
        yield found(open_again, target=move.target)


def is_settled(snapshot: Snapshot[Any], move: Move) -> bool:
    owed = any(move.target in (debt.lost_site, debt.kept_at) for debt in snapshot.debts)
    return not owed and snapshot.roles[move.target] is Role.STANDBY


def is_reinstated(snapshot: Snapshot[Any], move: Move) -> bool:
    """Say whether the target is reinstated: no debt is left, configured links ship, and nothing is under way."""
    sources, targets = snapshot.views(move.source), snapshot.views(move.target)
    links_ship = all(
        (view.link.attached or view.link.missing)
        and all(listener.started for listener in view.link.listeners)
        and not view.link.rights_revoked
        for view in (*sources, *targets)
    )
    all_shipped = not any([*view.link.left_to_ship()] for view in targets if not view.link.missing)
    all_applied = all(view.link.unapplied == 0 for view in sources)
    return is_settled(snapshot, move) and links_ship and all_shipped and all_applied


_SHUTS: Final = RefusalScope.SINGLE_STEP | RefusalScope.FENCING
_WEIGHTS: Final = {RESTART: RefusalScope.RESTART, FENCE: _SHUTS, QUIESCE: _SHUTS}
# Findings that the restart of a link fixes.
_MENDED: Final = frozenset({"DR-LINK-003", "DR-LINK-004"})


def against_step(case: Case[V], own_checks: Checks[V]) -> Iterator[Finding]:
    """Find reasons against a step: by all checks of a move for a step at both sites, else by those of the source."""
    snapshot, move = case.snapshot, case.move
    if move.spec.operation in (DRAIN, ACTIVATE):
        for finding in own_checks.of_move(case):
            # DR-NODE-002 is about closing an acceptor, and these steps close none.
            yield replace(finding, severity=Severity.WARNING) if finding.id == "DR-NODE-002" else finding
        if move.spec.operation == DRAIN:
            for view in snapshot.views(move.target):
                yield from checks.taken_name_findings(view, [receipts.name(view.site)])
    else:
        restarts = move.spec.operation == RESTART
        weight = _WEIGHTS.get(move.spec.operation, RefusalScope.SINGLE_STEP)
        for view in snapshot.views(move.source) if move.spec.operation == FENCE else ():
            peer = snapshot.view(move.target, view.pair)
            yield from (checks.warn_outside(finding, weight) for finding in node_findings(view, peer, Severity.WARNING))
            yield from checks.link_listener_findings(view, peer)
            if peer is None and (locks := view.fence.contending):
                yield found("DR-DOOR-008.silent", broker=view, locks=brief(locks), peer=move.target)
        for reason in [finding for view in snapshot.views(move.source) for finding in own_checks.of_broker(view)]:
            if restarts and reason.id in _MENDED:
                continue
            is_uncounted = move.spec.operation == QUIESCE and reason.id == "DR-QUEUE-003"
            yield reason if is_uncounted else checks.warn_outside(reason, weight)
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
        roles, way = roles_text(part), move_command(snapshot, move.source)
        yield found("DR-ROLE-011", opened=move.source, other=move.target, roles=roles, way=way)


def not_taken_in(snapshot: Snapshot[Broker], move: Move) -> Iterator[Finding]:
    """Refuse a move to a lost site that is not reinstated: without a link no other check does."""
    if only_lost_site(snapshot.debts) == move.target and not move.activation_sent:
        yield found("DR-RETURN-008.move", lost=move.target, served=move.source)


def _replaced(snapshot: Snapshot[Broker], move: Move) -> Iterator[Finding]:
    """Find that both sites are closed, and that the one to open was lost before clients worked at the other."""
    unfence = move.spec.operation == UNFENCE
    opened, other = (move.source, move.target) if unfence else (move.target, move.source)
    if only_lost_site(snapshot.debts) == opened and part_of(snapshot, move.spec).roles[other] is Role.STANDBY:
        yield found("DR-RETURN-008.open", lost=opened, served=other)


def _coming_in(snapshot: Snapshot[Broker], move: Move) -> Iterator[Finding]:
    """Find pauses that a reinstatement needs, because acknowledgements of the paused messages are under way."""
    debts = [debt for debt in snapshot.debts if debt.kind is DebtKind.QUARANTINE and debt.kept_at == move.source]
    listeners = [listener for view, _ in paused_at(snapshot, move.source) for listener in view.link.listeners]
    if debts and any(listener.started for listener in listeners):
        yield found("DR-UNFENCE-002", lost=debts[0].lost_site, source=move.source)


def _unproven(snapshot: Snapshot[Broker], move: Move) -> Iterator[Finding]:
    """A site is opened only with the receipt of a drain, or with outflows that were read as empty."""
    for local, peer in snapshot.both(move.source, move.target):
        if peer.role is Role.SERVING:
            continue
        receipt = receipts.held_at(peer)
        if receipt is not None:
            for text in receipts.changes_since(receipt, (local, peer), move.spec):
                key = "DR-RECEIPT-001.begun" if move.activation_sent else "DR-RECEIPT-001"
                yield found(key, why=text, source=move.source, target=move.target)
            continue
        shipping = [view for view in (local, peer) if view is local or not view.link.missing]
        missing = [text for view in shipping for text in view.link.left_to_ship()]
        if missing := [*missing, *_unapplied(local), *_unapplied(peer)]:
            key = "DR-RECEIPT-002.no_link" if local.link.missing else "DR-RECEIPT-002"
            yield found(key, left=brief(missing), source=move.source, target=move.target)


def _moved_on(snapshot: Snapshot[Broker], move: Move) -> Iterator[Finding]:
    """A site is opened again only if the other site has nothing to ship to it, and it has applied everything."""
    for view, peer in snapshot.both(move.source, move.target):  # a pair with a silent broker is not opened
        if view.open:
            continue
        # A lost site's messages are kept out until its reinstatement.
        outflow = [] if only_lost_site(snapshot.debts) == move.target else peer.link.left_to_ship()
        if missing := [*outflow, *_unapplied(view)]:
            key = "DR-UNFENCE-001.no_link" if peer.link.missing else "DR-UNFENCE-001"
            yield found(key, left=brief(missing), source=move.source, target=move.target)


def surplus_at_closed_sites(case: Case[V], surplus: Callable[[Case[V], V, V], Mapping[str, int]]) -> Iterator[Finding]:
    """Find messages of a site that a single step opens which are not at the other, closed site. `surplus` counts by
    queue how many more are at the first of two brokers than those under way explain. A valid receipt replaces the
    comparison."""
    snapshot, move = case.snapshot, case.move
    unfence = move.spec.operation == UNFENCE
    if not (unfence or move.spec.operation == ACTIVATE) or only_lost_site(snapshot.debts) == move.target:
        return
    opened, other = (move.source, move.target) if unfence else (move.target, move.source)
    for view, peer in snapshot.both(opened, other):
        receipt = receipts.held_at(view)
        is_valid = receipt is not None and not receipts.changes_since(receipt, (view, peer))
        if view.open or peer.open or view.link.missing or is_valid:
            continue
        if queues := [f"{queue}: {count}" for queue, count in surplus(case, view, peer).items() if count > 0]:
            key = "DR-UNFENCE-003" if unfence else "DR-UNFENCE-003.activated"
            yield found(key, site=view.site, other_site=peer.site, queues=brief(queues))


def _unapplied(view: Broker) -> Iterator[str]:
    if view.link.unapplied is None:
        yield f"the acknowledgements that are not applied at {view.site} were not read"
    elif view.link.unapplied:
        yield f"{view.link.unapplied} acknowledgement(s) not applied at {view.site}"


def holds_already(snapshot: Snapshot[Broker], move: Move) -> str | None:
    site, role = move.source, part_of(snapshot, move.spec).roles[move.source]
    if move.spec.operation == QUIESCE and role is Role.STANDBY:
        return f"{site} is closed to clients already"
    views = snapshot.views(site)
    lasting = all(view.fence.roles_revoked for view in views if view.config.lasting is not None)
    owed = any(debt.kind is DebtKind.FENCE and debt.lost_site == site for debt in snapshot.debts)
    if move.spec.operation == FENCE and role is Role.STANDBY and lasting and not owed:
        return f"clients are kept out of {site} already"
    all_open = all(unit.open_at for unit in snapshot.units if move.spec.includes(unit.name))
    is_open = all_open and all(view.open and not view.fence.roles_revoked for view in views)
    if move.spec.operation == UNFENCE and role is Role.SERVING and is_open and not paused_at(snapshot, site):
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
