"""Findings about workloads by themselves. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role, Severity
from dr_ctl.core.notation import if_known
from dr_ctl.topologies.topology import PartState, WorkloadSnapshot


def as_they_are(roles: Mapping[str, Role], workloads: Sequence[WorkloadSnapshot]) -> Iterator[Finding]:
    yield from twice(workloads)
    for workload in workloads:
        yield from (unread(workload, Severity.WARNING),) if workload.runs is None else misplaced(workload, roles)


def twice(workloads: Sequence[WorkloadSnapshot], severity: Severity = Severity.ERROR) -> Iterator[Finding]:
    """The singletons that run at both sites."""
    where: dict[str, list[str]] = {}
    for workload in workloads:
        if workload.singleton and workload.runs:
            where.setdefault(workload.name, []).append(workload.site)
    for name, sites in where.items():
        if len(sites) > 1:
            yield found("DR-WORK-001", name=name, sites=" and ".join(sites), severity=severity)


def unread(workload: WorkloadSnapshot, severity: Severity) -> Finding:
    return found(
        "DR-WORK-002", name=workload.name, site=workload.site, silent=if_known(workload.silent), severity=severity
    )


def misplaced(workload: WorkloadSnapshot, roles: Mapping[str, Role]) -> Iterator[Finding]:
    """Say that a workload runs where no site serves, or does not run where all clients are. A workload for a site
    that serves alone runs in between, and both sites may see its effect."""
    serving = [site for site, role in roles.items() if role is Role.SERVING]
    if workload.alone or len(serving) != 1:
        return
    if workload.site not in serving and workload.runs:
        yield found("DR-WORK-005", name=workload.name, site=workload.site)
    elif workload.site in serving and workload.state != PartState.RUNNING.value:
        yield found(
            "DR-WORK-006", state=workload.state, site=workload.site, name=workload.name, starting=starting(workload)
        )


def starting(workload: WorkloadSnapshot) -> str:
    return f"Where both sites answer, `dr-ctl unfence {workload.site}` starts it; else start it there by hand."
