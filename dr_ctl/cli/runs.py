"""`runs` and `history`: show, check and bundle past runs. Asks no broker."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final

from dr_ctl import application, cli, engine
from dr_ctl.application.result import Result
from dr_ctl.cli.command import app, command, group
from dr_ctl.cli.options import argument, moment, option
from dr_ctl.cli.session import Session
from dr_ctl.core.errors import UsageError, writing
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode
from dr_ctl.core.notation import duration, page, table
from dr_ctl.core.system import system

runs_app = group("runs", "Past runs: list, show, report, verify, bundle.")
RUN = Annotated[str | None, argument("[RUN]", "A run's name or its beginning; default: the last.")]
_HEADING: Final = ("began (UTC)", "took", "clients out", "by", "outcome", "run", "why, or how it ended")


@command(runs_app, "list", example="runs list --since 30d --outcome reverted", forms=("wide", "name"))
def runs_list(
    session: Session,
    *,
    last: Annotated[int | None, option("--last N", "Only so many, the newest.", min=1)] = None,
    since: Annotated[str | None, option("--since T", "A moment, or a duration back: 30d; default: all.")] = None,
    outcome: Annotated[
        str | None, option("--outcome WORD", "Only runs with this outcome: ok, reverted, unknown …")
    ] = None,
) -> Result:
    """List the runs, by time."""
    known = dict.fromkeys((*(code.outcome for code in ExitCode), "open", "none", "aborted"))
    if outcome is not None and outcome not in known:
        raise UsageError(f"--outcome {outcome}: no run ends so", remedy=f"One of {', '.join(known)}.")
    began = moment("--since", since) if since is not None else None
    records = [
        run
        for run in map(engine.record.record, session.past().all())
        if (began is None or (run.began is not None and run.began >= began)) and outcome in (None, run.outcome)
    ][-(last or 0) :]
    rows = [
        (
            f"{run.began:%Y-%m-%d %H:%M:%S}" if run.began else "-",
            "-" if run.took_s is None else duration(run.took_s),
            "-" if run.out is None else run.out.text,
            run.by or "-",
            run.outcome,
            run.run,
            f"{f'[{run.queues}] ' if run.queues else ''}{run.reason or run.summary}",
        )
        for run in records
    ]
    wide = table(_HEADING, rows) if rows else ""
    # A narrow terminal gets the outcome, the run, whose name has time and operation, and the outage.
    narrow = [[row[at] for at in (5, 4, 2)] for row in (_HEADING, *rows)]
    text = wide if cli.output.fits(wide) else table(narrow[0], narrow[1:])
    names = [run.run for run in records]
    data = application.history.RunsData(records)
    return Result(ExitCode.OK, f"{len(records)} run(s)", data=data, text=text, wide=wide, names=names)


@command(runs_app, "show", example="runs show --follow")
def runs_show(
    session: Session,
    *,
    run: RUN = None,
    follow: Annotated[bool, option("--follow", "As it goes, until the run ends.")] = False,
) -> Result:
    """A run with its request, its steps and its end."""
    if follow:
        return cli.following.follow(session, run)
    files = session.past().find(run)
    try:
        entries = engine.journal.read_entries(files.journal) if files.journal.exists() else []
    except engine.journal.JournalDamaged as damaged:
        if files.result.exists():  # an ended run cannot be given up
            damaged.remedy = (
                f"`dr-ctl runs verify {files.name}` says what was altered; `dr-ctl runs report {files.name}` writes "
                "what can be read."
            )
        raise
    lines = [text for entry in entries if (text := cli.following.line_of(entry)) is not None]
    moves = (entry for entry in entries if entry.kind == "step")
    step = application.history.ShownStep
    steps = [step(of.time, of.step, of.outcome, str(of.evidence.get("text", ""))) for of in moves]
    outcome, summary, _ = engine.record.how_ended(files)
    data = application.history.RunData(outcome, len(entries), steps)
    return Result(ExitCode.OK, f"{files.name}: {outcome}: {summary}", data=data, run=files.name, text=page(lines))


@command(runs_app, "verify", example="runs verify")
def runs_verify(
    session: Session, *, run: Annotated[str | None, argument("[RUN]", "A run or its beginning; default: all.")] = None
) -> Result:
    """Check that journals and results are as they were written: 10 when one was altered, naming the line."""
    runs = session.past()
    chosen = [runs.find(run)] if run is not None else runs.all()
    checked = [(files.name, engine.record.check(files)) for files in chosen]
    altered = [(name, verdict) for name, verdict in checked if verdict.verdict is engine.record.Verdict.ALTERED]
    findings = [found("DR-JOURNAL-001", run=name, said=verdict.text) for name, verdict in altered]
    text = page(f"{name}  {verdict.verdict.value:<12} {verdict.text}" for name, verdict in checked)
    opens = sum(verdict.verdict is engine.record.Verdict.OPEN for _, verdict in checked)
    summary = f"{len(checked)} run(s) looked at, {len(altered)} altered"
    summary += f", {opens} not ended and so not sealed" if opens else ""
    code = ExitCode.PRECHECK_FAILED if altered else ExitCode.OK
    name = checked[0][0] if run is not None else None
    data = application.history.VerifiedData([engine.record.CheckedRun(*row) for row in checked])
    return Result(code, summary, findings, data, name, text)


@command(runs_app, "report", example="runs report --index --since 365d")
def runs_report(
    session: Session,
    *,
    run: RUN = None,
    index: Annotated[bool, option("--index", "One page over all runs and rehearsals, against the objectives.")] = False,
    since: Annotated[str | None, option("--since T", "With --index: a moment, or a duration back; a year.")] = None,
    out: Annotated[Path | None, option("--out FILE", "With --index: where; default: beside the runs.")] = None,
) -> Result:
    """Write one run's HTML report anew, or one page over all of them, and say where it is."""
    from dr_ctl.report.html import render, write_report  # noqa: PLC0415

    runs = session.past()
    if index and run is None:
        from dr_ctl.report.index_page import IndexPage  # noqa: PLC0415 - only this page needs it

        now = system().now()
        path = (out or runs.index).absolute()
        began = moment("--since", since) if since is not None else now - timedelta(days=365)
        made = IndexPage(runs.all(), runs.rehearsals, began, now, folder=path.parent)
        with writing(path, "Name a file that can be written: --out FILE."):
            engine.runs.write_text(path, render(made))
        return Result(ExitCode.OK, f"{made.words}: {path}", data=application.history.ReportData(path))
    if index or since is not None or out is not None:
        text = "--index is of all runs" if index else "--since and --out are of the page over all runs"
        raise UsageError(text, remedy="`dr-ctl runs report RUN` writes one run's page, `--index` that over all.")
    files = runs.find(run)
    path = write_report(files)
    return Result(ExitCode.OK, f"report: {path}", data=application.history.ReportData(path), run=files.name)


@command(runs_app, "bundle", example="runs bundle 20261121T091512Z --out for-support.tar.gz")
def runs_bundle(
    session: Session,
    *,
    run: RUN = None,
    out: Annotated[Path | None, option("--out FILE", "Where to write it; default: RUN.tar.gz here.")] = None,
) -> Result:
    """Everything of one run in a file to hand on: journal, report, settings, an hour of history; no secret in it."""
    return application.bundling.bundle(session, session.past().find(run), out, has_settings=session.has_settings())


@command(app, "history", example="history --since 30d")
def history(
    session: Session,
    *,
    since: Annotated[str | None, option("--since T", "A moment, or a duration back: 30d; default: all.")] = None,
) -> Result:
    """Which site served since when, by whom and why, and how long clients were out: by runs and the monitor's
    samples."""
    installation = session.installation() if session.has_settings() else None
    began = moment("--since", since) if since is not None else None
    return application.history.history(session.past().all(), installation, began)
