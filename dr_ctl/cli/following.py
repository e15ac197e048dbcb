"""`runs show --follow`: shows a run in a second terminal. Reads the journal; touches neither run nor broker."""

import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from dr_ctl.application.history import RunData
from dr_ctl.application.result import Result
from dr_ctl.cli.output import as_line, has_reader
from dr_ctl.cli.session import Session
from dr_ctl.core.errors import Stopped
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode
from dr_ctl.core.notation import if_known, line
from dr_ctl.core.system import boottime_s, system
from dr_ctl.engine.journal import Entry, is_held, read_entries
from dr_ctl.engine.record import OPEN, how_ended

POLL_S: Final = 0.1
BEGINS_WITHIN_S: Final = 2.0  # the longest time between a run's directory and its journal
SAMPLE_EVERY_S: Final = 1.0


class Tail:
    """Reads the lines added to a journal since the last call. A line that is being written is left for later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self.count = 0

    def new(self) -> list[Entry]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                added = file.read()
        except FileNotFoundError:
            return []
        entries = []
        with suppress(ValueError):  # a torn line, after a crash or during a write, stays unread
            for row in added.split(b"\n")[:-1]:
                entries.append(Entry.of_line(row)[0])
                self._read += len(row) + 1
        self.count += len(entries)
        return entries


def follow(session: Session, run: str | None) -> Result:
    """Show the journal's lines as they come, until the run ends or its process is gone."""
    files = session.past().find(run)
    tail, shown = Tail(files.journal), _Shown(session)
    begins_by = boottime_s() + BEGINS_WITHIN_S
    try:
        while True:
            # The end is checked before reading: all lines written before the end are read.
            gone = not is_held(files.journal) and (tail.count > 0 or boottime_s() > begins_by)
            is_over = files.result.exists() or gone
            for entry in tail.new():
                shown.show(entry)
            if is_over:
                break
            if not has_reader():
                return _left(files.name)
            system().sleep(POLL_S)
    except Stopped:
        return _left(files.name)
    if files.journal.exists():
        read_entries(files.journal)  # a line damaged in the middle hid those after it: say so as `runs show` does
    outcome, summary, _ = how_ended(files)
    data = RunData(outcome, tail.count)
    if outcome != OPEN:
        return Result(ExitCode.OK, f"{files.name}: {outcome}: {summary}", data=data, run=files.name)
    return Result.of(ExitCode.OK, found("DR-RUN-003.gone", run=files.name), data=data, run=files.name)


def line_of(entry: Entry) -> str | None:
    """Write a journal line for people; None for lines that people do not need."""
    text = str(entry.evidence.get("text", ""))
    if entry.kind == "step":
        return f"{entry.time}  {if_known(entry.step)}: {if_known(entry.outcome)}{': ' + text if text else ''}"
    if entry.kind == "intent" and entry.call is not None:
        return f"{entry.time}      call: {entry.call['about']}"
    if entry.kind == "result" and entry.outcome != "done":
        return f"{entry.time}      {if_known(entry.outcome)}: {text}"
    return f"{entry.time}  signal: {if_known(entry.outcome)}" if entry.kind == "signal" else None


def _left(run: str) -> Result:
    return Result(ExitCode.OK, f"{run} is no longer followed; the run goes on", run=run)


class _Shown:
    """Writes lines to standard output: samples only once a second for people, everything as JSON."""

    def __init__(self, session: Session) -> None:
        self._json = session.json
        self._sampled_at: datetime | None = None

    def show(self, entry: Entry) -> None:
        if self._json:
            sys.stdout.write(as_line(entry.body()) + "\n")
        elif (text := self._line(entry)) is not None:
            sys.stdout.write(line(text) + "\n")
        sys.stdout.flush()

    def _line(self, entry: Entry) -> str | None:
        if entry.kind != "sample":
            self._sampled_at = None
            return line_of(entry)
        at = datetime.fromisoformat(entry.time)
        if self._sampled_at is not None and (at - self._sampled_at).total_seconds() < SAMPLE_EVERY_S:
            return None
        self._sampled_at = at
        return f"{entry.time}      {_figures(entry.evidence)}"


def _figures(evidence: Any) -> str:
    parts = []
    for name, value in evidence.items():
        if isinstance(value, dict):
            parts.append(f"{name}: {_figures(value)};")
        elif isinstance(value, bool):
            parts.append(f"{'' if value else 'not '}{name}")
        else:
            parts.append(f"{name} {value}")
    return ", ".join(parts).replace(";,", ";").removesuffix(";")
