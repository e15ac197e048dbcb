"""What several verbs share: a step that changes nothing, a returned site closed first, and what it still holds."""

from collections.abc import Callable, Sequence
from typing import Any

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Done, Move, NotNeeded, Outcome, Refused, StepContext
from dr_ctl.topologies.common.figures import Residue
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker
from dr_ctl.topologies.common.wants import RETURNED_SHUT


def nothing(_tools: Tools[Broker], step: PlannedStep, _move: Move, _context: StepContext) -> Outcome:
    return NotNeeded(step.about)


def closed_first(
    tools: Tools[Any],
    step: PlannedStep,
    move: Move,
    context: StepContext,
    since: Callable[[Sequence[Any]], str] = lambda _: "",
) -> list[Finding] | Refused:
    """Close what is open of the returned site; a finding where anything was, which tells what was done there `since`.

    Raises `BrokerError`.
    """
    if not step.calls:
        return []
    if (refused := tools.reach(RETURNED_SHUT, move, context, f"{move.target} could not be fenced")) is not None:
        return refused
    views = tools.views(move.target)
    return [found("DR-RETURN-002", target=move.target, source=move.source, since=since(views))]


def held_for_the_other(
    move: Move,
    context: StepContext,
    residues: Sequence[Residue | None],
    about: Callable[[Residue], str],
    findings: Sequence[Finding] = (),
    unread: str = "",
) -> Outcome:
    """Tell what the brokers of a returned site still hold for the other; `unread` is why one may not tell that."""
    known = [each for each in residues if each is not None]
    if len(known) < len(residues):
        return Refused(f"what {move.target} still holds was not read{unread}")
    total = Residue.together(known)
    text = about(total)
    context.notice(f"{move.target} still holds for the other site: {text}")
    return Done(text, total.figures(), tuple(findings))
