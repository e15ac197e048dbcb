"""The commands that may change a broker, and `plan`: look, decide, ask, execute, report."""

from __future__ import annotations

import getpass
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import typer

from dr_ctl import __version__
from dr_ctl.cli.plans import plan_text
from dr_ctl.cli.preflight import Preflight
from dr_ctl.cli.result import Result
from dr_ctl.cli.session import Session
from dr_ctl.cli.wiring import World
from dr_ctl.core.errors import UsageError
from dr_ctl.core.model import ExitCode, Finding, Json, Role, Severity
from dr_ctl.engine import executor
from dr_ctl.engine.executor import RunResult
from dr_ctl.engine.journal import History, Journal, read
from dr_ctl.engine.plan import AlreadyThere, Ask, Decision, Plan, Refusal
from dr_ctl.engine.planner import error, other_sites
from dr_ctl.engine.planner import plan as decide
from dr_ctl.engine.runs import RunFiles, Runs, write
from dr_ctl.engine.stopping import StopAtOnce, StopRequest, stoppable
from dr_ctl.report.html import write_report
from dr_ctl.settings.durations import seconds
from dr_ctl.telemetry.events import Listener
from dr_ctl.topologies.mirror.view import MirrorSeen

OPERATIONS = ("swapover",)
T = TypeVar("T")


def ask(
    operation: str,
    to: str,
    timeout: str | None,
    cut_in_flight: bool,
    accept_difference: Sequence[str] | None,
    expect_serving: str | None,
) -> Ask:
    """Make the question out of the options; raises `UsageError` where one is not well formed."""
    if operation not in OPERATIONS:
        raise UsageError(f"unknown operation {operation}", remedy=f"This version knows {', '.join(OPERATIONS)}.")
    accepted: dict[str, int] = {}
    for each in accept_difference or ():
        queue, equals, number = each.rpartition("=")
        if not (equals and queue and number.isdecimal()):
            raise UsageError(
                f"--accept-difference {each}: not QUEUE=N", remedy="As in --accept-difference orders.in=3."
            )
        accepted[queue] = int(number)
    return Ask(operation, to, _seconds(timeout), cut_in_flight, accepted, expect_serving)


def _seconds(timeout: str | None) -> float | None:
    if timeout is None:
        return None
    try:
        return seconds(timeout)
    except ValueError as problem:
        raise UsageError(f"--timeout: {problem}", remedy="As in --timeout 90s.") from problem


def plan(session: Session, asked: Ask, out: Path | None) -> Result:
    with World.of(session.installation(), time.sleep) as world:
        world.must_know(asked)
        decided = decide(world.runbook(asked.operation), world.recipe, world.observer.observe(), asked)
    if out is not None and isinstance(decided, Plan):
        try:
            write(out, decided.as_json())
        except OSError as problem:
            raise UsageError(f"--out {out}: {problem.strerror}", remedy="Name a file that can be written.") from problem
    return _undecided(decided) or _planned(decided)


def _planned(decided: Decision) -> Result:
    assert isinstance(decided, Plan)
    calls = sum(call.when is None for step in decided.steps for call in step.calls)
    move = f"{decided.ask.operation} from {decided.source} to {decided.target}"
    summary = f"{move}: {calls} calls for certain; nothing was changed"
    return Result(ExitCode.OK, summary, decided.findings, {"plan": decided.as_json()}, text=plan_text(decided))


def _undecided(decided: Decision) -> Result | None:
    """The end of a command whose plan says that there is nothing to do, or that it may not be done."""
    if isinstance(decided, AlreadyThere):
        return Result(ExitCode.OK, decided.text, decided.findings)
    if isinstance(decided, Refusal):
        errors = [each for each in decided.findings if each.severity is Severity.ERROR]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        summary = f"refused, nothing was changed: {errors[0].text}{more}"
        return Result(ExitCode.PRECHECK_FAILED, summary, decided.findings)
    return None


