"""What is decided for `probe`: beside the message that goes through, the broker that was left waits again. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dr_ctl.engine.operations import FAILOVER
from dr_ctl.engine.plan import in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.classic import drafts as classic
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.sharedstore.calls import start
from dr_ctl.topologies.sharedstore.view import BrokerView

BESIDE: Final = "beside"
ENDED: Final = "it has ended"


def draft(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    """Of a lost site nothing is asked."""
    told = classic.probe(rules, step, seen, move)
    views = [] if move.ask.operation == FAILOVER else seen.views(move.source)
    return replace(told, calls=(*told.calls, *in_part(BESIDE, [call for view in views for call in start(view, ENDED)])))
