"""The waits of a move: catching up while clients work, draining behind the fence until both sites hold the same.

A zero is only worth something once the bridges' confirmations are in, which come up to two seconds late. Then the ids
decide: what must not be delivered at the other site is removed there, what lacks its copy there refuses the move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, Json
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Act, Hand, Move
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.artemis.checks import error, some
from dr_ctl.topologies.artemis.sending import Sender
from dr_ctl.topologies.continuity import conserving
from dr_ctl.topologies.continuity.access import Observer, Way
from dr_ctl.topologies.continuity.conserving import Compared
from dr_ctl.topologies.continuity.recipe import ContinuityRecipe
from dr_ctl.topologies.continuity.view import SiteView

SMALL: Final = 500
POLL_S: Final = 0.05
CALM: Final = 2
# What is staged for delivery and does not move for so long was refused by its queue: it lies there already.
STUCK_S: Final = 1.5
# Who is missing, of a queue: so many ids are named in the finding; the journal has all.
_NAMED: Final = 5

Both = tuple[SiteView, SiteView]


class Draining:
    """The two waiting verbs before and behind the fence."""

    def __init__(self, observer: Observer, recipe: ContinuityRecipe, sender: Sender) -> None:
        self._observer, self._recipe, self._sender = observer, recipe, sender
        self.verbs: Mapping[str, Act] = {"catch-up": self.catch_up, "drain": self.drain}
        self.inverses: Mapping[str, Act] = {}

    def _look(self, ways: Sequence[Way]) -> list[Both]:
        told = self._observer.together(lambda access: access.look(), [access for way in ways for access in way])
        return list(zip(told[::2], told[1::2], strict=True))

    def catch_up(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """While the source serves: all bridges connected, little under way, and all that was staged there delivered."""
        ways = self._observer.ways(move)
        until = hand.monotonic() + step.limits["within"]
        least: int | None = None
        first: int | None = None
        idle = _Idle()
        while ways:
            pairs = self._look(ways)
            total = sum((view.to_ship or 0) + view.unapplied for both in pairs for view in both)
            first = total if first is None else first
            least = total if least is None else min(least, total)
            why = idle.why([source for source, _ in pairs], hand.monotonic())
            why += [f"a bridge of {view.site} is not connected" for both in pairs for view in both if not view.attached]
            hand.sample(_evidence(pairs))
            hand.waiting("under way between the sites", total, some(why) if why else None)
            if total <= SMALL and not why:
                return Done(f"{total} under way", {"under_way": total})
            if hand.monotonic() > until:
                if why:
                    return Refused(f"not caught up: {some(why)}")
                if least >= first:
                    return Refused(f"the outflow grows while clients work: {first}, then {total}")
                return Done(f"{total} under way, less and less", {"under_way": total})
            hand.wait(POLL_S)
        return Done("nothing is under way", {"under_way": 0})

    def drain(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """Lift the pauses beside it; wait, compare by id, remove, and wait again for what that set going."""
        lifting = self._observer.pool.submit(self._lift, move, hand)
        try:
            outcome = self._until_same(_Drain(self._observer.ways(move), step, move, hand))
        finally:
            lifted = _ended(lifting)
        return Refused(f"pauses: {lifted}") if isinstance(outcome, Done) and lifted is not None else outcome

    def _until_same(self, drain: _Drain) -> Outcome:
        while drain.ways:
            try:
                pairs = self._look(drain.ways)
            except BrokerError as error_:
                pairs, reasons = [], [str(error_)]
            else:
                reasons = [reason for both in pairs for view in both for reason in view.unsettled()]
                reasons += [f"{view.site} was opened" for both in pairs for view in both if view.open]
                drain.note(pairs)
            drain.hand.waiting("reasons that keep the drain going", len(reasons), some(reasons) if reasons else None)
            if drain.settled(quiet=not reasons) and (ended := self._compare(drain, pairs)) is not None:
                return ended
            if (late := drain.why_late(reasons)) is not None:
                return late
            drain.hand.wait(POLL_S)
        return drain.done()

    def _compare(self, drain: _Drain, pairs: Sequence[Both]) -> Outcome | None:
        """The end of the drain, or None where something was removed and has to settle."""
        removed = False
        for (here, there), (source, target) in zip(drain.ways, pairs, strict=True):
            compared = conserving.compare(here.reader(), there.reader(), source, target)
            unread = [each.queue for each in compared if not each.known]
            if unread and source_differs(source, target, unread):
                drain.unread = f"{some(unread)} could not be compared by id, and the counts differ"
                return None
            if (missing := _missing(compared, drain.move)) is not None:
                return missing
            if started := [flow.queue for flow in target.flows if flow.target_bridge.started]:
                return Refused(f"{target.site}: its delivery of {some(started)} is started although it is not active")
            if calls := list(conserving.removals(target, compared)):
                drain.hand.change(calls, self._sender.send)
                drain.count(compared)
                removed = True
        if removed:
            drain.begin_anew()
            return None
        return drain.done()

    def _lift(self, move: Move, hand: Hand) -> str | None:
        """Resume what quiesce paused; None when all of it was seen to be resumed."""
        source = self._observer.at(move.source)
        calls = [call for access in source for call in self._recipe.lifts(access.look(), move)]
        hand.change(calls, self._sender.send)
        left = [call.about for access in source for call in self._recipe.lifts(access.look(), move)]
        return some(left) if left else None


@dataclass
class _Drain:
    """How far one drain is."""

    ways: Sequence[Way]
    step: PlannedStep
    move: Move
    hand: Hand
    removed: dict[str, int] = field(default_factory=dict)
    unread: str | None = None
    _calm: int = 0
    _left: int | None = None

    def __post_init__(self) -> None:
        self._began = self._moved_at = self.hand.monotonic()

    def note(self, pairs: Sequence[Both]) -> None:
        left = sum((view.to_ship or 0) + view.unapplied for both in pairs for view in both)
        left += sum(flow.in_mirror.scheduled for _, target in pairs for flow in target.flows)
        if left != self._left:
            self._left, self._moved_at = left, self.hand.monotonic()
        self.hand.sample(_evidence(pairs))

    def settled(self, *, quiet: bool) -> bool:
        self._calm = self._calm + 1 if quiet else 0
        return self._calm >= CALM

    def begin_anew(self) -> None:
        self._calm, self._moved_at = 0, self.hand.monotonic()

    def count(self, compared: Sequence[Compared]) -> None:
        for each in compared:
            if number := len(each.surplus) + len(each.done):
                self.removed[each.queue] = self.removed.get(each.queue, 0) + number

    def why_late(self, reasons: Sequence[str]) -> Refused | None:
        took = self.hand.monotonic() - self._began
        why = some(reasons) if reasons else self.unread or "it was not still for long enough"
        if took > self.step.limits["within"]:
            return Refused(f"not drained after {duration(took)}: {why}", code=ExitCode.DRAIN_TIMEOUT)
        if self.hand.monotonic() - self._moved_at > self.step.limits["stall"]:
            text = f"nothing moved for {duration(self.step.limits['stall'])}: {why}"
            return Refused(text, code=ExitCode.DRAIN_TIMEOUT)
        return None

    def done(self) -> Done:
        removed: dict[str, Json] = dict(self.removed)
        told = f"; {sum(self.removed.values())} message(s) removed that had been done" if removed else ""
        return Done(f"nothing is under way, and both sites hold the same{told}", {"removed": removed})


class _Idle:
    """Since when what is staged at a serving site has not moved."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], tuple[tuple[int, int], float]] = {}

    def why(self, views: Sequence[SiteView], now_s: float) -> list[str]:
        """Say what is still being delivered: all but what was seen to be refused for long enough."""
        found = []
        for view in views:
            for flow in view.flows:
                state = (flow.in_mirror.depth, flow.target_bridge.acked)
                was, since = self._since.get((view.pair, flow.queue), (None, now_s))
                if state != was:
                    since = now_s
                    self._since[view.pair, flow.queue] = (state, since)
                if flow.in_mirror.depth and not (flow.stuck and now_s - since >= STUCK_S):
                    found.append(f"{view.site} still delivers {flow.in_mirror.depth} staged message(s) of {flow.queue}")
        return found


