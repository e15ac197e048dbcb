"""A Classic broker as one reading has shown it, in any topology, and the reasons against a move of any such broker: the
refusals of its console's policy, and its connectors. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, RefusalScope, Role, Severity, brief
from dr_ctl.settings.model import Queues
from dr_ctl.topologies.classic.beans import CLOSES, OPENS, PAUSES, REMOVES_QUEUES, RESUMES, ClassicRequests, Permit
from dr_ctl.topologies.common.checks import Case, NamedCheck
from dr_ctl.topologies.common.rules import Counts, at_both
from dr_ctl.topologies.common.view import Broker, Connection, Fence, Queue

OWN_CLIENT: Final = "dr-ctl-"
"""The prefix of dr-ctl's own client ids. Any other connection at dr-ctl's connector is a client's."""


class Connectors(Fence):
    def clients_elsewhere(self, besides: Collection[str] = ()) -> list[str]:
        """List the clients at every connector that is neither the clients' nor one of `besides`: also at the link's and
        at dr-ctl's own."""
        others = {*self.view.config.clients, *besides}
        listeners = [listener for listener in self.view.acceptors if listener.name not in others]
        ports = {listener.port: listener.name for listener in listeners if listener.port is not None}
        return [
            f"client {connection.client or '(no client id)'} from {connection.remote} "
            f"(user {connection.user or 'none'}) on connector {ports[connection.port]}"
            for connection in self.view.connections
            if connection.port in ports and not connection.client.startswith(OWN_CLIENT)
        ]


@dataclass(frozen=True, slots=True)
class Network:
    """A network connector. `to` is the connected peer's name, None if it is stopped or the peer does not answer."""

    name: str
    bean: str
    to: str | None


@dataclass(frozen=True, slots=True)
class ClassicBroker(Broker):
    """A Classic broker as it answered. `denied` are the operations that its console's policy refuses; `bridges` are the
    connections of network connectors, which are no clients; `managed` says that Jolokia reads and changes it, else only
    figures are known. `copy_queues` has, by a queue's name, the queue of its copies that are not shipped yet."""

    managed: bool = field(default=True, kw_only=True)
    networks: tuple[Network, ...] = field(default=(), kw_only=True)
    denied: frozenset[Permit] = field(default=frozenset(), kw_only=True)
    bridges: tuple[Connection, ...] = field(default=(), kw_only=True)
    copy_queues: Mapping[str, Queue] = field(default_factory=dict, kw_only=True)

    @property
    def without_dead_letters(self) -> Mapping[str, Queue]:
        """Return the clients' queues except those of dead letters, which every broker fills by itself."""
        return {name: queue for name, queue in self.business.items() if queue.dead_letter_address is None}

    @property
    def may_pause(self) -> bool:
        return PAUSES not in self.denied

    @property
    def may_remove_queues(self) -> bool:
        return REMOVES_QUEUES not in self.denied

    @property
    def requests(self) -> ClassicRequests:
        return ClassicRequests(self.broker)

    @property
    def fence(self) -> Fence:
        """Return a fence that a restart ends, because rights are in the broker's files."""
        return Connectors(self)


B_co = TypeVar("B_co", bound=ClassicBroker, covariant=True)


def both_counts(source: ClassicBroker, target: ClassicBroker, queues: Queues) -> list[Counts]:
    """Count every selected queue of clients, by name. Dead letters are left out, as every broker fills its own."""
    to_ship = {name: copies.depth for name, copies in source.copy_queues.items()}
    return [
        replace(counted, to_ship=to_ship.get(counted.queue, 0))
        for counted in at_both(source, target, queues)
        if not any(queue is not None and queue.dead_letter_address is not None for queue in counted.at)
    ]


def lacking(source: ClassicBroker, target: ClassicBroker, queues: Queues, traffic: Mapping[str, int]) -> list[Counts]:
    """Return the counts of which the target lacks more than the traffic between two readings explains."""
    return [counted for counted in both_counts(source, target, queues) if counted.lacks > traffic.get(counted.queue, 0)]


def policy_findings(
    view: ClassicBroker, further: Sequence[Permit] = (), *, at_return: Sequence[Permit] = ()
) -> Iterator[Finding]:
    """Find the operations that the console's policy refuses although a run, or a reinstatement, needs them."""
    if not view.managed:
        yield found("DR-POLICY-003", site=view.site, pair=view.pair)
        return
    for permit in (CLOSES, OPENS, *further, *at_return):
        if permit in view.denied:
            severity = Severity.WARNING if permit in at_return else None
            key = "DR-POLICY-001.return" if permit in at_return else "DR-POLICY-001"
            finding = found(key, severity=severity, broker=view, site=view.site, permit=permit)
            opens = permit is OPENS and not view.open  # a failover needs it too
            yield replace(finding, weighs=finding.weighs | RefusalScope.FAILOVER) if opens else finding


def pausing_findings(view: ClassicBroker, case: Case[Any] | None) -> Iterator[Finding]:
    """Find that queues cannot be paused for clients to finish, which only a move needs."""
    denied = [permit for permit in (PAUSES, RESUMES) if permit in view.denied]
    if case is None or view.role is not Role.SERVING or not denied or not view.managed:
        return
    if case.move.spec.cut_in_flight:
        yield found("DR-POLICY-002.not_needed", severity=Severity.WARNING, broker=view, permit=denied[0])
    else:
        yield found("DR-POLICY-002.refused", broker=view, site=view.site, permit=denied[0])


def _denied(view: ClassicBroker) -> str:
    return brief(sorted(permit.operation for permit in view.denied)) or "nothing is refused"


BY_CONSOLE: Final[Sequence[NamedCheck[Any]]] = (
    NamedCheck("DR-POLICY-001", _denied),
    NamedCheck("DR-POLICY-003", lambda view: "Jolokia" if view.managed else "statistics only"),
    NamedCheck("DR-POLICY-002", _denied),
)
