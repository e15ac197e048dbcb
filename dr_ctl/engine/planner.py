"""Makes a plan, or a refusal with all its reasons, from the request and the observation. Pure.

A resumed run is planned here too. The run's history gives the source, the target and the state before the run; the new
observation decides which steps are left.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, RefusalScope, Role, Severity, brief
from dr_ctl.engine import operations, roles
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.journal import RunState
from dr_ctl.engine.plan import AlreadyThere, Call, Decision, Goal, Plan, PlannedStep, Refusal, Spec
from dr_ctl.engine.ports import LossExposure, Move, Observation, Recipe
from dr_ctl.engine.runbook import CUT_OFF, Runbook, RunbookStep, cutting_off

O = TypeVar("O", bound=Observation)  # noqa: E741 - the observation of one topology


def plan(
    runbook: Runbook,
    recipe: Recipe[O],
    snapshot: O,
    spec: Spec,
    past: RunState | None = None,
    exposure: LossExposure | None = None,
    *,
    replaces_run: bool = False,
) -> Decision:
    """Decide every step, or refuse with all reasons. A plan that replaces an unfinished run (`replaces_run`) is made
    even if the wanted state holds."""
    renamed = roles.renamed_sites(snapshot) if spec.operation != operations.FENCE else None
    if (impossible := roles.missing_units(snapshot, spec) or renamed) is not None:
        return Refusal((impossible,))
    relevant = roles.as_resumed(roles.part_of(snapshot, spec), spec, past)  # of the units that the request names
    source_reopened = past is not None and roles.open_again(relevant, past)
    cuts_off = bool(cutting_off(runbook.steps))
    is_failover = spec.operation == operations.FAILOVER and not source_reopened
    already_failed_over = is_failover and past is None and _keeps_out(relevant, spec.target)
    if (
        is_failover
        and not already_failed_over
        and (reasons := roles.why_not_lost(relevant, spec, under_way=past is not None, cut_off=cuts_off))
    ):
        return Refusal(reasons, ExitCode.SERVING_SITE_ALIVE)
    if past is not None:
        other_installation = roles.sites_changed(relevant, past) or roles.brokers_changed(recipe.basis(snapshot), past)
        if other_installation is not None:
            return Refusal((other_installation,))
    by_unit = recipe.moves_parts
    source = roles.source_of(relevant, spec, past, cut_off=cuts_off, reopened=source_reopened, by_unit=by_unit)
    if isinstance(source, Finding):
        # The topology's own findings explain an unknown role; all are reported at once.
        problem, others = source, _errors(recipe, snapshot, spec)
        # Not even a fence helps if each site has errors against it.
        if problem == roles.both_open(relevant) and all(against := against_fences(recipe, snapshot)):
            problem = found("DR-ROLE-001.fence_refused", roles=roles.roles_text(relevant))
            others = [*dict.fromkeys([*chain(*against), *others])]
        return Refusal((problem, *others))
    baseline = past.plan.baseline if past is not None else recipe.baseline(snapshot)
    activation_sent = past is not None and past.activation_sent
    move = Move(spec, source, baseline, _moved_units(relevant, spec.target, past), activation_sent)
    if past is None and not replaces_run and (held_already := _already_there(recipe, snapshot, move)) is not None:
        return held_already
    of_lost = [*roles.alive_beside_target(relevant, spec), *roles.takeover_risks(relevant, spec)] if is_failover else []
    findings = [*of_lost, *recipe.why_not(snapshot, move)]
    if source_reopened:
        # The move is made already, so no finding refuses it: the source, which is open again, has to be closed.
        findings = [replace(finding, severity=_milder(finding)) for finding in findings]
        findings = [found("DR-ROLE-018", source=source, target=spec.target), *findings]
    missing = sorted({step.verb for step in runbook.steps} - recipe.verbs() - operations.ENGINE_VERBS)
    if missing:
        findings = [found("DR-BOOK-004", runbook=runbook.path.name, steps=", ".join(missing)), *findings]
    if any(finding.severity is Severity.ERROR for finding in findings):
        return Refusal(tuple(findings))
    has_moved = source_reopened or _target_serves_all(relevant, move)
    finishing = past is not None and spec.operation in operations.MOVING and has_moved
    lines = _lines(runbook, relevant, move, past)
    if finishing:
        verbs = operations.CLOSING_AGAIN if source_reopened else operations.FINISHING
        lines = [line for line in lines if line.verb in verbs]
    if already_failed_over:
        lines = [line for line in lines if line.verb in operations.KEEPING_OUT]
    steps = _steps(lines, recipe, snapshot, move, past, finishing=finishing)
    untouched = [unit for unit in snapshot.units if not spec.includes(unit.name)]
    decided = Plan(
        spec=spec,
        source=source,
        steps=steps,
        findings=tuple(findings),
        baseline=move.baseline,
        not_replicated=tuple(recipe.not_replicated(snapshot, move)),
        cannot_know=tuple(recipe.cannot_know(move)),
        serving=past.plan.serving if past is not None else tuple(roles.sites_serving(relevant)),
        already_moved=move.already_moved,
        untouched=tuple(unit.name for unit in untouched),
        served={unit.name: unit.serving for unit in untouched if unit.serving} if past is None else past.plan.served,
        basis=_basis(runbook, recipe, snapshot),
    )
    is_opened = source_reopened or already_failed_over or (past is not None and roles.serves_all(relevant, spec.target))
    refused = exposure.too_high(spec) if exposure is not None and not is_opened else None
    return decided if refused is None else Refusal((refused, *findings), ExitCode.LOSS_REFUSED, decided)


def _errors(recipe: Recipe[O], snapshot: O, spec: Spec) -> list[Finding]:
    against = recipe.why_not(snapshot, Move(spec, roles.other(snapshot, spec.target), recipe.baseline(snapshot)))
    return [finding for finding in against if finding.severity is Severity.ERROR]


def against_fences(recipe: Recipe[O], snapshot: O) -> list[list[Finding]]:
    return [_errors(recipe, snapshot, Spec(operations.FENCE, site)) for site in snapshot.roles]


def _basis(runbook: Runbook, recipe: Recipe[O], snapshot: O) -> Mapping[str, Json]:
    """Return the state that a plan is decided from: the same request with the same basis gives the same plan."""
    lines: list[Json] = [f"{step.verb} {step.site} {dict(step.limits)} {dict(step.words)}" for step in runbook.steps]
    by_site: dict[str, Json] = {site: role.value for site, role in snapshot.roles.items()}
    return {"roles": by_site, "runbook": lines, **recipe.basis(snapshot)}


def _already_there(recipe: Recipe[O], snapshot: O, move: Move) -> AlreadyThere | None:
    target, operation = move.target, move.spec.operation
    if operation == operations.REINSTATE or (
        operation in operations.SINGLE_STEPS and operation not in (operations.ACTIVATE, operations.DRAIN)
    ):
        text = recipe.holds_already(snapshot, move)
        return AlreadyThere(f"{text}; nothing was changed", ()) if text is not None else None
    if operation == operations.DRAIN or not _target_serves_all(roles.part_of(snapshot, move.spec), move):
        return None
    if operation == operations.FAILOVER and recipe.holds_already(snapshot, move) is None:
        return None  # somebody else opened the target, and a quarantine still has a price
    against = recipe.why_not(snapshot, move)
    kept = [row for row in against if row.severity is not Severity.ERROR or RefusalScope.WHERE_IT_SERVES in row.weighs]
    findings = [replace(finding, severity=_milder(finding)) for finding in kept]
    are_all = all(move.spec.includes(unit.name) for unit in snapshot.units)
    serves = f"{target} serves{'' if are_all else f' {brief(move.spec.units or ())}'}"
    beside = roles.alive_beside_target(snapshot, move.spec) if operation == operations.FAILOVER else ()
    return AlreadyThere(f"{serves} already; nothing was changed", (*beside, *findings))


def _target_serves_all(snapshot: Observation, move: Move) -> bool:
    """Say whether the target serves every unit, and the source is not open."""
    return roles.serves_all(snapshot, move.target) and snapshot.roles[move.source] is not Role.SERVING


def _keeps_out(snapshot: Observation, target: str) -> bool:
    """Say whether only the target serves, since an earlier failover whose loss was accepted."""
    lost = roles.other(snapshot, target)
    kept = (debt.lost_site for debt in snapshot.debts if debt.kind is DebtKind.QUARANTINE and debt.kept_at == target)
    return roles.serves_all(snapshot, target) and snapshot.roles[lost] is not Role.SERVING and lost in kept


def _moved_units(snapshot: Observation, target: str, past: RunState | None) -> tuple[str, ...]:
    """Return the units that the target serves; a resumed run that has opened nothing keeps those of its plan."""
    if past is not None and not past.activation_sent and not roles.serves_all(snapshot, target):
        return past.plan.already_moved
    return tuple(unit.name for unit in snapshot.units if unit.serving == target)


def _lines(runbook: Runbook, snapshot: Observation, move: Move, past: RunState | None) -> Sequence[RunbookStep]:
    """Choose the lines of the runbook. A reinstatement ends with the reconciliation; a resumed failback does not
    reinstate twice. A site that answers is fenced at its listeners; only a silent site is cut off by a hook."""
    lines: Sequence[RunbookStep] = runbook.steps
    hooks = cutting_off(lines) if move.spec.operation in (operations.FAILOVER, operations.FENCE) else []
    if snapshot.roles[move.source] in (Role.SERVING, Role.STANDBY):
        lines = tuple(line for line in lines if line not in hooks)
    elif hooks:
        mark = {CUT_OFF: True}
        lines = [replace(row, words={**row.words, **mark}) if row.verb == operations.FENCE else row for row in lines]
    if move.spec.operation == operations.REINSTATE:
        ends = [number for number, line in enumerate(lines, start=1) if line.verb == operations.RECONCILE]
        lines = lines[: ends[0]] if ends else lines
    steps = past.steps if past is not None else ()
    reinstated = any(step.step.verb == operations.RECONCILE and step.succeeded for step in steps)
    # A site that a failback has opened in part did not come back open.
    has_debt = any(move.target == debt.lost_site for debt in snapshot.debts)
    closed = snapshot.roles[move.source] is not Role.SERVING
    if reinstated or (move.spec.operation == operations.FAILBACK and closed and not has_debt):
        return [line for line in lines if line.verb not in operations.REJOINING]
    return lines


def _steps(
    lines: Sequence[RunbookStep], recipe: Recipe[O], snapshot: O, move: Move, past: RunState | None, *, finishing: bool
) -> tuple[PlannedStep, ...]:
    number = past.last_number if past is not None else 0
    steps = []
    undoable = not finishing
    for line in lines:
        number += 1
        undoable = undoable and line.verb != operations.NO_RETURN
        if line.verb in operations.ENGINE_VERBS:
            steps.append(_engine_step(number, line, undoable=undoable))
            continue
        draft = recipe.draft(line, snapshot, move)
        limits = draft.limits if draft.limits is not None else line.limits
        if line.verb == operations.CATCHING_UP and move.spec.timeout_s is not None and "within" in limits:
            # `--timeout` limits the catch-up too, where that may take longer.
            limits = {**limits, "within": min(limits["within"], move.spec.timeout_s)}
        drafted = (draft.site, draft.summary, draft.calls, draft.inverse)
        steps.append(PlannedStep(number, line.verb, *drafted, limits, undoable, draft.cut_off))
    return tuple(steps)


def _engine_step(number: int, line: RunbookStep, *, undoable: bool) -> PlannedStep:
    about = str(line.words.get("sentence", _ABOUT[line.verb]))
    calls: tuple[Call, ...] = ()
    if line.verb == operations.HOOK:
        name = str(line.words["name"])
        about = f"the installation's own command {name}"
        calls = (Call("", "", Goal.HOOK, name, {}, about),)  # no broker is involved
    return PlannedStep(number, line.verb, "", about, calls, limits=line.limits, undoable=undoable)


def _milder(finding: Finding) -> Severity:
    return Severity.WARNING if finding.severity is Severity.ERROR else finding.severity


_ABOUT = {
    operations.HOOK: "the installation's own command",
    operations.HOLD: "wait",
    operations.ESTIMATE: "estimate from the history how much a failure would lose now",
    operations.QUESTION: "go on?",
    operations.SNAPSHOT: "the last readings of the lost site, with the bounds of loss and duplicates",
    operations.NO_RETURN: "from here on the move is finished, not undone",
}
