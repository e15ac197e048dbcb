"""What is decided for `observe` and `check`: they change nothing. Pure."""

from __future__ import annotations

from dr_ctl.core.model import Role
from dr_ctl.engine.operations import FAILOVER, REINSTATE
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.view import Broker


def observe(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    del rules, step, seen, move
    return Draft("", "look at both sites")


def check(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    del rules, step
    greets = ", and a greeting by the serving site as a client gets it" if fences(seen, move) else ""
    return Draft("", f"all checks{greets}")


def fences(seen: Seen[Broker], move: Move) -> bool:
    """Say whether clients of a serving site will be fenced out: that is proven by a greeting that ends."""
    return move.ask.operation not in (FAILOVER, REINSTATE) and seen.roles[move.source] is Role.SERVING
