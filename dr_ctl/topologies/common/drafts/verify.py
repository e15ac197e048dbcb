"""What is decided for `verify`: how long the gate may take; of a drain by itself, where its receipt stands. Pure."""

from __future__ import annotations

from dr_ctl.engine.operations import DRAIN
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common import receipts
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.view import Broker


def draft(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    del step
    limits = {"within": rules.within(move), "stable": float(rules.drain.stable)}
    about, calls = "the whole gate, stable; both sites hold the same", list[Call]()
    if move.ask.operation == DRAIN:
        about += "; then the receipt"
        calls = [call for view in seen.views(move.target) for call in receipts.write(view, None, receipts.HOLDS)]
    return Draft(move.target, about, tuple(calls), limits=limits)
