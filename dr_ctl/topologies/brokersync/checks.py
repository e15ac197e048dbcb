"""The named checks of a BrokerSync pair. They report all obstacles to a move, and compare the depths of each queue.
Further messages at the standby are copies of consumed messages: a run removes them by id before it opens the site."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, RefusalScope, Role, brief
from dr_ctl.engine.operations import FAILBACK, SWAPOVER
from dr_ctl.engine.ports import Move
from dr_ctl.settings.model import Queues
from dr_ctl.topologies.brokersync.view import BrokerView, SyncSnapshot
from dr_ctl.topologies.classic.beans import LINKS_DOWN, LINKS_UP, LISTS, MOVES, REMOVES
from dr_ctl.topologies.classic.broker import BY_CONSOLE, both_counts, lacking, pausing_findings, policy_findings
from dr_ctl.topologies.common import checks, reasons
from dr_ctl.topologies.common.checks import Case, Checks, NamedCheck
from dr_ctl.topologies.common.rules import Counts, Rules, depth_text, not_accepted

STOMP_ABOVE: Final = 1000
"""The console lists queues up to this depth, because it leaves no trace. A browse over STOMP is faster, but counts as a
dispatch of each message that it shows, as for a client."""
BY_STOMP_S: Final = 0.0002  # for each message; 40 000 of 500 bytes took 1.7 s
BY_CONSOLE_S: Final = 0.001  # 40 000 took 20 s
SHARE: Final = 0.5
"""Listings may take this part of a drain's time, because copies have to be shipped in it too."""


def find_unproven(
    source: BrokerView, target: BrokerView, queues: Queues, traffic: Mapping[str, int]
) -> list[tuple[Counts, int, str]]:
    """Find queues with more copies at the target than counters and traffic explain, their number, and why they stay."""
    differences = []
    for counted in both_counts(source, target, queues):
        copies = counted.target + counted.to_ship - counted.source
        unexplained = copies - traffic.get(counted.queue, 0)
        is_certain = counted.queue in source.copy_queues and unexplained > 0
        if is_certain and (why := source.why_kept(counted.queue, unexplained)) is not None:
            differences.append((counted, copies, why))
    return differences


def listing_time_s(view: BrokerView, depth: int) -> float:
    return depth * (BY_STOMP_S if depth > STOMP_ABOVE and view.config.agent is not None else BY_CONSOLE_S)


def find_too_deep(rules: Rules, source: BrokerView, target: BrokerView, move: Move) -> frozenset[str]:
    """Name the queues whose listings would take longer than the run has; the deepest are left out first."""
    left_s, deep = rules.within(move) * SHARE, set[str]()
    for counted in sorted(
        both_counts(source, target, rules.queues), key=lambda counts: max(counts.source, counts.target)
    ):
        left_s -= max(listing_time_s(source, counted.source), listing_time_s(target, counted.target))
        if left_s < 0 and counted.queue in source.copy_queues:
            deep.add(counted.queue)
    return frozenset(deep)


# Findings that a return itself fixes.
_FIXED: Final = frozenset({"DR-DOOR-004", "DR-LINK-004"})


def of_return(case: Case[BrokerView]) -> Iterator[Finding]:
    return reasons.of_return(case, of_broker, _FIXED, "DR-RETURN-001.classic", of_both)


def is_reinstated(snapshot: SyncSnapshot, move: Move) -> bool:
    """Say whether the target is reinstated already. A serving site need not ship copies back."""
    sources, targets = snapshot.views(move.source), snapshot.views(move.target)
    ship = all(view.link.attached is not False for view in (*sources, *targets))
    listeners = all(listener.started for view in (*sources, *targets) for listener in view.link.listeners)
    return reasons.is_settled(snapshot, move) and ship and listeners and all(view.link.to_ship == 0 for view in targets)


def of_broker(view: BrokerView, case: Case[BrokerView] | None = None) -> Iterator[Finding]:
    yield from checks.listener_findings(view)
    if shared := sorted({bridge.protocol for bridge in view.bridges} & {*view.config.clients}):
        yield found("DR-DOOR-003.shared", broker=view, shared=", ".join(shared))
    elif not view.link.listeners and view.config.mirror is None:
        others = [acceptor.name for acceptor in view.fence.leaves_open if "OPENWIRE" in acceptor.protocols]
        which = f"{', '.join(others)} could be it" if others else "none but the clients' speaks OpenWire"
        finding = found("DR-DOOR-003.connector", broker=view, which=which)
        # If no connector can be named, the fix takes a restart, so a failover is not refused.
        yield finding if others else replace(finding, weighs=finding.weighs & ~RefusalScope.FAILOVER)
    yield from policy_findings(view, (LINKS_UP, LINKS_DOWN, REMOVES, LISTS), at_return=(MOVES,))
    if view.network is None and len(view.networks) > 1:
        connectors = ", ".join(network.name for network in view.networks)
        yield found("DR-LINK-001.connector", broker=view, links=connectors)
    elif view.network is not None and not view.link.attached:
        yield found("DR-LINK-004", broker=view, link=f"network connector {view.network.name}", site=view.site)
    yield from checks.queue_findings(view)
    yield from pausing_findings(view, case)


