"""Findings on a site that is lost, or may be, with remedies; and the start of an outage of the service, of a link or of
the monitor, by the runs' journals and by the history."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, NamedTuple

from dr_ctl.application.installation import OpenInstallation
from dr_ctl.core.errors import DrCtlError
from dr_ctl.core.findings import found
from dr_ctl.core.machine import without
from dr_ctl.core.model import ExitCode, Finding, Role, Severity, brief
from dr_ctl.core.notation import duration
from dr_ctl.core.system import stamp, system
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.journal import fenced_at, letting_in, read_entries, replay
from dr_ctl.engine.operations import ACTIVATE, FAILOVER, UNFENCE
from dr_ctl.engine.plan import AlreadyThere, Decision, Plan, Refusal, Spec, plan_of
from dr_ctl.engine.ports import NO_SIGNS
from dr_ctl.engine.record import OutageBounds
from dr_ctl.engine.roles import alive_by_signs, presumption_overruled, serves_all, sites_serving
from dr_ctl.engine.runs import Runs
from dr_ctl.rpo.history.row import Takeover, micros, moment
from dr_ctl.settings.model import Installation
from dr_ctl.topologies.registry import Snapshot
from dr_ctl.topologies.topology import LinkSnapshot

RECENT: Final = timedelta(minutes=10)
LATE_S: Final = 60.0
MAX_RUNS: Final = 10  # of the newest runs, searched for the one that moved the service


def reword_refusal(
    decided: Decision, spec: Spec, snapshot: Snapshot, opened: OpenInstallation, *, under_way: bool = False
) -> Decision:
    """Add the history of the lost site to a decision. With `under_way`, the decision is about an open failover, which
    has to end first.

    A failover is refused if the silent site was sick a short time ago. A person may still presume it down, because a
    host without power is as silent as a frozen process, and a wait would only extend the outage."""
    lost = opened.other(spec.target)
    if (refused := _refused_login(decided, spec, snapshot, lost)) is not None:
        return refused
    if isinstance(decided, Plan) and snapshot.roles[lost] is Role.UNKNOWN:
        return replace(decided, findings=(*_against_presumption(snapshot, lost, opened), *decided.findings))
    if not isinstance(decided, Refusal):
        return decided
    detached = [link.site for link in snapshot.links() if link.attached is False]
    all_answer = all(broker.silent is None for broker in snapshot.brokers_at(lost))
    first, *others = decided.findings
    if under_way and first.id == "DR-ALIVE-001":
        return decided
    if first.id == "DR-ALIVE-001" and snapshot.roles[lost] is Role.SERVING and all_answer and detached:
        first = found("DR-ALIVE-001.cut_off", site=lost, link_advice=opened.link_advice(detached[0]))
    if first.id == "DR-ALIVE-001" and snapshot.roles[lost] is Role.SICK and snapshot.one_store:
        first = found("DR-ALIVE-001.holder", text=first.text, waits=spec.target)
    if first.id == "DR-ALIVE-002" and (at := _recently_sick(lost, opened)) is not None:
        first = found("DR-ALIVE-002.lately_sick", refused=first.text, at=stamp(at), site=lost)
        decided = replace(decided, code=ExitCode.SERVING_SITE_ALIVE)
    elif first.id == "DR-ALIVE-002" and waits_for_store(snapshot, spec.target):
        first = found("DR-ALIVE-002.holder", refused=first.text, site=lost, waits=spec.target)
    return replace(decided, findings=(first, *others))


def down_beside_standby(snapshot: Snapshot) -> str | None:
    """Return the site that is down where the other one is a standby and none serves."""
    by_role = {role: site for site, role in snapshot.roles.items()}
    return by_role.get(Role.DOWN) if by_role.keys() == {Role.DOWN, Role.STANDBY} else None


def waits_for_store(snapshot: Snapshot, site: str) -> bool:
    """Say whether a site waits for the one store, which another process holds."""
    return snapshot.lacks_held_store(site) and snapshot.roles[site] is Role.STANDBY


def _against_presumption(snapshot: Snapshot, lost: str, opened: OpenInstallation) -> Iterator[Finding]:
    """Report evidence against `--presume-down`, by which a person vouches that a silent site serves nobody."""
    if (unread := not_read(snapshot, lost)) is not None and unread.id != "DR-NODE-004":  # the plan says so itself
        yield unread
    if (at := _recently_sick(lost, opened)) is not None:
        yield found("DR-ALIVE-004", site=lost, at=stamp(at))
    if waits_for_store(snapshot, opened.other(lost)):
        yield found("DR-ALIVE-004.holder", site=lost, waits=opened.other(lost))


def _refused_login(decided: Decision, spec: Spec, snapshot: Snapshot, lost: str) -> Refusal | None:
    """Refuse a failover from a site that has refused a login, even with `--presume-down`, because its process lives."""
    is_presumed = spec.presume_down == lost and plan_of(decided) is not None
    silent = isinstance(decided, Refusal) and decided.findings[0].id in ("DR-ALIVE-002", "DR-NODE-001", "DR-NODE-004")
    is_open = snapshot.roles[lost] is Role.UNKNOWN and snapshot.roles[spec.target] is not Role.SERVING
    for broker in snapshot.brokers_at(lost) if is_open and (is_presumed or silent) else ():
        if broker.silent is not None and broker.silent.shows_life:
            answers = found("DR-ALIVE-001.answers", remedy=broker.silent.remedy, site=lost, why=broker.silent)
            return Refusal((answers, *presumption_overruled(snapshot, spec)), ExitCode.SERVING_SITE_ALIVE)
    return None


def not_read(snapshot: Snapshot, site: str) -> Finding | None:
    """Report a site that is silent because of this machine or its settings, which is no reason for a failover."""
    for broker in snapshot.brokers_at(site):
        if broker.silent is None and broker.role is Role.UNKNOWN:
            return found("DR-ROLE-019.not_told", site=site, pair=broker.pair)
        if broker.silent is not None and broker.silent.is_local:
            return found("DR-ROLE-019.not_read", remedy=broker.silent.remedy, site=site, why=broker.silent)
    if (life_signs := snapshot.signs_of_life.get(site, NO_SIGNS)).takeovers:
        return found("DR-NODE-004", accepted=True, site=site, nodes="; ".join(life_signs.takeovers))
    if life_signs.signs:
        lives = alive_by_signs(site, life_signs)
        return found("DR-ROLE-019", text=lives.text, remedy=lives.remedy)
    return None


def with_cause_of_silence(decided: Refusal, spec: Spec, snapshot: Snapshot) -> Refusal:
    """Replace the remedy of a failover by the cause of a site's silence, if this machine or its settings are the
    cause."""
    first = decided.findings[0]
    if first.id not in ("DR-ROLE-005", "DR-ROLE-004"):
        return decided
    sites = [spec.target] if first.id == "DR-ROLE-004" else [*snapshot.roles.keys() - {spec.target}]
    for unread in filter(None, (not_read(snapshot, site) for site in sites)):
        return replace(decided, findings=(replace(first, remedy=unread.remedy), unread, *decided.findings[1:]))
    return decided


def site_behind_rights(snapshot: Snapshot) -> str | None:
    """Return the site whose listeners a restart or a takeover has opened beside the serving site, while a lasting fence
    keeps the clients' roles out at each of its brokers. Other roles may work there, and the clients' roles at addresses
    that the fence does not cover."""
    sites = {broker.site for broker in snapshot.brokers if broker.role is Role.SERVING}
    fenced = [site for site in sites if keeps_roles_out(snapshot, site)]
    return fenced[0] if len(sites) > 1 and len(fenced) == 1 else None


def keeps_roles_out(snapshot: Snapshot, site: str) -> bool:
    """Say whether a lasting fence keeps the clients' roles out behind all listeners that are open at a site."""
    opened = [broker for broker in snapshot.brokers_at(site) if broker.role is Role.SERVING]
    return bool(opened) and all(broker.kept_out for broker in opened)


