"""Find the reasons against a move, and list its checks by name for `validate`, with the values read. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic

from dr_ctl.core.findings import catalogue, found
from dr_ctl.core.model import Finding, RefusalScope, Role, Severity, brief
from dr_ctl.core.notation import if_known
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.ports import Check, Move
from dr_ctl.engine.roles import no_answer
from dr_ctl.topologies.common.calls import debts_of
from dr_ctl.topologies.common.group import node_findings, node_states, obstacle_findings
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import Silent, Snapshot, before, paused_by_runs, reopened
from dr_ctl.topologies.common.view import Acceptor, Broker, V


@dataclass(frozen=True, slots=True)
class Case(Generic[V]):
    rules: Rules
    snapshot: Snapshot[V]
    move: Move


def warn_outside(finding: Finding, scope: RefusalScope) -> Finding:
    """Make an error a warning where the error refuses no request of this scope."""
    if finding.severity is not Severity.ERROR or scope & finding.weighs:
        return finding
    return replace(finding, severity=Severity.WARNING)


def errors_first(findings: Iterable[Finding]) -> list[Finding]:
    order = [Severity.ERROR, Severity.WARNING, Severity.INFO]
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def silence_findings(silent: Silent) -> Iterator[Finding]:
    yield no_answer(f"{silent.site}/{silent.pair}", silent.role, silent.error, Severity.ERROR)


def listener_findings(view: Broker) -> Iterator[Finding]:
    config, listed = view.config, all(acceptor.bean for acceptor in view.acceptors)
    named = {
        "`clients:`": config.clients,
        "`mirror:` or `bridge:`": config.mirror or (),
        "`cluster:`": config.cluster,
        "`connector:` of `sync:`": filter(None, [config.agent]),
    }
    declared = [acceptor.name for acceptor in view.acceptors]
    for key, names in named.items() if listed else ():  # without a console no broker lists them
        if missing := [name for name in names if name not in declared]:
            there = ", ".join(declared) or "none"
            yield found("DR-DOOR-001", broker=view, missing=", ".join(missing), there=there, key=key)
    listeners = view.listeners
    if view.open and (closed := [listener.name for listener in listeners if not listener.started]):
        yield found("DR-DOOR-002", broker=view, closed=", ".join(closed))
    ports, stomp_port = {listener.port for listener in listeners}, view.config.stomp_port
    if stomp_port is not None and ports and None not in ports and stomp_port not in ports:
        at = brief([f"{listener.name} {if_known(listener.port)}" for listener in listeners])
        yield found("DR-DOOR-009", broker=view, greets_at=stomp_port, listeners=at)
    if shut := [listener.name for listener in view.link.listeners if not listener.started]:
        kept_out = [debt.lost_site for debt in debts_of(view.documents) if debt.kind is DebtKind.QUARANTINE]
        if kept_out:
            yield found("DR-DOOR-004.quarantine", broker=view, shut=brief(shut), lost=kept_out[0])
        else:
            yield found("DR-DOOR-004.closed", broker=view, shut=brief(shut))
    yield from _of_inner_listeners(view)
    left_open = [listener for listener in view.fence.leaves_open if listener.started]
    if clients_elsewhere := view.fence.clients_elsewhere():
        key = "DR-DOOR-005.unknown" if _may_be_brokers(view) else "DR-DOOR-005"
        yield found(key, broker=view, strangers=brief(clients_elsewhere))
    elif others := [listener.name for listener in left_open if listener.port not in view.inner_ports]:
        yield found("DR-DOOR-006", broker=view, others=", ".join(others))


def _of_inner_listeners(view: Broker) -> Iterator[Finding]:
    """A fence that closes these cuts nodes and brokers off from each other; a shared store keeps nodes apart."""
    inner_ports = view.inner_ports
    if listeners := [listener.name for listener in view.listeners if listener.port in inner_ports]:
        named = ", ".join(listeners)
        beside = f" Or take {named} out of `clients:`, where no client comes through it."
        or_else = beside if len(listeners) < len(view.listeners) else ""
        joined = "DR-NODE-002.cluster" if view.is_clustered else "DR-NODE-002.shared_store"
        key = "DR-NODE-002.replicating" if view.replicates else joined
        yield found(key, broker=view, listeners=named, or_else=or_else)
    elif view.replicates and not any(listener.port in inner_ports for listener in view.acceptors):
        yield found("DR-NODE-002.not_known", broker=view)
    linked = [listener.name for listener in view.link.listeners if listener.port in inner_ports]
    if view.replicates and linked:
        yield found("DR-NODE-003", broker=view, listeners=", ".join(linked))


def _may_be_brokers(view: Broker) -> bool:
    """Say whether brokers of the site may connect to a listener that a fence leaves open. The settings must not name it
    under `clients:`: a fence would cut the brokers off from each other. A connection without user and client id may be
    a broker's."""
    ports, inner_ports = {listener.port for listener in view.fence.leaves_open}, view.inner_ports
    connections = [connection for connection in view.outside_connections if connection.port in ports]
    return any(
        connection.port in inner_ports or not (connection.user or connection.client) for connection in connections
    )


