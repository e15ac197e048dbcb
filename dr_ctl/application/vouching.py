"""What the system's journal is told of a run, and a log held against the runs: `runs verify --against`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from dr_ctl.application import lock
from dr_ctl.application.caller import Caller
from dr_ctl.application.findings import RECORD_DIFFERS, RUN_GONE, RUN_NOT_VOUCHED
from dr_ctl.core.errors import UsageError
from dr_ctl.core.model import ExitCode, Finding, Json
from dr_ctl.engine.journal import Journal
from dr_ctl.engine.runs import RunFiles, Runs
from dr_ctl.engine.witness import Compared, Fit, Statement, compare, gone, of_state, statements

_WAYS: Final = "`journalctl -t dr-ctl -o json --since 2026-01-01 | dr-ctl runs verify --against -`."


@dataclass(frozen=True, slots=True)
class Voucher:
    """Tells the system's journal of one run. `about` is what the run is about, for people."""

    caller: Caller
    run: str
    about: Mapping[str, Json]

    def tell(self, event: str, journal: Journal, result: Mapping[str, Json] | None = None) -> None:
        """Name the last line that the run's journal has now. Never raises, and waits for nobody."""
        who = lock.by()
        ended = {} if result is None else {key: result[key] for key in ("outcome", "exit_code")}
        facts: dict[str, Json] = {
            "installation": self.caller.installation().settings.name,
            **self.about,
            "by": f"{who['user']}@{who['host']}",
            "command": self.caller.command,
            **ended,
        }
        state = of_state(self.caller.runs().known_identity())
        self.caller.vouch(Statement(self.run, event, journal.count, journal.last_hash, state, facts))


def against(runs: Runs, chosen: Sequence[RunFiles], log: str, *, whole: bool) -> tuple[list[Compared], list[Finding]]:
    """Hold runs against a log, `-` for standard input. `whole`: these are all runs of this STATE, so that what the log
    tells of another one is told too. Raises `UsageError`."""
    names = {files.name for files in chosen}
    state = of_state(runs.known_identity())
    with _opened(log) as file:
        said = [each for each in statements(file) if each.run in names or (whole and each.state == state)]
    of_run = {files.name: [each for each in said if each.run == files.name] for files in chosen}
    began = [files for files in chosen if files.journal.exists() or of_run[files.name]]
    compared = [compare(files, of_run[files.name]) for files in began]
    compared += gone(names, said, state) if whole else []
    return compared, [finding for each in compared if (finding := _finding(each)) is not None]


def code(findings: Sequence[Finding]) -> ExitCode:
    """10 where something speaks against a run, 22 where nothing speaks for one, else 0."""
    if any(each.id in (RECORD_DIFFERS.id, RUN_GONE.id) for each in findings):
        return ExitCode.PRECHECK_FAILED
    return ExitCode.UNKNOWN if findings else ExitCode.OK


def _finding(each: Compared) -> Finding | None:
    text = f"{each.run}: {each.text}"
    if each.fit is Fit.DIFFERS:
        return RECORD_DIFFERS(text, RECORD_DIFFERS.do)
    if each.fit is Fit.GONE:
        return RUN_GONE(text, RUN_GONE.do)
    if each.fit in (Fit.NOT_THERE, Fit.NO_END):
        return RUN_NOT_VOUCHED(text, f"Give a log that reaches back to that run: {_WAYS}")
    return None


@contextmanager
def _opened(log: str) -> Iterator[TextIO]:
    if log == "-":
        yield sys.stdin
        return
    try:
        with Path(log).open(encoding="utf-8", errors="replace") as file:
            yield file
    except OSError as problem:
        raise UsageError(f"--against {log}: {problem.strerror}", remedy=f"As in {_WAYS}") from problem
