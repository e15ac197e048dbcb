"""The waits of a move: catching up while clients work, draining behind the fence."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Act, Hand, Move
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.artemis import checks
from dr_ctl.topologies.artemis.checks import warning
from dr_ctl.topologies.artemis.sending import Sender
from dr_ctl.topologies.mirror.access import Access, Observer, Way
from dr_ctl.topologies.mirror.links import Flows
from dr_ctl.topologies.mirror.look import Flow
from dr_ctl.topologies.mirror.recipe import MirrorRecipe
from dr_ctl.topologies.mirror.view import BrokerView
from dr_ctl.topologies.mirror.waiting import PairWait, until_all

SMALL: Final = 500
CATCH_UP_POLL_S: Final = 0.1
CALM: Final = 2

_UNDER_WAY: Final = "events under way between the sites"


class Draining:
    """The two waiting verbs before and behind the fence; each works on all pairs side by side."""

    def __init__(self, observer: Observer, recipe: MirrorRecipe, sender: Sender) -> None:
        self._observer, self._recipe, self._sender = observer, recipe, sender
        self.verbs: Mapping[str, Act] = {"catch-up": self.catch_up, "drain": self.drain}
        self.inverses: Mapping[str, Act] = dict.fromkeys(("catch-up", "drain"), self._start_links)

    def catch_up(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """While the source serves: both links attached, and little enough under way that a drain takes a moment."""
        within_s = step.limits["within"]
        waits = [_Small(way, self._recipe, self._sender, hand, within_s) for way in self._observer.ways(move)]
        failed = until_all(self._observer, waits, hand, _UNDER_WAY, CATCH_UP_POLL_S) if waits else None
        if failed is not None:
            return failed
        total, restarts = sum(each.last or 0 for each in waits), sum(each.mender.restarts for each in waits)
        return Done(f"{total} event(s) under way", {"under_way": total, "restarts": restarts})

    def drain(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """Lift the pauses and wait, side by side, until nothing is under way in either direction."""
        lifting = self._observer.pool.submit(self._lift, move, hand)
        try:
            waits = [_Empty(way, self._recipe, self._sender, hand, step) for way in self._observer.ways(move)]
            failed = until_all(self._observer, waits, hand, _UNDER_WAY, self._recipe.poll_s) if waits else None
        finally:
            lifted = _ended(lifting)
        if failed is not None:
            return failed
        if lifted is not None:
            return Refused(f"pauses: {lifted}")
        return Done("nothing is under way", {"restarts": sum(each.mender.restarts for each in waits)})

    def _lift(self, move: Move, hand: Hand) -> str | None:
        """Resume what quiesce paused; None when all of it was seen to be resumed."""
        source = self._observer.at(move.source)
        calls = [call for access in source for call in self._recipe.lifts(access.look(), move)]
        hand.change(calls, self._sender.send)
        left = [call.about for access in source for call in self._recipe.lifts(access.look(), move)]
        return checks.some(left) if left else None

    def _start_links(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        del move
        stopped, away = self._stopped_links()
        # A broker that is away is not waited for: clients are. A link's stop and start travel together, so it is only
        # left stopped where that one request was cut in its middle.
        findings = tuple(
            warning("DR-LINK-007", f"{access.site}: whether its link is started could not be seen", "Look at it.")
            for access in away
        )
        calls = [call for call in step.inverse if (call.site, call.pair) in stopped]
        if not calls:
            return NotNeeded("no link was seen stopped", findings=findings)
        hand.change(calls, self._sender.send)
        if left := self._stopped_links()[0] & {(call.site, call.pair) for call in calls}:
            return Refused(f"the link of {', '.join(site for site, _ in sorted(left))} is not started")
        return Done("links started", findings=findings)

    def _stopped_links(self) -> tuple[set[tuple[str, str]], list[Access]]:
        """The brokers whose link is not started, and those that did not answer."""

        def look(access: Access) -> BrokerView | None:
            try:
                return access.look()
            except BrokerError:
                return None

        every = self._observer.all()
        views = dict(zip(every, self._observer.together(look, every), strict=True))
        stopped = {(view.site, view.pair) for view in views.values() if view and view.link and not view.link.started}
        return stopped, [access for access, view in views.items() if view is None]


class _Small(PairWait):
    """Until little is under way; at the latest then it must have become less."""

    def __init__(self, way: Way, recipe: MirrorRecipe, sender: Sender, hand: Hand, within_s: float) -> None:
        super().__init__(way, recipe, sender, hand)
        self._within_s = within_s

    def ended(self, now: Flows, hand: Hand) -> Outcome | None:
        attached = all(isinstance(told, Flow) and told.attached for told in now.values())
        total = self.left(now)
        if attached and total is not None and total <= SMALL:
            return Done("little is under way")
        if hand.monotonic() - self.began <= self._within_s:
            return None
        if total is None or not attached:
            return Refused(f"not caught up: {self.why(now, hand)}")
        if self.first is not None and total >= self.first:
            return Refused(f"the outflow grows while clients work: {self.first} event(s), then {total}")
        return Done("less and less is under way")


class _Empty(PairWait):
    """Until nothing is under way in either direction, several polls in a row."""

    def __init__(self, way: Way, recipe: MirrorRecipe, sender: Sender, hand: Hand, step: PlannedStep) -> None:
        super().__init__(way, recipe, sender, hand)
        self._limits = step.limits
        self._calm = 0

    def ended(self, now: Flows, hand: Hand) -> Outcome | None:
        if opened := [site for site, told in now.items() if isinstance(told, Flow) and told.doors_open]:
            return Refused(f"{opened[0]} was opened to clients during the drain")
        empty = all(isinstance(told, Flow) and told.attached and told.empty for told in now.values())
        self._calm = self._calm + 1 if empty else 0
        if self._calm >= CALM:
            return Done("nothing is under way")
        why, took = self.why(now, hand), hand.monotonic() - self.began
        left = f"{self.last if self.last is not None else 'an unknown number of'} event(s) under way"
        if took > self._limits["within"]:
            reason = why or "they move too slowly"
            return Refused(f"not drained after {duration(took)}: {left}; {reason}", code=ExitCode.DRAIN_TIMEOUT)
        if self.stalled_s(hand) > self._limits["stall"]:
            text = f"nothing moved for {duration(self._limits['stall'])}: {left}; {why or 'nothing says why'}"
            return Refused(text, code=ExitCode.DRAIN_TIMEOUT)
        return None


def _ended(lifting: Future[str | None]) -> str | None:
    """The end of the lifting, which is always waited for: its calls are in the journal."""
    try:
        return lifting.result()
    except BrokerError as error:
        return str(error)
