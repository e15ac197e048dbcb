"""`validate` lists the obstacles to each operation, with --offline only those in the settings; `verify` tests the gate
now. Both change nothing."""

import os
import shutil
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from dr_ctl.application import lock, lost_site, rehearsing
from dr_ctl.application.caller import Caller
from dr_ctl.application.diagnosis import open_again, serving_problems, silent, silent_of
from dr_ctl.application.estimates import with_age
from dr_ctl.application.installation import OpenInstallation, addresses, folder, shared_addresses, unverified_at
from dr_ctl.application.lost_site import lost_pairs, not_read
from dr_ctl.application.plans import why_no_approval
from dr_ctl.application.recovery_options import open_run_findings
from dr_ctl.application.request import Request
from dr_ctl.application.result import Group, Result, counted
from dr_ctl.application.verdicts import Assessment, Verdict, default_target
from dr_ctl.core import machine
from dr_ctl.core.document import key, optional
from dr_ctl.core.errors import BrokerError, UsageError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, Role, Severity, brief, by_key
from dr_ctl.core.system import system
from dr_ctl.engine import runbook
from dr_ctl.engine.debts import only_lost_site
from dr_ctl.engine.operations import ALL, HOOK, SWAPOVER, VERIFY
from dr_ctl.engine.plan import PlannedStep, Spec
from dr_ctl.engine.ports import Check, Done, Move, StepContext, UnitSnapshot, Unknown
from dr_ctl.engine.roles import part_of, roles_text, served_where, sites_serving, units_divided, unserved, with_queues
from dr_ctl.rpo.bounds.result import IF_LOST, Bounds
from dr_ctl.settings import model
from dr_ctl.settings.model import Installation
from dr_ctl.topologies.registry import Snapshot

VERIFY_S = 5.0
_UNANSWERED = (Role.UNKNOWN, Role.SICK, Role.DOWN)
SETTINGS: Final = "settings"  # the place of a check of the settings
_ORDER: Final = (Severity.ERROR, Severity.WARNING, Severity.INFO)


@dataclass(frozen=True, slots=True)
class ValidateData:
    operations: Mapping[str, Verdict]
    pairs: Sequence[UnitSnapshot]
    fence: Mapping[str, str | None] = field(metadata=key(description="by site: how strong a fence can be there"))
    last_sample: datetime | None
    rehearsed_at: datetime | None
    bounds: Bounds | None = field(metadata=key(description=IF_LOST))
    checks: Sequence[Check] | None = optional("with --verbose")


@dataclass(frozen=True, slots=True)
class OfflineData:
    settings: Path
    topology: str
    checks: Sequence[Check]


@dataclass(frozen=True, slots=True)
class VerifyData:
    pairs: Sequence[UnitSnapshot]
    gate: Mapping[str, Json] | None = optional("`text`, and by pair what was compared")


