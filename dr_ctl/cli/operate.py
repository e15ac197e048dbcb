"""The commands that may change a broker, and `plan`: look, decide, ask, execute, report."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import typer

from dr_ctl.cli import locking, people, plans, running
from dr_ctl.cli.asking import timeout_s, with_price
from dr_ctl.cli.how import How
from dr_ctl.cli.owed import owed
from dr_ctl.cli.price import FailoverPrice
from dr_ctl.cli.render import told
from dr_ctl.cli.result import Result
from dr_ctl.cli.session import Session
from dr_ctl.cli.wiring import World
from dr_ctl.core.errors import UsageError
from dr_ctl.core.model import ExitCode, Json, Role, Severity
from dr_ctl.engine import executor
from dr_ctl.engine.ending import price_text
from dr_ctl.engine.journal import History, Journal, history, read
from dr_ctl.engine.operations import ALONE, AT_SOURCE, FAILBACK, FAILOVER, REINSTATE, SWAPOVER
from dr_ctl.engine.plan import AlreadyThere, Ask, Decision, Plan, Refusal
from dr_ctl.engine.roles import error, other_sites, unexpected
from dr_ctl.engine.runs import RunFiles, Runs, write
from dr_ctl.topologies.common.view import Broker, Seen

_NOBODY_ASKED = "nobody could be asked, and --yes was not given; nothing was changed"
_SAID_NO = "a person said no; nothing was changed"


def plan(session: Session, asked: Ask, out: Path | None) -> Result:
    with World.of(session.installation(), time.sleep) as world:
        world.must_know(asked)
        price = world.price(asked)
        seen = _observed(world, price)
        decided = world.decide(asked, seen, price=price)
        brings = world.residue(asked, seen)
    if out is not None and isinstance(decided, Plan):
        try:
            write(out, decided.as_json())
        except OSError as problem:
            raise UsageError(f"--out {out}: {problem.strerror}", remedy="Name a file that can be written.") from problem
    return _with(_priced(_undecided(decided) or _planned(decided), price), brings)


def _planned(decided: Decision) -> Result:
    assert isinstance(decided, Plan)
    calls = sum(call.when is None for step in decided.steps for call in step.calls)
    summary = f"{plans.title(decided)}: {calls} call(s) for certain; nothing was changed"
    return Result(ExitCode.OK, summary, decided.findings, {"plan": decided.as_json()}, text=plans.plan_text(decided))


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


def run(session: Session, asked: Ask, how: How) -> Result:
    """Carry out an operation. Order of looking: another's lock, an open run, already there; then lock, look again."""
    runs, installation = session.runs(), session.installation()
    saved = plans.read(how.saved, asked) if how.saved is not None else None
    asked = replace(saved.ask if saved is not None else asked, expect_serving=how.expect_serving)
    with World.of(installation, time.sleep) as world:
        world.must_know(asked)
        what = f"{asked.operation} {'of' if asked.operation in AT_SOURCE else 'to'} {world.named(asked)}"
        if not how.dry_run:
            with runs.lock(what):
                pass
        if (unfinished := runs.unfinished()) is not None and not _supersedes(asked):
            return _still_open(unfinished, asked)
        price = world.price(asked)
        seen = _observed(world, price)
        if not how.dry_run:
            locking.refuse_if_held(seen, runs, how.theft)
        decided = plans.same(saved, world.decide(asked, seen, price=price))
        if isinstance(decided, AlreadyThere) and (why := world.why_not_so(asked)) is not None:
            finding = error("DR-ROLE-013", f"{decided.text}, by its flags; but {why}", "`dr-ctl status` looks again.")
            return _with_pairs(Result(ExitCode.UNKNOWN, finding.text, (finding,)), seen, session)
        if (ended := _undecided(decided)) is not None:
            return _priced(_with_pairs(ended, seen, session), price)
        brings = world.residue(asked, seen)
        if how.dry_run:
            return _with(_priced(_planned(decided), price), brings)
        assert isinstance(decided, Plan)
        if price is not None:
            session.say(f"price: {price_text(price.bounds())}")
        if (declined := _declined(decided, how, session)) is not None:
            return _priced(declined, price)
        name = runs.name(asked.operation, world.named(asked))
        with runs.lock(what), locking.locked(world, runs, seen, name, what, running.by(), how.theft) as lease:
            if (unfinished := runs.unfinished()) is not None and not _supersedes(asked):
                return _still_open(unfinished, asked)
            seen = _observed(world, price)
            decided = plans.same(saved, world.decide(asked, seen, price=price))
            if (ended := _undecided(decided)) is not None:
                return _priced(_with_pairs(ended, seen, session), price)
            assert isinstance(decided, Plan)
            files = runs.create(asked.operation, world.named(asked), name)
            files.begin(decided.as_json())
            brings = world.residue(asked, seen)
            return running.execute(
                session, world, files, decided, lease, how, price, brings=brings, superseded=unfinished
            )


