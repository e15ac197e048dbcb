"""What several verbs share: a step that changes nothing, and a returned site closed first."""

from collections.abc import Callable
from typing import Any

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, some
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Move, NotNeeded, Outcome, Refused, StepContext, StepPlan
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.calls import holds, left_of
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker


def draft_nothing(about: str, *, at_source: bool = False) -> Callable[[Rules, RunbookStep, Any, Move], StepPlan]:
    """A step without calls, with the reason; `{site}` stands for the target, or for the source."""

    def draft(rules: Rules, step: RunbookStep, snapshot: object, move: Move) -> StepPlan:
        del rules, step, snapshot
        site = move.source if at_source else move.target
        return StepPlan(site, about.format(site=site))

    return draft


def nothing(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    del tools, move, context
    return NotNeeded(step.about)


def closed_first(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> list[Finding] | Refused:
    """Close what is open of the returned site, and look whether it is closed; a finding where anything was open.

    Raises `BrokerError`.
    """
    views = tools.views(move.target)
    shut = [call for call in step.calls if not holds(call, views)]
    if not shut:
        return []
    tools.change(shut, context)
    if left := left_of(shut, tools.views(move.target)):
        return Refused(f"{move.target} could not be fenced: {some(left)}")
    return [found("DR-RETURN-002", target=move.target, source=move.source, since="")]