def validate(caller: Caller, operation: str | None, to: str | None = None, *, verbose: bool = False) -> Result:
    """Report all findings once, then the verdict on each operation; `verbose` lists every check."""
    if operation is not None and operation not in ALL:
        raise UsageError(f"unknown operation {operation}", remedy=f"This version knows {', '.join(ALL)}.")
    with OpenInstallation.of(caller) as opened:
        opened.installation.must_know(to)
        snapshot: Snapshot = opened.topology.observe()
        began = system().monotonic()
        links = opened.topology.read(over_s=caller.timeouts.rates_s).links()
        assessment = Assessment.of(opened, snapshot, links)
        verdicts = [
            assessment.verdict(name, to or default_target(snapshot, name))
            for name in ([operation] if operation else ALL)
        ]
        forbidden = lock.forbidden(opened, snapshot)
        target = to or default_target(snapshot, SWAPOVER) or next(iter(snapshot.roles))
        move = Move(Spec(SWAPOVER, target), opened.other(target), {})
        checks = [*_installed(assessment, forbidden), *opened.topology.recipe.checks(snapshot, move)]
        last = lost_site.last_sample(opened.installation)
        # If only this machine cannot read a site, nobody has to accept a loss.
        is_unread = any(role is Role.UNKNOWN and not_read(snapshot, site) for site, role in snapshot.roles.items())
        own = [
            *([assessment.maintenance.finding] if assessment.maintenance is not None else []),
            *_findings(assessment, verdicts, forbidden, move),
            *(verdict.acceptance for verdict in verdicts if verdict.acceptance is not None and not is_unread),
            *(finding for check in checks if check.where == SETTINGS for finding in check.found),
            *_without_login(opened, snapshot),
            *_unprepared(assessment, last, system().now()),
        ]
        findings = list(dict.fromkeys(own))
    age_s = system().monotonic() - began
    data = ValidateData(
        operations={verdict.operation: verdict for verdict in verdicts},
        pairs=snapshot.units,
        fence={site: snapshot.fence_strength(site) for site in snapshot.roles},
        last_sample=last.at,
        rehearsed_at=rehearsing.last(caller.runs()),
        bounds=assessment.if_lost(assessment.served_by).now() if assessment.served_by is not None else None,
        checks=[check.aged(age_s) for check in checks] if verbose else None,
    )
    lines = [verdict.line for verdict in verdicts]
    groups = grouped(opened.installation, findings, checks, verdicts, verbose=verbose)
    groups = [replace(group, findings=_since_the_loss(snapshot, group.findings)) for group in groups]
    findings = _since_the_loss(snapshot, findings)
    return Result(verdicts[0].code, "; ".join(lines), findings, data, closing="\n".join(lines), groups=groups)


def _since_the_loss(snapshot: Snapshot, findings: Sequence[Finding]) -> list[Finding]:
    """Lower the severity of errors that are expected after a failover, while the lost site is silent."""
    lost = only_lost_site(snapshot.debts)
    if lost is None or sites_serving(snapshot) in ([], [lost]):
        return [*findings]
    expected = {"DR-SITE-001": Severity.WARNING, "DR-ROLE-004": Severity.INFO, "DR-RETURN-008": Severity.INFO}
    errors = {row for row in findings if row.id in expected and lost in row.text and row.severity is Severity.ERROR}
    return [replace(row, severity=expected[row.id]) if row in errors else row for row in findings]


def _unprepared(assessment: Assessment, last: lost_site.LastSample, now: datetime) -> Iterator[Finding]:
    """Report missing preparations for a loss of the serving site: no monitor runs, or no fresh estimate is stored."""
    yield from lost_site.never_watched(last)
    yield from lost_site.unwatched(assessment.opened.installation, last, now)
    if assessment.served_by is None or last.at is None:
        return
    estimate, _, findings = with_age(assessment.opened.installation, assessment.served_by)
    yield from findings
    if estimate is None and not findings and (lacking := machine.missing("pyspark")) is not None:
        yield found("DR-PART-002", remedy=lacking.remedy)
    elif estimate is None and not findings:
        yield found("DR-RPO-040", site=assessment.served_by)


def _without_login(opened: OpenInstallation, snapshot: Snapshot) -> Iterator[Finding]:
    """Report sites that serve by their flags but accept no test login, so that a failure would not be seen."""
    for site in sites_serving(snapshot):
        try:
            why = opened.topology.why_not_so(site, serving=True)
        except BrokerError as error:
            why = str(error)
        if why is not None:
            yield found("DR-DOOR-010", site=site, why=why)


def _findings(
    assessment: Assessment, verdicts: Sequence[Verdict], forbidden: Mapping[tuple[str, str], Finding], move: Move
) -> list[Finding]:
    """Return the obstacles to the operations, with those of the brokers even if the roles already refuse a move."""
    snapshot, recipe = assessment.snapshot, assessment.opened.topology.recipe
    findings = open_run_findings(assessment.open_run, snapshot, assessment.links)
    if len(verdicts) == 1 and verdicts[0].findings and verdicts[0].operation != SWAPOVER:
        return [*findings, *verdicts[0].findings]
    if assessment.open_run is None:
        findings += [*unserved(snapshot, by_unit=recipe.moves_parts), *lost_pairs(snapshot)]
    findings += Request(move.spec, assessment.opened).decide(snapshot).findings
    return [*findings, *recipe.why_not(snapshot, move), *forbidden.values()]