def serves_no_role(snapshot: Snapshot, site: str) -> bool:
    """Say whether the rights of every role were read at a site, and none may send or consume there."""
    return all(broker.serves_no_role for broker in snapshot.brokers_at(site))


def open_without_rights(snapshot: Snapshot) -> Iterator[Finding]:
    """Report brokers that are open to clients without rights, except at a fenced site beside the serving site."""
    fenced = site_behind_rights(snapshot)
    for broker in [broker for broker in snapshot.brokers if broker.site != fenced]:
        if broker.role is Role.SERVING and broker.kept_out and any(broker.listeners.values()):
            yield found("DR-ROLE-020", site=broker.site, pair=broker.pair)


def lost_pairs(snapshot: Snapshot) -> Iterator[Finding]:
    """Report pairs that no site serves, because one of their brokers is down, while a site serves other pairs."""
    serving = sites_serving(snapshot)
    for unit in snapshot.units if len(serving) == 1 else ():
        brokers = [broker for broker in snapshot.brokers if broker.pair == unit.name]
        down = [f"{broker.site}/{broker.pair}" for broker in brokers if broker.role is Role.DOWN]
        all_closed = all(broker.role is Role.DOWN or broker.site in unit.closed_at for broker in brokers)
        if unit.open_at or not down or not all_closed:
            continue
        home, other = serving[0], next(site for site in snapshot.roles if site != serving[0])
        yield found("DR-UNIT-003.lost_pair", home=home, down=brief(down), away=other, unit=unit.name)


