"""The sequence of every operation: read, decide, ask, lock, read again, decide again, execute. A resume, an escalation
and a dry run use the same sequence with other arguments; an abort undoes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from statistics import median
from typing import Any, Final

from dr_ctl.application import execution, lock, plans, recovery_options, verdicts
from dr_ctl.application.caller import SAID_NO, Caller
from dr_ctl.application.execution import OperationData, call_then_notify
from dr_ctl.application.installation import OpenInstallation
from dr_ctl.application.loss_bound import LossBound
from dr_ctl.application.lost_site import taken_over
from dr_ctl.application.recovery_options import left_open, no_open_run, still_open, why_not_undone
from dr_ctl.application.request import Request
from dr_ctl.application.result import Result
from dr_ctl.application.standing import pending_debts
from dr_ctl.core.document import document, optional
from dr_ctl.core.errors import BrokerError, UsageError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Role, Severity, brief, total
from dr_ctl.core.notation import duration, if_known, page
from dr_ctl.core.system import system
from dr_ctl.engine import executor
from dr_ctl.engine.ending import bounds_text
from dr_ctl.engine.holding import Lease
from dr_ctl.engine.journal import RunState, read_entries
from dr_ctl.engine.operations import FAILBACK, FAILOVER, SWAPOVER, TRIM
from dr_ctl.engine.plan import AlreadyThere, Call, Decision, Plan, Refusal, RunOptions, Spec
from dr_ctl.engine.ports import Failed, Move, StepContext
from dr_ctl.engine.record import record
from dr_ctl.engine.roles import brokers_changed, part_of, roles_text, sites_changed, unexpected
from dr_ctl.engine.runs import RunFiles, Runs
from dr_ctl.topologies.registry import Snapshot

TAKEOVER = "DR-NODE-004"
_PLANNED: Final = (SWAPOVER, FAILBACK)
_MOVES_FOR_FORECAST: Final = 5  # the most earlier moves for the expected outage of a move


@dataclass(frozen=True, slots=True)
class UndoneStep:
    step: str
    calls: Sequence[Call]


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortData(OperationData):
    """Data of `abort`; a dry run has the steps to undo, and the sites that would serve after the undo."""

    undo: Sequence[UndoneStep] | None = optional()
    serves: Sequence[str] | None = optional()


def run(caller: Caller, asked: Spec, how: RunOptions) -> Result:
    """End at once if another run holds the lock, a run is open, or the wanted state holds; else lock and read again."""
    saved = plans.read(how.saved, asked) if how.saved is not None else None
    if saved is not None:
        asked = replace(saved.plan.spec, reason=asked.reason or saved.plan.spec.reason)
    asked = replace(asked, expect_serving=how.expect_serving)

    def begin(opened: OpenInstallation) -> Result:
        request = Request.of(asked, opened, saved=saved)
        if not how.dry_run:
            with opened.runs.lock(request.title):
                pass  # fails now, before any broker is read, if a run of this STATE is under way
        unfinished = opened.runs.unfinished()
        if unfinished is not None and not request.may_begin_beside(unfinished):
            return still_open(unfinished, request.spec)
        return _execute(replace(request, replaces_run=request.may_replace(unfinished)), how)

    return call_then_notify(caller, begin)


def resume(caller: Caller, timeout_s: float | None, how: RunOptions) -> Result:
    """Plan the rest of the open run from its journal, and execute that plan."""

    def resumed(opened: OpenInstallation) -> Result:
        with opened.runs.lock("resume", held=how.dry_run):
            files = recovery_options.find_open_run(opened.runs, how)
            if files is None:
                return no_open_run()
            past = recovery_options.read_past(files, how)
            wait_s = timeout_s if timeout_s is not None else past.plan.spec.timeout_s
            asked = replace(past.plan.spec, timeout_s=wait_s, expect_serving=how.expect_serving)
            return _execute(Request.of(asked, opened, past=past), how, files)

    return call_then_notify(caller, resumed)


def escalate(caller: Caller, name: str | None, asked: Spec, how: RunOptions) -> Result:
    """Replace a planned move that cannot finish by a failover; messages that the source did not ship count as lost."""
    runs = caller.runs()
    files = runs.unfinished() if name is None else runs.find(name)
    if files is None or not files.open() or not read_entries(files.journal):
        return no_open_run()
    with runs.lock("escalate", held=how.dry_run):
        past = recovery_options.read_past(files, how)
    if past.plan.spec.operation not in _PLANNED or past.activation_sent:
        return Result.of(ExitCode.PRECHECK_FAILED, found("DR-RUN-006", run=files.name), run=files.name)
    asked = replace(
        asked,
        operation=FAILOVER,
        target=past.plan.spec.target,
        timeout_s=asked.timeout_s if asked.timeout_s is not None else past.plan.spec.timeout_s,
        reason=how.reason or f"{files.name} could not finish",
        units=past.plan.spec.units,
        queues=past.plan.spec.queues,
    )
    result = run(caller, asked, how)
    # A swapover cannot begin beside an open run.
    onward = "`dr-ctl resume` continues the open run; `dr-ctl abort` undoes it."
    findings = [replace(row, remedy=onward) if "`dr-ctl swapover" in row.remedy else row for row in result.findings]
    return result if result.code is not ExitCode.SERVING_SITE_ALIVE else replace(result, findings=findings)


def plan(caller: Caller, asked: Spec, as_if_lost: str | None = None) -> Result:
    """Plan without a lock or a question, even while a run is open, and as if the site `as_if_lost` were lost."""
    with OpenInstallation.of(caller) as opened:
        if as_if_lost is not None:
            return verdicts.planned_as_if_lost(opened, asked, as_if_lost)
        request = Request.of(asked, opened)
        snapshot = request.read()
        request = request.narrowed(snapshot)
        decided = request.decide(snapshot)
        result = _planned(decided, request) if isinstance(decided, Plan) else _without_plan(decided, plans.PlanData())
        return _with(_exposed(result, request), residue=request.residue(snapshot))


def _execute(request: Request, how: RunOptions, files: RunFiles | None = None) -> Result:
    """Execute a request; a resume has the `files` of its run."""
    snapshot = _await_readiness(request)
    caller, runs, request = request.opened.caller, request.opened.runs, request.narrowed(snapshot)
    if not (how.dry_run or how.break_lock):
        lock.refuse_if_held(snapshot, runs)
    decided = request.decide(snapshot)
    if files is None and isinstance(decided, AlreadyThere) and (why := request.why_not_so()) is not None:
        finding = found("DR-ROLE-013", said=decided.text, why=why)
        return _with_units(caller, Result.of(ExitCode.UNKNOWN, finding), snapshot)
    if isinstance(decided, AlreadyThere) and request.exposure is not None:
        since = taken_over(request.spec, snapshot, request.opened, runs)
        exposure = bounds_text(request.exposure.bounds())
        decided = decided if since is None else replace(decided, text=f"{since}; {exposure}; nothing was changed")
    if not isinstance(decided, Plan):
        return _ended(request, _without_plan(decided, OperationData() if how.dry_run else None), snapshot, files)
    if how.dry_run:
        residue = request.residue(snapshot) if files is None else None
        planned = _with(_exposed(_planned(decided, request), request), residue=residue)
        return _trimmed(planned, decided, request) if request.spec.operation == TRIM else planned
    if request.exposure is not None and files is None:
        caller.say(f"bounds: {bounds_text(request.exposure.bounds())}")
    approved = _allowed(request, decided, how, snapshot)
    if isinstance(approved, Result):
        declined = _exposed(approved, request)
        return left_open(declined, files) if files is not None else declined
    name = files.name if files is not None else runs.name(request.spec.operation, request.site)
    title = request.title if how.at is None else lock.planned(request.title, how.at)
    with (
        runs.lock(title, held=files is not None),
        lock.locked(request.opened, snapshot, name, title, break_lock=how.break_lock) as lease,
    ):
        unfinished = runs.unfinished() if files is None else None
        if unfinished is not None and not request.may_begin_beside(unfinished):
            return still_open(unfinished, request.spec)
        before, (snapshot, decided) = snapshot, _decide_again(request, how, lease, decided)
        if files is not None and before.roles != snapshot.roles:
            changed = found("DR-LOCK-002", roles=roles_text(snapshot))
            return Result.of(ExitCode.PRECHECK_FAILED, changed, run=name)
        if not isinstance(decided, Plan):
            return _ended(request, _without_plan(decided), snapshot, files)
        residue = request.residue(snapshot) if files is None else None
        if files is None:
            files = runs.create(request.spec.operation, request.site, name)
            files.begin(document(decided))
        work = execution.Run(request.opened, files, lease, how, approved)
        replaced_run = unfinished if request.may_replace(unfinished) else None
        return work.execute(decided, request.exposure, residue=residue, replaced_run=replaced_run)


def _decide_again(request: Request, how: RunOptions, lease: Lease, shown: Plan) -> tuple[Snapshot, Decision]:
    """Read and decide again under the lock. A run with a start time (`--at`) first waits for it."""
    if how.at is not None:
        caller = request.opened.caller
        if how.yes:
            caller.show(shown)

        def lost() -> str | None:  # the end of the wait frees the lock for a failover
            down = [site for site, role in request.read().roles.items() if role is Role.DOWN]
            return f"{' and '.join(down)} was seen down" if down else None

        lock.wait(caller, lease, how.at, lost)
        snapshot = _await_readiness(request)
        decided = request.decide(snapshot)
        return snapshot, plans.same(shown, decided) if isinstance(decided, Plan) else decided
    snapshot = request.read()
    if how.after is not None and lease.epoch != how.after + 1:
        return snapshot, Refusal((found("DR-LOCK-006"),))
    return snapshot, request.decide(snapshot)


def _await_readiness(request: Request) -> Snapshot:
    """Read both sites; for a planned move repeatedly until it is known whether clients could work at the target."""
    caller, snapshot, shown = request.opened.caller, request.read(), ""
    until = system().monotonic() + caller.timeouts.measured_s
    is_planned = request.spec.operation in _PLANNED and not (request.past and request.past.activation_sent)
    while is_planned and system().monotonic() < until:
        target = snapshot.brokers_at(request.site)
        obstacles = ((f"{at.site}/{at.pair}", obstacle) for at in target for obstacle in at.obstacles)
        unknown = [f"{name}: {obstacle.text}" for name, obstacle in obstacles if not obstacle.known]
        if not unknown:
            break
        if not shown:
            shown = f"{unknown[0]}; waiting up to {caller.timeouts.measured_s:.0f} s for it"
            caller.say(shown)
        system().sleep(1)
        snapshot = request.read()
    return snapshot


def _allowed(request: Request, decided: Plan, how: RunOptions, snapshot: Snapshot) -> plans.Approvals | Result | None:
    """Ask a person; return the approvals of a run that may begin or go on, or the result that refuses it."""
    caller, runs = request.opened.caller, request.opened.runs
    approved = None
    if request.past is None:
        approved = plans.permit(request.opened.installation, request.spec, request.saved, runs)
    if isinstance(approved, Result):
        return approved
    cost_text = partial(cost, decided, snapshot, request.exposure, runs, is_resumed=request.past is not None)
    if (why_not := caller.why_not(lambda: caller.people.agrees(decided, cost_text()), yes=how.yes)) is None:
        return approved
    return _declined(why_not, decided.findings)


def _declined(why_not: str, findings: Sequence[Finding] = ()) -> Result:
    return Result(ExitCode.DECLINED, f"{why_not}; nothing was changed", findings, already_read=why_not == SAID_NO)


def _without_plan(decided: AlreadyThere | Refusal, shown: plans.PlanData | OperationData | None = None) -> Result:
    """Make the result of a decision without a plan to execute. `shown` is the data of a dry run or of `plan`, which
    gets the plan of a refusal."""
    data: Any = shown or {}
    if isinstance(decided, AlreadyThere):
        return Result(ExitCode.OK, decided.text, decided.findings, data)
    # The remedy for a takeover, to wait, comes before a loss.
    waits = [replace(finding, severity=Severity.ERROR) for finding in decided.findings if finding.id == TAKEOVER]
    findings = (*waits, *(finding for finding in decided.findings if finding.id != TAKEOVER))
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    others = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    summary = f"refused, nothing was changed: {errors[0].text}{others}"
    result = Result(decided.code, summary, findings, data)
    return result if not data else _with(replace(result, plan=decided.plan), plan=decided.plan)


def _planned(decided: Plan, request: Request) -> Result:
    calls = sum(call.when is None for step in decided.steps for call in step.calls)
    summary = f"{plans.title(decided)}: {calls} certain call{'' if calls == 1 else 's'}; nothing was changed"
    text = "" if request.exposure is None else f"bounds: {bounds_text(request.exposure.bounds())}"
    return Result(ExitCode.OK, summary, decided.findings, plans.PlanData(plan=decided), plan=decided, text=text)


def _trimmed(planned: Result, decided: Plan, request: Request) -> Result:
    """Add the findings of the trim step, which removes no copies in a dry run."""
    [step] = [step for step in decided.steps if step.verb == TRIM]
    move = Move(decided.spec, decided.source, decided.baseline)
    try:
        context = StepContext(request.opened.caller.listener())
        outcome = request.opened.topology.driver().apply(step, move, context)
    except BrokerError as error:
        outcome = Failed(str(error))
    summary = f"{plans.title(decided)}: {outcome.text}; nothing was changed"
    code = ExitCode.PRECHECK_FAILED if isinstance(outcome, Failed) else planned.code
    return replace(planned, code=code, summary=summary, findings=(*planned.findings, *outcome.findings))


def _ended(request: Request, result: Result, snapshot: Snapshot, files: RunFiles | None) -> Result:
    result = _with_units(request.opened.caller, result, snapshot)
    if files is not None:
        return replace(result, run=files.name)
    text = result.text
    if request.exposure is not None and result.code is ExitCode.SERVING_SITE_ALIVE:
        bounds = bounds_text(request.exposure.bounds())
        text = f"bounds, once {request.opened.other(request.spec.target)} is ended: {bounds}"
    return _exposed(replace(result, text=text), request)


def _with(result: Result, **fields: Any) -> Result:
    return replace(result, data=replace(result.data or OperationData(), **fields))


def _with_units(caller: Caller, result: Result, snapshot: Snapshot) -> Result:
    debts, more = pending_debts(caller, snapshot)
    return replace(_with(result, pairs=snapshot.units), debts=debts, findings=(*result.findings, *more))


def _exposed(result: Result, request: Request) -> Result:
    return result if request.exposure is None else _with(result, bounds=request.exposure.now())


def abort(caller: Caller, how: RunOptions) -> Result:
    """Undo an open run: read, ask the person, lock, read again, undo."""
    return call_then_notify(caller, lambda opened: _aborted(caller, opened, how))


def _aborted(caller: Caller, opened: OpenInstallation, how: RunOptions) -> Result:
    runs = opened.runs
    with runs.lock("abort", held=how.dry_run):
        files = recovery_options.find_open_run(runs, how)
        if files is None:
            return no_open_run()
        past = recovery_options.read_past(files, how)
        snapshot: Snapshot = opened.topology.observe()
        if not (how.dry_run or how.break_lock):
            lock.refuse_if_held(snapshot, runs)
        asked = replace(past.plan.spec, expect_serving=how.expect_serving)
        opened.installation.must_know(asked.target, asked.expect_serving, asked.presume_down)
        others = sites_changed(snapshot, past) or brokers_changed(opened.topology.recipe.basis(snapshot), past)
        if (others := others or unexpected(part_of(snapshot, asked), asked)) is not None:
            return Result.of(ExitCode.PRECHECK_FAILED, others, run=files.name)
        if (refused := _past_no_return(past, snapshot, files)) is not None:
            return refused
        if how.dry_run:
            return _undo_planned(past, files)
        if silent := recovery_options.unreached(past, snapshot):
            away = found("DR-RUN-009", run=files.name, sites=brief(silent))
            return left_open(Result.of(ExitCode.PRECHECK_FAILED, away), files)
        if why_not := caller.why_not(lambda: caller.people.says_yes(f"Undo {files.name}?"), yes=how.yes):
            return left_open(_declined(why_not), files)
        what = f"abort of {past.plan.spec.operation} to {past.plan.spec.target}"
        with lock.locked(opened, snapshot, files.name, what, break_lock=how.break_lock) as lease:
            if (refused := _past_no_return(past, opened.topology.observe(), files)) is not None:
                return refused
            return execution.Run(opened, files, lease, how).undo(past)


def _undo_planned(past: RunState, files: RunFiles) -> Result:
    steps = executor.steps_to_undo(past)
    text = page(
        f"undo {step.verb}: {call.summary}, if {if_known(call.when)}" for step in steps for call in step.inverse
    )
    serves = " and ".join(past.plan.serving)
    ending = f"{serves} would serve" if serves else "no site would serve, as before the run"
    data = AbortData(undo=[UndoneStep(step.id, step.inverse) for step in steps], serves=past.plan.serving)
    return Result(ExitCode.OK, f"{ending}; nothing was changed", data=data, run=files.name, text=text)


def forget(caller: Caller, name: str, how: RunOptions) -> Result:
    """Close an open run as it is, without reading its journal or a broker, and without an undo."""
    if how.reason is None:
        raise UsageError("--forget needs --reason", remedy="Say who serves, and how that is known: --reason TEXT.")
    runs = caller.runs()
    files = runs.find(name)
    if not files.open():
        return Result.of(ExitCode.PRECHECK_FAILED, found("DR-RUN-004.not_open", run=files.name))
    if how.dry_run:
        return Result(ExitCode.OK, f"{files.name} would be given up; nothing was changed", run=files.name)
    question = f"Give up {files.name}? Nothing of it is undone."
    if why_not := caller.why_not(lambda: caller.people.says_yes(question), yes=how.yes):
        return left_open(_declined(why_not), files)
    with runs.lock(f"giving up {files.name}"):
        given_up = Result(ExitCode.UNKNOWN, f"given up: {how.reason}; nothing was undone", run=files.name)
        execution.give_up(files, given_up.envelope(caller.command))
    finding = found("DR-RUN-007", run=files.name)
    return Result(ExitCode.OK, f"{files.name} is given up", (finding,), run=files.name)


def _past_no_return(past: RunState, snapshot: Snapshot, files: RunFiles) -> Result | None:
    finding = why_not_undone(past, snapshot, files.name)
    return None if finding is None else Result.of(ExitCode.PRECHECK_FAILED, finding, run=files.name)


def cost(plan: Plan, snapshot: Snapshot, exposure: LossBound | None, runs: Runs, *, is_resumed: bool = False) -> str:
    """The cost of a failover or of a planned move; empty otherwise. The limit of a resumed run may be over already."""
    operation = plan.spec.operation
    if operation == FAILOVER and exposure is not None:
        bounds = bounds_text(exposure.bounds())
        return f"{bounds}; {_clients(plan, snapshot, plan.target)} are served by {plan.target} then"
    if operation not in _PLANNED:
        return ""
    max_s = plan.spec.max_outage_s
    limit = "" if max_s is None or is_resumed else f", at most {duration(max_s)} (then it is undone)"
    kept = "messages that clients hold are delivered again" if plan.spec.cut_in_flight else "no loss, no duplicates"
    outage = _outage_text(plan, snapshot, runs)
    return f"expected outage for {_clients(plan, snapshot, plan.source)}: {outage}{limit}; {kept}"


def _clients(plan: Plan, snapshot: Snapshot, site: str) -> str:
    queues = {name for broker in snapshot.brokers_at(site) for name in broker.depths}
    count = len(queues if plan.spec.units is None else plan.spec.units)
    return f"clients of {count} queue{'' if count == 1 else 's'}" if count else f"clients of {site}"


def _outage_text(plan: Plan, snapshot: Snapshot, runs: Runs) -> str:
    """Say how long clients will be out, by the outages of earlier moves."""
    took = _earlier_outages(runs)
    if took:
        moves = "the last move" if len(took) == 1 else f"the last {len(took)} moves"
        between = f"{duration(min(took))} to {duration(max(took))}" if len(took) > 1 else duration(took[0])
        return f"about {duration(median(took))} ({moves}: {between})"
    outflows = [link.outflow for link in snapshot.links() if link.site == plan.source]
    to_ship = total(outflows)
    now = "" if to_ship is None or not outflows else f" ({to_ship} to ship now)"
    return f"unknown, no move from here was measured yet{now}"


def _earlier_outages(runs: Runs) -> Sequence[float]:
    """Return the outages of the last successful planned moves, by the runs of this STATE."""
    moves = (record(files) for files in reversed(runs.all()) if {*files.name.split("-")[1:2]} & {*_PLANNED})
    outages = (run.out for run in moves if run.exit_code in (ExitCode.OK, ExitCode.WARNINGS) and run.out is not None)
    return [*islice((out.at_most_s for out in outages if out.at_most_s is not None), _MOVES_FOR_FORECAST)]
