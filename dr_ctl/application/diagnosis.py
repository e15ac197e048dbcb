"""Diagnoses the installation by one snapshot and the history, as findings, each with the command that helps now.
`status` prints all findings; `check` and the monitor's `/ready` answer by those for which a monitor may wake somebody
(`Finding.page`), with the debts and the obstacles to a failover; `validate` and `verify` use those that concern
them."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

from dr_ctl.application import lock, lost_site
from dr_ctl.application.estimates import with_age
from dr_ctl.application.lost_site import LastSample, not_read
from dr_ctl.application.recovery_options import open_run_findings
from dr_ctl.application.standing import agent_findings
from dr_ctl.application.verdicts import Assessment
from dr_ctl.core.errors import StartingOrEnding
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role, brief
from dr_ctl.core.notation import duration
from dr_ctl.engine import roles
from dr_ctl.engine.debts import Debt, DebtKind, only_lost_site
from dr_ctl.engine.operations import FAILOVER
from dr_ctl.engine.plan import Spec
from dr_ctl.engine.planner import against_fences
from dr_ctl.topologies.registry import Snapshot
from dr_ctl.topologies.topology import BrokerSnapshot

OVERDUE: Final = timedelta(days=1)
FILLING: Final = 0.5  # of a disk


def diagnose(assessment: Assessment, last_sample: LastSample, now: datetime) -> list[Finding]:
    """Return all findings on the sites, their brokers, runs, locks and the monitor."""
    opened, snapshot, interrupted = assessment.opened, assessment.snapshot, assessment.interrupted
    return [
        *([assessment.maintenance.finding] if assessment.maintenance is not None else []),
        *filter(None, [roles.renamed_sites(snapshot)]),
        *open_again(assessment),
        *snapshot.findings(),
        *silent(snapshot),
        *opened.unverified(),
        *agent_findings(opened, snapshot),
        *open_run_findings(assessment.open_run, snapshot, assessment.links),
        *lock.holders(snapshot, assessment.opened.runs, interrupted.files.name if interrupted is not None else None),
        *_pauses(snapshot),
        *_links(assessment),
        *_filling(assessment),
        *serving_problems(assessment),
        *lost_site.unwatched(opened.installation, last_sample, now),
    ]


def paged(assessment: Assessment, debts: Sequence[Debt], last_sample: LastSample, now: datetime) -> list[Finding]:
    """Return the findings that a monitor may wake somebody for, the worst first; during maintenance as warnings."""
    findings = dict.fromkeys(
        [*diagnose(assessment, last_sample, now), *pending(debts, now), *unready(assessment, last_sample)]
    )
    silenced = list(findings) if assessment.maintenance is None else assessment.maintenance.silenced(findings)
    ranked = [(finding.page.rank, finding) for finding in silenced if finding.page is not None]
    return [finding for _, finding in sorted(ranked, key=lambda pair: pair[0], reverse=True)]


def split_brain(findings: Sequence[Finding]) -> str | None:
    """Return the text of the first finding on a split brain."""
    return next((finding.text for finding in findings if finding.text.startswith("split brain:")), None)


def silent(snapshot: Snapshot) -> list[Finding]:
    return [finding for broker in snapshot.brokers for finding in silent_of(broker, snapshot)]


def silent_of(broker: BrokerSnapshot, snapshot: Snapshot) -> list[Finding]:
    beside = any(other.site == broker.site and other.silent is None for other in snapshot.brokers)
    name, error = f"{broker.site}/{broker.pair}", broker.silent
    return [] if error is None else [roles.no_answer(name, broker.role, error, beside=beside)]


def _links(assessment: Assessment) -> Iterator[Finding]:
    """Report links that are not attached, unless a silent peer or a quarantine explains that."""
    snapshot = assessment.snapshot
    silent = {(broker.site, broker.pair) for broker in snapshot.brokers if broker.silent is not None}
    kept_out = {debt.lost_site for debt in snapshot.debts if debt.kind is DebtKind.QUARANTINE}
    for site in [site for site in snapshot.roles if site not in kept_out]:
        detached = [link.pair for link in assessment.links if link.site == site and link.attached is False]
        names = brief([f"{site}/{pair}" for pair in detached if (assessment.opened.other(site), pair) not in silent])
        if names:
            yield found("DR-LINK-010", links=names, link_advice=assessment.opened.link_advice(site))


def _filling(assessment: Assessment) -> Iterator[Finding]:
    """Report serving brokers whose disk may fill with what waits for a site while the link to it is down."""
    waiting = {(link.site, link.pair): link.outflow for link in assessment.links if link.attached is False}
    for broker in assessment.snapshot.brokers:
        count, used = waiting.get((broker.site, broker.pair)), broker.disk_used
        if count and used is not None and used >= FILLING and broker.role is Role.SERVING:
            away = assessment.opened.other(broker.site)
            name = f"{broker.site}/{broker.pair}"
            yield found("DR-LIMIT-002", broker=name, used=f"{used:.0%}", count=count, away=away)


def unready(assessment: Assessment, last_sample: LastSample) -> Iterator[Finding]:
    """Report the obstacles to a failover from the only serving site, and what its history and estimate lack."""
    installation, site = assessment.opened.installation, assessment.served_by
    if site is None:
        return
    other = assessment.opened.other(site)
    if assessment.snapshot.roles[other] is not Role.STANDBY:
        yield found("DR-ROLE-004.no_failover", state=roles.role_text(assessment.snapshot, other), target=other)
    elif (refused := assessment.if_lost(site).refused_today(Spec(FAILOVER, other))) is not None:
        yield refused
    yield from lost_site.never_watched(last_sample)
    estimate, _, _ = with_age(installation, site)
    if estimate is not None and estimate.data.get("verdict") == "missed":
        yield found("DR-RPO-027", age=duration(round(estimate.age_s)))


def pending(debts: Sequence[Debt], now: datetime) -> Iterator[Finding]:
    """Report the debts; a debt older than a day is overdue."""
    for debt in debts:
        late = now - datetime.fromisoformat(debt.since) > OVERDUE
        yield found("DR-DEBT-002.overdue" if late else "DR-DEBT-002", since=debt.since, debt=debt.text)


def open_again(assessment: Assessment) -> Iterator[Finding]:
    """Report a lost site that serves again although it was to be kept closed. While a run is open, no command but
    a fence may begin; then the remedy is that of the run's own finding."""
    snapshot, interrupted = assessment.snapshot, assessment.interrupted
    survivors = {debt.kept_at for debt in snapshot.debts if debt.kind is DebtKind.QUARANTINE}
    for site, survivor in {debt.lost_site: debt.kept_at for debt in snapshot.debts}.items():
        split = snapshot.roles.get(survivor) is Role.SERVING
        closed = snapshot.roles.get(survivor) is Role.STANDBY
        if snapshot.roles.get(site) is not Role.SERVING or (closed and site in survivors):
            continue  # the service has moved back to the lost site since
        state = "keeps clients out" if closed else roles.role_text(snapshot, survivor).removeprefix(f"{survivor} ")
        if interrupted is not None:
            run = interrupted.files.name
            command = interrupted.first(snapshot, assessment.links).typed
            key = "DR-RETURN-003.open_run" if split else "DR-RETURN-003.open_run_alone"
            yield found(key, site=site, survivor=survivor, run=run, state=state, way=command)
        else:
            key = "DR-RETURN-003" if split else "DR-RETURN-003.closed" if closed else "DR-RETURN-003.away"
            yield found(key, site=site, survivor=survivor, state=state)