def run(session: Session, asked: Ask, *, yes: bool, dry_run: bool) -> Result:
    """Carry out an operation. Order of looking: another's lock, an open run, already there; then lock, look again."""
    runs, installation = session.runs(), session.installation()
    with World.of(installation, time.sleep) as world:
        world.must_know(asked)
        book = world.runbook(asked.operation)
        if not dry_run:
            with runs.lock(f"{asked.operation} to {asked.target}"):
                pass
        if (unfinished := runs.unfinished()) is not None:
            return _still_open(unfinished)
        seen = world.observer.observe()
        decided = decide(book, world.recipe, seen, asked)
        if (ended := _undecided(decided)) is not None:
            return _with_pairs(ended, seen)
        if dry_run:
            return _planned(decided)
        assert isinstance(decided, Plan)
        if (declined := _declined(decided, yes=yes)) is not None:
            return declined
        with runs.lock(f"{asked.operation} to {asked.target}"):
            if (unfinished := runs.unfinished()) is not None:
                return _still_open(unfinished)
            seen = world.observer.observe()
            decided = decide(book, world.recipe, seen, asked)
            if (ended := _undecided(decided)) is not None:
                return _with_pairs(ended, seen)
            assert isinstance(decided, Plan)
            files = runs.create(asked.operation, asked.target)
            write(files.plan, decided.as_json())
            return _execute(session, world, files, decided)


def _execute(session: Session, world: World, files: RunFiles, decided: Plan) -> Result:
    listener = session.listener()

    def act(journal: Journal, stop: StopRequest) -> RunResult:
        preflight = Preflight(world.installation, files.folder)
        driver = world.driver()
        return executor.execute(
            decided, driver, journal, estimator=preflight, stop=stop, clock=world.clock, listener=listener, by=_by()
        )

    return _journaled(session, world, files, act)


def _by() -> dict[str, Json]:
    """Who runs this, for the journal: a user without a name in the system's list is its number."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return {"user": user, "host": socket.gethostname(), "version": __version__}


def _journaled(
    session: Session, world: World, files: RunFiles, act: Callable[[Journal, StopRequest], RunResult]
) -> Result:
    """Act with the run's journal open, then write its result and its report. From here on signals only ask."""
    with stoppable() as stop:
        journal = Journal(files.journal, world.clock)
        try:
            ended = act(journal, stop)
            result = Result(ended.code, ended.text, ended.findings, _data(ended, files), files.name)
            journal.end(result.envelope(session.command))
            sealed: dict[str, Json] = {"last_hash": journal.last_hash, "count": journal.count}
            write(files.result, {**result.envelope(session.command), "journal": sealed})
        except StopAtOnce as stopped:
            return _stopped_at_once(stopped, files)
        finally:
            journal.close()
        return _reported(result, files)


def _reported(result: Result, files: RunFiles) -> Result:
    try:
        return replace(result, text=f"report: {write_report(files)}")
    except Exception as error:  # noqa: BLE001 - how the run ended is known and said, whatever goes wrong in drawing it
        text = f"the report could not be written: {type(error).__name__}: {error}"
        finding = Finding("DR-REPORT-001", Severity.WARNING, text, f"`dr-ctl runs report {files.name}` tries again.")
        return replace(result, findings=(*result.findings, finding))


def _data(ended: RunResult, files: RunFiles) -> dict[str, Json]:
    data: dict[str, Json] = {
        "pairs": [pair.as_json() for pair in ended.pairs],
        "outage_s": round(ended.outage_s, 3) if ended.outage_s is not None else None,
        "report": str(files.report),
    }
    return data | {"undone": ended.undone} if ended.undone is not None else data


def _stopped_at_once(stopped: StopAtOnce, files: RunFiles) -> Result:
    text = "stopped at once by a second signal: nothing was undone, clients may be locked out of both sites"
    remedy = "`dr-ctl status` says who is locked out; then `dr-ctl resume` or `dr-ctl abort`."
    finding = Finding("DR-RUN-002", Severity.ERROR, text, remedy)
    return Result(ExitCode(128 + stopped.signum), text, (finding,), {"undone": False}, files.name)


def _declined(decided: Plan, *, yes: bool) -> Result | None:
    """Ask, where somebody can be asked; None is a yes."""
    if yes:
        return None
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        text = "nobody could be asked, and --yes was not given; nothing was changed"
        return Result(ExitCode.DECLINED, text, decided.findings)
    typer.echo(plan_text(decided), err=True)
    question = f"Move from {decided.source} to {decided.target}? Type the target's name"
    if _answer(lambda: typer.prompt(question, err=True, default="", show_default=False).strip()) == decided.target:
        return None
    return Result(ExitCode.DECLINED, "declined; nothing was changed", decided.findings)