def source_differs(source: SiteView, target: SiteView, queues: Sequence[str]) -> bool:
    return any(source.business[name].depth != target.lies(name) for name in queues)


def _missing(compared: Sequence[Compared], move: Move) -> Refused | None:
    """What would be lost: refused, and named, unless exactly that many were accepted."""
    lacking = {each.queue: sorted(each.missing) for each in compared if each.known and each.missing}
    wrong = {name: ids for name, ids in lacking.items() if move.ask.accept_difference.get(name) != len(ids)}
    if not wrong:
        return None
    told = [f"{name}: {len(ids)} ({', '.join(ids[:_NAMED])}{', …' if len(ids) > _NAMED else ''})"
            for name, ids in wrong.items()]  # fmt: skip
    text = f"messages of {move.source} that have no copy at {move.target}: {some(told)}"
    remedy = (
        "A client was cut off, or rolled back, while it held them, and the plugin deleted the copies. Let them be "
        f"consumed at {move.source}; --accept-difference QUEUE=N moves without exactly so many."
    )
    evidence: dict[str, Json] = {"missing": {name: [*ids] for name, ids in wrong.items()}}
    return Refused(text, evidence, (error("DR-CONT-013", text, remedy),))


def _evidence(pairs: Sequence[Both]) -> dict[str, Json]:
    told: dict[str, Json] = {}
    for view in [each for both in pairs for each in both]:
        was = told.get(view.site)
        before = was if isinstance(was, dict) else {"outflow": 0, "pending": 0, "attached": True}
        told[view.site] = {
            "outflow": int(str(before["outflow"])) + (view.to_ship or 0),
            "pending": int(str(before["pending"])) + view.unapplied,
            "attached": bool(before["attached"]) and view.attached,
        }
    return told


def _ended(lifting: Future[str | None]) -> str | None:
    """The end of the lifting, which is always waited for: its calls are in the journal."""
    try:
        return lifting.result()
    except BrokerError as error_:
        return str(error_)
