"""The named checks of brokers that diverts and bridges join. They report all obstacles to a move at once."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import Final
from xml.sax.saxutils import quoteattr

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Severity, brief
from dr_ctl.core.notation import duration, if_known
from dr_ctl.engine.operations import FAILBACK
from dr_ctl.engine.plan import Spec
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.artemis.broker import BY_LISTENERS, COPY_PREFIX, boot_findings, fenced_roles, link_user_findings
from dr_ctl.topologies.bridges.view import COMPARED, ORIGIN, Bridge, BrokerView, Flow
from dr_ctl.topologies.common import checks, reasons
from dr_ctl.topologies.common.checks import Case, Checks, NamedCheck
from dr_ctl.topologies.common.gate import accepting
from dr_ctl.topologies.common.reasons import is_reinstated
from dr_ctl.topologies.common.rules import Rules, selects
from dr_ctl.topologies.common.view import count_text

SKIPS_PER_S: Final = 4000  # messages that a plain client skips, one by one: 3 100 to 4 500 were measured
_TOO_DEEP: Final = (
    f"The queue has more than {COMPARED} messages, too many to compare: `--accept-difference {{}}` moves without it."
)
_FIXED: Final = frozenset({"DR-DOOR-004", "DR-BRIDGE-004", "DR-LINK-004"})
_RETRY_S: Final = 20  # as long as a drain waits by default while nothing moves
_WHEN_ITS_LINK_FAILS: Final[Mapping[str, Callable[[Bridge], bool]]] = {
    "DR-BRIDGE-021.ends": lambda bridge: bridge.retries >= 0,
    "DR-BRIDGE-021.rarely": lambda bridge: bridge.retry_s > _RETRY_S,
    "DR-BRIDGE-021.repeats": lambda bridge: bridge.repeats,
}


def of_return(case: Case[BrokerView]) -> Iterator[Finding]:
    moves = case if case.move.spec.operation == FAILBACK else None
    yield from reasons.of_return(case, lambda view: of_broker(view, moves), _FIXED, "DR-RETURN-001.artemis", of_both)
    for view in case.snapshot.views(case.move.target):
        if not view.link.attached:  # an attached link shows that a return has begun
            yield from _of_duplicates(view, case.move)


def _of_duplicates(view: BrokerView, move: Move) -> Iterator[Finding]:
    ids, accepted = view.unannounced, move.spec.accept_duplicates
    count = sum(map(len, ids.values())) if ids is not None else sum(flow.to_ship or 0 for flow in view.flows)
    if count:
        finding = found(
            "DR-RETURN-010.held" if ids is not None else "DR-RETURN-010.held_unread",
            more=[f"      {unit}: {brief(announced)}" for unit, announced in (ids or {}).items() if announced],
            accepted=accepted == "unknown" or (accepted is not None and accepted >= count),
            count=count,
            site=view.site,
            again=f"dr-ctl {'failback --to' if move.spec.operation == FAILBACK else 'reinstate'} {view.site}",
        )
        yield replace(finding, duplicates=count)


def of_broker(view: BrokerView, case: Case[BrokerView] | None = None) -> Iterator[Finding]:
    spec = case.move.spec if case is not None else None
    yield from checks.listener_findings(view)
    if view.coordinators and (closed := [listener.name for listener in view.listeners if not listener.started]):
        locks = brief([coordinator.name for coordinator in view.coordinators])
        yield found("DR-DOOR-008.of_queues", broker=view, locks=locks, listeners=brief(closed))
    yield from _of_units(view, case)
    for flow in view.all_flows:
        if spec is None or flow is view.ids or spec.includes(flow.unit):
            yield from _of_flow(view, flow)
            yield from _of_buffer(view, flow, spec)
    for key, is_so in _WHEN_ITS_LINK_FAILS.items():
        if named := [bridge.name for flow in view.all_flows for bridge in flow.bridges if is_so(bridge)]:
            yield found(key, broker=view, bridges=brief(named))
    if not view.keeps_ids:
        yield found("DR-BRIDGE-021.restart", broker=view)
    yield from boot_findings(view)
    yield from _of_forwarded(view, spec)
    if (lasting := view.config.lasting) is not None:
        yield from link_user_findings(view, lasting.roles, "the bridges")
    else:
        yield found("DR-BRIDGE-009", broker=view)
    yield from checks.queue_findings(view)


def _of_units(view: BrokerView, case: Case[BrokerView] | None) -> Iterator[Finding]:
    if not view.flows:
        yield found("DR-BRIDGE-001", broker=view)
        return
    if not any(flow.bridges for flow in view.all_flows):
        yield found("DR-BRIDGE-002", broker=view, site=view.site)
    if view.ids is None:
        yield found("DR-BRIDGE-003", broker=view)
    dead_letter_queues = view.dead_letter_queues
    loose = {
        name: queue.depth
        for name, queue in sorted(view.business.items())
        if queue.durable and not (queue.temporary or view.flow(queue.address) or name in dead_letter_queues)
    }
    left_behind: dict[str, int] = {}
    # Queues that the settings leave out stay on purpose, and so do the others where a part of a site's queues moves.
    if case is not None and (view.site, case.move.spec.units) == (case.move.source, None):
        chosen, accepted = case.rules.queues, case.move.spec.accept_difference
        left_behind = {name: n for name, n in loose.items() if n > accepted.get(name, 0) and selects(chosen, name)}
    if left_behind:
        options = accepting(left_behind)
        messages = brief([f"{depth} message(s) of {queue}" for queue, depth in left_behind.items()])
        yield found("DR-BRIDGE-005.left_behind", broker=view, messages=messages, site=view.site, given=options)
    if held := [f"{queue} ({depth} message(s))" for queue, depth in loose.items() if queue not in left_behind]:
        yield found("DR-BRIDGE-005", broker=view, loose=brief(held), site=view.site)


def _of_flow(view: BrokerView, flow: Flow) -> Iterator[Finding]:
    unit = flow.unit
    if mark := next((character for character in ",*#" if character in unit), None):
        yield found("DR-BRIDGE-006.comma" if mark == "," else "DR-BRIDGE-006.wildcard", broker=view, unit=unit)
    if flow.buffer is None:
        yield found("DR-BRIDGE-006.no_buffer", broker=view, unit=unit, divert=flow.divert.name, address=flow.divert.to)
        return
    if not flow.bridges and any(flow.bridges for flow in view.all_flows):
        yield found("DR-BRIDGE-006.no_bridge", broker=view, unit=unit, buffer=flow.buffer.name)
    if flow.buffer.paused:
        yield found("DR-LINK-005", broker=view, outflow=f"the buffer {flow.buffer.name} of {unit}")
    if stopped := [bridge.name for bridge in flow.bridges if not bridge.started]:
        yield found("DR-BRIDGE-004", broker=view, stopped=brief(stopped), site=view.site)
    elif flow.bridges and not flow.attached:
        yield found("DR-LINK-004", broker=view, link=f"the bridge of {unit}", site=view.site)
    # A message without an origin is sent back to its site.
    filter_ = flow.divert.filter or ""
    for bridge in flow.bridges:
        if bridge.origin is None:
            yield found("DR-BRIDGE-007.no_header", broker=view, bridge=bridge.name, origin=ORIGIN)
        elif f"{ORIGIN} = '{bridge.origin}'" not in filter_ or f"{ORIGIN} IS NULL" not in filter_:
            key, divert, filter_text = "DR-BRIDGE-007.wrong_filter", flow.divert, filter_ or "missing"
            yield found(key, broker=view, bridge=bridge, origin=ORIGIN, divert=divert, filter=filter_text)


def _of_buffer(view: BrokerView, flow: Flow, spec: Spec | None = None) -> Iterator[Finding]:
    """Report messages that found no buffer since the broker's start, as counted by their address. If their queue is too
    deep to compare, nothing else shows them."""
    unit, lost, buffer = flow.unit, view.uncopied(flow), flow.buffer
    if buffer is None:
        return
    begun = f"{lost} message(s) for {unit} found no queue at {flow.divert.to} since that broker's start"
    if view.refuses_amqp(flow) and (lost or any("AMQP" in listener.protocols for listener in view.listeners)):
        kind = "anycast" if buffer.routing == "multicast" else "multicast"
        yield found(
            "DR-BRIDGE-019.routing",
            accepted=not lost,
            broker=view,
            routing=buffer.routing,
            unit=unit,
            kind=kind,
            site=view.site,
            buffer=buffer.name,
            uncopied=f"; {begun}" if lost else "",
            address_xml=quoteattr(buffer.address),
            queue_xml=quoteattr(buffer.name),
        )
    elif lost:
        deep = any(queue.depth > COMPARED for queue in view.queues_of(unit))
        accepted = not deep or spec is None or spec.accept_difference.get(unit, 0) >= lost
        why = f" {_TOO_DEEP.format(quote(f'{unit}={lost}'))}" if deep else ""
        yield found("DR-BRIDGE-019.uncopied", accepted=accepted, broker=view, begun=begun, unit=unit, too_deep=why)


def _of_forwarded(view: BrokerView, spec: Spec | None) -> Iterator[Finding]:
    units = [unit for unit, count in view.forwarded.items() if count and (spec is None or spec.includes(unit))]
    if units:
        counts = brief([f"{view.forwarded[unit]} of {unit}" for unit in units])
        accepted = spec is None or all(view.forwarded[unit] == spec.accept_difference.get(unit) for unit in units)
        yield found("DR-BRIDGE-015", broker=view, header=ORIGIN, counts=counts, site=view.site, accepted=accepted)


def of_links(view: BrokerView, peer: BrokerView | None) -> Iterator[Finding]:
    """Report bridges that are stopped, refused or missing; without an answer of the peer, no bridge is connected."""
    of_queue = {"DR-BRIDGE-004", "DR-BRIDGE-019", *(("DR-BRIDGE-002", "DR-BRIDGE-006", "DR-LINK-004") if peer else ())}
    yield from (finding for finding in of_broker(view) if finding.id in of_queue)


def of_both(case: Case[BrokerView], view: BrokerView, peer: BrokerView) -> Iterator[Finding]:
    move = case.move
    yield from checks.pair_findings(view, peer, move.spec.includes)
    if not any(queue.consumers for queue in peer.arrived):
        yield found("DR-BRIDGE-010", site=peer.site, pair=peer.pair)
    units = view.chosen_units(move.moves)
    for unit in units:
        if not peer.queues_of(unit):
            yield found("DR-BRIDGE-011.no_queue", broker=peer, unit=unit, site=view.site, other_site=peer.site)
        elif unrouted := peer.unrouted.get(unit):
            yield found("DR-BRIDGE-011.unrouted", severity=Severity.WARNING, broker=peer, unit=unit, count=unrouted)
        if peer.flow(unit) is None:
            yield found("DR-BRIDGE-006.not_back", broker=peer, unit=unit, site=view.site, other_site=peer.site)
        yield from of_reachable_copy(unit, view, peer, planned=True)
        yield from _of_delayed(unit, view, peer, move, case.rules)
        yield from _of_uncopied_queues(unit, view, peer, move.spec)
    # The fence would not close a queue that only the standby's diverts copy, so both sites would have it open.
    for unit in (unit for unit in peer.chosen_units(move.moves) if view.flow(unit) is None):
        yield found("DR-BRIDGE-006.not_captured", site=view.site, pair=view.pair, unit=unit, other_site=peer.site)
    yield from _of_refused(view, peer)
    yield from _of_history(units, view, peer)


def of_reachable_copy(unit: str, view: BrokerView, peer: BrokerView, *, planned: bool = False) -> Iterator[Finding]:
    """Report a unit that this site serves and clients can reach at the other site: it has no consumers there yet, or
    only a pause closes it, and clients may send. Before a planned move, also report a unit that is open at both sites,
    or that only closed listeners keep closed there."""
    queue, is_served, paused = quote(unit), bool(view.units.get(unit)), peer.closed_by_pause(unit)
    if unit in peer.idle or (planned and is_served and peer.units.get(unit)):
        yield found("DR-BRIDGE-012", unit=unit, view=peer, peer=view, queue=queue)
    elif is_served and peer.config.lasting is not None and not peer.kept_out(unit) and (planned or paused):
        closed = "is paused there" if paused else "is closed there only by its listeners"
        yield found("DR-BRIDGE-013", view=peer, unit=unit, closed=closed, queue=queue)


def _of_delayed(unit: str, view: BrokerView, peer: BrokerView, move: Move, rules: Rules) -> Iterator[Finding]:
    """Report delayed messages that are due later than a drain waits while no number changes."""
    flow, waits_s, late = view.flow(unit), min(rules.within(move), rules.drain.stall), 0
    if flow is not None:
        late = flow.not_due if flow.due_s is None else sum(due_s > waits_s for due_s in flow.due_s)
    if late > move.spec.accept_difference.get(unit, 0):
        waits, difference = duration(waits_s), quote(f"{unit}={late}")
        yield found("DR-BRIDGE-020", view=view, peer=peer, late=late, unit=unit, waits_s=waits, difference=difference)


def _of_uncopied_queues(unit: str, view: BrokerView, peer: BrokerView, spec: Spec) -> Iterator[Finding]:
    """Report queues of an address that have messages and do not exist at the other site, such as subscriptions."""
    copies = {queue.name for queue in peer.queues_of(unit)}
    for queue in view.queues_of(unit) if copies else ():
        if queue.depth and queue.name not in copies and queue.depth != spec.accept_difference.get(queue.name):
            yield found("DR-BRIDGE-011.no_such_queue", queue=queue, view=view, peer=peer)


def _of_refused(view: BrokerView, peer: BrokerView) -> Iterator[Finding]:
    """Report a role that may not send to one address: the peer refuses that bridge, which stops all bridges."""
    clients = peer.config.lasting.roles if peer.config.lasting is not None else ()
    senders = {
        unit: {
            role for role, words in peer.grants[unit].items() if "send" in words and not role.startswith(COPY_PREFIX)
        }
        for unit in sorted({flow.unit for flow in view.all_flows} & peer.grants.keys())
    }
    counts = Counter(role for roles in senders.values() for role in roles.difference(clients))
    # Without a connected bridge, the roles that may send to most addresses are taken for its user's.
    own = {role for user in peer.link_users for role in (peer.users or {}).get(user, ())}
    usual = own or {role for role, count in counts.items() if count > len(senders) / 2}
    for unit, roles in senders.items():
        if (missing := sorted(usual - roles)) and not own & roles:
            bridges = [bridge.name for flow in view.all_flows if flow.unit == unit for bridge in flow.bridges]
            who = f"bridge {bridges[0]}" if bridges else f"the bridge of {unit}"
            roles_, role = brief(missing), missing[0]
            yield found("DR-BRIDGE-008", view=view, peer=peer, who=who, roles=roles_, role=role, unit=unit)


def _of_history(units: Iterable[str], view: BrokerView, peer: BrokerView) -> Iterator[Finding]:
    depths = {unit: [sum(queue.depth for queue in broker.queues_of(unit)) for broker in (view, peer)] for unit in units}
    deep = {unit: remote - local for unit, (local, remote) in depths.items() if view.units.get(unit)}
    if history := [
        f"{unit} {count} ({count / SKIPS_PER_S:.0f} s at {SKIPS_PER_S} a second)"
        for unit, count in deep.items()
        if count > SKIPS_PER_S
    ]:
        yield found("DR-BRIDGE-014", site=peer.site, pair=peer.pair, history=brief(history))


def _bridges(view: BrokerView) -> str:
    bridges = [bridge for flow in view.all_flows for bridge in flow.bridges]
    return f"{len(bridges)} bridge(s), {sum(bridge.started for bridge in bridges)} started"


def _buffers(view: BrokerView) -> str:
    return brief([f"{count_text(flow.to_ship)} of {flow.unit} to ship" for flow in view.flows]) or "none"


def _ids(view: BrokerView) -> str:
    return f"{view.ids.unit}: {count_text(view.ids_to_ship)} id(s) to ship" if view.ids else "no divert for them"


def _closed(view: BrokerView) -> str:
    closed = [unit for unit, is_open in view.units.items() if not is_open]
    return f"{view.site} {len(closed)} of {len(view.units)} closed"


BY_BROKER: Final[Sequence[NamedCheck[BrokerView]]] = (
    NamedCheck("DR-BRIDGE-001", lambda view: brief([flow.unit for flow in view.flows]) or "none is"),
    NamedCheck("DR-BRIDGE-002", _bridges),
    NamedCheck("DR-BRIDGE-003", _ids),
    NamedCheck("DR-BRIDGE-004", _bridges),
    NamedCheck("DR-BRIDGE-021", _bridges),
    *BY_LISTENERS,
    NamedCheck("DR-LINK-004", _bridges),
    NamedCheck("DR-LINK-005", _buffers),
    NamedCheck("DR-BRIDGE-005", lambda view: f"{len(view.business)} queue(s)"),
    NamedCheck("DR-BRIDGE-006", _buffers),
    NamedCheck("DR-BRIDGE-019", lambda view: f"{sum(map(view.uncopied, view.all_flows))} message(s) found no buffer"),
    NamedCheck("DR-BRIDGE-007", _bridges),
    NamedCheck("DR-BRIDGE-015", lambda view: f"{len(view.forwarded)} queue(s) counted"),
    NamedCheck("DR-BRIDGE-009", fenced_roles),
    NamedCheck("DR-FENCE-005", fenced_roles),
    NamedCheck("DR-FENCE-006", fenced_roles),
)
BY_PAIR: Final[Sequence[NamedCheck[BrokerView]]] = (
    NamedCheck("DR-BRIDGE-008", _bridges),
    NamedCheck("DR-BRIDGE-010", lambda view: f"{view.site} {if_known(view.link.unapplied)} not applied"),
    NamedCheck("DR-BRIDGE-011", lambda view: f"{view.site} {len(view.unrouted)} address(es)"),
    NamedCheck("DR-BRIDGE-012", _closed),
    NamedCheck("DR-BRIDGE-013", _closed),
    NamedCheck("DR-BRIDGE-014", lambda view: f"{view.site} {sum(q.depth for q in view.business.values())} message(s)"),
    NamedCheck("DR-BRIDGE-020", lambda view: f"{view.site} {sum(flow.not_due for flow in view.flows)} delayed"),
    NamedCheck("DR-MQTT-001", lambda view: f"{view.site} {brief(view.stays) or 'nothing'}"),
)
CHECKS: Final = Checks(of_broker, of_both, of_return, is_reinstated, BY_BROKER, BY_PAIR, of_standby=lambda _: ())