def _observed(world: World, price: FailoverPrice | None) -> Seen[Broker]:
    seen = world.observer.observe()
    if price is not None:
        price.saw(seen)
    return seen


def _with(result: Result, data: dict[str, Json]) -> Result:
    return replace(result, data={**result.data, **data})


def _priced(result: Result, price: FailoverPrice | None) -> Result:
    """Say what a failover may cost beside whatever came of it."""
    if price is None:
        return result
    return replace(result, data={**result.data, "bounds": dict(price.bounds())})


def _declined(decided: Plan, how: How, session: Session) -> Result | None:
    """Ask, where somebody can be asked; None is a yes."""
    if how.yes:
        return None
    if not people.present():
        return Result(ExitCode.DECLINED, _NOBODY_ASKED, decided.findings)
    typer.echo(plans.plan_text(decided), err=True)
    for finding in decided.findings:
        typer.echo(told(finding), err=True)
    if people.names(*_question(decided)):
        return None
    # The person who said no has just read them.
    return Result(ExitCode.DECLINED, _SAID_NO, decided.findings if session.json else ())


def _left_open(declined: Result, files: RunFiles) -> Result:
    """Who declines to go on with a run, or to undo it, still has it."""
    text = f"{declined.summary}, and {files.name} stays open: `dr-ctl status` says who is served"
    return replace(declined, summary=text, run=files.name)


def _question(decided: Plan) -> tuple[str, str]:
    """What is asked, and the name that is the yes to it."""
    operation = decided.ask.operation
    named = decided.source if operation in AT_SOURCE else decided.target
    if operation in ALONE:
        what = f"{operation.capitalize()} {'of' if operation in AT_SOURCE else 'to'} {named}"
    elif operation == REINSTATE:
        what = f"Take in {named}"
    else:
        what = f"Move from {decided.source} to {named}"
    return f"{what}? Type the site's name", named


def _supersedes(asked: Ask) -> bool:
    """A failover does not wait for a run that was interrupted, where somebody says why."""
    return asked.operation == FAILOVER and asked.reason is not None


def _still_open(unfinished: RunFiles, asked: Ask) -> Result:
    text = f"the run {unfinished.name} was interrupted and is still open; nothing was changed"
    remedy = "`dr-ctl resume` goes on with it, `dr-ctl abort` undoes it."
    if asked.operation == FAILOVER:
        remedy += " With --reason TEXT the failover takes its place."
    finding = error("DR-RUN-003", text, remedy)
    return Result(ExitCode.PRECHECK_FAILED, text, (finding,), run=unfinished.name)


def _with_pairs(result: Result, seen: Seen[Broker], session: Session) -> Result:
    debts = owed(session.state(), seen.debts, [site for site in seen.sites if seen.views(site)])
    return replace(result, data={**result.data, "pairs": [pair.as_json() for pair in seen.pairs]}, debts=debts)


def _no_open_run() -> Result:
    text = "no run is open; nothing was changed"
    finding = error("DR-RUN-004", text, "`dr-ctl runs list` shows the runs that have ended.")
    return Result(ExitCode.PRECHECK_FAILED, text, (finding,))


def _alone(runs: Runs, what: str, how: How) -> AbstractContextManager[None]:
    """Hold this STATE; a dry run takes no lock."""
    return nullcontext() if how.dry_run else runs.lock(what)


def _past(files: RunFiles, world: World, how: How) -> History:
    """Read what the interrupted run wrote. Opening the journal for writing shows that its process is gone."""
    if how.dry_run:
        return history(read(files.journal))
    journal = Journal(files.journal, world.clock)
    try:
        return journal.history()
    finally:
        journal.close()


def _never_began(runs: Runs, how: How) -> RunFiles | None:
    """An open run, unless its journal was never begun: then nothing was changed, and it is closed here and now."""
    unfinished = runs.unfinished()
    if unfinished is not None and not read(unfinished.journal):
        if how.dry_run:
            return None
        unfinished.journal.unlink()
        unfinished.reserve.unlink(missing_ok=True)
        return runs.unfinished()
    return unfinished