def lock_findings(view: Broker) -> Iterator[Finding]:
    if locks := view.fence.passive:
        yield found("DR-DOOR-008.stopped", broker=view, locks=brief(locks), site=view.site)


def link_listener_findings(view: Broker, peer: Broker | None) -> Iterator[Finding]:
    if clients := view.fence.clients_at_link(peer):
        names = brief([listener.name for listener in view.link.listeners])
        yield found("DR-DOOR-011", site=view.site, pair=view.pair, guests=brief(clients), listeners=names)


def queue_findings(view: Broker) -> Iterator[Finding]:
    if view.prepared:
        yield found("DR-TX-001", broker=view, count=len(view.prepared), prepared=brief(view.prepared))
    if wrong := [queue for queue in view.queues if not queue.depth_known]:
        figures = brief([f"{queue.name}: {queue.depth} message(s), {queue.delivering} in delivery" for queue in wrong])
        yield found("DR-QUEUE-003", broker=view, queues=figures)
    if view.forged:
        yield found("DR-LOCK-004", broker=view, forged=brief(view.forged))
    lifted = paused_by_runs(view)
    if paused := [name for name in view.paused if name not in lifted]:
        yield found("DR-QUEUE-001", broker=view, paused=brief(paused))


def taken_name_findings(view: Broker, names: Iterable[str]) -> Iterator[Finding]:
    """Find queues, maybe made by clients, that have the name of a document which is to be written."""
    if taken := sorted({*names} & {*view.forged}):
        yield found("DR-LOCK-005", site=view.site, pair=view.pair, taken=brief(taken))


def standby_findings(view: Broker) -> Iterator[Finding]:
    if held := [f"{consumer.queue}: {consumer.who}" for consumer in view.consumers if consumer.queue in view.business]:
        yield found("DR-STANDBY-001", site=view.site, pair=view.pair, held=brief(held))


def mqtt_findings(view: Broker, peer: Broker) -> Iterator[Finding]:
    if stays := " and ".join(view.stays):
        again = f"Publish with retain again once {peer.site} serves: until then {peer.site} gives what it had retained."
        remedies = {
            "retained message(s) of MQTT": again,
            "the session state of": f"Let clients subscribe again at {peer.site}, as after a session that was lost.",
        }
        advice, site = " ".join(remedy for kind, remedy in remedies.items() if kind in stays), view.site
        yield found("DR-MQTT-001", site=site, pair=view.pair, stays=stays, other_site=peer.site, advice=advice)


def pair_findings(
    source: Broker, target: Broker, includes: Callable[[str], bool] = lambda _: True
) -> Iterator[Finding]:
    for view, peer in ((source, target), (target, source)):
        yield from node_findings(view, peer, Severity.ERROR)
        yield from link_listener_findings(view, peer)
    yield from obstacle_findings(target, Severity.ERROR, includes)
    yield from obstacle_findings(source, Severity.WARNING, includes)
    if source.version != target.version:
        yield found("DR-PAIR-002", view=source, peer=target)
    by_runs = paused_by_runs(target)
    if paused := [name for name in target.paused if name not in by_runs]:
        yield found("DR-QUEUE-002", site=target.site, paused=brief(paused))
    if paused := [name for name in target.paused if name in by_runs]:
        yield found("DR-QUEUE-002.by_run", site=target.site, paused=brief(paused))
    yield from mqtt_findings(source, target)