def taken_over(spec: Spec, snapshot: Snapshot, opened: OpenInstallation, runs: Runs) -> str | None:
    """Say since when the target serves, if it took the shared store without a run; else, or without evidence, None."""
    lost = opened.other(spec.target)
    if spec.operation != FAILOVER or not snapshot.one_store or snapshot.roles[lost] is Role.SERVING:
        return None
    at = _last_seen(opened.installation, lost, Role.SERVING)
    waited = _last_seen(opened.installation, spec.target, Role.STANDBY)
    ended = [run.result.stat().st_mtime for run in runs.all() if run.result.exists()]
    if at is None or any(moment >= at.timestamp() for moment in ended):
        return None
    return f"{spec.target} serves already: it took the store by itself, after {stamp(max(at, waited or at))}"


def already_moved(decided: Decision, spec: Spec, snapshot: Snapshot, opened: OpenInstallation) -> Decision:
    """Return the decision, or that the move is made: the newest run of this STATE let clients in at the target, no
    other run has taken a lock since, no debt is left, and the other site was not seen serving after that."""
    only_target = sites_serving(snapshot) == [spec.target] and serves_all(snapshot, spec.target)
    own_runs = {files.name for files in opened.runs.all()}
    locks = [reading.highest for reading in snapshot.locks if reading.site == spec.target]
    untouched = bool(locks) and all(lock is not None and lock.run in own_runs for lock in locks)
    if plan_of(decided) is None or not (only_target and untouched) or snapshot.debts:
        return decided
    lost, (at, site, closed_by) = opened.other(spec.target), _moved_by(opened.runs)
    seen = _last_seen(opened.installation, lost, Role.SERVING)
    if at is None or site != spec.target or closed_by or (seen is not None and seen > at):
        return decided
    text = f"{spec.target} serves already, since {stamp(at)}, and {lost} was not seen serving after it"
    findings = [finding for finding in decided.findings if finding.severity is not Severity.ERROR]
    return AlreadyThere(f"{text}: nothing is to be moved; nothing was changed", tuple(findings))


def _recently_sick(site: str, opened: OpenInstallation) -> datetime | None:
    """Return the last time when the silent site was sick, and so alive; None if that is long ago."""
    at = _last_seen(opened.installation, site, Role.SICK)
    return at if at is not None and system().now() - at < RECENT else None


