"""What several verbs share: a step that changes nothing, an undo at the source, and a returned site closed first."""

from collections.abc import Callable
from typing import Any

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, some
from dr_ctl.engine.outcome import NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Draft, Hand, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.calls import holds, left_of
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker


def draft_nothing(about: str, *, at_source: bool = False) -> Callable[[Rules, RunbookStep, Any, Move], Draft]:
    """A step without calls, with the reason; `{site}` stands for the target, or for the source."""

    def draft(rules: Rules, step: RunbookStep, seen: object, move: Move) -> Draft:
        del rules, step, seen
        site = move.source if at_source else move.target
        return Draft(site, about.format(site=site))

    return draft


def nothing(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    del tools, move, hand
    return NotNeeded(step.about)


def put_back(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """The undo of a step all of whose inverse is at the source."""
    return tools.put_back(step, move.source, hand)


def closed_first(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> list[Finding] | Refused:
    """Close what is open of the returned site, and look whether it is closed; a finding where anything was open.

    Raises `BrokerError`.
    """
    views = tools.views(move.target)
    shut = [call for call in step.calls if not holds(call, views)]
    if not shut:
        return []
    tools.change(shut, hand)
    if left := left_of(shut, tools.views(move.target)):
        return Refused(f"{move.target} could not be fenced: {some(left)}")
    text = f"{move.target} came back open: its clients may have worked beside those of {move.source}"
    return [found("DR-RETURN-002", text, "Compare what they did.")]
