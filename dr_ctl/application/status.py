"""Reports the present state, and changes nothing: `status` in full, with serving sites, messages under way, open runs
and the command to type; `check` within a time limit as a plugin of monitoring systems, in one line and exit codes 0 to
3."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from dr_ctl.application import lock, lost_site, rehearsing, verdicts
from dr_ctl.application.caller import Caller
from dr_ctl.application.diagnosis import diagnose, paged, split_brain
from dr_ctl.application.estimates import objectives, with_age
from dr_ctl.application.installation import OpenInstallation
from dr_ctl.application.maintenance import Maintenance
from dr_ctl.application.recovery_options import RecoveryOption
from dr_ctl.application.result import Result, of_error
from dr_ctl.application.standing import pending_debts
from dr_ctl.application.verdicts import Assessment
from dr_ctl.core.document import MOMENT, key, optional
from dr_ctl.core.errors import DrCtlError, LoginRefused, Throttled
from dr_ctl.core.model import ExitCode, Finding, Health, Role, brief, total
from dr_ctl.core.notation import duration
from dr_ctl.core.system import system
from dr_ctl.engine.ports import UnitSnapshot
from dr_ctl.engine.roles import by_site, role_text, served_where, sites_serving, units_divided
from dr_ctl.rpo.bounds.result import IF_LOST, Bounds
from dr_ctl.rpo.estimate.request import AgedEstimate
from dr_ctl.rpo.history.row import Takeover
from dr_ctl.topologies.registry import Snapshot
from dr_ctl.topologies.topology import LinkSnapshot, NodeReading, WorkloadSnapshot


@dataclass(frozen=True, slots=True)
class SiteAtWork:
    """The clients of a site, and the rates of messages that are added and consumed; None if unknown."""

    role: Role
    clients: int | None = field(metadata=key(description="connections at the clients' listeners"))
    in_per_s: float | None = field(metadata=key(digits=1))
    consumed_per_s: float | None = field(metadata=key(digits=1))
    last_message: datetime | None = field(
        default=None,
        metadata=key(description="this reading, else the monitor's last sample, that saw one come in or be consumed"),
    )


@dataclass(frozen=True, slots=True)
class StatusData:
    sites: Mapping[str, SiteAtWork]
    nodes: Mapping[str, Sequence[NodeReading]] = field(metadata=key(description="of each broker that has several"))
    pairs: Sequence[UnitSnapshot]
    links: Sequence[LinkSnapshot]
    workloads: Sequence[WorkloadSnapshot]
    open_run: str | None
    ways_out: Sequence[RecoveryOption]
    last_served: str | None = field(metadata=MOMENT)
    last_sample: datetime | None = field(metadata=key(description="of the monitor"))
    locks: Sequence[lock.HeldLock]
    estimate: AgedEstimate | None
    bounds: Bounds | None = field(metadata=key(description=IF_LOST))
    takeovers: Sequence[Takeover] = field(metadata=key(description="the last of each broker within a day, as recorded"))
    maintenance: Maintenance | None = optional()


@dataclass(frozen=True, slots=True)
class Status:
    """The observation for people, and the result for scripts; `estimate` has the lines on a loss, `serves` the units of
    each site, if a unit can move without the others."""

    result: Result
    snapshot: Snapshot
    links: Sequence[LinkSnapshot]
    estimate: str
    down: Mapping[tuple[str, str], lost_site.OutageStart] = field(default_factory=dict)
    serves: Mapping[str, Sequence[str]] = field(default_factory=dict)
    takeovers: Mapping[tuple[str, str], Takeover] = field(default_factory=dict)


def status(caller: Caller, opened: OpenInstallation, snapshot: Snapshot) -> Status:
    links = snapshot.links()
    assessment = Assessment.of(opened, snapshot, links)
    run, site, interrupted = assessment.open_run, assessment.served_by, assessment.interrupted
    now, serving = system().now(), sites_serving(snapshot)
    last_sample = lost_site.last_sample(opened.installation)
    findings = diagnose(assessment, last_sample, now)
    estimated, line, stale = with_age(opened.installation, site) if site is not None else (None, "", [])
    exposed = None if units_divided(snapshot) else site
    bounds = assessment.if_lost(exposed).now() if exposed is not None else None
    unsure = [role_text(snapshot, site) for site, role in snapshot.roles.items() if role in (Role.UNKNOWN, Role.SICK)]
    out = None if serving or units_divided(snapshot) else lost_site.outage_start(opened.installation, caller.runs())
    down = lost_site.links(opened.installation, snapshot, links)
    if exposed is not None:
        away = [since for (of, _), since in down.items() if of == exposed]
        head = verdicts.headline(assessment, exposed, away, now)
        # While a link is down, the estimate is no measure of the present.
        line, stale = (head, []) if away else ("\n".join(filter(None, (head, line))), stale)
        findings += verdicts.differing(opened, snapshot, exposed, assessment.if_lost(exposed).differ())
    takeovers = lost_site.last_takeovers(opened.installation, snapshot, now)
    data = StatusData(
        sites={
            name: _at_work(snapshot, name, role, bounds if name == exposed else None, now)
            for name, role in snapshot.roles.items()
        },
        nodes={f"{broker.site}/{broker.pair}": broker.nodes for broker in snapshot.brokers if broker.nodes},
        pairs=snapshot.units,
        links=[
            link if silence is None else replace(link, more={**link.more, "last_attached": silence.at})
            for link in links
            for silence in [down.get((link.site, link.pair))]
        ],
        workloads=snapshot.workloads,
        open_run=run.files.name if run is not None else None,
        ways_out=interrupted.options(snapshot, links) if interrupted is not None else (),
        last_served=out.at if out is not None else None,
        last_sample=last_sample.at,
        locks=lock.shown(snapshot),
        estimate=estimated,
        bounds=bounds,
        takeovers=[*takeovers.values()],
        maintenance=assessment.maintenance,
    )
    if all(broker.silent is not None or not broker.listeners for broker in snapshot.brokers):
        answered = any(isinstance(broker.silent, LoginRefused | Throttled) for broker in snapshot.brokers)
        summary = "both sites refused to be read" if answered else "no site answered"
        code = ExitCode.UNKNOWN
    elif site is not None:
        summary, code = f"{site} serves", ExitCode.OK
        if lost_site.keeps_roles_out(snapshot, site):
            summary = f"clients can connect at {site}; its lasting fence keeps their roles out"
        summary = split_brain(findings) or summary
    elif units_divided(snapshot):
        summary, code = f"both sites serve: {served_where(snapshot)}", ExitCode.OK
    else:
        nobody_serves = f"no site was seen serving: {', '.join(unsure)}" if unsure else "no site serves"
        summary, code = "split brain: both sites let clients in" if serving else nobody_serves, ExitCode.OK
    summary = f"{summary}; {out.text}" if out is not None else summary
    if (fenced := lost_site.site_behind_rights(snapshot)) is not None:
        summary = f"split brain: clients can connect at both sites; the lasting fence of {fenced} keeps its roles out"
        if lost_site.serves_no_role(snapshot, fenced):
            summary = f"{opened.other(fenced)} serves; at {fenced} listeners are open, and no role may do anything"
    if split := [f"{broker.site}/{broker.pair}" for broker in snapshot.brokers if broker.is_split]:
        summary = f"split brain: two nodes of {brief(split)} are active; {summary}"
    debts, more = pending_debts(caller, snapshot)
    serves = by_site(snapshot.units) if opened.topology.recipe.moves_parts else {}
    result = Result(code, summary, [*findings, *stale, *more], data, debts=debts)
    return Status(result, snapshot, links, line, down, serves, takeovers)


def _at_work(snapshot: Snapshot, site: str, role: Role, bounds: Bounds | None, now: datetime) -> SiteAtWork:
    brokers = snapshot.brokers_at(site)
    traffic = [broker.traffic for broker in brokers]
    added, consumed = (
        None if None in traffic else sum(rates[at] for rates in traffic if rates is not None) for at in (0, 1)
    )
    last = now if role is Role.SERVING and (added or consumed) else bounds.last_message if bounds is not None else None
    return SiteAtWork(role, total(broker.clients for broker in brokers), added, consumed, last)


@dataclass(frozen=True, slots=True)
class SiteRole:
    role: Role


MAX_PROBLEMS: Final = 3  # in the line, each with its first clause: a pager shows no more


@dataclass(frozen=True, slots=True)
class CheckData:
    sites: Mapping[str, SiteRole]
    pairs: Sequence[UnitSnapshot]
    problems: Sequence[Finding]
    open_run: str | None
    newest_sample_age_s: float | None
    rehearsed_at: datetime | None
    bounds: Bounds | None
    maintenance: Maintenance | None = optional()


def check(caller: Caller, within_s: float) -> Result:
    """Judge one reading of both sites; a site that could not be read is unknown, never OK."""
    try:
        with OpenInstallation.of(caller) as opened:
            for site in opened.sites:
                opened.topology.spend_at_most(within_s * 0.6, site)  # the rest is for the history
            snapshot: Snapshot = opened.topology.observe()
            return _judged(caller, opened, snapshot)
    except DrCtlError as error:
        return unknown(error)


def unknown(error: DrCtlError) -> Result:
    text = f"UNKNOWN - {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    return Result(ExitCode.UNKNOWN, text, of_error(error).findings, health=Health.UNKNOWN)


def _judged(caller: Caller, opened: OpenInstallation, snapshot: Snapshot) -> Result:
    now, debts = system().now(), pending_debts(caller, snapshot).debts
    assessment = Assessment.of(opened, snapshot, snapshot.links())
    last_sample = lost_site.last_sample(opened.installation)
    problems = paged(assessment, debts, last_sample, now)
    health = problems[0].page or Health.OK if problems else Health.OK
    site, run = assessment.served_by, assessment.open_run
    exposed = site if site is not None else lost_site.down_beside_standby(snapshot)
    bounds = assessment.if_lost(exposed).now() if exposed is not None else None
    sampled_at = last_sample.at if site is not None else None
    sample_s = None if sampled_at is None else max(0.0, (now - sampled_at).total_seconds())
    rehearsed = rehearsing.last(opened.runs)
    days = None if rehearsed is None else (now - rehearsed).days
    serves = site if site and not (lost_site.keeps_roles_out(snapshot, site) or split_brain(problems)) else None
    texts = [
        assessment.maintenance.text if assessment.maintenance is not None else "",
        f"{serves} serves" if serves is not None else "",
        f"both sites serve: {served_where(snapshot)}" if units_divided(snapshot) else "",
        *(problem.text.partition("; ")[0] for problem in problems[:MAX_PROBLEMS]),
        f"{len(problems) - MAX_PROBLEMS} more by `dr-ctl status`" if len(problems) > MAX_PROBLEMS else "",
        "failover ready" if site is not None and not problems else "",
        f"newest sample {duration(round(sample_s, 1))} old"
        if sample_s is not None and sample_s <= lost_site.LATE_S
        else "",
        "" if days is None else f"rehearsed {days} d ago" if days else "rehearsed today",
    ]
    sites = {name: SiteRole(role) for name, role in snapshot.roles.items()}
    name = run.files.name if run is not None else None
    data = CheckData(sites, snapshot.units, problems, name, sample_s, rehearsed, bounds, assessment.maintenance)
    code = ExitCode.OK if health is Health.OK else ExitCode.UNKNOWN
    line = f"{health.name} - {'; '.join(filter(None, texts))}"
    return Result(code, line, problems, data, debts=debts, health=health, text=_figures(opened, snapshot, bounds))


def _figures(opened: OpenInstallation, snapshot: Snapshot, bounds: Bounds | None) -> str:
    """Write the performance data of a monitoring plugin, with U for unknown."""
    limits = objectives(opened.installation)
    brokers = [broker for broker in snapshot.brokers if broker.role is Role.SERVING]
    lost, duplicates = (None, None) if bounds is None else (bounds.lost.at_most, bounds.duplicates.at_most)
    rows = {
        "loss_bound": (lost, limits.loss.messages if limits else None),
        "duplicates_bound": (duplicates, limits.duplicates if limits else None),
        "outflow": (total(broker.to_ship for broker in brokers) if brokers else None, None),
        "clients": (total(broker.clients for broker in brokers) if brokers else None, None),
    }
    return " ".join(
        f"{name}={'U' if value is None else value};{'' if limit is None else limit};;0"
        for name, (value, limit) in rows.items()
    )