def _last_seen(installation: Installation, site: str, role: Role) -> datetime | None:
    """Return the time of the last sample with that role; None without one, or if a package is missing."""
    return last_sample(installation, [site], role=role).at


@dataclass(frozen=True, slots=True)
class OutageStart:
    """The start of an outage: the time, None if unknown, and a text."""

    at: str | None
    text: str


def outage_start(installation: Installation, runs: Runs) -> OutageStart:
    """Say since when no site serves."""
    at, site, run = last_served(installation, runs)
    if at is None:
        return OutageStart(None, "start of the outage unknown")
    ago = duration(max(0.0, (system().now() - at).total_seconds()))
    since = f"{run} keeps clients out since {stamp(at)}" if run else f"{site} was last seen serving at {stamp(at)}"
    since = f"{since}, {ago} ago"
    return OutageStart(stamp(at), since)


def another_served_last(spec: Spec, snapshot: Snapshot, opened: OpenInstallation) -> Iterator[Finding]:
    """Find that an unfence would open the site that waited, where neither site is open."""
    if spec.operation == UNFENCE and {*snapshot.roles.values()} == {Role.STANDBY}:
        at, site, _ = last_served(opened.installation, opened.runs)
        if at is not None and site == spec.target:
            yield found("DR-UNFENCE-004", last=site, at=stamp(at), opened=opened.other(site))


def last_served(installation: Installation, runs: Runs) -> tuple[datetime | None, str, str]:
    """Return the last time that a site served, the site, and the run that closed it, if any."""
    served = [
        (at, site, "")
        for site in installation.settings.sites
        if (at := _last_seen(installation, site, Role.SERVING)) is not None
    ]
    seen, moved = max(served, default=(None, "", "")), _moved_by(runs)
    return moved if moved[0] is not None and (seen[0] is None or seen[0] <= moved[0]) else seen


def _moved_by(runs: Runs) -> tuple[datetime | None, str, str]:
    """Return when and where the newest run let clients in, or when it closed the only serving site, with its name."""
    for files in islice(reversed(runs.all()), MAX_RUNS):
        try:
            entries = read_entries(files.journal)
            past = replay(entries)
        except (DrCtlError, OSError):
            break
        unknown = None, "", ""
        if (last := next(reversed([*letting_in(entries)]), None)) is not None:
            sites = {step.step.id: step.step.site for step in past.steps}
            whole = past.plan.spec.units is None
            return (last.let_in_at, sites.get(last.step or "", ""), "") if whole else unknown
        if (at := fenced_at(entries)) is not None:
            return (at, past.plan.source, files.name) if past.plan.serving == (past.plan.source,) else unknown
        if {ACTIVATE, UNFENCE} & {step.step.verb for step in past.steps}:
            break
    return None, "", ""


class LastSample(NamedTuple):
    """The time of the monitor's last sample; None if there is none. `silent` reports a store without an answer, which
    may have later samples, or a missing package."""

    at: datetime | None
    silent: Sequence[Finding] = ()


def last_sample(
    installation: Installation, sites: Iterable[str] = (), *, role: Role | None = None, link_of: str | None = None
) -> LastSample:
    """Return the last sample of either site, or of these; with `role` one that saw a site in that role, with `link_of`
    one that saw the link of that pair connected."""
    history = installation.history
    if history.folder is not None and not history.folder.exists():
        return LastSample(None)
    try:
        from dr_ctl.rpo.history.newest import last_reading  # noqa: PLC0415 - takes a tenth of a second to load
    except ModuleNotFoundError as error:
        return LastSample(None, [missing_package(error)])
    return LastSample(*last_reading(history, sites or installation.settings.sites, role=role, link_of=link_of))