def serving_problems(assessment: Assessment) -> Iterator[Finding]:
    """Report that both sites serve clients, or none does, with the command to type."""
    snapshot, run = assessment.snapshot, assessment.open_run
    serving = roles.sites_serving(snapshot)
    lost = [debt.lost_site for debt in snapshot.debts if debt.kind is DebtKind.FENCE]
    if run is None:
        yield from roles.unserved(snapshot, by_unit=assessment.opened.topology.recipe.moves_parts)
        yield from lost_site.lost_pairs(snapshot)
        yield from lost_site.open_without_rights(snapshot)
    if any(len(unit.open_at) > 1 for unit in snapshot.units) and not {*lost} & {*serving}:
        # During an open run a fence is judged by its own command.
        against = against_fences(assessment.opened.topology.recipe, snapshot) if run is None else []
        fenced = lost_site.site_behind_rights(snapshot)
        if against and all(against):
            yield found("DR-ROLE-001.fence_refused", roles=roles.roles_text(snapshot))
        elif fenced is not None and lost_site.serves_no_role(snapshot, fenced):
            yield found("DR-ROLE-022", site=fenced)
        else:
            yield roles.both_open(snapshot) if fenced is None else found("DR-ROLE-001.rights", site=fenced)
        yield from chain(*against)
    elif roles.units_divided(snapshot) and not assessment.opened.topology.recipe.moves_parts:
        yield found("DR-ROLE-014.pairs", units=roles.served_where(snapshot))
    elif not serving:
        yield from _none_serves(assessment)