def weigh_for_move(
    findings: Iterable[Finding], view: Broker, peer: Broker | Silent | None, move: Move
) -> Iterator[Finding]:
    """Adapt the findings on a broker to this move. A fault of the target's own link refuses no move to the target. The
    listener of a link that the peer does not have is not missed. The run's fence closes listeners that have opened
    behind a lasting fence of this run. Restarting a link does not help while the peer does not answer."""
    unlinked = isinstance(peer, Broker) and peer.link.missing
    fenced_by_run = reopened(move, view) or (view.fence.roles_revoked and not before(move, view)["shut_out"])
    for finding in findings:
        if finding.id == "DR-LINK-009" and view.site == move.target:
            yield replace(finding, severity=Severity.WARNING)
        elif finding.id == "DR-LINK-004" and isinstance(peer, Silent):
            yield replace(finding, remedy=f"{peer.site} does not answer; once it does, the link attaches.")
        elif not (finding.id == "DR-DOOR-003" and unlinked) and not (finding.id == "DR-FENCE-004" and fenced_by_run):
            yield finding


NO_CHECK: Final = ""


@dataclass(frozen=True, slots=True)
class NamedCheck(Generic[V]):
    """`id` is the finding of the check. `read` gives the value that was read as a text, None where no value was read,
    and `NO_CHECK` where there is nothing to check. `label` replaces the check's name in the catalogue."""

    id: str
    read: Callable[[V], str | None]
    label: str = ""

    @property
    def name(self) -> str:
        return self.label or catalogue()[self.id].check


def listener_states(acceptors: Iterable[Acceptor]) -> str:
    return brief([f"{acceptor.name} {'open' if acceptor.started else 'closed'}" for acceptor in acceptors]) or "none"


OF_BROKER: Final[Sequence[NamedCheck[Any]]] = (
    NamedCheck("DR-DOOR-001", lambda view: listener_states(view.acceptors)),
    NamedCheck("DR-DOOR-002", lambda view: listener_states(view.listeners)),
    NamedCheck("DR-DOOR-009", lambda view: f"port {view.config.stomp_port or 'not named'}"),
    NamedCheck("DR-DOOR-004", lambda view: listener_states(view.link.listeners)),
    NamedCheck("DR-DOOR-005", lambda view: f"{len(view.connections)} connection(s)"),
    NamedCheck("DR-DOOR-006", lambda view: listener_states(view.fence.leaves_open)),
    NamedCheck("DR-NODE-002", lambda view: f"{len(view.inner_ports)} port(s) of the site's own brokers"),
    NamedCheck("DR-NODE-003", lambda view: "replicates" if view.replicates else "does not replicate"),
    NamedCheck("DR-TX-001", lambda view: f"{len(view.prepared)} prepared"),
    NamedCheck("DR-QUEUE-003", lambda view: f"{len(view.business)} queue(s)"),
    NamedCheck("DR-LOCK-004", lambda view: f"{len(view.documents)} document(s)"),
    NamedCheck("DR-QUEUE-001", lambda view: f"{len(view.business)} queue(s)"),
    NamedCheck("DR-STANDBY-001", lambda view: f"{view.role.value}, {len(view.consumers)} consumer(s)"),
)


def _room(view: Broker) -> str:
    disk = f"disk {view.disk_used:.0%} full" if view.disk_used is not None else "disk not reported"
    return f"{view.site} {disk}, {len(view.obstacles)} limit(s) reached"


OF_PAIR: Final[Sequence[NamedCheck[Any]]] = (
    NamedCheck("DR-NODE-001", lambda view: f"{view.site} {len(view.unnamed)} other node(s)"),
    NamedCheck("DR-NODE-005", node_states),
    NamedCheck("DR-NODE-006", node_states),
    NamedCheck("DR-DOOR-011", lambda view: f"{view.site} {len(view.link.connections_at_listeners())} connection(s)"),
    NamedCheck("DR-LIMIT-001", _room),
    NamedCheck("DR-PAIR-002", lambda view: f"{view.site} {view.version}"),
    NamedCheck("DR-QUEUE-002", lambda view: f"{view.site} {len(view.business)} queue(s)"),
)


