"""What is wrong, as findings by one snapshot and the history, each with the command that helps now. `status` prints all
of them; `validate` takes those that bear on what it answers."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import chain

from dr_ctl.application import lock
from dr_ctl.application.lost_site import LastLook, ending_holder, lost_pairs, not_read, unwatched, without_rights
from dr_ctl.application.recovery_options import Interrupted, open_run_findings
from dr_ctl.application.standing import of_agent
from dr_ctl.application.verdicts import Judge
from dr_ctl.core.errors import Between
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Role, Severity, some
from dr_ctl.engine.debts import DebtKind, lost_alone
from dr_ctl.engine.operations import FAILOVER, FENCE, UNFENCE
from dr_ctl.engine.parts import is_split, served_where, unserved
from dr_ctl.engine.roles import both_open, renamed_sites, stand
from dr_ctl.engine.roles import silent as no_answer
from dr_ctl.topologies.topology import (
    BrokerSnapshot,
    Snapshot,
    keeps_one_store,
)


def diagnose(judge: Judge, last_look: LastLook, now: datetime) -> list[Finding]:
    """Everything that a person must know of the sites, their brokers, runs, locks and the monitor."""
    opened, snapshot, run = judge.opened, judge.snapshot, judge.open_run
    interrupted = Interrupted.of(run) if run is not None and not run.lives else None
    return [
        *filter(None, [renamed_sites(snapshot)]),
        *_open_again(snapshot, interrupted),
        *snapshot.findings(),
        *silent(snapshot),
        *opened.unverified(),
        *of_agent(opened, snapshot),
        *open_run_findings(run, snapshot, judge.links),
        *lock.holders(snapshot, interrupted.run.files.name if interrupted is not None else None),
        *_pauses(snapshot),
        *not_one(judge),
        *unwatched(opened.installation, last_look, now),
    ]


def silent(snapshot: Snapshot) -> list[Finding]:
    """The brokers that did not answer, and how they failed."""
    return [finding for each in snapshot.brokers for finding in silent_of(each)]


def silent_of(broker: BrokerSnapshot) -> list[Finding]:
    error = broker.silent
    return [] if error is None else [no_answer(f"{broker.site}/{broker.pair}", broker.role, error)]


def _open_again(snapshot: Snapshot, interrupted: Interrupted | None) -> Iterator[Finding]:
    """A lost site that serves again although it was to be kept closed. Beside an open run nothing else begins than what
    closes a site."""
    about = {debt.about: debt.kept_at for debt in snapshot.debts if snapshot.roles.get(debt.about) is Role.SERVING}
    for site, survivor in about.items():
        closed = snapshot.roles.get(survivor) is Role.STANDBY
        if closed and site in _survivors(snapshot):
            continue  # it took over itself since
        if interrupted is not None:
            run = interrupted.run.files.name
            yield found("DR-RETURN-003.open_run", site=site, survivor=survivor, run=run)
        else:
            yield found("DR-RETURN-003.closed" if closed else "DR-RETURN-003", site=site, survivor=survivor)


def _survivors(snapshot: Snapshot) -> set[str]:
    """The sites that a failover has opened, and whose peer is not taken in again."""
    return {debt.kept_at for debt in snapshot.debts if debt.kind is DebtKind.QUARANTINE}


def not_one(judge: Judge) -> Iterator[Finding]:
    """Clients are served by both sites, or by none, and what to type then."""
    snapshot, run = judge.snapshot, judge.open_run
    serving = [site for site, role in snapshot.roles.items() if role is Role.SERVING]
    waiting = [site for site, role in snapshot.roles.items() if role is Role.STANDBY]
    roles = stand(snapshot)
    lost = [debt.about for debt in snapshot.debts if debt.kind is DebtKind.FENCE]
    if run is None:
        yield from unserved(snapshot, parts=judge.opened.topology.recipe.moves_parts)
        yield from lost_pairs(snapshot)
        yield from without_rights(snapshot)
    if any(len(unit.open_at) > 1 for unit in snapshot.units) and not {*lost} & {*serving}:
        sites = snapshot.roles if run is None else ()  # beside an open run a fence is judged by itself
        against = [
            [each for each in judge.verdict(FENCE, site).findings if each.severity is Severity.ERROR] for site in sites
        ]
        finding = both_open(snapshot)
        if against and all(against):
            finding = replace(finding, remedy="A fence is refused at both: mend first what stands below.")
        yield finding
        yield from chain(*against)
    elif is_split(snapshot) and not judge.opened.topology.recipe.moves_parts:
        yield found("DR-ROLE-014.pairs", units=served_where(snapshot))
    elif any(isinstance(each.silent, Between) for each in snapshot.brokers):
        return  # who serves is being decided
    elif all(each.silent is None and not each.listeners for each in snapshot.brokers):
        return  # nobody answered; the topology says what else it knows
    elif not serving and len(waiting) == len(snapshot.roles):
        if run is not None:
            key = "DR-ROLE-015.under_way" if run.lives else "DR-ROLE-015.open_run"
            yield found(key, sites=" and ".join(snapshot.roles))
        else:
            yield _closed(judge)
    elif not serving and waiting and not (run is not None and run.lives):
        away = next(site for site in snapshot.roles if site != waiting[0])
        if (unread := not_read(snapshot, away)) is not None:
            yield unread
            return
        if snapshot.roles[away] is Role.SICK and keeps_one_store(snapshot):
            yield found("DR-ROLE-016.holder", roles=roles, way=ending_holder(waiting[0]))
        else:
            reason, verdict = " --reason TEXT" if run is not None else "", judge.verdict(FAILOVER, waiting[0]).text
            yield found("DR-ROLE-016", roles=roles, away=away, waits=waiting[0], reason=reason, verdict=verdict)


def _closed(judge: Judge) -> Finding:
    """Both sites are closed: the commands that open one, as far as each would be taken now."""
    snapshot, (first, second) = judge.snapshot, judge.snapshot.roles
    away = lost_alone(snapshot.debts)
    if snapshot.debts and away is None:
        return found("DR-ROLE-015.each_lost", sites=f"{first} and {second}")
    answering = {each.site for each in snapshot.brokers if each.listeners}
    closed = [
        site
        for site, other in ((first, second), (second, first))
        if site != away and site in answering and judge.verdict(UNFENCE, other).code is ExitCode.OK
    ]
    if closed:
        which = "the site that served last" if len(closed) > 1 else closed[0]
        ways = " or ".join(f"`dr-ctl unfence {site}`" for site in closed)
        lost = f"; {away} was lost before" if away is not None else ""
        return found("DR-ROLE-015.unfence", sites=f"{first} and {second}", which=which, ways=ways, lost=lost)
    if away is not None:
        site = second if away == first else first
        return found("DR-ROLE-015.failover", sites=f"{first} and {second}", site=site, away=away)
    return found("DR-ROLE-015", sites=f"{first} and {second}")


def _pauses(snapshot: Snapshot) -> list[Finding]:
    findings = []
    for each in snapshot.brokers:
        by = lock.pausers(snapshot, each)
        for run in sorted({by.get(name, "") for name in each.paused}):
            names = [name for name in each.paused if by.get(name, "") == run]
            broker, paused = f"{each.site}/{each.pair}", some(names)
            findings.append(
                found("DR-QUEUE-001.by_run", broker=broker, run=run, paused=paused, site=each.site)
                if run
                else found("DR-QUEUE-001", broker=broker, paused=paused)
            )
    return findings