def verify(caller: Caller, asked: Spec) -> Result:
    """Test all conditions of the gate over its window, without a run. An open listener is reported at once."""
    with OpenInstallation.of(caller) as opened:
        if not asked.target:
            asked = replace(asked, target=_waiting_site(opened.topology.observe()))
        request = Request.of(asked, opened)
        snapshot = request.read()
        asked = request.narrowed(snapshot).spec
        roles = roles_text(part_of(snapshot, asked))
        data = VerifyData(snapshot.units)
        if any(role in _UNANSWERED for role in snapshot.roles.values()):
            return Result(ExitCode.UNKNOWN, f"the gate cannot be checked: {roles}", silent(snapshot), data)
        if any(role is Role.SERVING for role in part_of(snapshot, asked).roles.values()):
            return _nothing_to_verify(opened, snapshot, asked, data)
        limits = {"within": asked.timeout_s or VERIFY_S, "stable": float(opened.installation.settings.drain.stable)}
        step = PlannedStep(1, VERIFY, asked.target, "all conditions of the gate", limits=limits)
        context = StepContext(caller.listener())
        outcome = opened.topology.driver().apply(step, Move(asked, opened.other(asked.target), {}), context)
    data = replace(data, gate={"text": outcome.text, **outcome.evidence})
    if isinstance(outcome, Unknown):
        return Result(ExitCode.UNKNOWN, outcome.text, outcome.findings, data)
    code = ExitCode.OK if isinstance(outcome, Done) else ExitCode.PRECHECK_FAILED
    return Result(code, outcome.text, outcome.findings, data)


def _waiting_site(snapshot: Snapshot) -> str:
    target = default_target(snapshot, SWAPOVER)
    if target is None or not (sites_serving(snapshot) or [*snapshot.roles.values()].count(Role.STANDBY) == 1):
        raise UsageError(f"{roles_text(snapshot)}: which site is the target?", remedy="Name it: --to SITE.")
    return target


def _nothing_to_verify(opened: OpenInstallation, snapshot: Snapshot, asked: Spec, data: VerifyData) -> Result:
    """Answer while a site serves: the gate need not hold then, because a swapover closes the site first."""
    part, named = part_of(snapshot, asked), "" if asked.units is None else f" {brief(asked.units)}"
    if part.roles[asked.target] is Role.SERVING and list(part.roles.values()).count(Role.SERVING) == 1:
        return Result(ExitCode.OK, f"{asked.target} serves{named}; there is nothing to verify", (), data)
    if opened.topology.recipe.moves_parts and units_divided(snapshot):
        moved = found("DR-VERIFY-001.as_moved", target=asked.target, units=served_where(part))
        return Result.of(ExitCode.PRECHECK_FAILED, *with_queues([moved], asked), data=data)
    if all(role is Role.SERVING for role in snapshot.roles.values()):
        assessment = Assessment.of(opened, snapshot, snapshot.links())
        return Result.of(ExitCode.PRECHECK_FAILED, *open_again(assessment), *serving_problems(assessment), data=data)
    away = [link.site for link in snapshot.links() if link.attached is False][:1]
    first = "".join(f"The link of {site} first: {opened.link_advice(site)} " for site in away)
    is_open = found("DR-VERIFY-001.open", roles=roles_text(snapshot), first=first, target=asked.target)
    return Result.of(ExitCode.PRECHECK_FAILED, is_open, data=data)


def grouped(
    installation: Installation,
    findings: Sequence[Finding],
    checks: Sequence[Check],
    verdicts: Sequence[Verdict],
    *,
    verbose: bool,
) -> list[Group]:
    """Group findings by their check, else by the operation that they refuse, else as the installation's."""
    of_check = {finding: check.where for check in checks for finding in check.found}
    of_operation = {
        finding: verdict.title for verdict in reversed(verdicts) for finding in (*verdict.findings, verdict.acceptance)
    }
    own = installation.settings.name
    places = [of_check.get(finding) or of_operation.get(finding) or own for finding in findings]
    titles = [own, *sorted({*places, *(check.where for check in checks)} - {own}, key=_rank(installation))]
    return [
        Group(
            f"installation {title}" if title == own else title,
            sorted(
                (finding for finding, place in zip(findings, places, strict=True) if place == title),
                key=lambda finding: _ORDER.index(finding.severity),
            ),
            [check for check in checks if check.where == title] if verbose else (),
        )
        for title in titles
    ]


