"""What is done for the waits on a replica; without one there is nothing to wait for."""

from __future__ import annotations

from typing import Final

from dr_ctl.core.model import ExitCode
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.sharedstore.tools import StoreTools

SMALL: Final = 1_000_000  # bytes of the database's journal: less than a second's


def catch_up(tools: StoreTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    del move
    return _replicated(tools, step, hand, SMALL, tools.patience.link_poll_s)


def drain(tools: StoreTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    del move
    return _replicated(tools, step, hand, 0, tools.rules.drain.poll)


def _replicated(tools: StoreTools, step: PlannedStep, hand: Hand, small: int, poll_s: float) -> Outcome:
    """Wait until the replica lacks no more than that."""
    if tools.observer.shared.settings.replica is None:
        return NotNeeded(step.about)
    until = hand.monotonic() + step.limits["within"]
    while True:
        lag = tools.observer.shared.lag()
        if lag is not None and lag.size <= small:
            return Done(f"{lag.size} byte(s) to replicate", {"bytes": lag.size, "messages": lag.messages})
        left = f"{lag.size} byte(s)" if lag is not None else "an unknown number of bytes"
        hand.sample({"replica": {"bytes": lag.size if lag is not None else None}})
        hand.waiting("bytes that the replica has not got", lag.size if lag is not None else None, None)
        if hand.monotonic() > until:
            text = f"not drained after {duration(step.limits['within'])}: {left} to replicate"
            return Refused(text, code=ExitCode.DRAIN_TIMEOUT)
        hand.wait(poll_s)
