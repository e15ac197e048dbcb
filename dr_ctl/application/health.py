"""`check`, for machines: one line and 0, 1, 2 or 3, as monitoring systems read them, within a time limit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dr_ctl.application import lost_site, rehearsing
from dr_ctl.application.caller import Caller
from dr_ctl.application.diagnosis import paged, split_brain
from dr_ctl.application.estimates import objectives
from dr_ctl.application.installation import Opened
from dr_ctl.application.maintenance import Maintenance
from dr_ctl.application.result import Result, of_error
from dr_ctl.application.standing import pending_debts
from dr_ctl.application.verdicts import Assessment
from dr_ctl.core.document import optional
from dr_ctl.core.errors import DrCtlError
from dr_ctl.core.model import ExitCode, Finding, Health, Role, total
from dr_ctl.core.notation import duration
from dr_ctl.core.system import system
from dr_ctl.engine.ports import UnitSnapshot
from dr_ctl.engine.roles import served_where, units_divided
from dr_ctl.rpo.bounds.result import Bounds
from dr_ctl.topologies.registry import Snapshot


@dataclass(frozen=True, slots=True)
class SiteRole:
    role: Role


NAMED: Final = 3  # the line has so many problems, the worst first: a pager shows no more


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
    """Judge one reading of both sites; a site that could not be asked is unknown, never well."""
    try:
        with Opened.of(caller) as opened:
            for site in opened.sites:
                opened.topology.spend_at_most(within_s * 0.6, site)  # history is read in the rest
            snapshot: Snapshot = opened.topology.observe()
            return _judged(caller, opened, snapshot)
    except DrCtlError as error:
        return unknown(error)


def unknown(error: DrCtlError) -> Result:
    text = f"UNKNOWN - {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    return Result(ExitCode.UNKNOWN, text, of_error(error).findings, health=Health.UNKNOWN)


def _judged(caller: Caller, opened: Opened, snapshot: Snapshot) -> Result:
    now, debts = system().now(), pending_debts(caller, snapshot).debts
    assessment = Assessment.of(opened, snapshot, snapshot.links())
    problems = paged(assessment, debts, lost_site.last_sample(opened.installation), now)
    health = problems[0].page or Health.OK if problems else Health.OK
    site, run = assessment.served_by, assessment.open_run
    bounds = assessment.if_lost(site).now() if site is not None else None
    read_at = bounds.lost.read_at if bounds is not None else None
    sample_s = (now - read_at).total_seconds() if read_at is not None else None
    rehearsed = rehearsing.last(opened.runs)
    days = None if rehearsed is None else (now - rehearsed).days
    serves = site if site and not (lost_site.keeps_roles_out(snapshot, site) or split_brain(problems)) else None
    texts = [
        assessment.maintenance.text if assessment.maintenance is not None else "",
        f"{serves} serves" if serves is not None else "",
        f"both sites serve: {served_where(snapshot)}" if units_divided(snapshot) else "",
        *(problem.text for problem in problems[:NAMED]),
        f"{len(problems) - NAMED} more by `dr-ctl status`" if len(problems) > NAMED else "",
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


def _figures(opened: Opened, snapshot: Snapshot, bounds: Bounds | None) -> str:
    """Write the performance data of a monitoring plugin, where U is not known."""
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
