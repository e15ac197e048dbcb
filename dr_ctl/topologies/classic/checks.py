"""The checks of any Classic broker against a move: the refusals of its console's policy, and its connectors. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, RefusalScope, Role, Severity, brief
from dr_ctl.settings.model import Queues
from dr_ctl.topologies.classic.beans import CLOSES, OPENS, PAUSES, RESUMES, Permit
from dr_ctl.topologies.classic.broker import ClassicBroker
from dr_ctl.topologies.common.checks import Case, Named
from dr_ctl.topologies.common.rules import Counts, at_both


def counts(source: ClassicBroker, target: ClassicBroker, queues: Queues) -> list[Counts]:
    """Count every selected queue of clients, by name. Dead letters are left out, as every broker fills its own."""
    to_ship = {name: copies.depth for name, copies in source.copy_queues.items()}
    return [
        replace(counted, to_ship=to_ship.get(counted.queue, 0))
        for counted in at_both(source, target, queues)
        if not any(queue is not None and queue.dead_letter_address is not None for queue in counted.at)
    ]


def lacking(source: ClassicBroker, target: ClassicBroker, queues: Queues, traffic: Mapping[str, int]) -> list[Counts]:
    """Return the counts of which the target lacks more than what moved between two readings can explain."""
    return [counted for counted in counts(source, target, queues) if counted.lacks > traffic.get(counted.queue, 0)]


def of_permits(
    view: ClassicBroker, more: Sequence[Permit] = (), *, at_return: Sequence[Permit] = ()
) -> Iterator[Finding]:
    """Find the operations that the console's policy refuses although a run, or a return, needs them."""
    if not view.managed:
        yield found("DR-POLICY-003", site=view.site, pair=view.pair)
        return
    for permit in (CLOSES, OPENS, *more, *at_return):
        if permit in view.denied:
            severity = Severity.WARNING if permit in at_return else None
            key = "DR-POLICY-001.return" if permit in at_return else "DR-POLICY-001"
            finding = found(key, severity=severity, broker=view, site=view.site, permit=permit)
            opens = permit is OPENS and not view.open  # without that a failover opens nothing either
            yield replace(finding, weighs=finding.weighs | RefusalScope.FAILOVER) if opens else finding


def of_pausing(view: ClassicBroker, case: Case[Any] | None) -> Iterator[Finding]:
    """Find that dispatch cannot be stopped for clients to finish what they hold, which only a move needs."""
    denied = [permit for permit in (PAUSES, RESUMES) if permit in view.denied]
    if case is None or view.role is not Role.SERVING or not denied or not view.managed:
        return
    if case.move.spec.cut_in_flight:
        yield found("DR-POLICY-002.not_needed", severity=Severity.WARNING, broker=view, permit=denied[0])
    else:
        yield found("DR-POLICY-002.refused", broker=view, site=view.site, permit=denied[0])


def _denied(view: ClassicBroker) -> str:
    return brief(sorted(permit.operation for permit in view.denied)) or "nothing is refused"


BY_CONSOLE: Final[Sequence[Named[Any]]] = (
    Named("DR-POLICY-001", _denied),
    Named("DR-POLICY-003", lambda view: "Jolokia" if view.managed else "statistics only"),
    Named("DR-POLICY-002", _denied),
)