def _rank(installation: Installation) -> Callable[[str], tuple[int, str]]:
    """Make the sort key of groups: the settings, each site with its brokers, pairs, operations."""
    sites = installation.settings.sites
    pairs = {broker.name for site in sites.values() for broker in site.brokers}
    order = [SETTINGS, *sites]

    def rank(title: str) -> tuple[int, str]:
        site = title.partition("/")[0]
        return order.index(site) if site in order else len(order) + (title not in pairs), title

    return rank


def _installed(assessment: Assessment, forbidden: Mapping[tuple[str, str], Finding]) -> Iterator[Check]:
    snapshot = assessment.snapshot
    for broker in snapshot.brokers:
        read = broker.role.value if broker.silent is None else None
        yield Check("the broker answers", f"{broker.site}/{broker.pair}", read, silent_of(broker, snapshot))
    opened, run, site = assessment.opened, assessment.open_run, assessment.served_by
    name, roles = opened.installation.settings.name, roles_text(snapshot)
    known = all(role in (Role.SERVING, Role.STANDBY, Role.DOWN) for role in snapshot.roles.values())
    yield Check("the roles of both sites are known", name, roles if known else None)
    moved = opened.topology.recipe.moves_parts and units_divided(snapshot)
    who = f"each queue at one site: {served_where(snapshot)}" if moved else roles
    yield Check("one site serves", name, who if site is not None or known else None, list(serving_problems(assessment)))
    yield Check("no run is open", name, run.files.name if run else "none", open_run_findings(run))
    yield Check(
        "no run holds the lock",
        name,
        assessment.lock_holder or "nobody does",
        lock.holders(snapshot, assessment.opened.runs),
    )
    yield Check("no debt is pending", name, "; ".join(debt.text for debt in snapshot.debts) or "no debt")
    if site is not None:
        estimate, line, findings = with_age(opened.installation, site)
        yield Check("an estimate is stored, and fresh", name, line if estimate is not None else None, findings)
    for name in snapshot.roles:
        yield Check("a fence can be made", name, snapshot.fence_strength(name))
    for broker in snapshot.brokers:
        where = f"{broker.site}/{broker.pair}"
        against = [forbidden[broker.site, broker.pair]] if (broker.site, broker.pair) in forbidden else []
        answered = broker.silent is None
        yield Check("a lock can be created", where, ("no" if against else "yes") if answered else None, against)
    yield from checked(assessment.opened.installation)


def validate_offline(caller: Caller, *, verbose: bool = False) -> Result:
    """Make every check that needs no broker; the exit code is 10 if a check fails. `verbose` lists the checks."""
    installation = caller.installation()
    checks = list(checked(installation))
    findings = list(dict.fromkeys(finding for check in checks for finding in check.found))
    settings = installation.settings
    pairs = {broker.name for site in settings.sites.values() for broker in site.brokers}
    about = f"{installation.file.name}: {settings.topology}, {' and '.join(settings.sites)}, {len(pairs)} pair(s)"
    data = OfflineData(installation.file, settings.topology, [check.aged(0.0) for check in checks])
    groups = grouped(installation, findings, checks, (), verbose=verbose)
    failed = any(finding.severity is Severity.ERROR for finding in findings)
    code = ExitCode.PRECHECK_FAILED if failed else ExitCode.OK
    summary = f"{about}: {counted(findings, code)}; no broker was asked"
    return Result(code, summary, findings, data, groups=groups)


