"""Acts on a pair whose one site is lost: writes down what is owed, keeps its residue out, settles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Act, Hand, Move
from dr_ctl.topologies.artemis import checks
from dr_ctl.topologies.artemis.access import Observer
from dr_ctl.topologies.artemis.effects import holds, left_of
from dr_ctl.topologies.artemis.sending import Sender
from dr_ctl.topologies.artemis.view import Broker

POLL_S: Final = 0.01
FLAG_S: Final = 5.0
CALM: Final = 5  # an acknowledgement that is retried shows as none for a moment


class Surviving:
    """The acting half of `losing`: the verbs of a failover that a planned move does not have, and their inverses."""

    def __init__(self, observer: Observer[Broker], sender: Sender) -> None:
        self._observer, self._sender = observer, sender
        self.verbs: Mapping[str, Act] = {"fence": self._owe, "quarantine": self._quarantine, "settle": self._settle}
        self.inverses: Mapping[str, Act] = {"fence": self._put_back, "quarantine": self._put_back}

    def _owe(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        if not step.calls:
            return NotNeeded(step.about)
        return self._made(step.calls, move, hand) or Done(f"{move.source} cannot be fenced now: the fence is owed")

    def _quarantine(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        if not step.calls:
            return NotNeeded(step.about)
        return self._made(step.calls, move, hand) or Done(f"what {move.source} still holds cannot reach {move.target}")

    def _made(self, calls: Sequence[Call], move: Move, hand: Hand) -> Refused | None:
        """Make those calls whose effect does not hold, and look whether it does; None when all of it holds."""
        views = self._observer.look_at(move.target)
        hand.change([call for call in calls if not holds(call, views)], self._sender.send)
        views = self._observer.look_at(move.target)
        left = left_of(calls, views)
        return Refused(f"has not come true: {checks.some(left)}") if left else None

    def _put_back(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        views = self._observer.look_at(move.target)
        if not left_of(step.inverse, views):
            return NotNeeded("as it was")
        return self._made(step.inverse, move, hand) or Done("as it was")

    def _settle(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """A lost site sends no more, so what is not applied in time never will be: that is said, and waited out."""
        until = hand.monotonic() + step.limits["within"]
        calm = 0
        while True:
            try:
                pending = self._observer.unapplied_at(move.target, timeout_s=FLAG_S)
            except BrokerError as error:
                return Refused(f"{move.target} does not answer: {error}")
            hand.sample({move.target: {"pending": pending}})
            hand.waiting("acknowledgements that are not applied yet", pending, None)
            calm = calm + 1 if pending == 0 else 0
            if calm >= CALM:
                return Done("all that arrived is applied")
            if hand.monotonic() > until:
                text = f"{pending} acknowledgement(s) from {move.source} could not be applied: so many may come twice"
                remedy = "Nothing to do now; `dr-ctl reinstate` compares both sites when the lost one is back."
                return Done(text, {"pending": pending}, (checks.warning("DR-SETTLE-001", text, remedy),))
            hand.wait(POLL_S)
