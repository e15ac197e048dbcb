"""Plans that are the same for all Classic brokers, beside the plans for all brokers. Pure."""

from typing import Any

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.classic import beans
from dr_ctl.topologies.classic.operations import PAUSES, REMOVE_QUEUE, REMOVES_QUEUES
from dr_ctl.topologies.common import drafts
from dr_ctl.topologies.common.calls import call
from dr_ctl.topologies.common.drafts.proving import probe_queue, probed
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.console.requests import request


def quiesce(rules: Rules, step: RunbookStep, seen: Seen[Any], move: Move) -> Draft:
    """Where the console's policy refuses to pause, dispatch goes on until the doors close."""
    if any(PAUSES in view.denied for view in seen.views(move.source)):
        limits = {"within": step.limits.get("within", rules.patience.quiesce_s)}
        return Draft(move.source, "clients are not let finish: its console refuses to pause queues", limits=limits)
    return drafts.quiesce.draft(rules, step, seen, move)


def probe(rules: Rules, step: RunbookStep, seen: Seen[Any], move: Move) -> Draft:
    """Sending makes the queue; dr-ctl removes it where the policy allows that, otherwise the broker does later."""
    del rules, step
    name = probe_queue(move.target)
    calls = [
        call(
            view,
            Goal.STRIKE,
            name,
            request(beans.broker(view.broker), REMOVE_QUEUE, (name,)),
            f"remove {name}",
        )
        for view in seen.views(move.target)
        if view.greets and REMOVES_QUEUES not in view.denied
    ]
    return Draft(move.target, probed(seen, move), tuple(calls))
