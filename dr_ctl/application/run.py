"""The sequence of every operation: look, decide, agree, lock, look again, decide again, carry out. A resume, an
escalation and a dry run use the same sequence with other arguments.
"""

from dataclasses import replace

from dr_ctl.application import approvals, carrying_out, disaster, lock, open_run, plans
from dr_ctl.application.afterwards import telling
from dr_ctl.application.caller import Caller
from dr_ctl.application.cost import cost
from dr_ctl.application.debts import with_units
from dr_ctl.application.installation import Opened
from dr_ctl.application.lost_site import taken_over
from dr_ctl.application.open_run import left_open, no_open_run, still_open
from dr_ctl.application.request import Question
from dr_ctl.application.result import Result
from dr_ctl.core.document import document
from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Json, Severity
from dr_ctl.engine.ask import Ask, RunOptions
from dr_ctl.engine.context import Onlooker
from dr_ctl.engine.ending import price_text
from dr_ctl.engine.entries import read
from dr_ctl.engine.operations import FAILBACK, FAILOVER, SWAPOVER, TRIM
from dr_ctl.engine.plan import AlreadyThere, Decision, Plan, Refusal
from dr_ctl.engine.ports import Move, Refused
from dr_ctl.engine.runs import RunFiles
from dr_ctl.topologies.topology import Snapshot

NOBODY_ASKED = "nobody could be asked, and --yes was not given; nothing was changed"
SAID_NO = "a person said no; nothing was changed"


def run(caller: Caller, asked: Ask, how: RunOptions) -> Result:
    """Carry out an operation. The order of checks: another run's lock, an open run, a state that holds already; then
    lock and look again."""
    saved = plans.read(how.saved, asked) if how.saved is not None else None
    if saved is not None:
        asked = replace(saved.ask, reason=asked.reason or saved.ask.reason)
    asked = replace(asked, expect_serving=how.expect_serving)
    runs = caller.runs()
    with Opened.of(caller) as opened:
        question = Question.of(asked, opened, saved=saved)
        if not how.dry_run:
            with runs.lock(question.title):
                pass  # a run of this STATE that lives is named before any broker is asked
        unfinished = runs.unfinished()
        if unfinished is not None and not question.goes_beside:
            return still_open(unfinished, question.ask)
        question = replace(question, anew=unfinished is not None and question.supersedes)
        return telling(caller, opened, lambda: _carried_out(caller, question, how))


def resume(caller: Caller, timeout_s: float | None, how: RunOptions) -> Result:
    """Plan again with the history of the open run, and carry that out."""
    with Opened.of(caller) as opened:
        return telling(caller, opened, lambda: _resumed(caller, opened, timeout_s, how))


def _resumed(caller: Caller, opened: Opened, timeout_s: float | None, how: RunOptions) -> Result:
    runs = caller.runs()
    with open_run.holding_state(runs, "resume", held=how.dry_run):
        files = open_run.begun(runs, how)
        if files is None:
            return no_open_run()
        past = open_run.past(files, caller.clock, how)
        wait_s = timeout_s if timeout_s is not None else past.ask.timeout_s
        asked = replace(past.ask, timeout_s=wait_s, expect_serving=how.expect_serving)
        return _carried_out(caller, Question.of(asked, opened, past=past), how, files)


def escalate(caller: Caller, name: str | None, asked: Ask, how: RunOptions) -> Result:
    """Replace a planned move that cannot finish by a failover, with what `asked` accepts of that. The source is
    fenced, so its messages are counted."""
    runs = caller.runs()
    files = runs.unfinished() if name is None else runs.find(name)
    if files is None or not files.open() or not read(files.journal):
        return no_open_run()
    with open_run.holding_state(runs, "escalate", held=how.dry_run):
        past = open_run.past(files, caller.clock, how)
    if past.ask.operation not in (SWAPOVER, FAILBACK) or past.activation:
        text = f"{files.name} is no planned move before its point of no return; nothing was changed"
        finding = found("DR-RUN-006", text, "`dr-ctl resume` finishes it; `dr-ctl abort` undoes what can be undone.")
        return Result(ExitCode.PRECHECK_FAILED, text, (finding,), run=files.name)
    asked = replace(
        asked,
        operation=FAILOVER,
        target=past.ask.target,
        timeout_s=asked.timeout_s if asked.timeout_s is not None else past.ask.timeout_s,
        reason=how.reason or f"{files.name} could not finish",
        units=past.ask.units,
        queues=past.ask.queues,
    )
    result = run(caller, asked, how)
    # No swapover is made beside an open run.
    onward = "`dr-ctl resume` goes on with the open run; `dr-ctl abort` puts it back."
    told = [replace(each, remedy=onward) if "`dr-ctl swapover" in each.remedy else each for each in result.findings]
    return result if result.code is not ExitCode.SERVING_SITE_ALIVE else replace(result, findings=told)


