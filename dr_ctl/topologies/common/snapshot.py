"""A snapshot is one reading of both sites of an installation, broker by broker, in the form that commands use. The
baseline is the state before a run of everything that dr-ctl may change: an undo restores it, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from dr_ctl.core.errors import BrokerError, TimedOut, Unreachable
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json, Role, Severity, brief, by_key, total
from dr_ctl.core.notation import if_known
from dr_ctl.engine.debts import Debt, DebtKind
from dr_ctl.engine.lease import LOCK, LockDocument, LockReading
from dr_ctl.engine.operations import FAILBACK, SWAPOVER
from dr_ctl.engine.ports import Move, SignsOfLife, UnitSnapshot
from dr_ctl.engine.roles import BROKER_IDS, PAIRS
from dr_ctl.rpo.core.starts import same_start
from dr_ctl.rpo.history.row import Row
from dr_ctl.topologies.common import group
from dr_ctl.topologies.common.calls import QUARANTINE_PREFIX, debts_of, is_debt, numbered
from dr_ctl.topologies.common.group import unnamed_nodes
from dr_ctl.topologies.common.view import Broker, Residue
from dr_ctl.topologies.topology import (
    BrokerSnapshot,
    FenceStrength,
    LinkSnapshot,
    Node,
    NodeReading,
    NodeState,
    PartState,
    Stake,
    WorkloadSnapshot,
)


@dataclass(frozen=True, slots=True)
class Silent:
    """A broker that did not answer as asked, and its error. `nodes` are the nodes of a broker that has several,
    `left_s` is how long a takeover may still take, and `unnamed` are nodes that the settings do not name. `signs` show
    that the broker lives, `open_ports` that a port of it accepts connections."""

    pair: str
    site: str
    error: BrokerError
    ports_refuse: bool = False
    nodes: tuple[NodeReading, ...] = ()
    left_s: float = 0.0
    unnamed: tuple[Node, ...] = ()
    signs: tuple[str, ...] = ()
    open_ports: tuple[str, ...] = ()

    @property
    def role(self) -> Role:
        """The broker is down only when every known port refuses, nothing shows that it lives, and no other node of it
        can be the broker by now; it is sick when something lives there."""
        states = [node.state for node in self.nodes] or [group.state_of(self.error, ports_refuse=self.ports_refuse)]
        is_down = self.ports_refuse and self.left_s <= 0 and {*states} == {NodeState.REFUSES}
        if is_down and not (self.unnamed or self.signs or self.open_ports):
            return Role.DOWN
        states.append(group.state_of(self.error, ports_refuse=False))
        return Role.SICK if NodeState.SICK in states else Role.UNKNOWN


V_co = TypeVar("V_co", bound=Broker, covariant=True)


@dataclass(frozen=True)
class Snapshot(Generic[V_co]):
    """A reading of both sites. `traffic` is how much each pair's queues changed between two readings that were `took_s`
    apart; `before` is the first of the two. `asked_s` is when the brokers were asked, by `boottime_s`, or None where a
    monitor records the reading. `made` is the reading itself, where this one supposes that a site is lost."""

    kept_aside: ClassVar[str] = "DR-RECONCILE-003"
    """The id of the finding on messages that a reinstatement moved aside."""

    sites: Mapping[str, Mapping[str, V_co | Silent]]
    traffic: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    before: Snapshot[V_co] | None = None
    took_s: float = 0.0
    workloads: Sequence[WorkloadSnapshot] = ()
    asked_s: float | None = None
    made: Snapshot[V_co] | None = None

    @property
    def roles(self) -> Mapping[str, Role]:
        return {site: _role_of_site([broker.role for broker in pairs.values()]) for site, pairs in self.sites.items()}

    @property
    def one_store(self) -> bool:
        """Say whether both sites use one store, so that no message is lost with a site."""
        return False

    def lacks_held_store(self, site: str) -> bool:
        """Say whether the one store of both sites is held, and not by a broker of this site."""
        del site
        return False

    @property
    def debts(self) -> Sequence[Debt]:
        """Return the debts. A quarantine that is kept by rights now is lasting too."""
        return [
            replace(debt, lasting=debt.lasting or bool(view.link.rights_revoked))
            if debt.kind is DebtKind.QUARANTINE
            else debt
            for site in self.sites
            for view in self.views(site)
            for debt in debts_of(view.documents)
        ]

    @property
    def signs_of_life(self) -> Mapping[str, SignsOfLife]:
        return {site: self._signs_of_life(site) for site in self.sites}

    def _signs_of_life(self, site: str) -> SignsOfLife:
        silent = [broker for broker in self.sites[site].values() if isinstance(broker, Silent)]
        sick = [broker.error for broker in silent if broker.role is Role.SICK]
        states = [(broker, [node.state for node in broker.nodes]) for broker in silent if broker.nodes]
        return SignsOfLife(
            nodes=tuple(str(node) for node in self.unnamed(site)),
            takeovers=tuple(str(broker.error) for broker, nodes in states if group.may_take_over(nodes, broker.left_s)),
            signs=tuple(sign for broker in silent for sign in broker.signs),
            open_ports=tuple(text for broker in silent for text in broker.open_ports),
            remedy=next((broker.error.remedy for broker in silent if broker.error.is_local), ""),
            late=bool(sick) and all(isinstance(error, TimedOut) for error in sick),
        )

    def unnamed(self, site: str) -> list[Node]:
        return [
            node
            for broker in self.sites[site].values()
            for node in (broker.unnamed if isinstance(broker, Silent) else unnamed_nodes(broker, self.peer(broker)))
        ]

    @property
    def units(self) -> Sequence[UnitSnapshot]:
        return [
            self.unit(pair, {site: [brokers[pair]] for site, brokers in self.sites.items()})
            for pair in next(iter(self.sites.values()))
        ]

    @staticmethod
    def unit(name: str, brokers: Mapping[str, Sequence[Broker | Silent]]) -> UnitSnapshot:
        """A unit is open at a site if one broker is open, and closed if every broker is."""
        flags = {
            site: [None if isinstance(broker, Silent) else broker.units.get(name) for broker in brokers_at]
            for site, brokers_at in brokers.items()
        }
        open_at = tuple(site for site, opens in flags.items() if True in opens)
        closed_at = tuple(site for site, opens in flags.items() if all(flag is False for flag in opens))
        lasting_fence_at = tuple(
            site
            for site in open_at
            if all(not isinstance(broker, Silent) and broker.fence.roles_revoked for broker in brokers[site])
        )
        return UnitSnapshot(name, open_at[0] if len(open_at) == 1 else None, open_at, closed_at, lasting_fence_at)

    def view(self, site: str, pair: str) -> V_co | None:
        broker = self.sites[site][pair]
        return None if isinstance(broker, Silent) else broker

    def views(self, site: str) -> list[V_co]:
        return [broker for broker in self.sites[site].values() if not isinstance(broker, Silent)]

    def both(self, local: str, remote: str) -> Iterator[tuple[V_co, V_co]]:
        """Yield the two brokers of each pair whose brokers both answered."""
        for pair in self.sites[local]:
            local_view, remote_view = self.view(local, pair), self.view(remote, pair)
            if local_view is not None and remote_view is not None:
                yield local_view, remote_view

    def map_brokers(self, change: Callable[[V_co], Any]) -> Self:
        sites = {
            site: {pair: broker if isinstance(broker, Silent) else change(broker) for pair, broker in brokers.items()}
            for site, brokers in self.sites.items()
        }
        return replace(self, sites=sites)

    @cached_property
    def brokers(self) -> Sequence[BrokerSnapshot]:
        return [
            _broker(broker, self._before(broker), self.took_s)
            for brokers in self.sites.values()
            for broker in brokers.values()
        ]

    def brokers_at(self, site: str) -> Sequence[BrokerSnapshot]:
        return [broker for broker in self.brokers if broker.site == site]

    @property
    def locks(self) -> Sequence[LockReading]:
        return [LockReading(view.site, view.pair, view.now_ms, _locks(view)) for view in self._all()]

    def links(self) -> Sequence[LinkSnapshot]:
        return [view.link.to_snapshot(self._before(view), self.took_s) for view in self._all()]

    def rows(self, at: datetime) -> Sequence[Row]:
        """Return the rows of this reading for the history, with that time."""
        rows: list[Row] = []
        for view in self._all():
            rows += view.link.rows(self.peer(view), at)
            queues = [queue.row(view, at, acked=queue.acked) for queue in view.business.values() if queue.depth_known]
            rows += queues if view.link.redelivers else [replace(row, delivering=0) for row in queues]
        return rows + [
            Row(ts=at, site=node.site, pair=node.pair, kind="node", name=node.at or node.shown_by)
            for node in self._unnamed_now()
        ]

    def recorded(self, at: datetime, took_s: float = 0.0) -> list[Row]:
        """Make the rows of this reading for the history, which was answered `at` that time and took `took_s`: the
        site's role for every broker, then the rows of the topology."""
        took_ms = math.ceil(took_s * 1000)
        roles = [
            Row(ts=at, site=broker.site, pair=broker.pair, kind="site", name=self.roles[broker.site].value,
                start=broker.start, took_ms=took_ms)
            for broker in self.brokers
        ]  # fmt: skip
        rows = self.rows(at)
        counted = by_key(((row.site, row.pair), row) for row in rows if row.kind == "queue")

        def with_queues(row: Row) -> Row:
            """Add the sums of the queues' counters to a mixed outflow, because files keep these of each reading."""
            queues = counted.get((row.site, row.pair), ())
            added = total(queue.added for queue in queues)
            if not queues or added is None:
                return row
            acked = (queue.removed if queue.acked is None else queue.acked for queue in queues)
            return replace(row, queues_added=added, queues_acked=sum(count or 0 for count in acked))

        return [*roles, *(with_queues(row) if row.kind == "mixed" else row for row in rows)]

    def _unnamed_now(self) -> Iterator[Node]:
        """Yield the unnamed nodes that this reading shows, without those known from the history."""
        for site, brokers in self.sites.items():
            for pair, broker in brokers.items():
                peer = self.peer(broker)
                if not isinstance(broker, Silent):
                    yield from unnamed_nodes(broker, peer)
                elif peer is not None:
                    yield from group.nodes_in_link(peer, site, len(broker.nodes))
                    if broker.signs and isinstance(broker.error, Unreachable) and broker.error.refused:
                        yield Node(site, pair, "", f"where the settings look nobody answered, and {broker.signs[0]}")

    def differing(self) -> frozenset[str]:
        """Return the queues whose content may differ between the sites without a fault, by the brokers that
        answered."""
        return frozenset().union(*(view.differing for view in self._all()))

    def stake(self, site: str) -> Sequence[Stake]:
        return [view.link.stake(self.peer(view)) for view in self.views(site)]

    def residue(self, site: str) -> Mapping[str, Json]:
        """Count the messages that a returned site holds for the other; return nothing if they are not known."""
        known = [residue for view in self.views(site) if (residue := view.link.residue) is not None]
        return Residue.sum_of(known).figures() if len(known) == len(self.sites[site]) else {}

    def findings(self) -> Sequence[Finding]:
        findings = [*singletons_at_both(self.workloads)]
        for workload in self.workloads:
            findings += (
                (unread(workload, Severity.WARNING),) if workload.runs is None else misplaced(workload, self.roles)
            )
        return [*findings, *self._ended_quarantines(), *self._of_brokers(), *self._of_nodes()]

    def fence_strength(self, site: str) -> FenceStrength | None:
        """Say whether a fence of that site holds until its brokers are restarted, or also afterwards."""
        views = self.views(site)
        flags = [True if view.config.lasting is not None else view.fence.boots_closed for view in views]
        if None in flags or len(views) < len(self.sites[site]):
            return None
        return "lasting" if all(flags) else "now"

    def as_if_lost(self, site: str) -> Self:
        """Return the reading as if every port of a site refused, to plan for the loss of that site."""
        error = Unreachable(f"{site} counts as lost in this plan only", refused=True)
        nodes = {pair: tuple(node for node in self.unnamed(site) if node.pair == pair) for pair in self.sites[site]}
        brokers = {pair: Silent(pair, site, error, ports_refuse=True, unnamed=nodes[pair]) for pair in self.sites[site]}
        workloads = [workload for workload in self.workloads if workload.site != site]
        sites, made = {**self.sites, site: brokers}, self.made or self
        return replace(self, sites=sites, traffic={}, before=None, workloads=workloads, made=made)

    def _before(self, view: Broker | Silent) -> Broker | None:
        """Return the broker of the first of two readings, unless it was restarted since."""
        if self.before is None or isinstance(view, Silent):
            return None
        earlier = self.before.view(view.site, view.pair)
        return earlier if earlier is not None and earlier.start == view.start else None

    def _all(self) -> list[V_co]:
        return [view for site in self.sites for view in self.views(site)]

    def peer(self, view: Broker | Silent) -> Any:
        """Return the other broker of a pair, which is of the same kind, or None where it did not answer."""
        return next(self.view(site, view.pair) for site in self.sites if site != view.site)

    def _ended_quarantines(self) -> Iterator[Finding]:
        """Find quarantines that a restart or a takeover has ended."""
        for debt in self.debts:
            if debt.kept_at not in self.sites:
                continue
            listeners = [
                listener.name
                for view in self.views(debt.kept_at)
                for listener in view.link.listeners
                if listener.started and not view.link.is_shut
            ]
            if debt.kind is DebtKind.QUARANTINE and listeners:
                key = "DR-RETURN-004.serving" if self.roles[debt.kept_at] is Role.SERVING else "DR-RETURN-004"
                yield found(key, listeners=", ".join(listeners), kept_at=debt.kept_at, lost_site=debt.lost_site)

    def _of_nodes(self) -> Iterator[Finding]:
        for site, brokers in self.sites.items():
            for broker in brokers.values():
                if not isinstance(broker, Silent):
                    yield from group.node_findings(broker, self.peer(broker), Severity.WARNING)
                elif broker.unnamed:
                    yield found("DR-NODE-001.silent", site=site, nodes=brief([*map(str, broker.unnamed)]))

    def _of_brokers(self) -> Iterator[Finding]:
        for view in self._all():
            for queue in view.queues:
                if queue.name.startswith(QUARANTINE_PREFIX) and queue.depth:
                    yield found(self.kept_aside, site=view.site, pair=view.pair, depth=queue.depth, queue=queue.name)
            severity = Severity.ERROR if view.role is Role.SERVING else Severity.WARNING
            yield from group.obstacle_findings(view, severity, unknown=False)


