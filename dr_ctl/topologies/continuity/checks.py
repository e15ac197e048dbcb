"""The named checks of a pair that the continuity plugin joins. They report all reasons against a move at once."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Severity, brief, by_key, total
from dr_ctl.core.notation import if_known
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.common import checks, reasons
from dr_ctl.topologies.common.checks import NO_CHECK, Case, Checks, NamedCheck
from dr_ctl.topologies.common.rules import selected
from dr_ctl.topologies.common.view import Residue
from dr_ctl.topologies.continuity import copies
from dr_ctl.topologies.continuity.view import ContinuitySnapshot, SiteView

# Findings that the reinstatement itself fixes.
_FIXED: Final = frozenset({"DR-DOOR-004", "DR-CONT-008", "DR-CONT-009", "DR-CONT-010", "DR-CONT-015"})
# Two sites that differ in these cannot be compared.
_MUST_AGREE: Final = frozenset({"DR-CONT-004", "DR-CONT-005"})


def of_moved(case: Case[SiteView], view: SiteView, peer: SiteView) -> Iterator[Finding]:
    yield from of_both(view, peer)
    # Refuse a queue before the fence that would be too deep to compare by id behind it.
    depths = {flow.queue: max(view.depth_of(flow.queue), peer.depth_of(flow.queue)) for flow in view.flows}
    accepted = case.move.spec.accept_difference
    if deep := [f"{name}: {n}" for name, n in depths.items() if n > copies.IDS_UP_TO and name not in accepted]:
        yield found("DR-CONT-014.too_deep", pair=view.pair, compared=copies.IDS_UP_TO, queues=brief(deep))
    if not view.to_compare:
        return
    yield from unreplicated(view, peer, case.move)
    if view.left_out:
        queues = brief(sorted(view.left_out))
        yield found("DR-CONT-014.left_out", severity=Severity.WARNING, pair=view.pair, queues=queues)


def surplus(case: Case[SiteView], local: SiteView, peer: SiteView) -> dict[str, int]:
    under_way = total(count for view in (local, peer) for count in (view.link.to_ship, view.link.unapplied)) or 0
    differences = {name: local.depth_of(name) - peer.depth_of(name) for name in selected(local, case.rules.queues)}
    return {name: difference for name, difference in differences.items() if difference > under_way}


def unreplicated(source: SiteView, target: SiteView, move: Move) -> Iterator[Finding]:
    """Report messages that a move would leave behind or deliver again: the drain would refuse such a move."""
    accepted = move.spec.accept_difference
    none = frozenset[str]()
    lost = {name: ids - source.held.get(name, none) for name, ids in source.uncopied.items() if name not in accepted}
    if lost := {name: ids for name, ids in lost.items() if ids}:
        yield found("DR-CONT-013.serving", source=source.site, target=target.site, messages=copies.ids_text(lost))
    views = (source, target)
    counts = [(name, count, view.site) for view in views for name, count in view.without_id.items()]
    if unnamed := [f"{name}: {count} at {site}" for name, count, site in counts if name not in accepted]:
        yield found("DR-CONT-020", pair=source.pair, messages=brief(unnamed), source=source.site, target=target.site)


def of_broker(view: SiteView, _case: Case[SiteView] | None = None) -> Iterator[Finding]:
    service = view.service
    yield from checks.listener_findings(view)
    if service is None or not service.started:
        yield found("DR-CONT-001", broker=view)
        return
    if service.activated and not service.delivering:
        yield found("DR-CONT-007", broker=view, site=view.site)
    if not service.activated and (opened := [listener.name for listener in view.listeners if listener.started]):
        yield found("DR-CONT-006", broker=view, opened=", ".join(opened))
    if view.nodes:
        names = ", ".join(listener.name for listener in view.listeners)
        yield found("DR-CONT-022", broker=view, listeners=names, site=view.site)
    yield from _of_flows(view)
    yield from checks.queue_findings(view)


def _of_flows(view: SiteView) -> Iterator[Finding]:
    addresses = by_key((flow.address, flow.queue) for flow in view.flows)
    if shared := [f"{address}: {', '.join(names)}" for address, names in addresses.items() if len(names) > 1]:
        yield found("DR-CONT-002", broker=view, shared=brief(shared))
    remembered = view.id_cache or view.config.id_cache
    depths = {flow.queue: view.depth_of(flow.queue) for flow in view.flows}
    if remembered is not None and (deep := [f"{queue}: {n}" for queue, n in depths.items() if n > remembered]):
        yield found("DR-CONT-003", broker=view, remembered=remembered, deep=brief(deep))
    if not view.keeps_ids:
        yield found("DR-CONT-003.restart", broker=view)
    if stopped := [bridge for bridge, started in view.link.links_started.items() if not started]:
        yield found("DR-CONT-008", broker=view, stopped=brief(stopped))
    elif not view.link.attached:
        yield found("DR-CONT-009", broker=view)
    by_amqp = [listener.name for listener in view.listeners if "AMQP" in listener.protocols]
    dropping = [flow.out_mirror.name for flow in view.flows if flow.out_mirror.routing == "multicast"]
    if by_amqp and dropping:
        yield found("DR-CONT-021", broker=view, acceptors=", ".join(by_amqp), outflows=brief(dropping))
    if unread := [flow.in_acks.name for flow in view.flows if not flow.in_acks.consumers]:
        yield found("DR-CONT-011", broker=view, unread=brief(unread))
    if held := [flow.staging.name for flow in view.flows if flow.staging.paused]:
        yield found("DR-CONT-015", broker=view, held=brief(held))
    if view.commands is not None and view.commands.under_way:
        yield found("DR-CONT-010", broker=view, waiting=view.commands.under_way)


def of_both(source: SiteView, target: SiteView) -> Iterator[Finding]:
    service, peer_service = source.service, target.service
    yield from checks.pair_findings(source, target)
    if service is None or peer_service is None:
        return
    if service.site_id == peer_service.site_id:
        yield found("DR-CONT-004", pair=source.pair, site_id=service.site_id)
    if (service.suffixes, service.prefix) != (peer_service.suffixes, peer_service.prefix):
        yield found("DR-CONT-005.named_otherwise", pair=source.pair, source=source.site, target=target.site)
    names = {flow.queue for flow in source.flows} ^ {flow.queue for flow in target.flows}
    if names:
        yield found("DR-CONT-005.one_site", pair=source.pair, flows=brief(sorted(names)))
    skew_ms, delay_ms = abs(source.now_ms - target.now_ms), min(service.staging_ms, peer_service.staging_ms)
    if skew_ms > delay_ms:
        yield found("DR-CONT-012", pair=source.pair, skew=f"{skew_ms / 1000:.1f}", delay=f"{delay_ms / 1000:g}")


def of_return(case: Case[SiteView]) -> Iterator[Finding]:
    snapshot, move = case.snapshot, case.move
    yield from reasons.of_return(case, of_broker, _FIXED, "DR-RETURN-001.continuity", of_moved)
    for pair in snapshot.both(move.source, move.target):
        yield from (finding for finding in of_both(*pair) if finding.id in _MUST_AGREE)
    yield from _of_residue(snapshot, move)


def _of_residue(snapshot: ContinuitySnapshot, move: Move) -> Iterator[Finding]:
    """Report the messages that a reinstatement would bring, and the number of duplicates among them."""
    known = [residue for view in snapshot.views(move.target) if (residue := view.link.residue) is not None]
    residue = Residue.sum_of(known)
    if len(known) < len(snapshot.views(move.target)) or not (residue.messages or residue.acks):
        return
    finding = found("DR-RETURN-005", move=move, residue=residue, duplicates=if_known(residue.duplicates))
    yield finding if residue.duplicates else replace(finding, severity=Severity.INFO)


def is_reinstated(snapshot: ContinuitySnapshot, move: Move) -> bool:
    """Say whether the target is reinstated already: no debt is left, and no staging or command queue is paused."""
    views = [*snapshot.views(move.source), *snapshot.views(move.target)]
    held = any(view.commands is not None and view.commands.out.paused for view in views)
    held = held or any(flow.staging.paused for view in views for flow in view.flows)
    return not held and reasons.is_reinstated(snapshot, move)


def _started(view: SiteView) -> bool:
    return view.service is not None and view.service.started


def _service_text(view: SiteView) -> str | None:
    if view.service is None or not _started(view):
        return None
    active = "active" if view.service.activated else "not active"
    return f"{active}, {'delivering' if view.service.delivering else 'not delivering'}"


def _flows_text(view: SiteView) -> str | None:
    return f"{view.site} {len(view.flows)} flow(s)" if _started(view) else None


def _compared_text(view: SiteView) -> str | None:
    if not view.to_compare:
        return NO_CHECK
    return f"{view.site} {view.compared} queue(s) with messages compared by id" if view.compared is not None else None


def _bridges_text(view: SiteView) -> str | None:
    connected = "connected" if view.link.attached else "not connected"
    return f"{len(view.link.links_started)} bridge(s), {connected}" if _started(view) else None


BY_BROKER: Final[Sequence[NamedCheck[SiteView]]] = (
    NamedCheck("DR-CONT-001", lambda view: "read" if view.service is not None else "not there"),
    NamedCheck("DR-CONT-006", lambda view: checks.listener_states(view.listeners) if _started(view) else None),
    NamedCheck("DR-CONT-007", _service_text),
    NamedCheck("DR-CONT-002", _flows_text),
    NamedCheck(
        "DR-CONT-003",
        lambda view: f"{if_known(view.id_cache or view.config.id_cache)} remembered" if _started(view) else None,
    ),
    *(NamedCheck(check, _bridges_text) for check in ("DR-CONT-008", "DR-CONT-009")),
    *(NamedCheck(check, _flows_text) for check in ("DR-CONT-011", "DR-CONT-021", "DR-CONT-015")),
    NamedCheck("DR-CONT-010", lambda view: f"{view.commands.under_way} waiting" if view.commands is not None else None),
    NamedCheck("DR-CONT-022", lambda view: brief([node.name for node in view.nodes]) or "one node"),
)
BY_PAIR: Final[Sequence[NamedCheck[SiteView]]] = (
    NamedCheck(
        "DR-CONT-004", lambda view: f"{view.site} is {view.service.site_id}" if view.service is not None else None
    ),
    NamedCheck("DR-CONT-005", _flows_text),
    NamedCheck("DR-CONT-013", _compared_text),
    NamedCheck("DR-CONT-014", _flows_text),
    NamedCheck("DR-CONT-020", _compared_text),
    NamedCheck("DR-CONT-012", lambda view: f"{view.site} {view.clock}"),
    NamedCheck("DR-MQTT-001", lambda view: f"{view.site} {brief(view.stays) or 'nothing'}"),
)
CHECKS: Final = Checks(of_broker, of_moved, of_return, is_reinstated, BY_BROKER, BY_PAIR, surplus)
