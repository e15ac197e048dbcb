"""`validate` lists the obstacles to each operation, `verify` tests the gate now. The two only look."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from dr_ctl.application import down_since, lock, rehearsing
from dr_ctl.application.caller import Caller
from dr_ctl.application.estimates import with_age
from dr_ctl.application.grouping import SETTINGS, grouped
from dr_ctl.application.installation import Opened
from dr_ctl.application.installed import installed
from dr_ctl.application.lost_site import lost_pairs, not_read
from dr_ctl.application.recovery_options import open_run_findings
from dr_ctl.application.request import Question
from dr_ctl.application.result import Result
from dr_ctl.application.status import silent
from dr_ctl.application.verdicts import Judge, Verdict, targets
from dr_ctl.core.document import document
from dr_ctl.core.errors import BrokerError, UsageError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, Role, Severity, some
from dr_ctl.core.system import stamp
from dr_ctl.engine.ask import Ask
from dr_ctl.engine.context import Onlooker
from dr_ctl.engine.debts import lost_alone
from dr_ctl.engine.operations import ALL, SWAPOVER, VERIFY
from dr_ctl.engine.parts import in_part, is_split, part_of, served_where, unserved
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Check, Done, Move, Unknown
from dr_ctl.engine.roles import stand
from dr_ctl.topologies.topology import Snapshot

VERIFY_S = 5.0
_UNANSWERED = (Role.UNKNOWN, Role.SICK, Role.DOWN)


def validate(caller: Caller, operation: str | None, to: str | None = None, *, verbose: bool = False) -> Result:
    """All findings once, then the present answer of each operation's command; `verbose` lists every check by name."""
    if operation is not None and operation not in ALL:
        raise UsageError(f"unknown operation {operation}", remedy=f"This version knows {', '.join(ALL)}.")
    with Opened.of(caller) as opened:
        opened.must_know(to)
        snapshot: Snapshot = opened.topology.observe()
        began = caller.clock.monotonic()
        links = opened.topology.look(over_s=caller.timeouts.rates_s).links()
        judge = Judge.of(caller, opened, snapshot, links)
        verdicts = [judge.verdict(name, to or targets(snapshot, name)) for name in ([operation] if operation else ALL)]
        forbidden = lock.forbidden(opened, snapshot)
        checks = _checks(opened, snapshot, judge, forbidden, to)
        looked = down_since.last_look(opened.installation)
        findings = list(
            dict.fromkeys(
                [
                    *_findings(opened, snapshot, judge, verdicts, forbidden, to),
                    *_prices(snapshot, verdicts),
                    *(finding for check in checks if check.where == SETTINGS for finding in check.found),
                    *_unheard(opened, snapshot),
                    *_unprepared(opened, snapshot, looked, caller.clock.now()),
                ]
            )
        )
    age_s = caller.clock.monotonic() - began
    serving = [site for site, role in snapshot.roles.items() if role is Role.SERVING]
    data: dict[str, Json] = {
        "operations": {each.operation: document(each) for each in verdicts},
        "pairs": document(snapshot.units),
        "fence": {site: snapshot.fence_strength(site) for site in snapshot.roles},
        "last_look": stamp(looked.at) if looked.at is not None else None,
        "rehearsed_at": stamp(at) if (at := rehearsing.last(caller.runs())) is not None else None,
        "bounds": dict(judge.if_lost(serving[0]).bounds()) if len(serving) == 1 else None,
    }
    if verbose:
        data["checks"] = document([each.aged(age_s) for each in checks])
    lines = [each.line for each in verdicts]
    groups = [
        replace(each, findings=_since_the_loss(snapshot, each.findings))
        for each in grouped(opened.installation, findings, checks, verdicts, verbose=verbose)
    ]
    findings = _since_the_loss(snapshot, findings)
    return Result(verdicts[0].code, "; ".join(lines), findings, data, closing="\n".join(lines), groups=groups)


def _since_the_loss(snapshot: Snapshot, findings: Sequence[Finding]) -> list[Finding]:
    """The findings, of which none is an error that the failover from a lost site has made: while the other one serves
    that site is away, and no move goes there until it is taken in."""
    lost = lost_alone(snapshot.debts)
    if lost is None or [site for site, role in snapshot.roles.items() if role is Role.SERVING] in ([], [lost]):
        return [*findings]
    expected = {
        "DR-SITE-001": Severity.WARNING,
        "DR-ROLE-004": Severity.INFO,
        "DR-RETURN-008": Severity.INFO,
    }
    return [
        replace(each, severity=expected[each.id])
        if each.id in expected and lost in each.text and each.severity is Severity.ERROR
        else each
        for each in findings
    ]


def _prices(snapshot: Snapshot, verdicts: Sequence[Verdict]) -> Iterator[Finding]:
    """What somebody has to agree to; nothing where a site is only not read for a reason that lies here."""
    if not any(role is Role.UNKNOWN and not_read(snapshot, site) for site, role in snapshot.roles.items()):
        yield from (verdict.price for verdict in verdicts if verdict.price is not None)


def _unprepared(opened: Opened, snapshot: Snapshot, looked: down_since.LastLook, now: datetime) -> Iterator[Finding]:
    """What nobody would know of the loss of the serving site: no monitor looks, or its estimate is missing or old."""
    if looked.at is None and not looked.silent:
        text = "no monitor has ever looked: what a failover would cost is not known"
        yield found("DR-MON-002", text, "Let `dr-ctl monitor` run, on a machine that reaches both sites.")
    yield from down_since.unwatched(opened.installation, looked, now)
    serving = [site for site, role in snapshot.roles.items() if role is Role.SERVING]
    if len(serving) != 1 or looked.at is None:
        return
    document, _, findings = with_age(opened.installation, serving[0])
    yield from findings
    if document is None and not findings:
        yield found("DR-RPO-040", site=serving[0])