def _broker(view: Broker | Silent, before: Broker | None, took_s: float) -> BrokerSnapshot:
    if isinstance(view, Silent):
        return BrokerSnapshot(view.site, view.pair, view.role, silent=view.error, nodes=view.nodes)
    business = view.business
    return BrokerSnapshot(
        view.site,
        view.pair,
        view.role,
        start=view.start,
        listeners={listener.name: listener.started for listener in view.listeners},
        kept_out=view.fence.roles_revoked,
        serves_no_role=view.serves_no_role,
        depths={name: queue.known_depth for name, queue in business.items()},
        paused=view.paused,
        to_ship=view.link.to_ship,
        disk_used=view.disk_used,
        obstacles=view.obstacles,
        clients=_clients(view),
        traffic=_traffic(view, before, took_s) if before is not None else None,
        nodes=view.nodes,
    )


def _clients(view: Broker) -> int | None:
    """Count the connections at the clients' listeners; return None where the broker does not tell a listener's port."""
    ports = {listener.port for listener in view.listeners}
    if None in ports:
        return None
    return sum(connection.port in ports for connection in view.outside_connections)


def _traffic(view: Broker, before: Broker, took_s: float) -> tuple[float, float] | None:
    pairs = [(before.business[name], queue) for name, queue in view.business.items() if name in before.business]
    if took_s <= 0 or not all(was.depth_known and now.depth_known for was, now in pairs):
        return None
    added = sum(max(0, now.added - was.added) for was, now in pairs)
    acked = sum(max(0, now.acked - was.acked) for was, now in pairs)
    return added / took_s, acked / took_s


