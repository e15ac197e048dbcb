"""Acts on one site by itself: fences it and strikes out that this was owed, lets clients in again, lifts pauses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused, Unknown
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Act, Hand, Move
from dr_ctl.topologies.artemis import checks
from dr_ctl.topologies.artemis.access import Observer
from dr_ctl.topologies.artemis.admitting import admit
from dr_ctl.topologies.artemis.doors import Doors
from dr_ctl.topologies.artemis.effects import holds, left_of, to_undo
from dr_ctl.topologies.artemis.sending import Sender
from dr_ctl.topologies.artemis.view import Broker

FENCE_S: Final = 30.0


class Releasing:
    """The verbs of `fence` and `release`, and their inverses."""

    def __init__(self, observer: Observer[Broker], sender: Sender, doors: Doors) -> None:
        self._observer, self._sender, self._doors = observer, sender, doors
        self.verbs: Mapping[str, Act] = {"fence": self._fence, "release": self._release}
        self.inverses: Mapping[str, Act] = {"fence": self._unfence, "release": self._close_again}

    def _change(self, calls: Sequence[Call], hand: Hand) -> list[Outcome]:
        return hand.change(calls, self._sender.send)

    def _fence(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """Close what is open and prove it; a site that does not answer was cut off by the hook before this step."""
        closes, strikes = step.part(""), step.part("strikes")
        proof: Outcome = Done(f"a hook keeps clients out of {move.source}", {"proof": "hook"})
        if not step.cut_off:
            told = self._change(closes, hand)
            within_s = 0.0 if any(isinstance(each, Refused) for each in told) else FENCE_S
            proof = self._doors.closed(move.source, hand, within_s)
        elif self._answers(move.source):
            return Refused(f"{move.source} answers again: a hook was to keep clients out of a site that does not")
        if not isinstance(proof, Done) or not strikes:
            return proof
        self._change(strikes, hand)
        left = left_of(strikes, self._observer.look_at(move.target))
        return Refused(f"has not come true: {checks.some(left)}") if left else proof

    def _answers(self, site: str) -> bool:
        try:
            self._observer.look_at(site)
        except BrokerError:
            return False
        return True

    def _unfence(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        owed = [call for call in step.inverse if call.site == move.target]
        self._change([call for call in owed if left_of([call], self._observer.look_at(move.target))], hand)
        return self.open_again(step, move, hand, sent=False)

    def open_again(self, step: PlannedStep, move: Move, hand: Hand, *, sent: bool) -> Outcome:
        """Let clients in again at the source. `sent`: the run has tried to open the other site."""
        views = self._observer.look_at(move.source)
        admits = [call for call in step.inverse if call.goal is Goal.ADMIT]
        calls = [call for call in step.inverse if call.goal is Goal.OPEN and not holds(call, views)]
        if not calls and all(holds(call, views) for call in admits):
            return NotNeeded(f"{move.source} is open")
        # Every call that lets clients in looks at the other site first.
        try:
            if any(view.open for view in self._observer.look_at(move.target)):
                return Refused(f"{move.target} is open: {move.source} stays closed", code=ExitCode.STRANDED)
        except BrokerError as error:
            if sent:
                return Unknown(f"{move.target} does not answer, and it may have been opened: {error}")
        why = admit(self._observer, self._sender, move.source, admits, hand)
        if why is None:
            self._change(calls, hand)
            why = self._doors.why_not_open_again(move.source, calls)
        return Refused(f"{move.source}: {why}") if why is not None else Done(f"{move.source} lets clients in again")

    def _release(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        opens, admits, rest = step.part("doors"), step.part("admit"), step.part("")
        if (opens or admits) and any(view.open for view in self._observer.look_at(move.target)):
            return Refused(f"{move.target} is open: a second site is never opened")
        if (kept_out := admit(self._observer, self._sender, move.source, admits, hand)) is not None:
            return Refused(kept_out)
        self._change(opens, hand)
        if opens:
            why = self._doors.why_not_open_again(move.source, opens)
            if why is not None:
                return Refused(f"{move.source}: {why}")
        self._change(rest, hand)
        views = [*self._observer.look_at(move.source), *self._observer.look_at(move.target)]
        left = left_of(rest, views)
        if left:
            return Refused(f"has not come true: {checks.some(left)}")
        return Done(f"{move.source} lets clients in, and delivers" if opens or admits else "pauses lifted")

    def _close_again(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        views = self._observer.look_at(move.source)
        calls = to_undo(step.inverse, views)
        if not calls:
            return NotNeeded("as it was")
        self._change(calls, hand)
        left = left_of(calls, self._observer.look_at(move.source))
        return Refused(f"has not come true: {checks.some(left)}") if left else Done("as it was")
