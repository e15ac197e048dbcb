"""The present state: who serves, messages under way, open runs, and the command to type then. Only looks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import Any

from dr_ctl.application import lock, lost_site, verdicts
from dr_ctl.application.agent_state import of_agent
from dr_ctl.application.caller import Caller
from dr_ctl.application.debts import owed_now
from dr_ctl.application.estimates import with_age
from dr_ctl.application.installation import Looking, Opened
from dr_ctl.application.lost_site import ending_holder, lost_pairs, not_read, without_rights
from dr_ctl.application.recovery_options import Interrupted, Way, open_run_findings
from dr_ctl.application.result import Result
from dr_ctl.application.verdicts import Judge
from dr_ctl.core.document import MOMENT, key
from dr_ctl.core.errors import Between, LoginRefused, Throttled
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, Role, Severity, some
from dr_ctl.engine.debts import DebtKind, lost_alone
from dr_ctl.engine.notes import Notes
from dr_ctl.engine.operations import FAILOVER, FENCE, UNFENCE
from dr_ctl.engine.parts import by_site, is_split, served_where, unserved
from dr_ctl.engine.ports import UnitSnapshot
from dr_ctl.engine.roles import both_open, renamed_sites, stand, stand_of
from dr_ctl.engine.roles import silent as no_answer
from dr_ctl.rpo.bounds.result import IF_LOST, Bounds
from dr_ctl.topologies.topology import (
    BrokerSnapshot,
    LinkSnapshot,
    Snapshot,
    WorkloadSnapshot,
    keeps_one_store,
    workloads_of,
)


@dataclass(frozen=True, slots=True)
class SiteAtWork:
    """Who is connected to a site, and what comes in and is consumed there. None: not known."""

    role: Role
    clients: int | None = field(metadata=key(description="connections at the clients' listeners"))
    in_per_s: float | None = field(metadata=key(digits=1))
    consumed_per_s: float | None = field(metadata=key(digits=1))


@dataclass(frozen=True, slots=True)
class StatusData:
    """Of `status`."""

    sites: Mapping[str, SiteAtWork]
    pairs: Sequence[UnitSnapshot]
    links: Sequence[LinkSnapshot]
    workloads: Sequence[WorkloadSnapshot]
    open_run: str | None
    ways_out: Sequence[Way]
    last_served: str | None = field(metadata=MOMENT)
    last_look: datetime | None = field(metadata=key(description="of the monitor"))
    locks: Sequence[lock.HeldLock]
    estimate: Json = field(
        metadata=key(
            shape=dict[str, Any] | None,
            description="`made_at`, `age_s`, and the data of `rpo estimate` as the version made it that stored it",
        )
    )
    bounds: Bounds | None = field(metadata=key(description=IF_LOST))


@dataclass(frozen=True, slots=True)
class Status:
    """The observation for people, beside the result that scripts read; `estimate` are the lines on what would be lost,
    `serves` the units of each site, where a unit can move without the others."""

    result: Result
    snapshot: Snapshot
    links: Sequence[LinkSnapshot]
    estimate: str
    down: Mapping[tuple[str, str], lost_site.Since] = field(default_factory=dict)
    serves: Mapping[str, Sequence[str]] = field(default_factory=dict)


def status(caller: Caller, looked: Looking) -> Status:
    """Tell what two looks saw, so that rates are known."""
    opened = Opened(looked.installation, looked.topology, caller.clock, Notes(caller.state()))
    snapshot = looked.snapshot.result()
    links = snapshot.links()
    judge = Judge.of(caller, opened, snapshot, links)
    run, site = judge.open_run, judge.served_by
    interrupted = Interrupted.of(run) if run is not None and not run.lives else None
    serving = [site for site, role in snapshot.roles.items() if role is Role.SERVING]
    last_look = lost_site.last_look(opened.installation)
    findings = [
        *filter(None, [renamed_sites(snapshot)]),
        *_open_again(snapshot, interrupted),
        *snapshot.findings(),
        *silent(snapshot),
        *opened.unverified(),
        *of_agent(opened, snapshot),
        *open_run_findings(run, snapshot, links),
        *lock.holders(snapshot, run.files.name if run is not None and not run.lives else None),
        *_pauses(snapshot),
        *not_one(judge),
        *lost_site.unwatched(opened.installation, last_look, caller.clock.now()),
    ]
    estimated, line, stale = with_age(opened.installation, site) if site is not None else (None, "", [])
    priced = None if is_split(snapshot) else site
    unsure = [stand_of(snapshot, site) for site, role in snapshot.roles.items() if role in (Role.UNKNOWN, Role.SICK)]
    out = None if serving else lost_site.unserved(opened.installation, caller.runs(), sure=not unsure)
    down = lost_site.links(opened.installation, snapshot, links)
    if priced is not None:
        away = [since for (of, _), since in down.items() if of == priced]
        head = verdicts.headline(judge, priced, away, caller.clock.now())
        # What was usual while all was well says nothing of now.
        line, stale = (head, []) if away else ("\n".join(filter(None, (head, line))), stale)
        findings += verdicts.differing(opened, snapshot, priced, judge.if_lost(priced).differ())
    data = StatusData(
        sites={name: _at_work(snapshot, name, role) for name, role in snapshot.roles.items()},
        pairs=snapshot.units,
        links=[
            link if silence is None else replace(link, more={**link.more, "last_attached": silence.at})
            for link in links
            for silence in [down.get((link.site, link.pair))]
        ],
        workloads=workloads_of(snapshot),
        open_run=run.files.name if run is not None else None,
        ways_out=interrupted.ways(snapshot, links) if interrupted is not None else (),
        last_served=out.at if out is not None else None,
        last_look=last_look.at,
        locks=lock.shown(snapshot),
        estimate=estimated,
        bounds=judge.if_lost(priced).now() if priced is not None else None,
    )
    if all(each.silent is not None or not each.listeners for each in snapshot.brokers):
        answered = any(isinstance(each.silent, LoginRefused | Throttled) for each in snapshot.brokers)
        summary = "both sites were asked, and none let dr-ctl look" if answered else "no site answered"
        code = ExitCode.UNKNOWN
    elif site is not None:
        summary, code = f"{site} serves", ExitCode.OK
    elif is_split(snapshot):
        summary, code = f"both sites serve: {served_where(snapshot)}", ExitCode.OK
    else:
        nobody_serves = f"no site was seen to serve: {', '.join(unsure)}" if unsure else "no site serves"
        summary, code = "split brain: both sites let clients in" if serving else nobody_serves, ExitCode.OK
    debts = owed_now(caller, snapshot)
    serves = by_site(snapshot.units) if opened.topology.recipe.moves_parts else {}
    result = Result(code, summary, [*findings, *stale, *debts.findings], data, debts=debts.debts)
    return Status(result, snapshot, links, "\n".join(filter(None, (out.text if out else "", line))), down, serves)


def _at_work(snapshot: Snapshot, site: str, role: Role) -> SiteAtWork:
    brokers = [each for each in snapshot.brokers if each.site == site]
    clients = [each.clients for each in brokers]
    traffic = [each.traffic for each in brokers]
    come, go = (None if None in traffic else sum(each[at] for each in traffic if each is not None) for at in (0, 1))
    return SiteAtWork(role, None if None in clients else sum(each or 0 for each in clients), come, go)


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
        both = " and ".join(snapshot.roles)
        if run is not None:
            yield found("DR-ROLE-015.under_way" if run.lives else "DR-ROLE-015.open_run", sites=both)
        else:
            yield found("DR-ROLE-015", sites=both, ways=_opens_one(judge))
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


def _opens_one(judge: Judge) -> str:
    """The commands that open one of two closed sites, as far as each would be taken now."""
    snapshot, (first, second) = judge.snapshot, judge.snapshot.roles
    away = lost_alone(snapshot.debts)
    if snapshot.debts and away is None:
        return (
            "Each was lost once: `dr-ctl failover --to SITE` opens one, at its price; `dr-ctl history` says which of "
            "them served last. Then `dr-ctl reinstate SITE` of the other."
        )
    answering = {each.site for each in snapshot.brokers if each.listeners}
    closed = [
        site
        for site, other in ((first, second), (second, first))
        if site != away and site in answering and judge.verdict(UNFENCE, other).code is ExitCode.OK
    ]
    if closed:
        last = ", of the one that served last" if len(closed) > 1 else ""
        last = f": {away} was lost before" if away is not None else last
        return f"{' or '.join(f'`dr-ctl unfence {site}`' for site in closed)} lets clients in there again{last}."
    if away is not None:
        site = second if away == first else first
        return f"`dr-ctl failover --to {site}`, at its price: {away} was lost before. Then `dr-ctl reinstate {away}`."
    return "`dr-ctl activate SITE` opens one; without a receipt only where nothing is under way between them."


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