def _role_of_site(roles: Sequence[Role]) -> Role:
    """Derive a site's role from its brokers': a serving broker makes the site serving; otherwise all must agree, or the
    role is unknown. A site with closed brokers and one that is down is down: it cannot take over and lets nobody in."""
    if Role.SERVING in roles:
        return Role.SERVING
    if len({*roles}) == 1:
        return roles[0]
    if {*roles} == {Role.STANDBY, Role.DOWN}:
        return Role.DOWN
    return Role.SICK if Role.SICK in roles else Role.UNKNOWN


def singletons_at_both(workloads: Sequence[WorkloadSnapshot], severity: Severity = Severity.ERROR) -> Iterator[Finding]:
    where = by_key((workload.name, workload.site) for workload in workloads if workload.singleton and workload.runs)
    for name, sites in where.items():
        if len(sites) > 1:
            yield found("DR-WORK-001", name=name, sites=" and ".join(sites), severity=severity)


def unread(workload: WorkloadSnapshot, severity: Severity) -> Finding:
    return found("DR-WORK-002", workload=workload, silent=if_known(workload.silent), severity=severity)


def misplaced(workload: WorkloadSnapshot, roles: Mapping[str, Role]) -> Iterator[Finding]:
    """Report a workload that runs at a site that does not serve, or is stopped at the one that does. A workload with
    `alone` may run at either."""
    serving = [site for site, role in roles.items() if role is Role.SERVING]
    if workload.alone or len(serving) != 1:
        return
    if workload.site not in serving and workload.runs:
        yield found("DR-WORK-005", workload=workload)
    elif workload.site in serving and workload.state != PartState.RUNNING.value:
        yield found("DR-WORK-006", workload=workload, starting=starting(workload))