def _answer(question: Callable[[], T]) -> T | None:
    """What was answered; None where the person hung up."""
    try:
        return question()
    except typer.Abort:
        return None


def _still_open(unfinished: RunFiles) -> Result:
    text = f"the run {unfinished.name} was interrupted and is still open; nothing was changed"
    finding = error("DR-RUN-003", text, "`dr-ctl resume` goes on with it, `dr-ctl abort` undoes it.")
    return Result(ExitCode.PRECHECK_FAILED, text, (finding,), run=unfinished.name)


def _with_pairs(result: Result, seen: MirrorSeen) -> Result:
    return replace(result, data={**result.data, "pairs": [pair.as_json() for pair in seen.pairs]})


def _no_open_run() -> Result:
    text = "no run is open; nothing was changed"
    finding = error("DR-RUN-004", text, "`dr-ctl runs list` shows the runs that have ended.")
    return Result(ExitCode.PRECHECK_FAILED, text, (finding,))


def _past(files: RunFiles, world: World) -> History:
    """Read what the interrupted run wrote. Opening the journal for writing shows that its process is gone."""
    journal = Journal(files.journal, world.clock)
    try:
        return journal.history()
    finally:
        journal.close()


def _never_began(runs: Runs) -> RunFiles | None:
    """An open run, unless its journal was never begun: then nothing was changed, and it is closed here and now."""
    unfinished = runs.unfinished()
    if unfinished is not None and not read(unfinished.journal):
        unfinished.journal.unlink()
        return runs.unfinished()
    return unfinished


def resume(session: Session, timeout: str | None, *, yes: bool, dry_run: bool) -> Result:
    """Plan again with the history of the open run, and carry that out."""
    runs, installation = session.runs(), session.installation()
    with World.of(installation, time.sleep) as world, runs.lock("resume"):
        files = _never_began(runs)
        if files is None:
            return _no_open_run()
        past = _past(files, world)
        asked = replace(past.ask, timeout_s=_seconds(timeout) if timeout is not None else past.ask.timeout_s)
        seen = world.observer.observe()
        decided = decide(world.runbook(asked.operation), world.recipe, seen, asked, past)
        if (ended := _undecided(decided)) is not None:
            return replace(_with_pairs(ended, seen), run=files.name)
        if dry_run:
            return _planned(decided)
        assert isinstance(decided, Plan)
        if (declined := _declined(decided, yes=yes)) is not None:
            return replace(declined, run=files.name)
        return _execute(session, world, files, decided)


def abort(session: Session, *, yes: bool, dry_run: bool) -> Result:
    """Undo the open run, unless an activating call of it may have had its effect."""
    runs, installation = session.runs(), session.installation()
    with World.of(installation, time.sleep) as world, runs.lock("abort"):
        files = _never_began(runs)
        if files is None:
            return _no_open_run()
        past = _past(files, world)
        seen = world.observer.observe()
        if (others := other_sites(seen, past)) is not None:
            return Result(ExitCode.PRECHECK_FAILED, others.text, (others,), run=files.name)
        if (refused := _past_no_return(past, seen, files)) is not None:
            return refused
        steps = [step for step in past.started() if step.inverse]
        if dry_run:
            text = "\n".join(
                f"undo {step.verb}: {call.about}, if {call.when}" for step in steps for call in step.inverse
            )
            return Result(ExitCode.OK, "nothing was changed", run=files.name, text=text)
        question = f"Undo {files.name}?"
        if not yes and not (sys.stdin.isatty() and _answer(lambda: typer.confirm(question, err=True))):
            return Result(ExitCode.DECLINED, "declined; nothing was changed", run=files.name)
        listener: Listener = session.listener()

        def act(journal: Journal, stop: StopRequest) -> RunResult:
            del stop  # an undo is not stopped half way: the first signal waits for its end
            return executor.undo(past, world.driver(), journal, clock=world.clock, listener=listener)

        return _journaled(session, world, files, act)


def _past_no_return(past: History, seen: MirrorSeen, files: RunFiles) -> Result | None:
    target = past.ask.target
    if not past.activation and seen.roles[target] is Role.STANDBY:
        return None
    text = f"{target} is {seen.roles[target].value} and may have been opened by the run: it cannot be undone"
    finding = error("DR-RUN-005", text, "`dr-ctl resume` finishes the move; a swapover back undoes it safely.")
    return Result(ExitCode.PRECHECK_FAILED, text, (finding,), run=files.name)
