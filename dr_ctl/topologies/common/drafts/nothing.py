"""The step of a verb for which a topology has nothing to do. Pure."""

from collections.abc import Callable
from typing import Any

from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.rules import Rules


def nothing(about: str, *, at_source: bool = False) -> Callable[[Rules, RunbookStep, Any, Move], Draft]:
    """A step without calls, with the reason; `{site}` stands for the target, or for the source."""

    def draft(rules: Rules, step: RunbookStep, seen: object, move: Move) -> Draft:
        del rules, step, seen
        site = move.source if at_source else move.target
        return Draft(site, about.format(site=site))

    return draft
