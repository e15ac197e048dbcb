"""From what was asked and what was seen to a plan, or a refusal with all its reasons. Touches nothing.

A resumed run is planned here too, with its history: there is no second path. The history gives the source, the target
and the state before the run; what was seen now decides what is left to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from dr_ctl.core.model import ExitCode, Finding, Role, Severity
from dr_ctl.engine.journal import History
from dr_ctl.engine.plan import AlreadyThere, Ask, Decision, Plan, PlannedStep, Refusal
from dr_ctl.engine.ports import Move, Observation, Price, Recipe
from dr_ctl.engine.runbook import Runbook, RunbookStep

O = TypeVar("O", bound=Observation)  # noqa: E741 - the observation of one topology

# What the executor does itself, whatever the topology.
GENERAL = frozenset({"estimate", "snapshot", "ask", "point-of-no-return"})

# What is left of a resumed run whose target was seen to serve.
FINISHING = frozenset({"observe", "check", "point-of-no-return", "activate", "probe"})

FAILOVER = "failover"
REINSTATE, FAILBACK = "reinstate", "failback"
RETURNS = (REINSTATE, FAILBACK)
CLOSED = (Role.STANDBY, Role.DOWN)

# How a lost site is taken in. Once the last of it has succeeded, what was done stays done: it is neither undone nor
# begun again because a later step fails.
KEEPS = "reconcile"
TAKING_IN = frozenset({"residue", "reinstate", KEEPS})


def error(id_: str, text: str, remedy: str) -> Finding:
    """A finding that refuses the operation."""
    return Finding(id_, Severity.ERROR, text, remedy)


def plan(
    runbook: Runbook, recipe: Recipe[O], seen: O, ask: Ask, past: History | None = None, price: Price | None = None
) -> Decision:
    """Decide every step, in order, with the reason for each. A failover has a price; what it may cost is judged too."""
    if ask.operation == FAILOVER and (alive := _alive(seen, ask)) is not None:
        return Refusal((alive,), ExitCode.SERVING_SITE_ALIVE)
    if past is not None and (elsewhere := other_sites(seen, past)) is not None:
        return Refusal((elsewhere,))
    source = _source_of(seen, ask, past)
    if isinstance(source, Finding):
        # The topology's own findings say why a role is not known; the operator hates finding them one by one.
        others = recipe.why_not(seen, Move(ask, _other(seen, ask.target), recipe.baseline(seen)))
        return Refusal((source, *(finding for finding in others if finding.severity is Severity.ERROR)))
    move = Move(ask, source, past.baseline if past is not None else recipe.baseline(seen))
    if past is None and (there := _already_there(recipe, seen, move)) is not None:
        return there
    findings = recipe.why_not(seen, move)
    missing = sorted({step.verb for step in runbook.steps} - recipe.verbs() - GENERAL)
    if missing:
        text = f"the runbook {runbook.path.name} has steps that cannot be done yet: {', '.join(missing)}"
        findings = [error("DR-BOOK-004", text, "Take them out, or use the runbook that came with dr-ctl."), *findings]
    if any(finding.severity is Severity.ERROR for finding in findings):
        return Refusal(tuple(findings))
    dear = price.too_high(ask) if price is not None and seen.roles[ask.target] is not Role.SERVING else None
    if dear is not None:
        return Refusal((dear, *findings), ExitCode.LOSS_REFUSED)
    finishing = past is not None and _moved(seen, move)
    steps = _steps(_lines(runbook, ask, past), recipe, seen, move, past, finishing=finishing)
    return Plan(
        ask=ask,
        source=source,
        steps=steps,
        findings=tuple(findings),
        baseline=move.baseline,
        not_replicated=tuple(recipe.not_replicated(seen, move)),
        cannot_know=tuple(recipe.cannot_know()),
    )


def _source_of(seen: Observation, ask: Ask, past: History | None) -> str | Finding:
    if ask.operation == FAILOVER:
        return _lost(seen, ask)
    if ask.operation in RETURNS:
        return _serving_beside(seen, ask, past)
    return _source(seen, ask) if past is None else _resumed_source(seen, past)


def _already_there(recipe: Recipe[O], seen: O, move: Move) -> AlreadyThere | None:
    target = move.target
    if move.ask.operation == REINSTATE:
        taken_in = recipe.nothing_owed(seen, move)
        return AlreadyThere(f"{target} is taken in already; nothing was changed", ()) if taken_in else None
    if not _moved(seen, move):
        return None
    findings = [each for each in recipe.why_not(seen, move) if each.severity is not Severity.ERROR]
    return AlreadyThere(f"{target} serves already; nothing was changed", tuple(findings))


def _moved(seen: Observation, move: Move) -> bool:
    """A returning site may be open although it must not be: only where the other is closed did the service move."""
    return seen.roles[move.target] is Role.SERVING and seen.roles[move.source] is not Role.SERVING


def _lines(runbook: Runbook, ask: Ask, past: History | None) -> Sequence[RunbookStep]:
    """The lines of the runbook that the operation is made of: a return without the move back ends where both sites are
    shown to hold the same; one that goes on does not take in what was taken in."""
    lines = runbook.steps
    if ask.operation == REINSTATE:
        ends = [number for number, line in enumerate(lines, start=1) if line.verb == KEEPS]
        lines = lines[: ends[0]] if ends else lines
    if past is not None and any(each.step.verb == KEEPS and each.succeeded for each in past.steps):
        return [line for line in lines if line.verb not in TAKING_IN]
    return lines


def _steps(
    lines: Sequence[RunbookStep], recipe: Recipe[O], seen: O, move: Move, past: History | None, *, finishing: bool
) -> tuple[PlannedStep, ...]:
    number = past.last_number if past is not None else 0
    steps = []
    undoable = not finishing
    for line in lines:
        if finishing and line.verb not in FINISHING:
            continue
        number += 1
        undoable = undoable and line.verb != "point-of-no-return"
        if line.verb in GENERAL:
            about = str(line.words.get("sentence", _ABOUT[line.verb]))
            steps.append(PlannedStep(number, line.verb, "", about, limits=line.limits, undoable=undoable))
            continue
        draft = recipe.draft(line, seen, move)
        steps.append(
            PlannedStep(
                number=number,
                verb=line.verb,
                site=draft.site,
                about=draft.about,
                calls=draft.calls,
                inverse=draft.inverse,
                limits=draft.limits if draft.limits is not None else line.limits,
                undoable=undoable,
            )
        )
    return tuple(steps)


_ABOUT = {
    "estimate": "estimate from the history how much a failure would lose now",
    "ask": "go on?",
    "snapshot": "what was last known of the lost site: how much may be lost, how much may come twice",
    "point-of-no-return": "from here on the move is finished, not undone",
}


def _other(seen: Observation, site: str) -> str:
    return next(name for name in seen.roles if name != site)


def _source(seen: Observation, ask: Ask) -> str | Finding:
    """Say which site the service leaves, or why that cannot be told."""
    other = _other(seen, ask.target)
    roles = seen.roles
    serving = [name for name, role in roles.items() if role is Role.SERVING]
    told = ", ".join(f"{name} is {role.value}" for name, role in roles.items())
    if len(serving) > 1:
        return error(
            "DR-ROLE-001",
            f"both sites let clients in: {told}",
            "Close the client acceptors of the site that should not serve, then look again: `dr-ctl status`.",
        )
    if ask.expect_serving is not None and serving != [ask.expect_serving]:
        return error(
            "DR-ROLE-002",
            f"{ask.expect_serving} was expected to serve, but {told}",
            "Look at `dr-ctl status`; run again with the site that serves.",
        )
    if serving == [ask.target]:
        if roles[other] is Role.STANDBY:
            return other
        return error(
            "DR-ROLE-003",
            f"{ask.target} serves already, but it cannot be shown that {other} does not: {told}",
            f"Bring {other}'s management back, then run the same command again.",
        )
    if serving == [other]:
        if roles[ask.target] is Role.STANDBY:
            return other
        return error(
            "DR-ROLE-004",
            f"{ask.target} cannot take over: {told}",
            f"A planned move needs both sites up and answering. Mend {ask.target} first.",
        )
    return error(
        "DR-ROLE-005",
        f"no site was seen to serve: {told}",
        "A swapover starts from a serving site. A run that was interrupted is named by `dr-ctl runs list`.",
    )


def _alive(seen: Observation, ask: Ask) -> Finding | None:
    """Say that the site to leave lives: a failover beside it would open a second one."""
    other = _other(seen, ask.target)
    role = seen.roles[other]
    if seen.roles[ask.target] is Role.SERVING and role is not Role.SERVING:
        return None
    if role is Role.SERVING:
        text, remedy = f"{other} serves", f"Move it without loss: `dr-ctl swapover --to {ask.target}`."
    elif role is Role.SICK:
        text = f"{other} is sick or frozen: its process lives and may still serve"
        remedy = f"End that process for certain, or cut its host off; then `dr-ctl failover --to {ask.target}` again."
    else:
        return None
    return error("DR-ALIVE-001", text, remedy)


def _serving_beside(seen: Observation, ask: Ask, past: History | None) -> str | Finding:
    """Say which site serves while the target is taken in again. One that came back open is only taken for the returning
    one where a run wrote down that it was lost. Where both are closed, the run that goes on had moved half way."""
    other, roles = _other(seen, ask.target), seen.roles
    told = ", ".join(f"{name} is {role.value}" for name, role in roles.items())
    if past is None and ask.expect_serving is not None and roles[ask.expect_serving] is not Role.SERVING:
        return error(
            "DR-ROLE-002",
            f"{ask.expect_serving} was expected to serve, but {told}",
            "Look at `dr-ctl status`; run again with the site that serves.",
        )
    was_lost = any(debt.about == ask.target for debt in seen.debts)
    open_ = roles[ask.target] is Role.SERVING
    if roles[other] is Role.SERVING and (roles[ask.target] is Role.STANDBY or (open_ and was_lost)):
        return other
    half_way = past is not None and roles[ask.target] is Role.STANDBY
    if ask.operation == FAILBACK and (open_ or half_way) and roles[other] is Role.STANDBY:
        return other
    if roles[other] is Role.SERVING and open_:
        return error(
            "DR-ROLE-001",
            f"both sites let clients in: {told}",
            "Close the client acceptors of the site that should not serve, then look again: `dr-ctl status`.",
        )
    return error(
        "DR-ROLE-008",
        f"{ask.target} cannot be taken in: {told}",
        f"That needs {other} serving and {ask.target} up with its clients kept out. Look at `dr-ctl status`.",
    )


def _lost(seen: Observation, ask: Ask) -> str | Finding:
    """Say which site was lost, or what is missing to take it for lost. The target must be there for itself."""
    other, roles = _other(seen, ask.target), seen.roles
    told = ", ".join(f"{name} is {role.value}" for name, role in roles.items())
    if ask.expect_serving is not None and roles[ask.expect_serving] is not Role.SERVING:
        return error(
            "DR-ROLE-002",
            f"{ask.expect_serving} was expected to serve, but {told}",
            "Look at `dr-ctl status`; a failover is for a site that does not serve any more.",
        )
    if roles[ask.target] not in (Role.SERVING, Role.STANDBY):
        return error(
            "DR-ROLE-004", f"{ask.target} cannot take over: {told}", f"A failover needs {ask.target}. Mend it first."
        )
    if roles[other] in CLOSED or roles[ask.target] is Role.SERVING:
        return other
    if ask.presume_down == other and ask.reason:
        return other
    return error(
        "DR-ALIVE-002",
        f"{other} does not answer, and nothing shows that it is down: {told}",
        f"Make sure that it serves nobody; then add --presume-down {other} --reason TEXT.",
    )


def other_sites(seen: Observation, past: History) -> Finding | None:
    """Say that a run is not of the sites that were looked at; None where it is."""
    if set(seen.roles) == {past.source, past.ask.target}:
        return None
    told = ", ".join(f"{name} is {role.value}" for name, role in seen.roles.items())
    return error(
        "DR-ROLE-007",
        f"the run is from {past.source} to {past.ask.target}, but {told}",
        "Go on with it with the settings that it began with.",
    )


def _resumed_source(seen: Observation, past: History) -> str | Finding:
    """Say that the run's own source is still the one, or why going on is not safe."""
    roles = seen.roles
    told = ", ".join(f"{name} is {role.value}" for name, role in roles.items())
    if any(role not in (Role.SERVING, Role.STANDBY) for role in roles.values()):
        return error(
            "DR-ROLE-006",
            f"going on needs an answer from both sites: {told}",
            "Bring the silent site's management back, then `dr-ctl resume` or `dr-ctl abort`.",
        )
    if all(role is Role.SERVING for role in roles.values()):
        return error(
            "DR-ROLE-001",
            f"both sites let clients in: {told}",
            "Close the client acceptors of the site that should not serve, then look again: `dr-ctl status`.",
        )
    return past.source
