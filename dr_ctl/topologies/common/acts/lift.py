"""Lifts what quiesce paused, beside a drain: the doors are closed, nothing is dispatched, and no time is lost."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import some
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common.drafts.quiesce import lifts
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker


@dataclass
class Lifting:
    """Pauses that are being lifted; `why_not` once the block has ended: None where all of them are."""

    why_not: str | None = None

    def judged(self, outcome: Outcome) -> Outcome:
        """The end of the drain that it was beside."""
        return Refused(f"pauses: {self.why_not}") if isinstance(outcome, Done) and self.why_not else outcome


@contextmanager
def lifting(tools: Tools[Broker], move: Move, hand: Hand) -> Iterator[Lifting]:
    """Lift them while the block runs. Its end is always waited for: its calls are in the journal."""
    told = Lifting()
    under_way: Future[str | None] = tools.observer.pool.submit(_lift, tools, move, hand)
    try:
        yield told
    finally:
        try:
            told.why_not = under_way.result()
        except BrokerError as error:
            told.why_not = str(error)


def _lift(tools: Tools[Broker], move: Move, hand: Hand) -> str | None:
    """None when all of it was seen to be resumed."""
    source = tools.observer.at(move.source)
    tools.change([call for access in source for call in lifts(tools.rules, access.look(), move)], hand)
    left = [call.about for access in source for call in lifts(tools.rules, access.look(), move)]
    return some(left) if left else None
