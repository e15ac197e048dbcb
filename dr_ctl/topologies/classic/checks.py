"""Reasons against the move of any Classic broker: refusals of its console's policy, and its connectors. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role, Severity, some
from dr_ctl.topologies.classic.broker import ClassicBroker
from dr_ctl.topologies.classic.operations import CLOSES, OPENS, PAUSES, RESUMES, Permit
from dr_ctl.topologies.common.checks import Case, Named


def of_permits(view: ClassicBroker, more: Sequence[Permit] = ()) -> Iterator[Finding]:
    """Find what the console's policy refuses although a run needs it at any broker."""
    if not view.managed:
        yield found("DR-POLICY-003", site=view.site, pair=view.pair)
        return
    for each in (CLOSES, OPENS, *more):
        if each in view.denied:
            yield found("DR-POLICY-001", refused=_refused(view, each), allow=_allow(view, each))


def of_pausing(view: ClassicBroker, case: Case[Any] | None) -> Iterator[Finding]:
    """Find that dispatch cannot be stopped for clients to finish what they hold, which only a move needs."""
    denied = [each for each in (PAUSES, RESUMES) if each in view.denied]
    if case is None or view.role is not Role.SERVING or not denied or not view.managed:
        return
    if not case.move.ask.cut_in_flight:
        yield found("DR-POLICY-002.refused", refused=_refused(view, denied[0]), allow=_allow(view, denied[0]))
    else:
        yield found("DR-POLICY-002.not_needed", severity=Severity.WARNING, refused=_refused(view, denied[0]))


def _refused(view: ClassicBroker, permit: Permit) -> str:
    return f"{view.site}/{view.pair}: the policy of its console refuses {permit.operation} of {permit.what}"


def _allow(view: ClassicBroker, permit: Permit) -> str:
    return (
        f"In jolokia-access.xml of {view.site}, take <operation>{permit.name}</operation> out of <deny> for these "
        f"beans and see that this stands there: {permit.line}"
    )


def _denied(view: ClassicBroker) -> str:
    return some(sorted(each.operation for each in view.denied)) or "nothing is refused"


BY_CONSOLE: Final[Sequence[Named[Any]]] = (
    Named("DR-POLICY-001", _denied),
    Named("DR-POLICY-003", lambda view: "Jolokia" if view.managed else "statistics only"),
    Named("DR-POLICY-002", _denied),
)