def resume(session: Session, timeout: str | None, how: How) -> Result:
    """Plan again with the history of the open run, and carry that out."""
    runs, installation = session.runs(), session.installation()
    with World.of(installation, time.sleep) as world, _alone(runs, "resume", how):
        files = _never_began(runs, how)
        if files is None:
            return _no_open_run()
        past = _past(files, world, how)
        wait_s = timeout_s(timeout) if timeout is not None else past.ask.timeout_s
        asked = replace(past.ask, timeout_s=wait_s, expect_serving=how.expect_serving)
        world.must_know(asked)
        price = world.price(asked)
        seen = _observed(world, price)
        if not how.dry_run:
            locking.refuse_if_held(seen, runs, how.theft)
        decided = world.decide(asked, seen, past, price)
        if (ended := _undecided(decided)) is not None:
            return replace(_with_pairs(ended, seen, session), run=files.name)
        if how.dry_run:
            return _priced(_planned(decided), price)
        assert isinstance(decided, Plan)
        if (declined := _declined(decided, how, session)) is not None:
            return _left_open(_priced(declined, price), files)
        what = f"resume of {asked.operation} to {asked.target}"
        with locking.locked(world, runs, seen, files.name, what, running.by(), how.theft) as lease:
            now = _observed(world, price)
            if (changed := locking.changed(seen, now)) is not None:
                return Result(ExitCode.PRECHECK_FAILED, changed.text, (changed,), run=files.name)
            decided = world.decide(asked, now, past, price)
            if (ended := _undecided(decided)) is not None:
                return replace(_with_pairs(ended, now, session), run=files.name)
            assert isinstance(decided, Plan)
            return running.execute(session, world, files, decided, lease, how, price)


def abort(session: Session, how: How) -> Result:
    """Undo the open run, unless an activating call of it may have had its effect."""
    runs, installation = session.runs(), session.installation()
    with World.of(installation, time.sleep) as world, _alone(runs, "abort", how):
        files = _never_began(runs, how)
        if files is None:
            return _no_open_run()
        past = _past(files, world, how)
        seen = world.observer.observe()
        if not how.dry_run:
            locking.refuse_if_held(seen, runs, how.theft)
        asked = replace(past.ask, expect_serving=how.expect_serving)
        world.must_know(asked)
        if (others := other_sites(seen, past) or unexpected(seen, asked)) is not None:
            return Result(ExitCode.PRECHECK_FAILED, others.text, (others,), run=files.name)
        if (refused := _past_no_return(past, seen, files)) is not None:
            return refused
        if how.dry_run:
            text = "\n".join(
                f"undo {step.verb}: {call.about}, if {call.when}"
                for step in executor.to_undo(past)
                for call in step.inverse
            )
            return Result(ExitCode.OK, "nothing was changed", run=files.name, text=text)
        if not how.yes and not people.says_yes(f"Undo {files.name}?"):
            text = _SAID_NO if people.present() else _NOBODY_ASKED
            return _left_open(Result(ExitCode.DECLINED, text), files)
        what = f"abort of {past.ask.operation} to {past.ask.target}"
        with locking.locked(world, runs, seen, files.name, what, running.by(), how.theft) as lease:
            if (refused := _past_no_return(past, world.observer.observe(), files)) is not None:
                return refused
            return running.undo(session, world, files, past, lease, how.theft)


def escalate(session: Session, name: str | None, timeout: str | None, accept_loss: str | None, how: How) -> Result:
    """A failover in the place of a planned move that cannot finish: its source is fenced, so what it holds is known."""
    runs, installation = session.runs(), session.installation()
    files = runs.unfinished() if name is None else runs.find(name)
    if files is None or not files.open() or not read(files.journal):
        return _no_open_run()
    with World.of(installation, time.sleep) as world, _alone(runs, "escalate", how):
        past = _past(files, world, how)
    if past.ask.operation not in (SWAPOVER, FAILBACK) or past.activation:
        text = f"{files.name} is no planned move before its point of no return; nothing was changed"
        finding = error("DR-RUN-006", text, "`dr-ctl resume` finishes it; `dr-ctl abort` undoes what can be undone.")
        return Result(ExitCode.PRECHECK_FAILED, text, (finding,), run=files.name)
    reason = how.theft.reason or f"{files.name} could not finish"
    wait_s = timeout_s(timeout) if timeout is not None else past.ask.timeout_s
    asked = with_price(Ask(FAILOVER, past.ask.target, wait_s), accept_loss, None, reason)
    return run(session, asked, how)


def _past_no_return(past: History, seen: Seen[Broker], files: RunFiles) -> Result | None:
    """Say that a run cannot be undone: it may have opened its target, or somebody else did."""
    target = past.ask.target
    if not past.activation and (seen.roles[target] is Role.STANDBY or target in past.serving):
        return None
    text = f"{target} is {seen.roles[target].value} and may have been opened by the run: it cannot be undone"
    finding = error("DR-RUN-005", text, "`dr-ctl resume` finishes the move; a swapover back undoes it safely.")
    return Result(ExitCode.PRECHECK_FAILED, text, (finding,), run=files.name)
