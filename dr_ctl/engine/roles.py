"""Finds the source of an operation, the site that it leaves, by the observed roles, or says why it is unknown; and
finds the site that serves each unit where units can be moved one by one. Pure.

Unknown is never "no": a site that does not answer is neither closed nor down.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any, Final

from dr_ctl.core.errors import BrokerError, Passive, TimedOut, TooOld
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role, Severity, brief
from dr_ctl.core.notation import if_known
from dr_ctl.engine import operations
from dr_ctl.engine.debts import Debt, only_lost_site
from dr_ctl.engine.journal import RunState
from dr_ctl.engine.plan import Spec
from dr_ctl.engine.ports import NO_SIGNS, Observation, SignsOfLife, UnitSnapshot

# This pattern matches a command in a remedy that takes `--queues`, but was written without it.
_COMMAND_WITHOUT_QUEUES: Final = re.compile(
    r"`(dr-ctl (?:plan )?(?:swapover|failback|quiesce|fence|drain|verify|activate|unfence|trim)"
    r" (?![^`]*--queues)[^`]*)`"
)


def queues_option(spec: Spec) -> str:
    """Return the option that names the same queues in another command; empty if none were named."""
    return "" if spec.queues is None else f" --queues {quote(spec.queues)}"


def with_queues(findings: Iterable[Finding], spec: Spec) -> tuple[Finding, ...]:
    """Name the queues of the request in the remedies of its findings."""
    option = queues_option(spec).replace("\\", r"\\")
    if not option:
        return tuple(findings)
    named = ((finding, _COMMAND_WITHOUT_QUEUES.sub(rf"`\1{option}`", finding.remedy)) for finding in findings)
    return tuple(replace(finding, remedy=remedy) for finding, remedy in named)


@dataclass(frozen=True, slots=True)
class DerivedObservation:
    """An `Observation` made from another one: with some of its units only, or with another role of a site."""

    roles: Mapping[str, Role]
    units: Sequence[UnitSnapshot]
    debts: Sequence[Debt]
    signs_of_life: Mapping[str, SignsOfLife]


def part_of(snapshot: Observation, spec: Spec) -> Observation:
    """Leave out the units that the request does not name. A site that serves only such units counts as standby."""
    if spec.units is None:
        return snapshot
    units = [unit for unit in snapshot.units if spec.includes(unit.name)]
    open_at = {site for unit in units for site in unit.open_at}
    closed = {site for site, role in snapshot.roles.items() if role is Role.SERVING and site not in open_at}
    roles = {site: Role.STANDBY if site in closed else role for site, role in snapshot.roles.items()}
    return DerivedObservation(roles, units, snapshot.debts, snapshot.signs_of_life)


def as_resumed(snapshot: Observation, spec: Spec, past: RunState | None) -> Observation:
    """Return the observation for a resumed run. A takeover or a restart may have opened the listeners of a swapover's
    target behind a lasting fence, which lets no client work there. Then the target counts as standby, and the run
    closes the listeners again; otherwise the observation is returned unchanged."""
    target = spec.target
    opened = [unit for unit in snapshot.units if target in unit.open_at]
    is_swapover = past is not None and not past.activation_sent and spec.operation == operations.SWAPOVER
    if not (is_swapover and opened and all(target in unit.lasting_fence_at for unit in opened)):
        return snapshot
    units = [
        replace(unit, serving=next(iter(others), None), open_at=others, closed_at=(*unit.closed_at, target))
        if unit in opened
        else unit
        for unit in snapshot.units
        for others in [tuple(site for site in unit.open_at if site != target)]
    ]
    return DerivedObservation({**snapshot.roles, target: Role.STANDBY}, units, snapshot.debts, snapshot.signs_of_life)


def sites_serving(snapshot: Observation) -> list[str]:
    return [site for site, role in snapshot.roles.items() if role is Role.SERVING]


def units_divided(snapshot: Observation) -> bool:
    """Say whether both sites serve without a split brain: no unit is open at both."""
    serving = sites_serving(snapshot)
    return len(serving) > 1 and not any(len(unit.open_at) > 1 for unit in snapshot.units)


def unserved(snapshot: Observation, *, by_unit: bool) -> Iterator[Finding]:
    """Find units that are closed at both sites, or were served by a site that is down, while a site serves others.
    With `by_unit`, each can be opened singly."""
    serving = sites_serving(snapshot)
    down = [site for site, role in snapshot.roles.items() if role is Role.DOWN and by_unit]
    shut = [unit.name for unit in snapshot.units if not unit.open_at and {*unit.closed_at, *down} >= {*snapshot.roles}]
    if not serving or not shut:
        return
    site = serving[0]
    for name in shut if by_unit else ():
        key = "DR-UNIT-003.lost_unit" if down else "DR-UNIT-003.unit"
        yield found(key, site=site, unit=name, quoted=quote(name), down=brief(down))
    if not by_unit:
        yield found("DR-UNIT-003.rest", site=site, units=brief(shut))


def served_where(snapshot: Observation) -> str:
    """Name the site that serves each unit, as far as it is known."""
    return ", ".join(f"{unit.name} {_where(unit, snapshot)}" for unit in snapshot.units)


def _where(unit: UnitSnapshot, snapshot: Observation) -> str:
    if len(unit.open_at) > 1:
        return "at both"
    nowhere = "at neither" if {*unit.closed_at} >= {*snapshot.roles} else "not known where"
    return nowhere if unit.serving is None else f"at {unit.serving}"


def by_site(units: Sequence[UnitSnapshot]) -> Mapping[str, list[str]]:
    sites = dict.fromkeys(unit.serving for unit in units if unit.serving is not None)
    return {site: [unit.name for unit in units if unit.serving == site] for site in sites}


BROKER_IDS: Final = "nodes"
"""The key of the brokers' ids, by site and pair, in a plan's basis, which a resume compares. A topology whose brokers
have no id leaves this key out."""
PAIRS: Final = "pairs"  # the key of the pairs' names in the settings, by site
CLOSED = (Role.STANDBY, Role.DOWN)
_ANSWERING = (Role.SERVING, Role.STANDBY)


def missing_units(snapshot: Observation, spec: Spec) -> Finding | None:
    missing = sorted({*(spec.units or ())} - {unit.name for unit in snapshot.units})
    if not missing and spec.units != ():
        return None
    return found("DR-UNIT-001", names=", ".join(missing) or spec.queues or "none was named")


def other(snapshot: Observation, site: str) -> str:
    return next(name for name in snapshot.roles if name != site)


def serves_all(snapshot: Observation, site: str) -> bool:
    """Say whether a site serves every unit, and the other site serves none."""
    return all(unit.serving == site for unit in snapshot.units)


def open_again(snapshot: Observation, past: RunState) -> bool:
    """Say whether the site that a run has left lets clients in again, beside the site that the run has opened."""
    roles = {snapshot.roles.get(past.plan.source), snapshot.roles.get(past.plan.spec.target)}
    return past.activation_sent and past.plan.spec.operation in operations.MOVING and roles == {Role.SERVING}


def source_of(
    snapshot: Observation,
    spec: Spec,
    past: RunState | None,
    *,
    cut_off: bool = False,
    reopened: bool = False,
    by_unit: bool = False,
) -> str | Finding:
    """Return the source: the site that the service leaves, that was lost, or that serves beside a returned site.

    `past` is the run that is resumed. With `cut_off`, a hook will cut a silent site off, and the run ends if it
    fails. With `reopened`, the site that the run has left is open again. With `by_unit`, units move one by one.
    """
    if past is not None:
        first = past.plan.spec
        has_moved = past.activation_sent and first.operation in operations.MOVING and serves_all(snapshot, first.target)
        # The remaining steps open no site, so the site that the run left may be down.
        if reopened or (has_moved and snapshot.roles[past.plan.source] is Role.DOWN):
            return unexpected(snapshot, spec) or past.plan.source
    if spec.operation in operations.SINGLE_STEPS:
        return _single_step_source(snapshot, spec, cut_off=cut_off, under_way=past is not None)
    if spec.operation == operations.FAILOVER:
        return _lost_site(snapshot, spec, cut_off=cut_off)
    if spec.operation in operations.REINSTATING:
        return _reinstating_site(snapshot, spec, past, by_unit=by_unit)
    if past is None:
        return _source(snapshot, spec, by_unit=by_unit)
    return unexpected(snapshot, spec) or _resumed_source(snapshot, past, by_unit=by_unit)


def no_answer(
    name: str, role: Role, error: BrokerError, severity: Severity | None = None, *, beside: bool = False
) -> Finding:
    """Report a broker that did not answer, maybe `beside` another broker of its site that did."""
    own = {Passive: "DR-SITE-002", TooOld: "DR-SITE-003"}
    id_ = own.get(type(error), "DR-SITE-001.beside" if beside else "DR-SITE-001")
    state = "" if isinstance(error, Passive | TimedOut) else f" is {role.value}"
    return found(id_, remedy=error.remedy, severity=severity, broker=f"{name}{state}", why=error)


def role_text(snapshot: Observation, site: str) -> str:
    """Name the role of a site. A site that answers late is not called sick: a busy machine answers late, too."""
    role = snapshot.roles[site]
    late = role is Role.SICK and snapshot.signs_of_life.get(site, NO_SIGNS).late
    return f"{site} {'did not answer in time' if late else f'is {role.value}'}"


def roles_text(snapshot: Observation) -> str:
    return ", ".join(role_text(snapshot, site) for site in snapshot.roles)


def both_open(snapshot: Observation) -> Finding:
    return found("DR-ROLE-001", roles=roles_text(snapshot))


def unexpected(snapshot: Observation, spec: Spec) -> Finding | None:
    serving = sites_serving(snapshot)
    if spec.expect_serving is None or serving == [spec.expect_serving]:
        return None
    return _unexpected(snapshot, spec, "run again with the site that serves")


def _unexpected(snapshot: Observation, spec: Spec, then: str) -> Finding:
    return found("DR-ROLE-002", site=if_known(spec.expect_serving), roles=roles_text(snapshot), then=then)


def _single_step_source(snapshot: Observation, spec: Spec, *, cut_off: bool, under_way: bool) -> str | Finding:
    """Return the source of a single step. `needs` has the steps that act at one site; for the others both sites have to
    answer."""
    source, target, summary = other(snapshot, spec.target), spec.target, roles_text(snapshot)
    if (refusal := unexpected(snapshot, spec)) is not None:
        return refusal
    roles = snapshot.roles[source], snapshot.roles[target]
    answers = roles[0] in _ANSWERING
    needs = {
        operations.QUIESCE: (answers, "DR-ROLE-009.quiesce"),
        operations.RESTART: (answers, "DR-ROLE-009.restart"),
        operations.FENCE: (answers or cut_off, "DR-FENCE-003"),
        operations.TRIM: (answers and roles[1] is Role.SERVING, "DR-ROLE-009.trim"),
        operations.REHEARSE: (roles == (Role.SERVING, Role.STANDBY), "DR-ROLE-009.rehearse"),
        operations.REHEARSE_CLEAN: (answers or roles[1] in _ANSWERING, "DR-ROLE-009.clean"),
        operations.KEEP_ASIDE: (roles == (Role.STANDBY, Role.SERVING), "DR-ROLE-009.keep_aside"),
        operations.PUT_BACK: (answers, "DR-ROLE-009.put_back"),
    }
    if spec.operation not in needs:
        first = "`dr-ctl status` says what ends the open run; then: " if under_way else ""
        return _refused_to_open(snapshot, spec, first) or source
    holds, key = needs[spec.operation]
    return source if holds else found(key, source=source, target=target, site=source, roles=summary, summary=summary)


def _refused_to_open(snapshot: Observation, spec: Spec, first: str) -> Finding | None:
    """Refuse to let clients in at one site while the other site is open or silent. An unfence opens its source, any
    other step its target. `first` is the beginning of the remedies."""
    source, target, summary = other(snapshot, spec.target), spec.target, roles_text(snapshot)
    source_role, target_role = snapshot.roles[source], snapshot.roles[target]
    to_open, must_be_closed = (source, target) if spec.operation == operations.UNFENCE else (target, source)
    if spec.operation == operations.DRAIN and source_role is Role.SERVING:
        return found("DR-ROLE-010", source=source, first=first, target=target, roles=summary)
    if spec.operation == operations.UNFENCE and target_role is Role.SERVING and source_role is Role.STANDBY:
        return None  # the unfence opens no listener, but may lift pauses that runs left there
    if snapshot.roles[must_be_closed] is Role.SERVING:
        command = f"{first}{move_command(snapshot, to_open)}"
        return found("DR-ROLE-011", opened=to_open, other=must_be_closed, roles=summary, way=command)
    if spec.operation == operations.UNFENCE and any({source, target} <= {*unit.closed_at} for unit in snapshot.units):
        return None  # units that answer at both sites are enough; the result names the others
    if source_role not in _ANSWERING or target_role not in _ANSWERING:
        return found("DR-ROLE-006.both", opened=to_open, roles=summary)
    if spec.operation == operations.DRAIN and target_role is Role.SERVING:
        return found("DR-ROLE-012", target=target, roles=summary)
    return None


def move_command(snapshot: Observation, site: str) -> str:
    """Name the command that moves the service to `site` while the other site serves: a failback to a lost site."""
    if only_lost_site(snapshot.debts) == site:
        failback = f"`dr-ctl failback --to {site}` reinstates it and moves the service"
        return f"{failback}; `dr-ctl reinstate {site}` moves nothing."
    return f"`dr-ctl swapover --to {site}` moves the service."


def _source(snapshot: Observation, spec: Spec, *, by_unit: bool) -> str | Finding:
    source, roles = other(snapshot, spec.target), snapshot.roles
    serving, summary = sites_serving(snapshot), roles_text(snapshot)
    if units_divided(snapshot):
        split = found("DR-ROLE-014.before_move", units=served_where(snapshot), source=source, target=spec.target)
        return (unexpected(snapshot, spec) or source) if by_unit else split
    if len(serving) > 1:
        return both_open(snapshot)
    if (refusal := unexpected(snapshot, spec)) is not None:
        return refusal
    if serving and {*roles.values()} == {Role.SERVING, Role.STANDBY}:
        return source
    if serving == [spec.target]:
        return found("DR-ROLE-003", target=spec.target, source=source, roles=summary)
    if serving == [source]:
        return found("DR-ROLE-004.planned", target=spec.target, roles=summary)
    if roles[spec.target] is Role.STANDBY and roles[source] not in _ANSWERING:
        return found("DR-ROLE-005.lost", roles=summary, source=source, target=spec.target)
    return found("DR-ROLE-005", roles=summary)


def source_alive(
    snapshot: Observation, spec: Spec, *, under_way: bool = False, cut_off: bool = False, even_if_served: bool = False
) -> Finding | None:
    """Report that the source is alive, so that a failover would open a second site. If only the target serves already,
    a sick or silent source is reported only with `even_if_served`. With `under_way`, this failover is an open run,
    which has to end first. With `cut_off`, a hook will cut a silent site off, despite signs of life."""
    source = other(snapshot, spec.target)
    role = snapshot.roles[source]
    if snapshot.roles[spec.target] is Role.SERVING and role is not Role.SERVING and not even_if_served:
        return None
    first = "`dr-ctl status` says what ends the open failover; then: " if under_way else ""
    if role is Role.SERVING:
        if silent := [unit.name for unit in snapshot.units if source not in (*unit.open_at, *unit.closed_at)]:
            return found("DR-ALIVE-001.partly_serves", site=source, silent=", ".join(silent), first=first)
        return found("DR-ALIVE-001.serves", site=source, target=spec.target, first=first)
    if role is Role.SICK and snapshot.signs_of_life.get(source, NO_SIGNS).late:
        return found("DR-ALIVE-001.late", state=role_text(snapshot, source), target=spec.target, first=first)
    if role is Role.SICK:
        return found("DR-ALIVE-001.sick", site=source, target=spec.target, first=first)
    if role is Role.UNKNOWN and not cut_off and (life_signs := snapshot.signs_of_life.get(source, NO_SIGNS)).signs:
        return alive_by_signs(source, life_signs)
    return None


def alive_beside_target(snapshot: Observation, spec: Spec) -> Sequence[Finding]:
    """Warn that the source is alive, and may serve, beside a target that serves already."""
    is_served = snapshot.roles[spec.target] is Role.SERVING
    lives = source_alive(snapshot, spec, even_if_served=True) if is_served else None
    return () if lives is None else (replace(lives, severity=Severity.WARNING),)


def alive_by_signs(lost: str, life_signs: SignsOfLife) -> Finding:
    """Report the signs of life of a silent site. `--presume-down` does not overrule them."""
    signs = "; ".join((*life_signs.signs, *life_signs.nodes))
    return found("DR-ALIVE-001.lives", remedy=life_signs.remedy or None, site=lost, signs=signs)


def takeover_risks(snapshot: Observation, spec: Spec) -> Sequence[Finding]:
    """Report other nodes of a lost site that may serve, or take over."""
    lost = other(snapshot, spec.target)
    signs = snapshot.signs_of_life.get(lost, NO_SIGNS)
    presumed_down = spec.presume_down == lost and spec.reason is not None
    if serves_all(snapshot, spec.target):
        return ()
    risks = (("DR-NODE-004", signs.takeovers), ("DR-NODE-001.lost", signs.nodes))
    return [found(id_, accepted=presumed_down, nodes="; ".join(nodes), site=lost) for id_, nodes in risks if nodes]


def why_not_lost(snapshot: Observation, spec: Spec, *, under_way: bool, cut_off: bool) -> tuple[Finding, ...]:
    """Return why the source is not lost: it is alive, or another node may take over. Options as in `source_alive`."""
    if (lives := source_alive(snapshot, spec, under_way=under_way, cut_off=cut_off)) is not None:
        return (lives, *presumption_overruled(snapshot, spec))
    return tuple(finding for finding in takeover_risks(snapshot, spec) if finding.severity is Severity.ERROR)


def presumption_overruled(snapshot: Observation, spec: Spec) -> Sequence[Finding]:
    """Report that `--presume-down` does not apply to a site that is alive."""
    lost = other(snapshot, spec.target)
    return (found("DR-ALIVE-003", site=lost),) if spec.presume_down == lost else ()


def _reinstating_site(snapshot: Observation, spec: Spec, past: RunState | None, *, by_unit: bool) -> str | Finding:
    """Return the site that serves while the target is reinstated. A target that came back open counts as the lost site
    only if a debt names it. If both sites are closed, the resumed failback had fenced one and not opened the other."""
    serving, roles, summary = other(snapshot, spec.target), snapshot.roles, roles_text(snapshot)
    if past is None and spec.expect_serving is not None and roles[spec.expect_serving] is not Role.SERVING:
        return _unexpected(snapshot, spec, "run again with the site that serves")
    was_lost = any(debt.lost_site == spec.target for debt in snapshot.debts)
    open_ = roles[spec.target] is Role.SERVING
    if roles[serving] is Role.SERVING and (roles[spec.target] is Role.STANDBY or (open_ and was_lost)):
        return serving
    interrupted = past is not None and roles[spec.target] is Role.STANDBY
    if spec.operation == operations.FAILBACK and (open_ or interrupted) and roles[serving] is Role.STANDBY:
        return serving
    if roles[serving] is Role.SERVING and open_ and by_unit and units_divided(snapshot):
        # Units were moved one by one: the remedy brings those that the other site serves to this one.
        away = [unit.name for unit in snapshot.units if unit.serving not in (spec.target, None)]
        one = f" --queues {quote(away[0])}" if len(away) == 1 else ""
        return found("DR-ROLE-014.as_moved", away=brief(away), to=spec.target, one=one, units=served_where(snapshot))
    if roles[serving] is Role.SERVING and open_:
        return both_open(snapshot)
    return found("DR-ROLE-008", target=spec.target, roles=summary, beside=serving)


def _lost_site(snapshot: Observation, spec: Spec, *, cut_off: bool) -> str | Finding:
    """Return the lost site, or a finding on why it is not lost. The target has to answer."""
    lost, roles, summary = other(snapshot, spec.target), snapshot.roles, roles_text(snapshot)
    if spec.expect_serving is not None and roles[spec.expect_serving] is not Role.SERVING:
        return _unexpected(snapshot, spec, "a failover is for a site that does not serve any more")
    if roles[spec.target] not in (Role.SERVING, Role.STANDBY):
        return found("DR-ROLE-004.failover", target=spec.target, roles=summary)
    if roles[lost] in CLOSED or serves_all(snapshot, spec.target):
        return lost
    if (spec.presume_down == lost and spec.reason) or (cut_off and roles[lost] is Role.UNKNOWN):
        return lost
    shown = brief(snapshot.signs_of_life.get(lost, NO_SIGNS).open_ports) or "nothing shows that it is down"
    return found("DR-ALIVE-002", site=lost, shown=shown, summary=summary)


def renamed_sites(snapshot: Observation) -> Finding | None:
    strange = sorted({site for debt in snapshot.debts for site in (debt.lost_site, debt.kept_at)} - {*snapshot.roles})
    if not strange:
        return None
    return found(
        "DR-STATE-002", names=" and ".join(strange), sites=" and ".join(snapshot.roles), old_names=", ".join(strange)
    )


def sites_changed(snapshot: Observation, past: RunState) -> Finding | None:
    if set(snapshot.roles) == {past.plan.source, past.plan.spec.target}:
        return None
    summary = roles_text(snapshot)
    return found("DR-ROLE-007", source=past.plan.source, target=past.plan.spec.target, roles=summary)


def brokers_changed(basis: Mapping[str, Any], past: RunState) -> Finding | None:
    """Refuse to resume a run of other brokers, even if the sites have the same names. Only brokers with an id count."""
    before: Mapping[str, Any] = past.plan.basis
    if (renamed := _renamed(basis, before)) is not None:
        return renamed
    now = basis.get(BROKER_IDS, {})
    for site, units in before.get(BROKER_IDS, {}).items():
        for unit, node in units.items():
            current = now.get(site, {}).get(unit)
            if current is not None and current != node:
                return found("DR-ROLE-017.other_broker", site=site, unit=unit, today=current, node=node)
    return None


def _renamed(basis: Mapping[str, Any], before: Mapping[str, Any]) -> Finding | None:
    """Refuse to resume a run of a pair that the settings do not name any more; name its broker's present pair."""
    now, nodes = basis.get(PAIRS, {}), basis.get(BROKER_IDS, {})
    for site, units in before.get(PAIRS, {}).items():
        for unit in sorted({*units} - {*now.get(site, units)}):
            node = before.get(BROKER_IDS, {}).get(site, {}).get(unit)
            current = [name for name, identity in nodes.get(site, {}).items() if node is not None and identity == node]
            is_now = f"; that broker is called {current[0]} now" if current else ""
            return found("DR-ROLE-017.renamed", site=site, unit=unit, is_now=is_now)
    return None


def _resumed_source(snapshot: Observation, past: RunState, *, by_unit: bool) -> str | Finding:
    roles = {*snapshot.roles.values()}
    if not roles <= {*_ANSWERING}:
        return found("DR-ROLE-006.resumed", roles=roles_text(snapshot))
    if roles == {Role.SERVING} and not (by_unit and units_divided(snapshot)):
        return both_open(snapshot)
    return past.plan.source
