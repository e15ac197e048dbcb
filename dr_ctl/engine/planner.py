"""From what was asked and what was seen to a plan, or a refusal with all its reasons. Touches nothing.

A resumed run is planned here too, with its history: there is no second path. The history gives the source, the target
and the state before the run; what was seen now decides what is left to do.
"""

from __future__ import annotations

from typing import TypeVar

from dr_ctl.core.model import Finding, Role, Severity
from dr_ctl.engine.journal import History
from dr_ctl.engine.plan import AlreadyThere, Ask, Decision, Plan, PlannedStep, Refusal
from dr_ctl.engine.ports import Move, Observation, Recipe
from dr_ctl.engine.runbook import Runbook

O = TypeVar("O", bound=Observation)  # noqa: E741 - the observation of one topology

# What the executor does itself, whatever the topology.
GENERAL = frozenset({"estimate", "point-of-no-return"})

# What is left of a resumed run whose target was seen to serve.
FINISHING = frozenset({"observe", "check", "point-of-no-return", "activate", "probe"})


def error(id_: str, text: str, remedy: str) -> Finding:
    """A finding that refuses the operation."""
    return Finding(id_, Severity.ERROR, text, remedy)


def plan(runbook: Runbook, recipe: Recipe[O], seen: O, ask: Ask, past: History | None = None) -> Decision:
    """Decide every step, in order, with the reason for each."""
    if past is not None and (elsewhere := other_sites(seen, past)) is not None:
        return Refusal((elsewhere,))
    source = _source(seen, ask) if past is None else _resumed_source(seen, past)
    if isinstance(source, Finding):
        # The topology's own findings say why a role is not known; the operator hates finding them one by one.
        others = recipe.why_not(seen, Move(ask, _other(seen, ask.target), recipe.baseline(seen)))
        return Refusal((source, *(finding for finding in others if finding.severity is Severity.ERROR)))
    move = Move(ask, source, past.baseline if past is not None else recipe.baseline(seen))
    if past is None and seen.roles[ask.target] is Role.SERVING and seen.roles[source] is Role.STANDBY:
        return AlreadyThere(
            f"{ask.target} serves already; nothing was changed",
            tuple(finding for finding in recipe.why_not(seen, move) if finding.severity is not Severity.ERROR),
        )
    findings = recipe.why_not(seen, move)
    missing = sorted({step.verb for step in runbook.steps} - recipe.verbs() - GENERAL)
    if missing:
        text = f"the runbook {runbook.path.name} has steps that cannot be done yet: {', '.join(missing)}"
        findings = [error("DR-BOOK-004", text, "Take them out, or use the runbook that came with dr-ctl."), *findings]
    if any(finding.severity is Severity.ERROR for finding in findings):
        return Refusal(tuple(findings))
    finishing = past is not None and seen.roles[ask.target] is Role.SERVING
    number = past.last_number if past is not None else 0
    steps = []
    undoable = not finishing
    for line in runbook.steps:
        if finishing and line.verb not in FINISHING:
            continue
        number += 1
        undoable = undoable and line.verb != "point-of-no-return"
        if line.verb in GENERAL:
            steps.append(PlannedStep(number, line.verb, "", _ABOUT[line.verb], limits=line.limits, undoable=undoable))
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
    return Plan(
        ask=ask,
        source=source,
        steps=tuple(steps),
        findings=tuple(findings),
        baseline=move.baseline,
        not_replicated=tuple(recipe.not_replicated(seen, move)),
        cannot_know=tuple(recipe.cannot_know()),
    )


_ABOUT = {
    "estimate": "estimate from the history how much a failure would lose now",
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
