"""What is done for `probe`: a message goes through; then the broker that gave up the store is made to wait for it."""

from __future__ import annotations

from dataclasses import replace

from dr_ctl.core.model import Finding
from dr_ctl.engine.operations import FAILOVER
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common import acts, checks
from dr_ctl.topologies.sharedstore.drafts.probe import BESIDE
from dr_ctl.topologies.sharedstore.tools import StoreTools


def act(tools: StoreTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    goes_through = replace(step, calls=step.part(""))
    outcome = acts.proving.probe(tools, goes_through, move, hand)
    if move.ask.operation == FAILOVER or not isinstance(outcome, Done | NotNeeded):
        return outcome
    return replace(outcome, findings=(*outcome.findings, *_beside(tools, step, move, hand)))


def _beside(tools: StoreTools, step: PlannedStep, move: Move, hand: Hand) -> list[Finding]:
    """Where its process has ended it is started, or that is said; one that runs waits, or ends later."""
    found = []
    for view in tools.observer.look_once().views(move.source):
        if view.runs is not False:
            continue
        starts = [call for call in step.part(BESIDE) if call.unit == view.pair]
        failed = [each.text for each in tools.change(starts, hand) if not isinstance(each, Done)]
        if failed or not starts:
            why = f": {failed[0]}" if failed else ""
            text = f"{view.site}/{view.pair}: its process has ended, so {move.target} has no other site{why}"
            found.append(checks.warning("DR-STORE-010", text, "Start it: it then waits for the store."))
    return found