def _unheard(opened: Opened, snapshot: Snapshot) -> list[Finding]:
    """Findings for sites that serve by their flags but greet no client. A later test of such a listener cannot show
    that the site went down."""
    findings = []
    for site in [site for site, role in snapshot.roles.items() if role is Role.SERVING]:
        try:
            why = opened.topology.why_not_so(site, serving=True)
        except BrokerError as error:
            why = str(error)
        if why is not None:
            findings.append(found("DR-DOOR-010", site=site, why=why))
    return findings


def _findings(
    opened: Opened,
    snapshot: Snapshot,
    judge: Judge,
    verdicts: Sequence[Verdict],
    forbidden: Mapping[tuple[str, str], Finding],
    to: str | None,
) -> list[Finding]:
    """The obstacles to the operations, each once. The brokers' own findings are included even where the roles alone
    refuse a move."""
    findings = open_run_findings(judge.open_run, snapshot, judge.links)
    if len(verdicts) == 1 and verdicts[0].findings and verdicts[0].operation != SWAPOVER:
        return list(dict.fromkeys([*findings, *verdicts[0].findings]))
    target = to or targets(snapshot, SWAPOVER) or next(iter(snapshot.roles))
    ask = Ask(SWAPOVER, target)
    move = Move(ask, opened.other(target), {})
    findings += [
        *(() if judge.open_run is not None else unserved(snapshot, parts=opened.topology.recipe.moves_parts)),
        *(() if judge.open_run is not None else lost_pairs(snapshot)),
        *Question(ask, opened).decide(snapshot).findings,
        *opened.topology.recipe.why_not(snapshot, move),
        *forbidden.values(),
    ]
    return list(dict.fromkeys(findings))


def _checks(
    opened: Opened, snapshot: Snapshot, judge: Judge, forbidden: Mapping[tuple[str, str], Finding], to: str | None
) -> list[Check]:
    """Every named check, the installation's own first."""
    target = to or targets(snapshot, SWAPOVER) or next(iter(snapshot.roles))
    move = Move(Ask(SWAPOVER, target), opened.other(target), {})
    return [*installed(opened, snapshot, judge, forbidden), *opened.topology.recipe.checks(snapshot, move)]


def verify(caller: Caller, asked: Ask) -> Result:
    """Test the whole gate over its window, without a run. An open listener is reported at once, without waiting."""
    with Opened.of(caller) as opened:
        question = Question.of(asked, opened)
        snapshot = question.look()
        asked = question.narrowed(snapshot).ask
        roles = stand(part_of(snapshot, asked))
        data: dict[str, Json] = {"pairs": document(snapshot.units)}
        if any(role in _UNANSWERED for role in snapshot.roles.values()):
            return Result(ExitCode.UNKNOWN, f"the gate cannot be looked at: {roles}", silent(snapshot), data)
        if any(role is Role.SERVING for role in part_of(snapshot, asked).roles.values()):
            return _nothing_to_verify(opened, snapshot, asked, data)
        limits = {"within": asked.timeout_s or VERIFY_S, "stable": float(opened.installation.settings.drain.stable)}
        step = PlannedStep(1, VERIFY, asked.target, "the whole gate", limits=limits)
        context = Onlooker(caller.clock, caller.listener())
        outcome = opened.topology.driver().apply(step, Move(asked, opened.other(asked.target), {}), context)
    data["gate"] = {"text": outcome.text, **outcome.evidence}
    if isinstance(outcome, Unknown):
        return Result(ExitCode.UNKNOWN, outcome.text, outcome.findings, data)
    code = ExitCode.OK if isinstance(outcome, Done) else ExitCode.PRECHECK_FAILED
    return Result(code, outcome.text, outcome.findings, data)


def _nothing_to_verify(opened: Opened, snapshot: Snapshot, asked: Ask, data: dict[str, Json]) -> Result:
    """While a site serves the gate has not to hold: a swapover closes it. A fence is advised to nobody who moves
    nothing."""
    part, named = part_of(snapshot, asked), "" if asked.units is None else f" {some(asked.units)}"
    if part.roles[asked.target] is Role.SERVING and list(part.roles.values()).count(Role.SERVING) == 1:
        return Result(ExitCode.OK, f"{asked.target} serves{named}; there is nothing to verify", (), data)
    if opened.topology.recipe.moves_parts and is_split(snapshot):
        text = f"the gate is shut, each queue serves at one site, as moved: {served_where(part)}"
        remedy = f"A swapover shuts the queues by itself: `dr-ctl swapover --to {asked.target} --dry-run` shows it."
        findings = in_part([found("DR-VERIFY-001", text, remedy)], asked)
        return Result(ExitCode.PRECHECK_FAILED, text, findings, data)
    text = f"the gate is shut: {stand(snapshot)}"
    if all(role is Role.SERVING for role in snapshot.roles.values()):
        remedy = "`dr-ctl status` says what to do where both sites serve."
    else:
        remedy = f"A swapover does this by itself; `dr-ctl validate --to {asked.target}` says whether one is ready."
        if away := [link for link in snapshot.links() if link.attached is False]:
            remedy = f"The link of {away[0].site} first: {opened.mending(away[0].site)} {remedy}"
    return Result(ExitCode.PRECHECK_FAILED, text, (found("DR-VERIFY-001", text, remedy),), data)
