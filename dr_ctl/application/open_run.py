"""The run that was interrupted: finding it, reading what it wrote, and what is said of it where it is in the way."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Self

from dr_ctl.application.caller import Caller
from dr_ctl.application.result import Result
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Role, Severity
from dr_ctl.core.system import Clock
from dr_ctl.engine.ask import Ask, RunOptions
from dr_ctl.engine.entries import is_held, read
from dr_ctl.engine.history import History, history
from dr_ctl.engine.journal import Journal
from dr_ctl.engine.operations import ALONE, FAILOVER, REINSTATE
from dr_ctl.engine.parts import part_of
from dr_ctl.engine.roles import alive, open_again, source_of
from dr_ctl.engine.runs import RunFiles, Runs
from dr_ctl.topologies.topology import Snapshot


@dataclass(frozen=True, slots=True)
class OpenRun:
    """The newest run that has not ended, and whether its process lives on this host."""

    files: RunFiles
    lives: bool

    @classmethod
    def of(cls, caller: Caller) -> Self | None:
        files = caller.runs().unfinished()
        if files is None:
            return None
        lives = is_held(files.journal)
        return cls(files, lives) if lives or files.open() else None  # else the run ended between the two looks


def holding_state(runs: Runs, what: str, *, held: bool) -> AbstractContextManager[None]:
    """Hold this STATE, unless who asks holds it already, or takes no lock as a dry run does."""
    return nullcontext() if held else runs.lock(what)


def begun(runs: Runs, how: RunOptions) -> RunFiles | None:
    """The open run. A run without any journal line changed nothing and is closed here."""
    unfinished = runs.unfinished()
    if unfinished is not None and not read(unfinished.journal):
        if how.dry_run:
            return None
        unfinished.journal.unlink()
        unfinished.reserve.unlink(missing_ok=True)
        return runs.unfinished()
    return unfinished


def past(files: RunFiles, clock: Clock, how: RunOptions) -> History:
    """Read what the interrupted run wrote. Opening the journal for writing shows that its process is gone."""
    if how.dry_run:
        return history(read(files.journal))
    journal = Journal(files.journal, clock)
    try:
        return journal.history()
    finally:
        journal.close()


def no_open_run() -> Result:
    text = "no run is open; nothing was changed"
    finding = found("DR-RUN-004", text, "`dr-ctl runs list` shows the runs that have ended.")
    return Result(ExitCode.PRECHECK_FAILED, text, (finding,))


def still_open(unfinished: RunFiles, asked: Ask) -> Result:
    text = f"the run {unfinished.name} was interrupted and is still open; nothing was changed"
    remedy = "`dr-ctl resume` goes on with it, `dr-ctl abort` undoes it."
    if asked.operation == FAILOVER:
        remedy += " With --reason TEXT the failover takes its place."
    finding = found("DR-RUN-003", text, remedy, severity=Severity.ERROR)
    return Result(ExitCode.PRECHECK_FAILED, text, (finding,), run=unfinished.name)


def left_open(declined: Result, files: RunFiles) -> Result:
    """Say in a declined resume or abort that the run stays open."""
    text = f"{declined.summary}, and {files.name} stays open: `dr-ctl status` says who is served"
    return replace(declined, summary=text, run=files.name)


def why_not_undone(past: History, snapshot: Snapshot) -> str | None:
    """Why a run cannot be undone: the run or somebody else may have opened its target."""
    target = past.ask.target
    role = part_of(snapshot, past.ask).roles[target]
    if not past.activation and (role is Role.STANDBY or target in past.serving):
        return None
    return f"{target} is {role.value} and may have been opened by the run: it cannot be undone"


def refused_onward(past: History, snapshot: Snapshot) -> bool:
    """Say whether what the sites show refuses to go on. One that is silent may answer again."""
    ask = replace(past.ask, expect_serving=None)
    part = part_of(snapshot, ask)
    if ask.operation == FAILOVER:
        return not open_again(snapshot, past) and alive(part, ask) is not None
    answer = all(role in (Role.SERVING, Role.STANDBY) for role in part.roles.values())
    return ask.operation in (*ALONE, REINSTATE) and answer and isinstance(source_of(part, ask, past), Finding)
