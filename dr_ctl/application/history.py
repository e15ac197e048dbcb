"""`history`: the serving sites over time, the run of each change, and the outages, by the runs of this STATE and the
readings of the monitor; no broker is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dr_ctl.application.result import Result
from dr_ctl.core.document import MOMENT, key, optional
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Role, brief
from dr_ctl.core.notation import table
from dr_ctl.core.system import stamp
from dr_ctl.engine.operations import FAILOVER, UNFENCE
from dr_ctl.engine.record import NEVER_BEGAN, CheckedRun, Listener, OutageBounds, Record, record
from dr_ctl.engine.runs import RunFiles
from dr_ctl.settings.model import Installation

if TYPE_CHECKING:
    from dr_ctl.rpo.history.newest import RolePeriod

_CLOCK_SKEW: Final = timedelta(seconds=5)  # between the machines of a run and of the monitor
_HEADING: Final = ("since (UTC)", "serves", "clients out", "epoch", "by", "what, and why")


@dataclass(frozen=True, slots=True)
class RunsData:
    runs: Sequence[Record]


@dataclass(frozen=True, slots=True)
class ShownStep:
    time: str = field(metadata=MOMENT)
    step: str | None
    event: str | None
    text: str


@dataclass(frozen=True, slots=True)
class RunData:
    outcome: str
    entries: int = field(metadata=key(description="lines of the journal"))
    steps: Sequence[ShownStep] | None = optional()


@dataclass(frozen=True, slots=True)
class VerifiedData:
    runs: Sequence[CheckedRun]


@dataclass(frozen=True, slots=True)
class ReportData:
    report: Path


@dataclass(frozen=True, slots=True)
class Done:
    run: str | None = None
    epoch: int | None = None
    by: str | None = None
    reason: str | None = None
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class ServiceChange:
    """A moment from which on clients were served at `serving`, or at no site (None); a serving site may be not `known`.
    An approximate change was at an unknown moment between `at` and the reading before. `run` is None if no run of this
    STATE made the change."""

    at: datetime
    serving: str | None
    text: str
    out: OutageBounds | None = field(default=None, metadata=key("out_s"))
    run: Record | None = field(default=None, metadata=key(of="done", flat=Done))
    approximate: bool = field(default=False, metadata=key("about", description="the time lies between two samples"))
    known: bool = True

    @property
    def serves(self) -> str:
        return self.serving or ("no site" if self.known else "not known")

    @property
    def done(self) -> Done:
        run = self.run
        return Done() if run is None else Done(run.run, run.epoch, run.by, run.reason or None, run.outcome)

    @property
    def cells(self) -> tuple[str, ...]:
        nobody = "-" if self.serving is None else "no run of this STATE"
        return (
            f"{self.at:%Y-%m-%d %H:%M:%S}{' about' if self.approximate else ''}",
            self.serves,
            "-" if self.out is None else self.out.text,
            "-" if self.done.epoch is None else str(self.done.epoch),
            nobody if self.run is None else self.run.by or "not known",
            self.text,
        )


@dataclass(frozen=True, slots=True)
class HistoryData:
    history: Sequence[ServiceChange]
    has_samples: bool = field(metadata=key(description="whether a monitor has recorded any"))


def history(runs: Sequence[RunFiles], installation: Installation | None, since: datetime | None) -> Result:
    """List the changes in order; without an installation, only those of the runs."""
    records = [record(files) for files in runs]
    periods, findings = _readings(installation, since)
    found_ = *_by_runs(records, periods), *_by_no_run(records, periods), *_ends(records, periods)
    all_ = sorted(found_, key=lambda change: change.at)
    if periods and installation is not None:
        all_ = _with_takeovers(all_, installation, since or periods[0].first)
    changes = [change for change in all_ if since is None or change.at >= since]
    data = HistoryData(changes, len(periods) > 0)
    if not changes:
        unread = ": no settings were read, and this STATE has no run" if installation is None else ""
        return Result(ExitCode.OK, f"nothing is known{unread}", findings, data)
    summary = f"{changes[-1].serves} serves since {stamp(changes[-1].at)}, as far as runs and samples show"
    return Result(ExitCode.OK, summary, findings, data, text=table(_HEADING, [change.cells for change in changes]))


def _readings(installation: Installation | None, since: datetime | None) -> tuple[list[RolePeriod], list[Finding]]:
    if installation is None:
        return [], []
    history = installation.history
    if history.folder is not None and not history.folder.is_dir():
        return [], [found("DR-HISTORY-001.none", place=history.shown)]
    try:
        from dr_ctl.rpo.history.newest import role_periods  # noqa: PLC0415 - runs are shown without pyarrow too
    except ModuleNotFoundError as error:
        return [], [found("DR-HISTORY-001.not_read", place=history.shown, package=error.name or error)]
    # The first change after `since` depends on the site that served before.
    begin = None if since is None else since - timedelta(days=1)
    return role_periods(history, tuple(installation.settings.sites), begin)


def _with_takeovers(
    changes: Sequence[ServiceChange], installation: Installation, since: datetime
) -> list[ServiceChange]:
    """Add the takeovers by another node of a broker: if its site serves, no client was served meanwhile."""
    from dr_ctl.rpo.history.newest import takeovers  # noqa: PLC0415 - as above

    added = []
    for takeover in takeovers(installation.history, tuple(installation.settings.sites), since):
        serves = next((change.serving for change in reversed(changes) if change.at <= takeover.first), None)
        out = OutageBounds(None, takeover.at_most_s) if serves == takeover.site else None
        added.append(ServiceChange(takeover.first, serves, takeover.text, out, known=serves is not None))
    return sorted([*changes, *added], key=lambda change: change.at)


def serving(periods: Sequence[RolePeriod]) -> list[RolePeriod]:
    return [period for period in periods if period.role == Role.SERVING.value]


def loss(periods: Sequence[RolePeriod], lost: str, begun: datetime, let_in: datetime) -> OutageBounds:
    """Bound the outage of a lost site until a run that had `begun` let clients in again at a site: at least from the
    first reading that saw the site not serve, at most from the last that saw it serve. A monitor may see the site serve
    again before the run has recorded `let_in`."""
    before = [period for period in periods if period.site == lost and period.first <= begun]
    last = next((period for period in reversed(before) if period.role == Role.SERVING.value), None)
    if last is None:
        return OutageBounds(None, None)
    closed = _closed(before, last)
    at_least_s = None if closed is None else _seconds(closed.first, let_in)
    return OutageBounds(at_least_s, _seconds(min(last.last, let_in), let_in))


_SERVES_NOT: Final = (Role.DOWN.value, Role.STANDBY.value)


def _closed(periods: Sequence[RolePeriod], was: RolePeriod) -> RolePeriod | None:
    """Find the period in which a site that has served was seen down or closed, maybe after readings without an
    answer."""
    after = (period for period in periods if period.site == was.site and period.first > was.last)
    known = next((period for period in after if period.role != Role.UNKNOWN.value), None)
    return known if known is not None and known.role in _SERVES_NOT else None


def _by_runs(records: Sequence[Record], periods: Sequence[RolePeriod]) -> list[ServiceChange]:
    changes = []
    for run in records:
        what = f"{run.operation} {run.outcome}" if run.outcome != "ok" else run.operation
        text = f"{what}{f': {run.reason}' if run.reason else ''} ({run.run})"
        opened = run.let_in if run.let_in is not None and run.let_in.site else None
        if run.fenced is not None and (opened is None or opened.at < run.fenced.at):
            opened = None
        if run.outcome == NEVER_BEGAN or (last := opened or run.fenced) is None:
            continue
        serving, known, left = _served(run, opened)
        out = run.out if opened is not None else None
        if opened is not None and out is None and run.operation in (FAILOVER, UNFENCE) and run.source:
            out = loss(periods, run.source, (run.operation == UNFENCE and run.began) or last.at, last.at)
        changes.append(ServiceChange(last.at, serving, f"{text}{left}", out, run, known=known))
    return changes


def _served(run: Record, opened: Listener | None) -> tuple[str | None, bool, str]:
    """Return the serving site after a run, whether that is known, and a text on units that are served nowhere. A run
    without a result is judged by its last step: after a fence only its own site does not serve."""
    if run.served is not None:
        sites = list(dict.fromkeys(site for site in run.served.values() if site is not None))
        known = bool(sites) or run.outcome != ExitCode.UNKNOWN.outcome
        nowhere = [unit for unit, site in run.served.items() if site is None]
        left = f"; {brief(nowhere)} served nowhere" if sites and nowhere else ""
        return " and ".join(sorted(sites)) or None, known, left
    if opened is not None:
        return opened.site, True, ""
    others = [site for site in run.served_before if run.fenced is None or site != run.fenced.site]
    return " and ".join(others) or None, True, ""


def _by_no_run(records: Sequence[Record], periods: Sequence[RolePeriod]) -> Iterator[ServiceChange]:
    """Find sites that began to serve while no run let clients in there."""
    opened = [run.let_in for run in records if run.let_in is not None]
    served = serving(periods)

    def later(was: RolePeriod, now: RolePeriod) -> RolePeriod:
        return now if now.last >= was.last else was

    for was, now in zip((None, *accumulate(served, later)), served, strict=False):
        if was is None:
            events = [event for run in records for event in (run.fenced, run.let_in) if event is not None]
            before = [event for event in events if event.at <= now.first + _CLOCK_SKEW]
            newest = max(before, key=attrgetter("at"), default=None)
            if newest not in opened or newest.site != now.site:
                yield ServiceChange(now.first, now.site, "seen serving at the first sample")
            continue
        begin, end = was.last - _CLOCK_SKEW, now.first + _CLOCK_SKEW
        if any(listener.site == now.site and begin <= listener.at <= end for listener in opened):
            continue
        serves = now.site
        out: OutageBounds | None = OutageBounds(None, _seconds(was.last, now.first))
        if was.site == now.site:
            between = (row for row in periods if row.site == now.site and was.last < row.first < now.first)
            closed = next((row for row in between if row.role in _SERVES_NOT), None)
            if closed is None:
                continue
            text = f"{now.site} serves again; it was seen {closed.role} from {stamp(closed.first)}"
            text += f" to {stamp(closed.last)}"
            out = OutageBounds(_seconds(closed.first, closed.last), _seconds(was.last, now.first))
        elif was.last >= now.first:
            text = f"{was.site} and {now.site} were both seen to serve until {stamp(min(was.last, now.last))}"
            serves, out = (was.site if was.last > now.last + _CLOCK_SKEW else now.site), None
        else:
            text = f"seen from {stamp(now.first)} on; {was.site} was last seen serving at {stamp(was.last)}"
        yield ServiceChange(now.first, serves, text, out, approximate=True)


def _ends(records: Sequence[Record], periods: Sequence[RolePeriod]) -> Iterator[ServiceChange]:
    """Find sites that were down or closed after serving, while no run was under way and no site served."""
    for was in serving(periods):
        if (closed := _closed(periods, was)) is None:
            continue
        end = closed.first
        if any(period.site != was.site and period.first <= end <= period.last for period in serving(periods)):
            continue
        # Any run but a failover may have kept clients out then; a failover comes after its loss.
        began = [run for run in records if run.operation != FAILOVER and run.began and run.began <= end + _CLOCK_SKEW]
        if any(run.ended is None or run.ended >= was.last - _CLOCK_SKEW for run in began):
            continue
        text = f"{was.site} was seen {closed.role}; it was last seen serving at {stamp(was.last)}"
        yield ServiceChange(end, None, text, approximate=True)


def _seconds(begin: datetime, end: datetime) -> float:
    return max(0.0, (end - begin).total_seconds())