def _none_serves(assessment: Assessment) -> Iterator[Finding]:
    snapshot, run, by_site = assessment.snapshot, assessment.open_run, assessment.snapshot.roles
    waiting = [site for site, role in by_site.items() if role is Role.STANDBY]
    under_way = run.lives if run is not None else assessment.lock_holder is not None
    is_starting = any(isinstance(broker.silent, StartingOrEnding) for broker in snapshot.brokers)
    none_has_listeners = all(broker.silent is None and not broker.listeners for broker in snapshot.brokers)
    unread = [finding for site in by_site if (finding := not_read(snapshot, site)) is not None]
    if unread and not waiting:
        yield from unread
    elif is_starting or none_has_listeners or not waiting:
        unsure = any(role in (Role.UNKNOWN, Role.SICK) for role in by_site.values())
        yield found("DR-ROLE-005.unsure" if unsure else "DR-ROLE-005.none_waits", roles=roles.roles_text(snapshot))
    elif len(waiting) == len(by_site) and (under_way or run is not None):
        key = "DR-ROLE-015.under_way" if under_way else "DR-ROLE-015.open_run"
        yield found(key, sites=" and ".join(by_site))
    elif len(waiting) == len(by_site):
        yield _closed(assessment)
    elif under_way:
        yield found("DR-ROLE-005.under_way", roles=roles.roles_text(snapshot))
    else:
        yield _one_waits(assessment, waiting[0])


def _one_waits(assessment: Assessment, site: str) -> Finding:
    snapshot, away = assessment.snapshot, assessment.opened.other(site)
    if (unread := not_read(snapshot, away)) is not None:
        return unread
    if snapshot.roles[away] is Role.SICK and snapshot.one_store:
        return found("DR-ROLE-005.holder", roles=roles.roles_text(snapshot), waits=site)
    if snapshot.roles[away] is Role.UNKNOWN and lost_site.waits_for_store(snapshot, site):
        return found("DR-ROLE-005.silent_holder", roles=roles.roles_text(snapshot), waits=site, away=away)
    is_open = assessment.open_run is not None
    before, reason = ("End the open run first. ", " --reason TEXT") if is_open else ("", "")
    key = "DR-ROLE-005.down" if snapshot.roles[away] is Role.DOWN else "DR-ROLE-005.silent"
    verdict = assessment.verdict(FAILOVER, site).text
    return found(
        key, roles=roles.roles_text(snapshot), before=before, away=away, waits=site, reason=reason, verdict=verdict
    )


def _closed(assessment: Assessment) -> Finding:
    """Report that both sites are closed, with the commands that would open one now."""
    snapshot, (first, second) = assessment.snapshot, assessment.snapshot.roles
    away = only_lost_site(snapshot.debts)
    both = f"{first} and {second}"
    if snapshot.debts and away is None:
        return found("DR-ROLE-015.each_lost", sites=both)
    answering = {broker.site for broker in snapshot.brokers if broker.listeners} - {away}
    commands = ((site, assessment.way_to_open(site)) for site in (first, second) if site in answering)
    closed = {site: command for site, command in commands if command is not None}
    if not closed and away is None:
        return found("DR-ROLE-015", sites=both)
    if not closed:
        return found("DR-ROLE-015.failover", sites=both, site=second if away == first else first, away=away)
    which = next(iter(closed))
    if len(closed) > 1:
        which, opened = "the site that served last", assessment.opened
        _, last, _ = lost_site.last_served(opened.installation, opened.runs)
        if last in closed:
            which, closed = f"{last}, which served last", {last: closed[last]}
    lost = f"; {away} was lost before" if away is not None else ""
    return found("DR-ROLE-015.unfence", sites=both, which=which, ways=" or ".join(closed.values()), lost=lost)


def _pauses(snapshot: Snapshot) -> Iterator[Finding]:
    for broker in snapshot.brokers:
        by = lock.pausers(snapshot, broker)
        for run in sorted({by.get(queue, "") for queue in broker.paused}):
            paused = brief([queue for queue in broker.paused if by.get(queue, "") == run])
            key, name = "DR-QUEUE-001.by_run" if run else "DR-QUEUE-001", f"{broker.site}/{broker.pair}"
            yield found(key, broker=name, run=run, paused=paused, site=broker.site)
