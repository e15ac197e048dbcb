"""One sequence for every operation: look, decide, agree, lock, look again, decide again, carry out.

A run that is gone on with, a failover in the place of another run and a dry run are arguments of it, not ways of their
own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dr_ctl.application import carrying_out, lock, open_run, plans
from dr_ctl.application.caller import Caller
from dr_ctl.application.debts import with_units
from dr_ctl.application.how import AcceptedLoss, How
from dr_ctl.application.open_run import left_open, no_open_run, still_open
from dr_ctl.application.plans import Saved
from dr_ctl.application.price import FailoverPrice
from dr_ctl.application.result import Result
from dr_ctl.application.world import World
from dr_ctl.core.model import ExitCode, Json, Severity
from dr_ctl.engine.ending import price_text
from dr_ctl.engine.entries import read
from dr_ctl.engine.history import History
from dr_ctl.engine.operations import AT_SOURCE, FAILBACK, FAILOVER, FENCE, SWAPOVER
from dr_ctl.engine.plan import AlreadyThere, Ask, Decision, Plan, Refusal
from dr_ctl.engine.roles import error
from dr_ctl.engine.runs import RunFiles
from dr_ctl.topologies.topology import Seen

NOBODY_ASKED = "nobody could be asked, and --yes was not given; nothing was changed"
SAID_NO = "a person said no; nothing was changed"


@dataclass(frozen=True, slots=True)
class _Task:
    """What is to be carried out: an operation, from a saved plan or not, perhaps in the place of an open run; of a run
    that is gone on with also its folder and its history."""

    ask: Ask
    saved: Saved | None = None
    files: RunFiles | None = None
    past: History | None = None
    anew: bool = False

    def decide(self, world: World, seen: Seen, price: FailoverPrice | None) -> Decision:
        return plans.same(self.saved, world.decide(self.ask, seen, self.past, price, anew=self.anew))


def run(caller: Caller, asked: Ask, how: How) -> Result:
    """Carry out an operation. Order of looking: another's lock, an open run, already there; then lock, look again."""
    saved = plans.read(how.saved, asked) if how.saved is not None else None
    if saved is not None:
        asked = replace(saved.ask, reason=asked.reason or saved.ask.reason)
    asked = replace(asked, expect_serving=how.expect_serving)
    runs = caller.runs()
    with World.of(caller) as world:
        world.must_know(asked)
        world.must_be_able(asked)
        world.must_move_parts(asked)
        if not how.dry_run:
            with runs.lock(_what(world, asked)):
                pass  # a run of this STATE that lives is named before any broker is asked
        if (unfinished := runs.unfinished()) is not None and not _goes_beside(asked):
            return still_open(unfinished, asked)
        return _carried_out(caller, world, _Task(asked, saved, anew=unfinished is not None and _supersedes(asked)), how)


def resume(caller: Caller, timeout_s: float | None, how: How) -> Result:
    """Plan again with the history of the open run, and carry that out."""
    runs = caller.runs()
    with World.of(caller) as world, open_run.alone(runs, "resume", held=how.dry_run):
        files = open_run.begun(runs, how)
        if files is None:
            return no_open_run()
        past = open_run.past(files, world, how)
        wait_s = timeout_s if timeout_s is not None else past.ask.timeout_s
        asked = replace(past.ask, timeout_s=wait_s, expect_serving=how.expect_serving)
        world.must_know(asked)
        return _carried_out(caller, world, _Task(asked, files=files, past=past), how)


def escalate(caller: Caller, name: str | None, timeout_s: float | None, accept_loss: AcceptedLoss, how: How) -> Result:
    """A failover in the place of a planned move that cannot finish: its source is fenced, so what it holds is known."""
    runs = caller.runs()
    files = runs.unfinished() if name is None else runs.find(name)
    if files is None or not files.open() or not read(files.journal):
        return no_open_run()
    with World.of(caller) as world, open_run.alone(runs, "escalate", held=how.dry_run):
        past = open_run.past(files, world, how)
    if past.ask.operation not in (SWAPOVER, FAILBACK) or past.activation:
        text = f"{files.name} is no planned move before its point of no return; nothing was changed"
        finding = error("DR-RUN-006", text, "`dr-ctl resume` finishes it; `dr-ctl abort` undoes what can be undone.")
        return Result(ExitCode.PRECHECK_FAILED, text, (finding,), run=files.name)
    wait_s = timeout_s if timeout_s is not None else past.ask.timeout_s
    reason = how.theft.reason or f"{files.name} could not finish"
    asked = Ask(FAILOVER, past.ask.target, wait_s, accept_loss=accept_loss, reason=reason, units=past.ask.units)
    return run(caller, asked, how)