def starting(workload: WorkloadSnapshot) -> str:
    return f"Where both sites answer, `dr-ctl unfence {workload.site}` starts it; else start it there by hand."


START: Final = "start"
STAYS_CLOSED: Final = "stays closed"  # an undo of a failback leaves the target closed, even if it came back open


def baseline(snapshot: Snapshot[Broker]) -> Mapping[str, Json]:
    return {
        site: {view.pair: {**state_to_restore(view), START: view.start} for view in snapshot.views(site)}
        for site in snapshot.sites
    }


def started_since(move: Move, view: Broker) -> bool:
    """Say whether a broker was restarted since the run began, as far as that is known."""
    return not same_start(before(move, view).get(START, view.start), view.start)


def before(move: Move, view: Broker) -> dict[str, Any]:
    """Return a broker's state in the baseline of a run: the present state for a broker that was silent at the start,
    and closed for the target of a failback."""
    site: Any = move.baseline.get(view.site, {})
    state: dict[str, Any] = site[view.pair] if view.pair in site else state_to_restore(view)
    if move.spec.operation == FAILBACK and view.site == move.target:
        return {**state, "listeners": {}, "shut_out": True, STAYS_CLOSED: True}
    return state


def reopened(move: Move, view: Broker) -> bool:
    """Say whether a restart or a takeover has opened the target of this run behind its own lasting fence."""
    is_target = view.site == move.target and move.spec.operation == SWAPOVER and not move.activation_sent
    return is_target and view.open and view.fence.roles_revoked and not any(before(move, view)["listeners"].values())