def broker_checks(
    snapshot: Snapshot[V], table: Sequence[NamedCheck[V]], found: Callable[[V], Iterable[Finding]]
) -> Iterator[Check]:
    for brokers in snapshot.sites.values():
        for view in brokers.values():
            if isinstance(view, Silent):
                yield from (Check(check.name, f"{view.site}/{view.pair}", None) for check in table)
                continue
            findings = list(found(view))
            for check in table:
                against = [finding for finding in findings if finding.id == check.id]
                # A broker of which only other signs are known was not asked the common questions.
                if view.answered or check not in OF_BROKER:
                    yield Check(check.name, str(view), check.read(view), against)


def pair_checks(
    case: Case[V], table: Sequence[NamedCheck[V]], of_both: Callable[[Case[V], V, V], Iterable[Finding]]
) -> Iterator[Check]:
    move = case.move
    for pair in case.snapshot.sites[move.source]:
        local, peer = (case.snapshot.view(site, pair) for site in (move.source, move.target))
        if local is None or peer is None:
            yield from (Check(check.name, pair, None) for check in table)
            continue
        if not (local.answered and peer.answered):
            continue
        findings = list(of_both(case, local, peer))
        for check in table:
            read = [check.read(view) for view in (local, peer)]
            if NO_CHECK in read:
                continue
            against = [finding for finding in findings if finding.id == check.id]
            yield Check(check.name, pair, None if None in read else ", ".join(map(str, read)), against)


def explain_quarantined_links(snapshot: Snapshot[Any], findings: Iterable[Finding]) -> Iterator[Finding]:
    """Advise no restart of the link from a site in quarantine."""
    kept_out = {debt.lost_site for debt in snapshot.debts if debt.kind is DebtKind.QUARANTINE}
    for finding in findings:
        site = finding.text.partition("/")[0]
        if finding.id == "DR-LINK-004" and site in kept_out:
            yield replace(finding, remedy=found("DR-LINK-004.kept_out", text=finding.text, site=site).remedy)
        else:
            yield finding


@dataclass(frozen=True, slots=True)
class Checks(Generic[V]):
    """The checks of one topology. `of_broker` makes the findings on one broker, with a case where a move is judged,
    `of_both` those on both brokers of a pair, `of_return` those on a reinstatement. `surplus` compares two closed
    sites, of which one is to be opened. `by_broker` and `by_pair` name the checks."""

    of_broker: Callable[..., Iterable[Finding]]
    of_both: Callable[[Case[V], V, V], Iterable[Finding]]
    of_return: Callable[[Case[V]], Iterable[Finding]]
    is_reinstated: Callable[[Snapshot[V], Move], bool]
    by_broker: Sequence[NamedCheck[V]]
    by_pair: Sequence[NamedCheck[V]]
    surplus: Callable[[Case[V], V, V], Mapping[str, int]] = lambda *_: {}
    of_failover: Callable[[Case[V]], Iterable[Finding]] = lambda _: ()
    of_standby: Callable[[V], Iterable[Finding]] = standby_findings

    def of_move(self, case: Case[V]) -> list[Finding]:
        """List all findings on a move, errors first: on each broker, and on the two brokers of each pair."""
        snapshot, move = case.snapshot, case.move
        findings: list[Finding] = []
        for site, brokers in snapshot.sites.items():
            for pair, view in brokers.items():
                peer = next((others.get(pair) for at, others in snapshot.sites.items() if at != site), None)
                if isinstance(view, Silent):
                    findings += silence_findings(view)
                else:
                    findings += weigh_for_move(self.of_broker(view, case), view, peer, move)
        for target in snapshot.views(move.target):
            findings += self.of_standby(target) if target.role is not Role.SERVING else ()
        for both in snapshot.both(move.source, move.target):
            findings += self.of_both(case, *both)
        return errors_first(findings)