def of_both(case: Case[BrokerView], source: BrokerView, target: BrokerView) -> Iterator[Finding]:
    rules, snapshot, move = case.rules, case.snapshot, case.move
    yield from checks.pair_findings(source, target)
    yield from _of_copies(source, target)
    if source.role is Role.SERVING and move.spec.operation in (SWAPOVER, FAILBACK):
        yield from _of_unproven(case, source, target)
        deep = find_too_deep(rules, source, target, move)
        for counted in both_counts(source, target, rules.queues):
            if counted.queue in deep:
                yield not_compared(counted, source.site, target.site)
    if source.role is not Role.SERVING:
        return  # if both are closed, the gate compares, over its window; else clients of the target have worked since
    missing = lacking(source, target, rules.queues, snapshot.traffic.get(source.pair, {}))
    if wrong := not_accepted(missing, move):
        yield found("DR-PARITY-001", differences=brief([finding.text(source.site, target.site) for finding in wrong]))


def surplus(case: Case[BrokerView], view: BrokerView, peer: BrokerView) -> dict[str, int]:
    return {counted.queue: counted.lacks for counted in both_counts(view, peer, case.rules.queues)}


def _of_unproven(case: Case[BrokerView], source: BrokerView, target: BrokerView) -> Iterator[Finding]:
    traffic = case.snapshot.traffic.get(source.pair, {})
    for counted, copies, why in find_unproven(source, target, case.rules.queues, traffic):
        if case.move.spec.accept_difference.get(counted.queue) == counted.difference:
            yield found("DR-SYNC-005.left", queue=counted.queue, site=target.site, count=counted.difference)
        else:
            yield of_unproven_copies(counted, copies, why, source, target)


def of_unproven_copies(counted: Counts, copies: int, why: str, source: BrokerView, target: BrokerView) -> Finding:
    queue, quoted = counted.queue, shlex.quote(counted.queue)
    return found(
        "DR-SYNC-004.unproven", queue=queue, target=target, source=source, why=why, count=copies, quoted=quoted
    )


def not_compared(counted: Counts, source: str, target: str) -> Finding:
    return found("DR-SYNC-006", told=counted.text(source, target), most=max(counted.source, counted.target))


def _of_copies(source: BrokerView, target: BrokerView) -> Iterator[Finding]:
    if not source.copy_queues:
        yield found("DR-SYNC-001.no_copies", broker=source, target=target.site, source=source.site)
    elif source.network is None and not source.networks:
        yield found("DR-SYNC-001.no_connector", broker=source, target=target.site, source=source.site)
    left_out = [name for name in source.without_dead_letters if name not in source.copy_queues and source.copy_queues]
    if left_out:
        yield found("DR-SYNC-002", broker=source, site=target.site, left_out=brief(sorted(left_out)))
    if not target.networks or (not target.copy_queues and target.network is not None and target.network.to is None):
        yield found("DR-SYNC-003", site=target.site, pair=target.pair, other_site=source.site)


def _copies_text(view: BrokerView) -> str:
    to_ship = [f"{name} {queue.depth} to ship" for name, queue in view.copy_queues.items()]
    return f"{view.site} {brief(to_ship) or 'none'}"


BY_BROKER: Final[Sequence[NamedCheck[BrokerView]]] = (
    *BY_CONSOLE,
    NamedCheck("DR-DOOR-003", lambda view: checks.listener_states(view.link.listeners)),
    NamedCheck(
        "DR-LINK-001",
        lambda view: f"{view.site} {brief([network.name for network in view.networks]) or 'no network connector'}",
    ),
    NamedCheck("DR-LINK-004", lambda view: f"{'' if view.link.attached else 'not '}connected", "it is connected"),
)
BY_PAIR: Final[Sequence[NamedCheck[BrokerView]]] = (
    *(NamedCheck(check, _copies_text) for check in ("DR-SYNC-001", "DR-SYNC-002", "DR-SYNC-003")),
    NamedCheck("DR-SYNC-004", lambda view: f"{view.site} {sum(view.consumed.values())} consumed since its start"),
    NamedCheck("DR-SYNC-005", _copies_text),
    NamedCheck(
        "DR-SYNC-006",
        lambda view: f"{view.site} {max((queue.depth for queue in view.business.values()), default=0)} in one queue",
    ),
    NamedCheck("DR-PARITY-001", depth_text),
)
CHECKS: Final = Checks(of_broker, of_both, of_return, is_reinstated, BY_BROKER, BY_PAIR, surplus)
