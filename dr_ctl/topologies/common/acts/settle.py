"""What is done for `settle`: what reached the target is applied there, as far as it can be."""

from __future__ import annotations

from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common import checks
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker

CALM: Final = 5  # an acknowledgement that is retried shows as none for a moment


def act(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """A lost site sends no more, so what is not applied in time never will be: that is said, and waited out."""
    until = hand.monotonic() + step.limits["within"]
    calm = 0
    while True:
        try:
            pending = tools.observer.unapplied_at(move.target, timeout_s=tools.patience.flag_s)
        except BrokerError as error:
            return Refused(f"{move.target} does not answer: {error}")
        hand.sample({move.target: {"pending": pending}})
        hand.waiting("acknowledgements that are not applied yet", pending, None)
        calm = calm + 1 if pending == 0 else 0
        if calm >= CALM:
            return Done("all that arrived is applied")
        if hand.monotonic() > until:
            text = f"{pending} acknowledgement(s) from {move.source} could not be applied: so many may come twice"
            if pending is None:
                text = f"which acknowledgements from {move.source} are not applied at {move.target} was not read"
            remedy = "Nothing to do now; `dr-ctl reinstate` compares both sites when the lost one is back."
            return Done(text, {"pending": pending}, (checks.warning("DR-SETTLE-001", text, remedy),))
        hand.wait(tools.patience.settle_poll_s)