def last_takeovers(installation: Installation, snapshot: Snapshot, now: datetime) -> dict[tuple[str, str], Takeover]:
    """Return the last takeover of each broker with several nodes within a day, as recorded by a monitor."""
    history = installation.history
    if not any(broker.nodes for broker in snapshot.brokers) or (history.folder and not history.folder.is_dir()):
        return {}
    try:
        from dr_ctl.rpo.history.newest import takeovers  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        missing_package(error)
        return {}
    seen = takeovers(history, tuple(snapshot.roles), now - timedelta(days=1))
    return {(takeover.site, takeover.pair): takeover for takeover in seen}


def unwatched(installation: Installation, last: LastSample, now: datetime) -> Iterator[Finding]:
    """Report that no monitor runs any more, or that this cannot be determined; see `never_watched`."""
    # A running monitor reads several times within `history.every`.
    late_s = max(LATE_S, 3 * installation.settings.history.every)
    if last.at is None or (now - last.at).total_seconds() > late_s:
        yield from last.silent
        if last.at is not None and not last.silent:
            yield found("DR-MON-002.since", at=stamp(last.at))


def never_watched(last: LastSample) -> Iterator[Finding]:
    """Report that no monitor has ever run, as far as that is known."""
    if last.at is None and not last.silent:
        yield found("DR-MON-002.never")


def links(
    installation: Installation, snapshot: Snapshot, shown: Sequence[LinkSnapshot]
) -> dict[tuple[str, str], OutageStart]:
    """Say since when each unattached link is down, or why it must not be attached."""
    down = [link for link in shown if link.attached is False]
    quarantines = (debt for debt in snapshot.debts if debt.kind is DebtKind.QUARANTINE)
    kept = {debt.lost_site: debt.kept_at for debt in quarantines}
    since = {}
    for link in down:
        at = last_sample(installation, [link.site], link_of=link.pair).at
        moment = None if at is None else stamp(at)
        text = f"the link is down: {'not known since when' if moment is None else f'last seen attached at {moment}'}"
        if (kept_by := kept.get(link.site)) is not None and snapshot.roles.get(link.site) is Role.STANDBY:
            text = f"{kept_by} blocks it on purpose until `dr-ctl reinstate {link.site}`; it grows by echoes of "
            text += f"changes at {kept_by}, which is harmless"
        since[link.site, link.pair] = OutageStart(moment, text)
    return since


@dataclass(frozen=True, slots=True)
class LostSiteOutage(OutageBounds):
    """Bounds in seconds on the time that clients were out of a lost site; None where a bound is not known."""

    last_served: datetime | None
    seen_down: datetime | None


def out_of_lost(
    installation: Installation, lost: str, pairs: list[str], seen_down: datetime | None, let_in: datetime
) -> LostSiteOutage:
    """Bound the outage of a lost site: at most from the last reading that saw the site serve, at least from the first
    reading, by run or monitor, that saw it down or closed after that. A bound without a reading is not known."""
    served = not_serving = None
    try:
        from dr_ctl.rpo.history.newest import recent  # noqa: PLC0415 - what reads Parquet takes a tenth of a second

        readings = recent(installation.history, lost, pairs, until_us=micros(let_in))
    except (ModuleNotFoundError, DrCtlError):
        pass  # the figure is only for the report
    else:  # a reading without an answer says nothing about the role
        if len(serving := readings.saw(Role.SERVING)):
            served = moment(int(serving[-1]))
            after = [times[times > serving[-1]] for times in map(readings.saw, (Role.DOWN, Role.STANDBY))]
            not_serving = min((moment(int(times[0])) for times in after if len(times)), default=None)
    if seen_down is not None and seen_down <= let_in and (served is None or seen_down > served):
        not_serving = seen_down if not_serving is None else min(not_serving, seen_down)
    at_least, at_most = (None if since is None else (let_in - since).total_seconds() for since in (not_serving, served))
    return LostSiteOutage(at_least, at_most, served, not_serving)


def missing_package(error: ModuleNotFoundError) -> Finding:
    """Report a missing package; raises the error again for any other module."""
    if (lacking := without(error)) is None:
        raise error
    return found("DR-PART-001", remedy=lacking.remedy, lacking=lacking)