def paused_by_runs(view: Broker) -> frozenset[str]:
    """Return the queues that runs paused, by their locks: a later run must lift these pauses."""
    return frozenset(queue for lock in _locks(view) for queues in lock.paused.values() for queue in queues)


def _locks(view: Broker) -> tuple[LockDocument, ...]:
    return tuple(LockDocument.of_text(*document) for document in numbered(view.documents, LOCK))


def basis(snapshot: Snapshot[Broker]) -> Mapping[str, Json]:
    """Return the facts that a plan was decided from, by site and pair. Messages change none of them."""
    return {
        "brokers": {
            site: {view.pair: {**state_to_restore(view), "version": view.version} for view in snapshot.views(site)}
            for site in snapshot.sites
        },
        PAIRS: {site: [*sorted(brokers)] for site, brokers in snapshot.sites.items()},
        BROKER_IDS: {site: {view.pair: view.node for view in snapshot.views(site)} for site in snapshot.sites},
    }


def state_to_restore(view: Broker) -> dict[str, Json]:
    by_runs, fence = paused_by_runs(view), view.fence
    locks: dict[str, Json] = {name: name in fence.contending for name in (*fence.contending, *fence.passive)}
    return {
        "listeners": {listener.name: listener.started for listener in view.listeners},
        "mirror": {listener.name: listener.started for listener in view.link.listeners},
        "barred": view.link.rights_revoked,
        "link": dict(view.link.links_started),
        "paused": [name for name in view.paused if name not in by_runs],
        "acceptors": {listener.name: listener.started for listener in view.acceptors},
        "queues": [queue.name for queue in view.business.values()],
        "shut_out": fence.roles_revoked,
        "debts": [name for name in sorted(view.documents) if is_debt(name)],
        **view.link.settable,
        **({"locks": locks} if locks else {}),
    }
