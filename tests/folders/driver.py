"""Acts on folders: each verb brings about what its calls say, and looks whether it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, Role, Severity
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.holding import Lease
from dr_ctl.engine.operations import FAILOVER
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused, Unknown
from dr_ctl.engine.parts import part_of
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Hand, Move
from tests.folders.broker import View
from tests.folders.recipe import FoldersRecipe
from tests.folders.seen import FoldersSeen
from tests.folders.site import FolderSites

LEASE_S = 1.0  # a file is there or gone well within it


class FoldersDriver:
    """Implements `Driver`."""

    def __init__(self, sites: FolderSites, recipe: FoldersRecipe, lease: Lease | None) -> None:
        self._sites, self._recipe, self._lease = sites, recipe, lease

    def observe(self) -> FoldersSeen:
        return self._sites.look()

    def apply(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        acts: dict[str, Callable[[PlannedStep, Move, Hand], Outcome]] = {
            "observe": self._observe,
            "check": self._check,
            "catch-up": self._ship,
            "drain": self._ship,
            "verify": self._same,
            "activate": self._activate,
            "probe": self._probe,
            "settle": lambda step, move, hand: NotNeeded(step.about),
            "reinstate": self._reinstate,
            "reconcile": self._same,
        }
        try:
            return acts.get(step.verb, self._make)(step, move, hand)
        except BrokerError as gone:
            return Unknown(str(gone))

    def undo(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        try:
            opens = any(call.goal is Goal.OPEN and not self._sites.holds(call) for call in step.inverse)
            if opens and part_of(self.observe(), move.ask).roles[move.target] is Role.SERVING:
                return Refused(f"{move.target} is open: {move.source} stays closed")
            return self._made(step.inverse, hand)
        except BrokerError as gone:
            return Unknown(str(gone))

    def by_hand(self, site: str) -> str:
        return f"make the files doors/QUEUE at {site}, once the other site has none"

    def _observe(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        del step, move, hand
        roles = self.observe().roles
        return Done(", ".join(f"{site} is {role.value}" for site, role in roles.items()))

    def _check(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        del step, hand
        against = [each for each in self._recipe.why_not(self.observe(), move) if each.severity is Severity.ERROR]
        if against:
            return Refused(against[0].text, findings=tuple(against), code=ExitCode.PRECHECK_FAILED)
        return Done("nothing speaks against it")

    def _make(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        del move
        return self._made(step.calls, hand)

    def _made(self, calls: Sequence[Call], hand: Hand) -> Outcome:
        """Send what does not hold yet, then look whether it does."""
        missing = [call for call in calls if not self._sites.holds(call)]
        if not missing:
            return NotNeeded("it holds already")
        hand.change(missing, self._send)
        left = [call.about for call in missing if not self._sites.holds(call)]
        return Refused(f"has not come true: {', '.join(left)}") if left else Done("it holds")

    def _send(self, calls: Sequence[Call]) -> list[Outcome]:
        return [self._sent(call) for call in calls]

    def _sent(self, call: Call) -> Outcome:
        if self._lease is not None:
            if (why := self._lease.why_not(call.site, self._sites.pair, LEASE_S)) is not None:
                return Refused(why)
            if call.goal is Goal.PAUSE and (why := self._lease.paused(call.site, self._sites.pair, [call.thing])):
                return Refused(why)
        try:
            self._sites.change(call)
        except BrokerError as gone:
            return Refused(str(gone))
        return Done("it is so")

    def _ship(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        return self._shipped(move.source, step, hand)

    def _shipped(self, site: str, step: PlannedStep, hand: Hand) -> Outcome:
        """Each look ships what it can, so only a link that is cut keeps something back."""
        until = hand.monotonic() + step.limits["within"]
        while left := len(self._sites.view(site).outflow):
            hand.waiting("messages to ship", left, "the link is cut")
            hand.sample({site: {"outflow": left}})
            if hand.monotonic() > until:
                return Refused(f"{left} message(s) to ship at {site}", code=ExitCode.DRAIN_TIMEOUT)
            hand.wait(0.01)
        return Done("nothing is to ship")

    def _same(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        del hand
        here, there = self._sites.view(move.source), self._sites.view(move.target)
        if step.verb == "verify" and _open(here, move):
            return Refused(f"{move.source} lets clients in")
        if left := [*here.outflow, *there.outflow]:
            return Refused(f"{len(left)} message(s) to ship")
        differing = [name for name, lines in here.queues.items() if sorted(lines) != sorted(there.queues[name])]
        return Refused(f"the sites differ: {', '.join(differing)}") if differing else Done("both sites hold the same")

    def _activate(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        source = self.observe().view(move.source)
        if source is not None and _open(source, move):
            return Refused(f"{move.source} is open: a second site is never opened")
        if source is None and move.ask.operation != FAILOVER:
            return Refused(f"{move.source} does not live: it cannot be looked at")
        return self._made(step.calls, hand)

    def _probe(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        del step, hand
        is_open = _open(self._sites.view(move.target), move)
        return Done("it is open") if is_open else Refused(f"{move.target} is closed")

    def _reinstate(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        let_in, *struck = step.calls
        made = self._made([let_in], hand)
        if isinstance(made, Refused):
            return made
        shipped = [self._shipped(site, step, hand) for site in (move.target, move.source)]
        refused = next((each for each in shipped if isinstance(each, Refused)), None)
        return refused or self._made(struck, hand)


def _open(view: View, move: Move) -> list[str]:
    """The queues of those that are to move whose clients a site lets in."""
    return [queue for queue, is_open in view.doors.items() if is_open and move.ask.includes(queue)]
