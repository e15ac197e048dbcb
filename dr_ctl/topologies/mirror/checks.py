"""The named checks of a mirrored pair. They report all obstacles to a move at once."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, RefusalScope, Role, brief
from dr_ctl.topologies.artemis.broker import BY_LISTENERS, boot_findings, fenced_roles, link_user_findings
from dr_ctl.topologies.common import checks, reasons
from dr_ctl.topologies.common.calls import CLUSTER_PREFIX
from dr_ctl.topologies.common.checks import Case, Checks, NamedCheck
from dr_ctl.topologies.common.reasons import is_reinstated
from dr_ctl.topologies.common.rules import depth_text, not_accepted
from dr_ctl.topologies.mirror.view import BrokerView, differences, unexplained

CLOCK_SKEW_MS = 2000
# The reinstatement itself fixes these findings.
_FIXED = frozenset({"DR-DOOR-004", "DR-LINK-003", "DR-LINK-004"})
_NONE: Final = "no link is configured"


def of_return(case: Case[BrokerView]) -> Iterator[Finding]:
    is_group = any(view.nodes for view in case.snapshot.views(case.move.target))
    open_again = "DR-RETURN-001.group" if is_group else "DR-RETURN-001.artemis"
    return reasons.of_return(case, of_broker, _FIXED, open_again, of_both)


def of_broker(view: BrokerView, _case: Case[BrokerView] | None = None) -> Iterator[Finding]:
    yield from checks.listener_findings(view)
    yield from _of_listeners(view)
    yield from _of_lasting_fence(view)
    yield from _of_link(view)
    yield from checks.queue_findings(view)


def _of_listeners(view: BrokerView) -> Iterator[Finding]:
    if not view.link.listeners and view.config.mirror is None:
        amqp = [listener.name for listener in view.fence.leaves_open if "AMQP" in listener.protocols]
        candidates = f"{', '.join(amqp)} could all be it" if amqp else "only the clients' acceptors have AMQP"
        finding = found("DR-DOOR-003.acceptor", broker=view, which=candidates)
        # Where no acceptor can be named, only a restart fixes it; a failover cannot wait for that.
        yield finding if amqp else replace(finding, weighs=finding.weighs & ~RefusalScope.FAILOVER)
    yield from boot_findings(view)
    locks = brief([coordinator.name for coordinator in view.coordinators])
    if locks and not view.drives_locks:
        yield found("DR-DOOR-008.old", broker=view, locks=locks, version=view.version)
    elif view.fence.contending:
        yield found("DR-DOOR-008.driven", broker=view, locks=locks)
    else:
        yield from checks.lock_findings(view)


def _of_lasting_fence(view: BrokerView) -> Iterator[Finding]:
    lasting = view.config.lasting
    if lasting is None:
        return
    if view.open and (closed := [match for match in lasting.matches if not view.lets_in(match)]):
        yield found("DR-FENCE-004", broker=view, roles=", ".join(lasting.roles), shut=", ".join(closed), site=view.site)
    yield from link_user_findings(view, lasting.roles, "the link")


def _of_link(view: BrokerView) -> Iterator[Finding]:
    link = view.broker_connection
    if view.link.missing:
        yield found("DR-LINK-009", broker=view, site=view.site, peer=view.config.peer)
        return
    if link is None:
        links = ", ".join(link.name for link in view.amqp_links)
        yield found("DR-LINK-001.connection", broker=view, links=links)
        return
    if view.outflow is None:
        yield found("DR-LINK-002", broker=view, other_name=link.name)
    elif view.outflow.paused:
        yield found("DR-LINK-005", broker=view, outflow=f"the outflow of link {link.name}")
    if link.retries >= 0:
        yield found("DR-LINK-003.ends", broker=view, other_name=link.name)
    if not link.started:
        yield found("DR-LINK-003", broker=view, other_name=link.name, site=view.site)
    elif view.outflow is not None and not view.link.attached:
        yield found("DR-LINK-004", broker=view, link=f"link {link.name}", site=view.site)
    if busy := [queue.name for queue in view.queues if queue.name.startswith(CLUSTER_PREFIX) and queue.depth]:
        yield found("DR-LINK-006", broker=view, busy=brief(busy))


def surplus(case: Case[BrokerView], view: BrokerView, peer: BrokerView) -> dict[str, int]:
    return {row.queue: row.source - row.target for row in unexplained(view, peer, case.rules.queues, {})}


def of_both(case: Case[BrokerView], source: BrokerView, target: BrokerView) -> Iterator[Finding]:
    yield from checks.pair_findings(source, target)
    skew = abs(source.now_ms - target.now_ms)
    if skew > CLOCK_SKEW_MS:
        yield found("DR-PAIR-003", skew=f"{skew / 1000:.1f}")
    if Role.SERVING in (source.role, target.role):
        differing = unexplained(source, target, case.rules.queues, case.snapshot.traffic.get(source.pair, {}))
        wrong = not_accepted(differing, case.move)
    else:
        wrong = []  # if both are closed, the gate compares them, by several readings
    if wrong:
        texts = [
            difference.text(source.site, target.site) + (" (absent there)" if None in difference.at else "")
            for difference in wrong
        ]
        waits_with_more = source.role is Role.SERVING and all(
            difference.target > difference.source for difference in wrong
        )
        key = "DR-PARITY-001.not_removed" if waits_with_more else "DR-PARITY-001"
        yield found(key, differences=brief(texts), source=source.site, target=target.site)
    if allowed := differences(source, target, case.rules.queues, block=False):
        yield found("DR-PARITY-002", loose=brief([difference.text(source.site, target.site) for difference in allowed]))


def _links_text(view: BrokerView) -> str:
    return brief([link.name for link in view.links]) or "none"


def _link_text(view: BrokerView) -> str | None:
    link = view.broker_connection
    if link is None:
        return _NONE if view.link.missing else None
    return f"{link.name} {'attached' if view.link.attached else 'started' if link.started else 'stopped'}"


def _outflow_text(view: BrokerView) -> str | None:
    if view.broker_connection is None:
        return _NONE if view.link.missing else None
    return f"{view.outflow.depth} to ship" if view.outflow is not None else "no outflow"


BY_BROKER: Final[Sequence[NamedCheck[BrokerView]]] = (
    NamedCheck("DR-DOOR-003", lambda view: checks.listener_states(view.link.listeners)),
    *BY_LISTENERS,
    NamedCheck("DR-FENCE-004", fenced_roles),
    NamedCheck("DR-FENCE-005", fenced_roles, "the roles of the link's user are known"),
    NamedCheck("DR-FENCE-006", fenced_roles, "a lasting fence does not affect the link"),
    NamedCheck("DR-LINK-009", _links_text),
    NamedCheck("DR-LINK-001", _links_text, "the link to the peer is known"),
    NamedCheck("DR-LINK-002", _outflow_text),
    NamedCheck("DR-LINK-003", _link_text),
    NamedCheck("DR-LINK-004", _link_text, "the link is attached"),
    NamedCheck("DR-LINK-005", _outflow_text, "the outflow is not paused"),
    NamedCheck("DR-LINK-006", lambda view: f"{len(view.queues)} queue(s) read"),
)
BY_PAIR: Final[Sequence[NamedCheck[BrokerView]]] = (
    NamedCheck("DR-PAIR-003", lambda view: f"{view.site} {view.clock}"),
    NamedCheck("DR-PARITY-001", depth_text, "the queues hold the same"),
    NamedCheck("DR-PARITY-002", depth_text),
    NamedCheck("DR-MQTT-001", lambda view: f"{view.site} {brief(view.stays) or 'nothing'}"),
)
CHECKS: Final = Checks(of_broker, of_both, of_return, is_reinstated, BY_BROKER, BY_PAIR, surplus)
