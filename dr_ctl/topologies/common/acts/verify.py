"""What is done for `verify`: the whole gate; of a drain by itself, then the receipt."""

from __future__ import annotations

from dr_ctl.core.model import some
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common import receipts
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker


def act(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    outcome = tools.gate.verify(step, move, hand)
    if not (isinstance(outcome, Done) and step.calls):
        return outcome
    views = {view.pair: view for view in tools.observer.look_at(move.target)}
    written = {
        pair: receipts.of(sample.source, sample.target, tools.sender.epoch) for pair, sample in tools.gate.seen.items()
    }
    tools.change([call for pair, receipt in written.items() for call in receipts.write(views[pair], receipt)], hand)
    stands = {view.pair: receipts.held_at(view) for view in tools.observer.look_at(move.target)}
    if missing := [pair for pair, receipt in written.items() if stands[pair] != receipt]:
        return Refused(f"the receipt could not be written: {some(missing)}")
    return Done(f"{outcome.text}; receipt written", outcome.evidence, outcome.findings)
