"""The commands that may change a broker, and `plan`: look, decide, ask, execute, report."""

from __future__ import annotations

import getpass
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from dr_ctl import __version__
from dr_ctl.cli import locking
from dr_ctl.cli.asking import timeout_s
from dr_ctl.cli.estimates import StoredEstimate
from dr_ctl.cli.locking import NO_THEFT, Theft
from dr_ctl.cli.owed import owed
from dr_ctl.cli.plans import plan_text
from dr_ctl.cli.preflight import Preflight
from dr_ctl.cli.result import Result
from dr_ctl.cli.session import Session
from dr_ctl.cli.wiring import World
from dr_ctl.core.errors import UsageError
from dr_ctl.core.model import ExitCode, Finding, Json, Role, Severity
from dr_ctl.engine import executor
from dr_ctl.engine.executor import RunResult
from dr_ctl.engine.holding import Lease
from dr_ctl.engine.journal import History, Journal, read
from dr_ctl.engine.plan import AlreadyThere, Ask, Decision, Plan, Refusal
from dr_ctl.engine.planner import FAILOVER, REINSTATE, error, other_sites
from dr_ctl.engine.planner import plan as decide
from dr_ctl.engine.runs import RunFiles, Runs, write
from dr_ctl.engine.stopping import StopAtOnce, StopRequest, stoppable
from dr_ctl.telemetry.events import Listener
from dr_ctl.topologies.mirror.view import MirrorSeen

if TYPE_CHECKING:
    from dr_ctl.cli.price import FailoverPrice

T = TypeVar("T")


def plan(session: Session, asked: Ask, out: Path | None) -> Result:
    with World.of(session.installation(), time.sleep) as world:
        world.must_know(asked)
        book = world.runbook(asked.operation)
        price = world.price(asked, book)
        decided = decide(book, world.recipe, _observed(world, price), asked, price=price)
    if out is not None and isinstance(decided, Plan):
        try:
            write(out, decided.as_json())
        except OSError as problem:
            raise UsageError(f"--out {out}: {problem.strerror}", remedy="Name a file that can be written.") from problem
    return _priced(_undecided(decided) or _planned(decided), price)


def _planned(decided: Decision) -> Result:
    assert isinstance(decided, Plan)
    calls = sum(call.when is None for step in decided.steps for call in step.calls)
    move = f"{decided.ask.operation} {decided.target}"
    if decided.ask.operation != REINSTATE:
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
        return Result(decided.code, summary, decided.findings)
    return None


def run(session: Session, asked: Ask, *, yes: bool, dry_run: bool, theft: Theft = NO_THEFT) -> Result:
    """Carry out an operation. Order of looking: another's lock, an open run, already there; then lock, look again."""
    runs, installation = session.runs(), session.installation()
    with World.of(installation, time.sleep) as world:
        world.must_know(asked)
        book = world.runbook(asked.operation)
        if not dry_run:
            with runs.lock(f"{asked.operation} to {asked.target}"):
                pass
        if (unfinished := runs.unfinished()) is not None and not _supersedes(asked):
            return _still_open(unfinished, asked)
        price = world.price(asked, book)
        seen = _observed(world, price)
        if not dry_run:
            locking.refuse_if_held(seen, runs, theft)
        decided = decide(book, world.recipe, seen, asked, price=price)
        if (ended := _undecided(decided)) is not None:
            return _priced(_with_pairs(ended, seen, session), price)
        if dry_run:
            return _priced(_planned(decided), price)
        assert isinstance(decided, Plan)
        if (declined := _declined(decided, yes=yes)) is not None:
            return declined
        what, name = f"{asked.operation} to {asked.target}", runs.name(asked.operation, asked.target)
        with runs.lock(what), locking.locked(world, runs, seen, name, what, _by(), theft) as lease:
            if (unfinished := runs.unfinished()) is not None and not _supersedes(asked):
                return _still_open(unfinished, asked)
            seen = _observed(world, price)
            decided = decide(book, world.recipe, seen, asked, price=price)
            if (ended := _undecided(decided)) is not None:
                return _priced(_with_pairs(ended, seen, session), price)
            assert isinstance(decided, Plan)
            if unfinished is not None:
                _end_for(unfinished, name, asked, world)
            files = runs.create(asked.operation, asked.target, name)
            files.begin(decided.as_json())
            return _execute(session, world, files, decided, lease, theft, price, yes=yes)


