"""`runs`: what past runs wrote. Asks no broker."""

from __future__ import annotations

import json
from typing import Any

from dr_ctl.cli.result import Result
from dr_ctl.cli.session import Session
from dr_ctl.core.model import ExitCode, Json
from dr_ctl.engine.journal import read
from dr_ctl.engine.runs import RunFiles
from dr_ctl.report.html import write_report


def _ended(files: RunFiles) -> tuple[str, str]:
    """How a run ended, in a word and a sentence; an open one has not."""
    if files.open():
        return "open", "under way, or interrupted"
    if not files.result.exists():
        return "none", "it never began: nothing was changed by it"
    try:
        told: dict[str, Any] = json.loads(files.result.read_bytes())
        return str(told["outcome"]), str(told["summary"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        # One damaged run must not hide the others.
        return "unknown", f"result.json cannot be read ({type(error).__name__}): see runs show"


def runs_list(session: Session) -> Result:
    runs = session.runs().all()
    told = [(files.name, *_ended(files)) for files in runs]
    rows: list[Json] = [{"run": name, "outcome": outcome, "summary": summary} for name, outcome, summary in told]
    text = "\n".join(f"{name}  {outcome:<16} {summary}" for name, outcome, summary in told)
    return Result(ExitCode.OK, f"{len(runs)} run(s)", data={"runs": rows}, text=text)


def runs_show(session: Session, run: str | None) -> Result:
    files = session.runs().find(run)
    entries = read(files.journal) if files.journal.exists() else []
    lines, steps = [], []
    for entry in entries:
        text = str(entry.evidence.get("text", ""))
        if entry.kind == "step":
            lines.append(f"{entry.time}  {entry.step}: {entry.outcome}{': ' + text if text else ''}")
            steps.append({"time": entry.time, "step": entry.step, "event": entry.outcome, "text": text})
        elif entry.kind == "intent" and entry.call is not None:
            lines.append(f"{entry.time}      call: {entry.call['about']}")
        elif entry.kind == "result" and entry.outcome != "done":
            lines.append(f"{entry.time}      {entry.outcome}: {text}")
        elif entry.kind == "signal":
            lines.append(f"{entry.time}  signal: {entry.outcome}")
    outcome, summary = _ended(files)
    data: dict[str, Json] = {"outcome": outcome, "steps": [dict(step) for step in steps], "entries": len(entries)}
    return Result(ExitCode.OK, f"{files.name}: {outcome}: {summary}", data=data, run=files.name, text="\n".join(lines))


def runs_report(session: Session, run: str | None) -> Result:
    files = session.runs().find(run)
    path = write_report(files)
    return Result(ExitCode.OK, f"report: {path}", data={"report": str(path)}, run=files.name)