def checked(installation: Installation) -> Iterator[Check]:
    settings, file = installation.settings, installation.file
    yield Check("the settings can be read", SETTINGS, str(file))
    secrets = dict(model.secrets(settings))
    sources = brief(list(dict.fromkeys(secret.source for secret in secrets.values())))
    plain = [where for where, secret in secrets.items() if secret.plain is not None]
    against = [found("DR-SETTINGS-003", where=where, file=file.name) for where in plain]
    yield Check("no password is in the settings", SETTINGS, sources or "no password", against)
    count = f"{len(addresses(installation))} address(es)"
    yield Check("each broker has addresses of its own", SETTINGS, count, shared_addresses(installation))
    commands = [*model.commands(settings)]
    problems = ((finding, where) for where, words in commands for finding in _command(installation, words))
    programs = brief([*dict.fromkeys(words[0] for _, words in commands)])
    name = "every command that the settings name can be started"
    yield Check(name, SETTINGS, programs or "no command", _placed(problems))
    files = dict(model.files(settings))
    problems = ((finding, at) for at, path in files.items() for finding in _file(at, path, installation.path(path)))
    name = "every file that is kept with the settings is there"
    yield Check(name, SETTINGS, brief([*files.values()]) or "no file", _placed(problems))
    yield from _runbooks(installation)
    if (wanted := settings.approvals) is not None:
        what = f"{wanted.needed} of {wanted.signers}, before {', '.join(wanted.of)}"
        against = [*filter(None, [why_no_approval(installation)])]
        yield Check("signatures of plans can be verified", SETTINGS, what, against)
    for site in settings.sites:
        against = [*filter(None, [unverified_at(installation, site)])]
        yield Check("certificates are verified", site, "not verified" if against else "verified", against)


def _command(installation: Installation, words: Sequence[str]) -> Iterator[Finding]:
    """Check the program of a command, and the files among its arguments."""
    program = words[0]
    if os.sep not in program:
        if shutil.which(program) is None:
            yield found("DR-SETTINGS-002.program", program=program)
    elif not (path := installation.path(program)).is_file():
        yield _missing(program, path)
    elif not os.access(path, os.X_OK):
        yield found("DR-SETTINGS-001.not_executable", path=path)
    for word in words[1:]:
        if word.startswith(("./", "../")) and not (path := installation.path(word)).exists():
            yield found("DR-SETTINGS-002.argument", path=path)


def _placed(problems: Iterable[tuple[Finding, str]]) -> list[Finding]:
    """Return each problem once, with all its places in the settings."""
    return [replace(finding, text=f"{finding.text} ({brief(keys)})") for finding, keys in by_key(problems).items()]


def _missing(name: str, path: Path) -> Finding:
    """Report a missing file: an absolute path may exist on another machine, a relative one belongs to the settings."""
    return found("DR-SETTINGS-002.file" if Path(name).is_absolute() else "DR-SETTINGS-001.not_there", path=path)


def _file(where: str, name: str, path: Path) -> Iterator[Finding]:
    if not path.exists():
        yield _missing(name, path)
    elif where.endswith(".tls.ca"):
        try:
            ssl.create_default_context(cafile=str(path))
        except (OSError, ssl.SSLError) as error:
            yield found("DR-SETTINGS-001.not_pem", path=path, why=f"holds no certificates: {error.strerror or error}")


def _runbooks(installation: Installation) -> Iterator[Check]:
    """Check the runbooks, and that their hooks and those of the settings are the same."""
    place, hooks = folder(installation), installation.settings.hooks
    called = {name for name in hooks if name.startswith(runbook.FENCING_PREFIX)}  # the operation `fence` calls these
    if not place.exists():
        return  # the check of the files reports that
    whole = True
    for operation in runbook.ORDER:
        path = place / f"{operation}.yaml"
        book, problems = runbook.lint(path, installation.settings.order)
        against = [replace(problem, remedy=f"Fix {path}; `dr-ctl runbook lint` checks it.") for problem in problems]
        whole = whole and book is not None
        named = [(step.line, str(step.words["name"])) for step in (book.steps if book else ()) if step.verb == HOOK]
        called |= {name for _, name in named}
        against += [
            found("DR-SETTINGS-004", runbook=path.name, line=line, hook=name, file=installation.file.name)
            for line, name in named
            if name not in hooks
        ]
        steps = ", ".join(step.verb for step in book.steps) if book is not None else f"{path} cannot be read"
        yield Check(f"the runbook of {operation} can be read", SETTINGS, steps, against)
    unused = [name for name in hooks if name not in called] if whole else []
    against = [found("DR-SETTINGS-005", hook=name) for name in unused]
    yield Check("every hook is called by a runbook", SETTINGS, brief([*hooks]) or "no hook", against)
