"""`runs`: shows the files of past runs. Asks no broker."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from dr_ctl.application.history import ReportData, RunData, RunsData, ShownStep, VerifiedData
from dr_ctl.application.result import Result
from dr_ctl.cli.session import Session
from dr_ctl.core.errors import UsageError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode
from dr_ctl.core.notation import duration, if_known, page, table
from dr_ctl.engine.history import Entry, JournalDamaged, read_entries
from dr_ctl.engine.record import CheckedRun, Verdict, check, how_ended, record
from dr_ctl.engine.runs import write_text
from dr_ctl.report.html import render, write_report

_YEAR: Final = timedelta(days=365)
_HEADING: Final = ("began (UTC)", "took", "clients out", "by", "outcome", "run", "why, or how it ended")


def runs_list(session: Session) -> Result:
    """The runs by time, from their files alone."""
    records = [record(files) for files in session.past().all()]
    rows = [
        (
            f"{each.began:%Y-%m-%d %H:%M:%S}" if each.began else "-",
            "-" if each.took_s is None else duration(each.took_s),
            "-" if each.out is None else each.out.text,
            each.by or "-",
            each.outcome,
            each.run,
            f"{f'[{each.queues}] ' if each.queues else ''}{each.reason or each.summary}",
        )
        for each in records
    ]
    return Result(
        ExitCode.OK, f"{len(records)} run(s)", data=RunsData(records), text=table(_HEADING, rows) if rows else ""
    )


def line_of(entry: Entry) -> str | None:
    """A journal line for people; None for lines that say nothing by themselves."""
    text = str(entry.evidence.get("text", ""))
    if entry.kind == "step":
        return f"{entry.time}  {if_known(entry.step)}: {if_known(entry.outcome)}{': ' + text if text else ''}"
    if entry.kind == "intent" and entry.call is not None:
        return f"{entry.time}      call: {entry.call['about']}"
    if entry.kind == "result" and entry.outcome != "done":
        return f"{entry.time}      {if_known(entry.outcome)}: {text}"
    return f"{entry.time}  signal: {if_known(entry.outcome)}" if entry.kind == "signal" else None


def runs_show(session: Session, run: str | None) -> Result:
    files = session.past().find(run)
    try:
        entries = read_entries(files.journal) if files.journal.exists() else []
    except JournalDamaged as damaged:
        if files.result.exists():  # nothing is open that could be given up
            damaged.remedy = (
                f"`dr-ctl runs verify {files.name}` says what was altered; `dr-ctl runs report {files.name}` writes "
                "what can be read."
            )
        raise
    lines, steps = [], []
    for entry in entries:
        if (line := line_of(entry)) is not None:
            lines.append(line)
        if entry.kind == "step":
            text = str(entry.evidence.get("text", ""))
            steps.append(ShownStep(entry.time, entry.step, entry.outcome, text))
    outcome, summary, _ = how_ended(files)
    data = RunData(outcome, len(entries), steps)
    return Result(ExitCode.OK, f"{files.name}: {outcome}: {summary}", data=data, run=files.name, text=page(lines))


def runs_verify(session: Session, run: str | None) -> Result:
    """Recompute the hash chains of one run, or of all runs, as an auditor does."""
    runs = session.past()
    chosen = [runs.find(run)] if run is not None else runs.all()
    checked = [(files.name, check(files)) for files in chosen]
    altered = [(name, each) for name, each in checked if each.verdict is Verdict.ALTERED]
    findings = [found("DR-JOURNAL-001", run=name, said=each.text) for name, each in altered]
    text = page(f"{name}  {each.verdict.value:<12} {each.text}" for name, each in checked)
    opens = sum(each.verdict is Verdict.OPEN for _, each in checked)
    summary = f"{len(checked)} run(s) looked at, {len(altered)} altered"
    summary += f", {opens} not ended and so not sealed" if opens else ""
    code = ExitCode.PRECHECK_FAILED if altered else ExitCode.OK
    name = checked[0][0] if run is not None else None
    return Result(code, summary, findings, VerifiedData([CheckedRun(*each) for each in checked]), name, text)


def runs_report(session: Session, run: str | None) -> Result:
    files = session.past().find(run)
    path = write_report(files)
    return Result(ExitCode.OK, f"report: {path}", data=ReportData(path), run=files.name)


def runs_index(session: Session, since: datetime | None, out: Path | None) -> Result:
    """Write the page over all runs and rehearsals of a time, a year where none is named."""
    from dr_ctl.report.index_page import index_page  # noqa: PLC0415 - only this page needs it

    runs, now = session.past(), session.clock.now()
    path = (out or runs.index).absolute()
    page = index_page(runs.all(), runs.rehearsals, since or now - _YEAR, now, beside=path.parent)
    try:
        write_text(path, render(page))
    except OSError as problem:
        raise UsageError(
            f"{path}: {problem.strerror or problem}", remedy="Name a file that can be written: --out FILE."
        ) from problem
    return Result(ExitCode.OK, f"{page.words}: {path}", data=ReportData(path))