def plan(caller: Caller, asked: Ask, as_if_lost: str | None = None) -> Result:
    """The plan as it is decided now, whatever is under way: takes no lock, asks nothing. `as_if_lost`: a site that is
    taken for lost, for this plan alone."""
    with Opened.of(caller) as opened:
        if as_if_lost is not None:
            return disaster.planned(opened, asked, as_if_lost)
        question = Question.of(asked, opened)
        snapshot = question.look()
        question = question.narrowed(snapshot)
        decided = question.decide(snapshot)
        result = _planned(decided, question) if isinstance(decided, Plan) else _unpriced(_undecided(decided), decided)
        return _with(_priced(result, question), question.residue(snapshot))


def _carried_out(caller: Caller, question: Question, how: RunOptions, files: RunFiles | None = None) -> Result:
    """`files` are those of the run that is gone on with."""
    snapshot = _measured(caller, question)
    runs, question = caller.runs(), question.narrowed(snapshot)
    if not how.dry_run:
        lock.refuse_if_held(snapshot, runs, break_lock=how.break_lock)
    decided = question.decide(snapshot)
    if files is None and isinstance(decided, AlreadyThere) and (why := question.why_not_so()) is not None:
        finding = found("DR-ROLE-013", said=decided.text, why=why)
        return with_units(caller, Result(ExitCode.UNKNOWN, finding.text, (finding,)), snapshot)
    if isinstance(decided, AlreadyThere) and question.price is not None:
        told = taken_over(question.ask, snapshot, question.opened, runs)
        price = price_text(question.price.bounds())
        decided = decided if told is None else replace(decided, text=f"{told}; {price}; nothing was changed")
    if not isinstance(decided, Plan):
        ended = _ended(caller, question, _undecided(decided), snapshot, files)
        return _unpriced(ended, decided) if how.dry_run else ended
    if how.dry_run:
        planned = _with(
            _priced(_planned(decided, question), question), question.residue(snapshot) if files is None else {}
        )
        return _trimmed(caller, planned, decided, question) if question.ask.operation == TRIM else planned
    if question.price is not None and files is None:
        caller.say(f"price: {price_text(question.price.bounds())}")
    approved, refused = (
        approvals.permit(question.opened.installation, question.ask, question.saved, runs)
        if files is None
        else (None, None)
    )
    if (declined := refused or _declined(caller, decided, how, question, snapshot)) is not None:
        declined = _priced(declined, question)
        return left_open(declined, files) if files is not None else declined
    name = files.name if files is not None else runs.name(question.ask.operation, question.site)
    with (
        open_run.holding_state(runs, question.title, held=files is not None),
        lock.locked(question.opened, runs, snapshot, name, question.title, break_lock=how.break_lock) as lease,
    ):
        unfinished = runs.unfinished() if files is None else None
        if unfinished is not None and not question.goes_beside:
            return still_open(unfinished, question.ask)
        before, snapshot = snapshot, question.look()
        if files is not None and (changed := lock.changed(before, snapshot)) is not None:
            return Result(ExitCode.PRECHECK_FAILED, changed.text, (changed,), run=name)
        decided = question.decide(snapshot)
        if not isinstance(decided, Plan):
            return _ended(caller, question, _undecided(decided), snapshot, files)
        brings = question.residue(snapshot) if files is None else {}
        if files is None:
            files = runs.create(question.ask.operation, question.site, name)
            files.begin(document(decided))
        work = carrying_out.Work(caller, question.opened, files, lease, how, approved)
        superseded = unfinished if question.supersedes else None
        return work.execute(decided, question.price, brings=brings, superseded=superseded)


