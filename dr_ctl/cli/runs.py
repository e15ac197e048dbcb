"""`runs`: shows the files of past runs. Asks no broker."""

from __future__ import annotations

import json
from typing import Any

from dr_ctl.application.findings import JOURNAL_ALTERED
from dr_ctl.application.result import Result
from dr_ctl.cli.session import Session
from dr_ctl.core.model import ExitCode, Json
from dr_ctl.core.printable import page
from dr_ctl.engine.entries import Entry, read
from dr_ctl.engine.runs import RunFiles
from dr_ctl.engine.seal import Verdict, check
from dr_ctl.report.html import write_report


def how_ended(files: RunFiles) -> tuple[str, str]:
    """How a run ended, in a word and a sentence; an open one has not. The word is the outcome, which says how the last
    command ended: of an undo that went well it is `ok`, and of the run `aborted`."""
    if files.open():
        return "open", "under way, or interrupted"
    if not files.result.exists():
        return "none", "it never began: nothing was changed by it"
    try:
        result: dict[str, Any] = json.loads(files.result.read_bytes())
        outcome, summary, was_undone = str(result["outcome"]), str(result["summary"]), result["data"].get("undone")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        # A damaged run must not hide the others.
        return "unknown", f"result.json cannot be read ({type(error).__name__}): see runs show"
    return "aborted" if outcome == ExitCode.OK.outcome and was_undone is True else outcome, summary


def runs_list(session: Session) -> Result:
    runs = session.past().all()
    all_ = [(files, *how_ended(files)) for files in runs]
    rows: list[Json] = [
        {
            "run": files.name,
            "outcome": outcome,
            "summary": summary,
            **({"queues": files.queues} if files.queues else {}),
        }
        for files, outcome, summary in all_
    ]
    text = page(
        f"{files.name}  {outcome:<16} {f'[{files.queues}] ' if files.queues else ''}{summary}"
        for files, outcome, summary in all_
    )
    return Result(ExitCode.OK, f"{len(runs)} run(s)", data={"runs": rows}, text=text)


def line_of(entry: Entry) -> str | None:
    """A journal line for people; None for lines that say nothing by themselves."""
    text = str(entry.evidence.get("text", ""))
    if entry.kind == "step":
        return f"{entry.time}  {entry.step}: {entry.outcome}{': ' + text if text else ''}"
    if entry.kind == "intent" and entry.call is not None:
        return f"{entry.time}      call: {entry.call['about']}"
    if entry.kind == "result" and entry.outcome != "done":
        return f"{entry.time}      {entry.outcome}: {text}"
    return f"{entry.time}  signal: {entry.outcome}" if entry.kind == "signal" else None


def runs_show(session: Session, run: str | None) -> Result:
    files = session.past().find(run)
    entries = read(files.journal) if files.journal.exists() else []
    lines, steps = [], []
    for entry in entries:
        if (line := line_of(entry)) is not None:
            lines.append(line)
        if entry.kind == "step":
            text = str(entry.evidence.get("text", ""))
            steps.append({"time": entry.time, "step": entry.step, "event": entry.outcome, "text": text})
    outcome, summary = how_ended(files)
    data: dict[str, Json] = {"outcome": outcome, "steps": [dict(step) for step in steps], "entries": len(entries)}
    return Result(ExitCode.OK, f"{files.name}: {outcome}: {summary}", data=data, run=files.name, text=page(lines))


def runs_verify(session: Session, run: str | None) -> Result:
    """Recompute the hash chains of one run, or of all runs, as an auditor does."""
    runs = session.past()
    checked = [(files.name, check(files)) for files in ([runs.find(run)] if run is not None else runs.all())]
    altered = [(name, each) for name, each in checked if each.verdict is Verdict.ALTERED]
    findings = [
        JOURNAL_ALTERED(
            f"{name}: {each.text}",
            "Do not rely on what this run says of itself; ask who could write in the state directory.",
        )
        for name, each in altered
    ]
    text = page(f"{name}  {each.verdict.value:<12} {each.text}" for name, each in checked)
    rows: list[Json] = [{"run": name, **each.as_json()} for name, each in checked]
    opens = sum(each.verdict is Verdict.OPEN for _, each in checked)
    summary = f"{len(checked)} run(s) looked at, {len(altered)} altered"
    summary += f", {opens} not ended and so not sealed" if opens else ""
    code = ExitCode.PRECHECK_FAILED if altered else ExitCode.OK
    name = checked[0][0] if run is not None else None
    return Result(code, summary, findings, {"runs": rows}, name, text)


def runs_report(session: Session, run: str | None) -> Result:
    files = session.past().find(run)
    path = write_report(files)
    return Result(ExitCode.OK, f"report: {path}", data={"report": str(path)}, run=files.name)
