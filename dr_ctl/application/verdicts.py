"""Says how a command such as `swapover` would end now, or if a site were lost. `validate`, `status`, `plan
--as-if-lost` and that command use the same code, with a given reading and without asking a broker.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal

from dr_ctl.application import lock, maintenance, plans
from dr_ctl.application.installation import OpenInstallation
from dr_ctl.application.loss_bound import LossBound
from dr_ctl.application.lost_site import OutageStart
from dr_ctl.application.recovery_options import OpenRun, still_open
from dr_ctl.application.request import Request
from dr_ctl.application.result import Result
from dr_ctl.core.document import HIDDEN, document, key
from dr_ctl.core.errors import UsageError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Role, Severity, brief
from dr_ctl.core.notation import duration, if_known
from dr_ctl.engine.ending import bounds_text
from dr_ctl.engine.operations import ACTIVATE, FAILBACK, FAILOVER, REINSTATING, SWAPOVER, UNFENCE
from dr_ctl.engine.plan import AlreadyThere, Decision, Goal, Plan, Refusal, Spec
from dr_ctl.engine.ports import Move
from dr_ctl.engine.roles import by_site, role_text, sites_serving, units_divided
from dr_ctl.topologies.registry import Snapshot
from dr_ctl.topologies.topology import LinkSnapshot

_UNANSWERED: Final = (Role.UNKNOWN, Role.SICK, Role.DOWN)
_REASON: Final = "--reason TEXT"
_TIMEOUT_MARGIN: Final = 1.5  # the factor of the present drain time for the proposed `--timeout`


@dataclass(frozen=True, slots=True)
class Verdict:
    """The present answer of a command. `code` is that of `validate`: 0 ready, 10 not ready, 22 not known. `needs` are
    options to add. `acceptance` is the refusal for a loss or duplicates that a person may accept, as a warning."""

    operation: str = field(metadata=HIDDEN)
    to: str | None
    text: str = field(metadata=key("verdict"))
    code: ExitCode = field(metadata=key("exit_code", description="0 ready, 10 not, 22 not known"))
    needs: tuple[str, ...] = field(default=(), metadata=key(description="options to add"))
    findings: Sequence[Finding] = field(default=(), metadata=HIDDEN)
    acceptance: Finding | None = field(default=None, metadata=HIDDEN)

    @property
    def title(self) -> str:
        return f"{self.operation}{f' to {self.to}' if self.to else ''}"

    @property
    def line(self) -> str:
        return f"{self.title}: {self.text}"


@dataclass(frozen=True, slots=True)
class Assessment:
    """Judges every operation by one `snapshot`, with the rates of `links`, and a loss by one reading of the history.
    `lock_holder` is another run that has the lock."""

    opened: OpenInstallation
    snapshot: Snapshot
    links: Sequence[LinkSnapshot]
    open_run: OpenRun | None
    lock_holder: str | None
    exposures: dict[tuple[str, Role], LossBound] = field(default_factory=dict)
    without: str | None = None  # this site counts as lost
    maintenance: maintenance.Maintenance | None = None

    @classmethod
    def of(cls, opened: OpenInstallation, snapshot: Snapshot, links: Sequence[LinkSnapshot]) -> Assessment:
        rival = lock.find_rival(snapshot, opened.runs)
        holder = None if rival is None else rival[1].described
        return cls(opened, snapshot, links, OpenRun.of(opened.runs), holder, maintenance=maintenance.now(opened.caller))

    @property
    def served_by(self) -> str | None:
        serving = sites_serving(self.snapshot)
        return serving[0] if len(serving) == 1 else None

    @property
    def interrupted(self) -> OpenRun | None:
        """The open run, if its process has ended."""
        return None if self.open_run is None or self.open_run.lives else self.open_run

    def verdict(self, operation: str, to: str | None) -> Verdict:
        if to is None:
            return Verdict(operation, None, "unknown: no site is a standby; name one with --to", ExitCode.UNKNOWN)
        spec = Spec(operation, to)
        if self.open_run is not None and self.open_run.lives:
            return _verdict(spec, f"refused while the run {self.open_run.files.name} is under way")
        if (why := self.opened.runs.unwritable()) is not None:
            return _verdict(spec, f"refused while {why}: name another state directory with --state-dir")
        if self.lock_holder is not None:
            return _verdict(spec, f"refused while another run holds the lock: {self.lock_holder}")
        needs: tuple[str, ...] = ()
        if self.open_run is not None:
            files = self.open_run.files
            if operation != FAILOVER:
                return _verdict(spec, f"refused while the run {files.name} is open", still_open(files, spec).findings)
            spec, needs = replace(spec, reason="it replaces the open run"), (_REASON,)
        exposure = self.exposure(self.opened.other(spec.target)) if spec.operation == FAILOVER else None
        granted, needs, decided = self._needed(spec, needs, exposure)
        judged = self._of(granted, needs, decided)
        if not any(option.startswith("--accept") for option in judged.needs):
            return judged
        findings, costs = judged.findings, None
        if exposure is None:
            findings = Request(spec, self.opened).decide(self.snapshot).findings
            why = findings[0].text
        else:
            why, costs = bounds_text(exposure.bounds()), exposure.too_high(spec)
        return replace(
            judged,
            text=f"refused without {' '.join(judged.needs)}: {why}; the owner of that limit decides",
            code=ExitCode.PRECHECK_FAILED,
            findings=findings,
            acceptance=replace(costs, severity=Severity.WARNING) if costs is not None else None,
        )

    def way_to_open(self, site: str) -> str | None:
        """Return the command that opens a site while the other is closed, if one would succeed now."""
        # Messages that only this site has refuse an unfence, although it may have served last.
        commands = ((UNFENCE, self.opened.other(site)), (ACTIVATE, site))
        ready = (
            f"`dr-ctl {operation} {site}`"
            for operation, to in commands
            if self.verdict(operation, to).code is ExitCode.OK
        )
        return next(ready, None)

    def _needed(
        self, spec: Spec, needs: tuple[str, ...], exposure: LossBound | None
    ) -> tuple[Spec, tuple[str, ...], Decision]:
        """Add the options that a person may grant, until the command would succeed, or no option helps."""
        decided = Request(spec, self.opened, exposure).decide(self.snapshot)
        if not isinstance(decided, Refusal):
            return spec, needs, decided
        id_, errors = decided.findings[0].id, [error for error in decided.findings if error.severity is Severity.ERROR]
        doubles = None
        if spec.accept_duplicates is None and exposure is None and all(error.duplicates for error in errors):
            doubles = str(sum(error.duplicates for error in errors))  # a planned move, refused only for these
        elif spec.accept_duplicates is None and exposure is not None and id_ == "DR-LOSS-005":
            doubles = exposure.now().quoted()[1]
        # Any figure is accepted for the rest, because the loss of a silent site grows meanwhile.
        if doubles is not None:
            spec = replace(spec, accept_duplicates=_anything(doubles))
            needs = (*needs, f"--accept-duplicates {doubles}")
        elif exposure and decided.code is ExitCode.LOSS_REFUSED and spec.accept_loss is None:
            lost = exposure.now().quoted()[0]
            spec, needs = replace(spec, accept_loss=_anything(lost)), (*needs, f"--accept-loss {lost}")
        elif exposure and id_ in ("DR-ALIVE-002", "DR-NODE-001", "DR-NODE-004") and spec.presume_down is None:
            spec = replace(spec, presume_down=exposure.site, reason=spec.reason or "it is lost")
            needs = (f"--presume-down {exposure.site}", *dict.fromkeys((*needs, _REASON)))
        else:
            return spec, needs, decided
        return self._needed(spec, needs, exposure)

    def exposure(self, lost: str) -> LossBound:
        """Return the bounds of a failover from this site, by the reading."""
        key = lost, self.snapshot.roles[lost]
        if key not in self.exposures:
            self.exposures[key] = LossBound(self.opened, lost, None, once=True)
            self.exposures[key].saw(self.snapshot, supposed=self.without == lost)
        return self.exposures[key]

    def if_lost(self, site: str) -> LossBound:
        """Return the bounds of a failover, if that site were lost now."""
        return (self if self.snapshot.roles[site] is Role.DOWN else self._without(site)).exposure(site)

    def _without(self, site: str) -> Assessment:
        return replace(self, snapshot=self.snapshot.as_if_lost(site), without=site)

    def _of(self, spec: Spec, needs: tuple[str, ...], decided: Decision) -> Verdict:
        if isinstance(decided, Plan):
            return self._ready(spec, needs, decided)
        if isinstance(decided, AlreadyThere):
            text, code = f"nothing to do: {decided.text.partition(';')[0]}", ExitCode.OK
        elif decided.code is ExitCode.SERVING_SITE_ALIVE:
            return self._alive(spec, decided.findings)
        elif any(role in _UNANSWERED for role in self.snapshot.roles.values()):
            text, code = f"unknown: {_first(decided)}", ExitCode.UNKNOWN
        else:
            text, code = f"not ready: {_first(decided)}", ExitCode.PRECHECK_FAILED
        return _verdict(spec, text, decided.findings, code)

    def _ready(self, spec: Spec, needs: tuple[str, ...], decided: Plan) -> Verdict:
        """Judge a plan that is ready by its checks; a move also needs a link that ships, and time to drain."""
        wanted = self.opened.installation.settings.approvals
        needed = ("--plan FILE",) if wanted is not None and spec.operation in wanted.of else ()
        if needed and (blind := plans.why_no_approval(self.opened.installation)) is not None:
            return _verdict(spec, f"not ready: {blind.text}", (blind, *decided.findings))
        move = Move(decided.spec, decided.source, decided.baseline)
        checks = self.opened.topology.recipe.checks(self.snapshot, move)
        unread = [check for check in checks if check.evidence is None]
        if spec.operation in (SWAPOVER, FAILBACK):
            away = [f"{link.site}/{link.pair}" for link in self._away(decided)]
            if away:
                return _verdict(spec, f"not ready: the link of {', '.join(away)} is not attached", decided.findings)
            takes = max((link.drain_s for link in self.links if link.drain_s is not None), default=0.0)
            if takes > self.opened.installation.settings.drain.timeout:  # the messages under way take longer to drain
                needs = (*needs, f"--timeout {math.ceil(takes * _TIMEOUT_MARGIN / 60)}m")
        stuck = [link for link in self.links if link.site == decided.source and link.outflow and link.rate == 0]
        if unread and spec.operation != FAILOVER:
            text = f"unknown: not read at {unread[0].where}: {unread[0].name}"
            return _verdict(spec, text, decided.findings, ExitCode.UNKNOWN)
        needs = (*needs, *needed)
        text = f"ready, with {' '.join(needs)}" if needs else "ready"
        if spec.operation == FAILBACK and not self._has_debt(spec):
            same = self.verdict(SWAPOVER, spec.target).code is ExitCode.OK
            text += "; no reinstatement is pending, " + (
                "a swapover does the same" if same else f"it reinstates {spec.target} first"
            )
        if spec.operation == FAILOVER and all(role is Role.STANDBY for role in self.snapshot.roles.values()):
            way = self.way_to_open(spec.target) or "`dr-ctl status` names the command that"
            text += f"; both sites answer: {way} opens {spec.target} without a failover"
        if spec.operation in (SWAPOVER, FAILBACK) and stuck:
            waits = brief([f"{if_known(link.outflow)} to ship from {link.site}/{link.pair}" for link in stuck])
            text += f"; {waits}, and none moved during this reading: a move is undone if its drain does not end"
        if spec.operation == SWAPOVER and units_divided(self.snapshot):
            served = by_site(self.snapshot.units)
            text += f"; moves {brief(served.get(decided.source, []))}, and {spec.target} serves the others already"
        return replace(_verdict(spec, text, decided.findings, ExitCode.OK), needs=needs)

    def _away(self, decided: Plan) -> list[LinkSnapshot]:
        """Return the links that are not attached, unless the move itself starts them, or takes a lost site in."""
        if self._has_debt(decided.spec):
            return []
        calls = [call for step in decided.steps for call in step.calls if call.goal is Goal.LINK_UP]
        starts = {(call.site, call.unit) for call in calls}
        away = [link for link in self.links if link.attached is False]
        return [link for link in away if link.started is not False or (link.site, link.pair) not in starts]

    def _has_debt(self, spec: Spec) -> bool:
        return any(spec.target in (debt.lost_site, debt.kept_at) for debt in self.snapshot.debts)

    def _alive(self, spec: Spec, findings: Sequence[Finding]) -> Verdict:
        """Refuse because the other site is alive, with the answer of the command if that site were lost."""
        lost = self.opened.other(spec.target)
        role = self.snapshot.roles[lost]
        if lost == self.without:  # an unnamed node of it may live
            return _verdict(spec, f"refused as {findings[0].text}", findings)
        assessment = self._without(lost)
        then = assessment.verdict(FAILOVER, spec.target)
        lives = {Role.SERVING: f"{lost} serves", Role.UNKNOWN: f"{lost} may serve"}
        text = f"refused while {lives.get(role) or role_text(self.snapshot, lost)}; if {lost} is lost: {then.text}"
        waits = self.snapshot.roles[spec.target] is Role.STANDBY
        costs = assessment.exposure(lost).refused_today(spec) if waits else None
        return replace(_verdict(spec, text, (*findings, *besides(then.findings, lost))), acceptance=costs)


def besides(findings: Sequence[Finding], lost: str) -> tuple[Finding, ...]:
    """Leave out findings that only report the silence of a lost site."""
    return tuple(row for row in findings if row.id != "DR-SITE-001" or not row.text.startswith(f"{lost}/"))


def default_target(snapshot: Snapshot, operation: str) -> str | None:
    """Return the default target of an operation: the standby, else a site that does not serve."""
    serving = sites_serving(snapshot)
    others = [site for site in snapshot.roles if site not in serving[:1]]
    waiting = next((site for site in others if snapshot.roles[site] is Role.STANDBY), None)
    if operation in REINSTATING:
        lost = [debt.lost_site for debt in snapshot.debts if debt.lost_site in snapshot.roles]
        return lost[0] if lost else waiting or (others[0] if serving else None)
    return waiting or (others[0] if serving else None)


def _verdict(
    spec: Spec, text: str, findings: Sequence[Finding] = (), code: ExitCode = ExitCode.PRECHECK_FAILED
) -> Verdict:
    return Verdict(spec.operation, spec.target, text, code, (), findings)


def _first(decided: Refusal) -> str:
    return next(finding.text for finding in decided.findings if finding.severity is Severity.ERROR)


def _anything(quoted: str) -> int | Literal["unknown"]:
    return "unknown" if quoted == "unknown" else 1 << 62


def headline(assessment: Assessment, site: str, away: Collection[OutageStart], now: datetime) -> str:
    """Write the bounds of a loss of the site now, and since when its links in `away` are down; empty if no monitor has
    read the site and all links are attached."""
    bounds = assessment.if_lost(site).now()
    cost = f"if {site} died now: {bounds_text(document(bounds))}"
    if (read_at := bounds.lost.read_at) is not None:
        cost += f" (reading of {duration(round(max(0.0, (now - read_at).total_seconds()), 1))} ago)"
    if not away:
        return cost if read_at is not None else ""
    since = [since.at for since in away if since.at is not None]
    when = f"since {min(since)}" if len(since) == len(away) else "for an unknown time"
    return f"nothing has reached {assessment.opened.other(site)} {when}; {cost}"


def differing(
    opened: OpenInstallation, snapshot: Snapshot, site: str, by_history: Sequence[Finding]
) -> Sequence[Finding]:
    """Report that the sites differ by more than the messages under way, by this reading, else by the history."""
    move = Move(Spec(SWAPOVER, opened.other(site)), site, {})
    findings = [finding for check in opened.topology.recipe.checks(snapshot, move) for finding in check.found]
    by_reading = [replace(row, severity=Severity.WARNING) for row in findings if row.id == "DR-PARITY-001"]
    return by_reading or by_history


def planned_as_if_lost(opened: OpenInstallation, asked: Spec, lost: str) -> Result:
    """Decide as if every port of that site refused, and show the loss that a person would have to accept."""
    opened.installation.must_know(lost)
    if asked.operation != FAILOVER or lost == asked.target:
        remedy = f"As in `dr-ctl plan failover --to {opened.other(lost)} --as-if-lost {lost}`."
        raise UsageError(f"--as-if-lost {lost}: is for a failover to the other site", remedy=remedy)
    request = Request.of(asked, opened)
    assert request.exposure is not None  # a failover has one
    reading: Snapshot = opened.topology.observe()
    snapshot = reading.as_if_lost(lost)
    request.exposure.saw(snapshot, supposed=reading.roles[lost] is not Role.DOWN)
    decided = request.decide(snapshot)
    if isinstance(decided, Refusal) and decided.plan is not None:
        decided = decided.plan
    refused = request.exposure.refused_today(asked)
    bounds = request.exposure.now()
    findings = [found("DR-PLAN-002", lost=lost, role=reading.roles[lost].value, target=asked.target)]
    findings += differing(opened, reading, lost, request.exposure.differ())
    if refused is not None:
        findings.append(refused)
    data = plans.PlanData(bounds=bounds, as_if_lost=lost, role=reading.roles[lost])
    if not isinstance(decided, Plan):
        word = "nothing to do" if isinstance(decided, AlreadyThere) else "not possible"
        why = decided.text if isinstance(decided, AlreadyThere) else _first(decided)
        code = ExitCode.OK if isinstance(decided, AlreadyThere) else ExitCode.PRECHECK_FAILED
        summary = f"as if {lost} was lost: a failover to {asked.target} is {word}: {why}"
        return Result(code, summary, [*decided.findings, *findings], data)
    others = [finding for finding in besides(decided.findings, lost) if finding.id != "DR-PARITY-001"]
    plan = replace(decided, as_if_lost=lost, findings=(*others, *findings))
    summary = f"as if {lost} was lost: {len(plan.steps)} steps to {asked.target}; {bounds_text(document(bounds))}"
    return Result(ExitCode.OK, summary, plan.findings, replace(data, plan=plan), plan=plan)
