"""Acts of the waits on a replica; a site without a replica waits for no step."""

from typing import Final

from dr_ctl.core.model import ExitCode
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.engine.waiting import until
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.sharedstore.lock import Lag
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

    def show(lag: Lag | None) -> None:
        size = lag.size if lag is not None else None
        hand.sample({"replica": {"bytes": size}})
        hand.waiting("bytes that the replica has not got", size, None)

    waited = until(
        hand,
        tools.observer.shared.lag,
        holds=lambda lag: lag is not None and lag.size <= small,
        within_s=step.limits["within"],
        poll_s=poll_s,
        meanwhile=show,
    )
    lag = waited.look
    if waited.held and lag is not None:
        return Done(f"{lag.size} byte(s) to replicate", {"bytes": lag.size, "messages": lag.messages})
    left = f"{lag.size} byte(s)" if lag is not None else "an unknown number of bytes"
    text = f"not drained after {duration(step.limits['within'])}: {left} to replicate"
    return Refused(text, code=ExitCode.DRAIN_TIMEOUT)