def plan(caller: Caller, asked: Ask) -> Result:
    """The plan as it is decided now, whatever is under way: takes no lock, asks nothing."""
    with World.of(caller) as world:
        world.must_know(asked)
        world.must_move_parts(asked)
        price = world.price(asked)
        seen = world.look(price)
        asked = world.chosen(asked, seen)
        decided = world.decide(asked, seen, price=price)
        return _with(_priced(_undecided(decided) or _planned(decided, price), price), world.residue(asked, seen))


def _carried_out(caller: Caller, world: World, task: _Task, how: How) -> Result:
    price = world.price(task.ask)
    seen = world.look(price)
    runs, asked = caller.runs(), world.chosen(task.ask, seen)
    task = replace(task, ask=asked)
    if not how.dry_run:
        lock.refuse_if_held(seen, runs, how.theft)
    decided = task.decide(world, seen, price)
    if task.past is None and isinstance(decided, AlreadyThere) and (why := world.why_not_so(asked)) is not None:
        finding = error("DR-ROLE-013", f"{decided.text}, by its flags; but {why}", "`dr-ctl status` looks again.")
        return with_units(caller, Result(ExitCode.UNKNOWN, finding.text, (finding,)), seen)
    if (ended := _undecided(decided)) is not None:
        return _ended(caller, task, ended, seen, price)
    if how.dry_run:
        return _with(_priced(_planned(decided, price), price), world.residue(asked, seen) if task.past is None else {})
    assert isinstance(decided, Plan)
    if price is not None and task.past is None:
        caller.say(f"price: {price_text(price.bounds())}")
    if (declined := _declined(caller, decided, how)) is not None:
        declined = _priced(declined, price)
        return left_open(declined, task.files) if task.files is not None else declined
    name = task.files.name if task.files is not None else runs.name(asked.operation, world.named(asked))
    what = _what(world, asked, gone_on_with=task.past is not None)
    with (
        open_run.alone(runs, what, held=task.files is not None),
        lock.locked(world, runs, seen, name, what, how.theft) as lease,
    ):
        unfinished = runs.unfinished() if task.files is None else None
        if unfinished is not None and not _goes_beside(asked):
            return still_open(unfinished, asked)
        before, seen = seen, world.look(price)
        if task.past is not None and (changed := lock.changed(before, seen)) is not None:
            return Result(ExitCode.PRECHECK_FAILED, changed.text, (changed,), run=name)
        decided = task.decide(world, seen, price)
        if (ended := _undecided(decided)) is not None:
            return _ended(caller, task, ended, seen, price)
        assert isinstance(decided, Plan)
        files, brings = task.files, dict[str, Json]()
        if files is None:
            files = runs.create(asked.operation, world.named(asked), name)
            files.begin(decided.as_json())
            brings = world.residue(asked, seen)
        work = carrying_out.Work(caller, world, files, lease, how)
        return work.execute(decided, price, brings=brings, superseded=unfinished if _supersedes(asked) else None)


def _what(world: World, asked: Ask, *, gone_on_with: bool = False) -> str:
    if gone_on_with:
        return f"resume of {asked.operation} to {asked.target}"
    return f"{asked.operation} {'of' if asked.operation in AT_SOURCE else 'to'} {world.named(asked)}"


def _supersedes(asked: Ask) -> bool:
    """A failover does not wait for a run that was interrupted, where somebody says why."""
    return asked.operation == FAILOVER and asked.reason is not None


def _goes_beside(asked: Ask) -> bool:
    """Keeping clients out of a site is safe whatever a run has left, and where both are open it is what is needed."""
    return asked.operation == FENCE or _supersedes(asked)


def _declined(caller: Caller, decided: Plan, how: How) -> Result | None:
    """Ask, where somebody can be asked; None is a yes."""
    if how.yes:
        return None
    if not caller.people.present():
        return Result(ExitCode.DECLINED, NOBODY_ASKED, decided.findings)
    if caller.people.agrees(decided):
        return None
    return Result(ExitCode.DECLINED, SAID_NO, decided.findings, already_read=True)


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


def _planned(decided: Decision, price: FailoverPrice | None) -> Result:
    assert isinstance(decided, Plan)
    calls = sum(call.when is None for step in decided.steps for call in step.calls)
    summary = f"{plans.title(decided)}: {calls} call(s) for certain; nothing was changed"
    text = "" if price is None else f"price: {price_text(price.bounds())}"
    return Result(ExitCode.OK, summary, decided.findings, {"plan": decided.as_json()}, plan=decided, text=text)


def _ended(caller: Caller, task: _Task, result: Result, seen: Seen, price: FailoverPrice | None) -> Result:
    result = with_units(caller, result, seen)
    return replace(result, run=task.files.name) if task.files is not None else _priced(result, price)


def _with(result: Result, data: dict[str, Json]) -> Result:
    return replace(result, data={**result.data, **data})


def _priced(result: Result, price: FailoverPrice | None) -> Result:
    """Say what a failover may cost beside whatever came of it."""
    return result if price is None else _with(result, {"bounds": dict(price.bounds())})