def _measured(caller: Caller, question: Question) -> Snapshot:
    """A look; for a planned move once the target's brokers can say whether clients could work there."""
    snapshot, said = question.look(), ""
    until = caller.clock.monotonic() + caller.timeouts.measured_s
    is_planned = question.ask.operation in (SWAPOVER, FAILBACK) and not (question.past and question.past.activation)
    while is_planned and caller.clock.monotonic() < until:
        target = [broker for broker in snapshot.brokers if broker.site == question.site]
        untold = [f"{own.site}/{own.pair}: {each.text}" for own in target for each in own.obstacles if not each.known]
        if not untold:
            break
        if not said:
            said = f"{untold[0]}; waiting up to {caller.timeouts.measured_s:.0f} s for it"
            caller.say(said)
        caller.clock.sleep(1)
        snapshot = question.look()
    return snapshot


def _declined(caller: Caller, decided: Plan, how: RunOptions, question: Question, snapshot: Snapshot) -> Result | None:
    """Ask a person, if there is one, with the cost beside the question; None is a yes."""
    if how.yes:
        return None
    if not caller.people.present():
        return Result(ExitCode.DECLINED, NOBODY_ASKED, decided.findings)
    if caller.people.agrees(decided, cost(decided, snapshot, question.price, caller.runs())):
        return None
    return Result(ExitCode.DECLINED, SAID_NO, decided.findings, already_read=True)


def _undecided(decided: AlreadyThere | Refusal) -> Result:
    """The end of a command whose plan says that there is nothing to do, or that it may not be done."""
    if isinstance(decided, AlreadyThere):
        return Result(ExitCode.OK, decided.text, decided.findings)
    errors = [each for each in decided.findings if each.severity is Severity.ERROR]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    summary = f"refused, nothing was changed: {errors[0].text}{more}"
    return Result(decided.code, summary, decided.findings)


def _unpriced(result: Result, decided: Decision) -> Result:
    """With the plan that is refused for its loss, for whoever asked to see it."""
    if not isinstance(decided, Refusal) or decided.plan is None:
        return result
    return replace(result, plan=decided.plan, data={**result.data, "plan": document(decided.plan)})


def _planned(decided: Plan, question: Question) -> Result:
    calls = sum(call.when is None for step in decided.steps for call in step.calls)
    summary = f"{plans.title(decided)}: {calls} call(s) for certain; nothing was changed"
    text = "" if question.price is None else f"price: {price_text(question.price.bounds())}"
    return Result(ExitCode.OK, summary, decided.findings, {"plan": document(decided)}, plan=decided, text=text)


def _trimmed(caller: Caller, planned: Result, decided: Plan, question: Question) -> Result:
    """With what the trim itself would find now, as it looks before it removes."""
    [step] = [each for each in decided.steps if each.verb == TRIM]
    move = Move(decided.ask, decided.source, decided.baseline)
    try:
        outcome = question.opened.topology.driver().apply(step, move, Onlooker(caller.clock, caller.listener()))
    except BrokerError as error:
        outcome = Refused(str(error))
    summary = f"{plans.title(decided)}: {outcome.text}; nothing was changed"
    code = ExitCode.PRECHECK_FAILED if isinstance(outcome, Refused) else planned.code
    return replace(planned, code=code, summary=summary, findings=(*planned.findings, *outcome.findings))


def _ended(caller: Caller, question: Question, result: Result, snapshot: Snapshot, files: RunFiles | None) -> Result:
    result = with_units(caller, result, snapshot)
    if files is not None:
        return replace(result, run=files.name)
    text = result.text
    if question.price is not None and result.code is ExitCode.SERVING_SITE_ALIVE:
        text = (
            f"price, once {question.opened.other(question.ask.target)} is ended: {price_text(question.price.bounds())}"
        )
    return _priced(replace(result, text=text), question)


def _with(result: Result, data: dict[str, Json]) -> Result:
    return replace(result, data={**result.data, **data})


def _priced(result: Result, question: Question) -> Result:
    """Say what a failover may cost beside whatever came of it."""
    return result if question.price is None else _with(result, {"bounds": dict(question.price.bounds())})
