"""Units where a part of them can be asked for or moved: the site of each, and the words for a part. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role, some
from dr_ctl.engine.ask import Ask
from dr_ctl.engine.debts import Debt
from dr_ctl.engine.ports import Hints, Observation, UnitSnapshot

# A command in a remedy that takes queues and names none yet.
_WHOLE: Final = re.compile(
    r"`(dr-ctl (?:plan )?(?:swapover|failback|quiesce|fence|drain|verify|activate|unfence|trim)"
    r" (?![^`]*--queues)[^`]*)`"
)


def option(ask: Ask) -> str:
    """The words that name the same queues in another command; empty where none were named."""
    return "" if ask.queues is None else f" --queues {quote(ask.queues)}"


def with_queues(findings: Iterable[Finding], ask: Ask) -> tuple[Finding, ...]:
    """Findings on a move of some queues, whose remedies are about these queues too."""
    more = option(ask).replace("\\", r"\\")
    return tuple(
        replace(finding, remedy=_WHOLE.sub(rf"`\1{more}`", finding.remedy)) if more else finding for finding in findings
    )


@dataclass(frozen=True, slots=True)
class Part:
    """An `Observation` of some units only; a site that serves none of these units counts as closed."""

    roles: Mapping[str, Role]
    units: Sequence[UnitSnapshot]
    debts: Sequence[Debt]
    hints: Mapping[str, Hints]


def part_of(snapshot: Observation, ask: Ask) -> Observation:
    if ask.units is None:
        return snapshot
    units = [unit for unit in snapshot.units if ask.includes(unit.name)]
    open_at = {site for unit in units for site in unit.open_at}
    closed = {site for site, role in snapshot.roles.items() if role is Role.SERVING and site not in open_at}
    roles = {site: Role.STANDBY if site in closed else role for site, role in snapshot.roles.items()}
    return Part(roles, units, snapshot.debts, snapshot.hints)


def sites_serving(snapshot: Observation) -> list[str]:
    """The sites that were seen to let clients in."""
    return [site for site, role in snapshot.roles.items() if role is Role.SERVING]


def is_split(snapshot: Observation) -> bool:
    """Say whether both sites serve, but no unit is open at both."""
    serving = sites_serving(snapshot)
    return len(serving) > 1 and not any(len(unit.open_at) > 1 for unit in snapshot.units)


def unserved(snapshot: Observation, *, parts: bool) -> Iterator[Finding]:
    """The units that are known to be closed at every site while a site serves others; `parts` says whether a unit can
    be opened by itself."""
    serving = sites_serving(snapshot)
    shut = [unit.name for unit in snapshot.units if not unit.open_at and {*unit.closed_at} >= {*snapshot.roles}]
    if not serving or not shut:
        return
    site = serving[0]
    for name in shut if parts else ():
        yield found("DR-UNIT-003.unit", site=site, unit=name, quoted=quote(name))
    if not parts:
        yield found("DR-UNIT-003.rest", site=site, units=some(shut))


def served_where(snapshot: Observation) -> str:
    """Which unit is served at which site; a site that was not read may serve it."""
    return ", ".join(f"{unit.name} {_where(unit, snapshot)}" for unit in snapshot.units)


def _where(unit: UnitSnapshot, snapshot: Observation) -> str:
    if len(unit.open_at) > 1:
        return "at both"
    if unit.serving is not None:
        return f"at {unit.serving}"
    return "at neither" if {*unit.closed_at} >= {*snapshot.roles} else "not known where"


def by_site(units: Sequence[UnitSnapshot]) -> Mapping[str, list[str]]:
    """The units that one site alone serves, by site."""
    units_by_site: dict[str, list[str]] = {}
    for unit in units:
        if unit.serving is not None:
            units_by_site.setdefault(unit.serving, []).append(unit.name)
    return units_by_site


def as_moved(snapshot: Observation, to: str) -> Finding:
    """Say that units were moved one by one, and how those that the other site serves are brought to a site."""
    away = [unit.name for unit in snapshot.units if unit.serving not in (to, None)]
    one = f" --queues {quote(away[0])}" if len(away) == 1 else ""
    return found("DR-ROLE-014.as_moved", away=some(away), to=to, one=one, units=served_where(snapshot))