def _observed(world: World, price: FailoverPrice | None) -> MirrorSeen:
    seen = world.observer.observe()
    if price is not None:
        price.saw(seen.roles[price.lost])
    return seen


def _priced(result: Result, price: FailoverPrice | None) -> Result:
    """Say what a failover may cost beside whatever came of it."""
    if price is None:
        return result
    return replace(result, data={**result.data, "bounds": dict(price.bounds())})


def _execute(
    session: Session,
    world: World,
    files: RunFiles,
    decided: Plan,
    lease: Lease,
    theft: Theft,
    price: FailoverPrice | None,
    *,
    yes: bool,
) -> Result:
    listener = session.listener()
    locking.note_pauses(lease, decided.baseline)
    decided = replace(decided, findings=(*decided.findings, *lease.findings()))

    def act(journal: Journal, stop: StopRequest) -> RunResult:
        return executor.execute(
            decided,
            world.driver(),
            journal,
            estimator=Preflight(world.installation, files.folder)
            if price is None
            else StoredEstimate(world.installation, price.lost),
            stop=stop,
            clock=world.clock,
            listener=listener,
            by={**_by(), "lock": locking.told(lease, theft)},
            price=price,
            asker=lambda sentence: yes or bool(_terminal() and _answer(lambda: typer.confirm(sentence, err=True))),
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
        if world.lease is not None:
            world.lease.facts = lambda: (journal.last_hash, journal.count)
        try:
            ended = act(journal, stop)
            answered = [site for site, role in ended.roles.items() if role in (Role.SERVING, Role.STANDBY)]
            debts = owed(session.state(), ended.debts, answered)
            result = Result(ended.code, ended.text, ended.findings, _data(ended, files), files.name, debts=debts)
            _seal(journal, files, result.envelope(session.command))
        except StopAtOnce as stopped:
            return _stopped_at_once(stopped, files)
        finally:
            journal.close()
        return _reported(result, files)


def _reported(result: Result, files: RunFiles) -> Result:
    from dr_ctl.report.html import write_report  # noqa: PLC0415 - not before the clients are served

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
    if ended.bounds is not None:
        data["bounds"] = dict(ended.bounds)
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
    if not _terminal():
        text = "nobody could be asked, and --yes was not given; nothing was changed"
        return Result(ExitCode.DECLINED, text, decided.findings)
    typer.echo(plan_text(decided), err=True)
    what = "Take in" if decided.ask.operation == REINSTATE else f"Move from {decided.source} to"
    question = f"{what} {decided.target}? Type the target's name"
    if _answer(lambda: typer.prompt(question, err=True, default="", show_default=False).strip()) == decided.target:
        return None
    return Result(ExitCode.DECLINED, "declined; nothing was changed", decided.findings)


def _terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _answer(question: Callable[[], T]) -> T | None:
    """What was answered; None where the person hung up."""
    try:
        return question()
    except typer.Abort:
        return None


def _supersedes(asked: Ask) -> bool:
    """A failover does not wait for a run that was interrupted, where somebody says why."""
    return asked.operation == FAILOVER and asked.reason is not None


def _end_for(unfinished: RunFiles, successor: str, asked: Ask, world: World) -> None:
    """Close an interrupted run whose place a failover takes. What it had changed is seen, not undone."""
    text = f"superseded by {successor}: {asked.reason}"
    with closing(Journal(unfinished.journal, world.clock)) as journal:
        _seal(journal, unfinished, Result(ExitCode.UNKNOWN, text, run=unfinished.name).envelope("failover"))


def _seal(journal: Journal, files: RunFiles, told: Mapping[str, Json]) -> None:
    """Write down how a run ended: in its journal, and in its result with what seals the journal."""
    journal.end(told)
    sealed: dict[str, Json] = {"last_hash": journal.last_hash, "count": journal.count}
    write(files.result, {**told, "journal": sealed})


def _still_open(unfinished: RunFiles, asked: Ask) -> Result:
    text = f"the run {unfinished.name} was interrupted and is still open; nothing was changed"
    remedy = "`dr-ctl resume` goes on with it, `dr-ctl abort` undoes it."
    if asked.operation == FAILOVER:
        remedy += " With --reason TEXT the failover takes its place."
    finding = error("DR-RUN-003", text, remedy)
    return Result(ExitCode.PRECHECK_FAILED, text, (finding,), run=unfinished.name)


def _with_pairs(result: Result, seen: MirrorSeen, session: Session) -> Result:
    debts = owed(session.state(), seen.debts, [site for site in seen.sites if seen.views(site)])
    return replace(result, data={**result.data, "pairs": [pair.as_json() for pair in seen.pairs]}, debts=debts)


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
        unfinished.reserve.unlink(missing_ok=True)
        return runs.unfinished()
    return unfinished


def resume(session: Session, timeout: str | None, *, yes: bool, dry_run: bool, theft: Theft = NO_THEFT) -> Result:
    """Plan again with the history of the open run, and carry that out."""
    runs, installation = session.runs(), session.installation()
    with World.of(installation, time.sleep) as world, runs.lock("resume"):
        files = _never_began(runs)
        if files is None:
            return _no_open_run()
        past = _past(files, world)
        asked = replace(past.ask, timeout_s=timeout_s(timeout) if timeout is not None else past.ask.timeout_s)
        book = world.runbook(asked.operation)
        price = world.price(asked, book)
        seen = _observed(world, price)
        if not dry_run:
            locking.refuse_if_held(seen, runs, theft)
        decided = decide(book, world.recipe, seen, asked, past, price)
        if (ended := _undecided(decided)) is not None:
            return replace(_with_pairs(ended, seen, session), run=files.name)
        if dry_run:
            return _planned(decided)
        assert isinstance(decided, Plan)
        if (declined := _declined(decided, yes=yes)) is not None:
            return replace(declined, run=files.name)
        what = f"resume of {asked.operation} to {asked.target}"
        with locking.locked(world, runs, seen, files.name, what, _by(), theft) as lease:
            now = _observed(world, price)
            if (changed := locking.changed(seen, now)) is not None:
                return Result(ExitCode.PRECHECK_FAILED, changed.text, (changed,), run=files.name)
            decided = decide(book, world.recipe, now, asked, past, price)
            if (ended := _undecided(decided)) is not None:
                return replace(_with_pairs(ended, now, session), run=files.name)
            assert isinstance(decided, Plan)
            return _execute(session, world, files, decided, lease, theft, price, yes=yes)


def abort(session: Session, *, yes: bool, dry_run: bool, theft: Theft = NO_THEFT) -> Result:
    """Undo the open run, unless an activating call of it may have had its effect."""
    runs, installation = session.runs(), session.installation()
    with World.of(installation, time.sleep) as world, runs.lock("abort"):
        files = _never_began(runs)
        if files is None:
            return _no_open_run()
        past = _past(files, world)
        seen = world.observer.observe()
        if not dry_run:
            locking.refuse_if_held(seen, runs, theft)
        if (others := other_sites(seen, past)) is not None:
            return Result(ExitCode.PRECHECK_FAILED, others.text, (others,), run=files.name)
        if (refused := _past_no_return(past, seen, files)) is not None:
            return refused
        steps = executor.to_undo(past)
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
            journal.lock(locking.told(lease, theft))
            return executor.undo(past, world.driver(), journal, clock=world.clock, listener=listener)

        what = f"abort of {past.ask.operation} to {past.ask.target}"
        with locking.locked(world, runs, seen, files.name, what, _by(), theft) as lease:
            locking.note_pauses(lease, past.baseline)
            if (refused := _past_no_return(past, world.observer.observe(), files)) is not None:
                return refused
            return _journaled(session, world, files, act)


def _past_no_return(past: History, seen: MirrorSeen, files: RunFiles) -> Result | None:
    target = past.ask.target
    if not past.activation and seen.roles[target] is Role.STANDBY:
        return None
    text = f"{target} is {seen.roles[target].value} and may have been opened by the run: it cannot be undone"
    finding = error("DR-RUN-005", text, "`dr-ctl resume` finishes the move; a swapover back undoes it safely.")
    return Result(ExitCode.PRECHECK_FAILED, text, (finding,), run=files.name)
