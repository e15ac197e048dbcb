"""The waits of a move: catching up while clients work, draining behind the fence, and the gate."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, Json
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.mirror import checks, gate, parity
from dr_ctl.topologies.mirror.access import Access, Observer
from dr_ctl.topologies.mirror.links import Flows, Mender, depth, flows, why_not_moving
from dr_ctl.topologies.mirror.look import Flow, Origin, origin_ids
from dr_ctl.topologies.mirror.parity import Difference
from dr_ctl.topologies.mirror.recipe import MirrorRecipe
from dr_ctl.topologies.mirror.sending import Sender
from dr_ctl.topologies.mirror.view import BrokerView

SMALL: Final = 500
CATCH_UP_POLL_S: Final = 0.1
CALM: Final = 2
UNCHANGED_S: Final = 2.0
IDLE_S: Final = 1.0


@dataclass
class Trail:
    """Depths over a wait: whether anything moves, and since when nothing does."""

    first: int | None = None
    last: int | None = None
    moved_at: float | None = None
    _shipped: dict[str, tuple[int, float]] = field(default_factory=dict)

    def why(self, now: Flows, hand: Hand) -> str | None:
        """Say what keeps the outflows from emptying: by their state, or because the peer takes nothing."""
        idle = [why for site, told in now.items() if isinstance(told, Flow) and (why := self._idle(site, told, hand))]
        return why_not_moving(now) or next(iter(idle), None)

    def _idle(self, site: str, now: Flow, hand: Hand) -> str | None:
        shipped, at = now.outflow_added - now.outflow, hand.monotonic()
        was, since = self._shipped.get(site, (None, at))
        if shipped != was or not now.outflow:
            self._shipped[site] = shipped, at
            return None
        idle_s = at - since
        return f"the peer has taken nothing from {site} for {idle_s:.0f} s: its link hangs" if idle_s > IDLE_S else None

    def note(self, now: Flows, why: str | None, hand: Hand) -> None:
        total, at = depth(now), hand.monotonic()
        if self.moved_at is None or (total is not None and total != self.last):
            self.moved_at = at
        if total is not None:
            self.first = total if self.first is None else self.first
            self.last = total
            hand.waiting("events under way between the sites", total, why)
        else:
            hand.waiting("events under way between the sites", self.last or 0, why)
        hand.sample(_evidence(now))

    def stalled_s(self, hand: Hand) -> float:
        return hand.monotonic() - (self.moved_at if self.moved_at is not None else hand.monotonic())


def _evidence(now: Flows) -> dict[str, Json]:
    return {
        site: {"outflow": told.outflow, "pending": told.pending_acks, "attached": told.attached}
        if isinstance(told, Flow)
        else {"unknown": str(told)}
        for site, told in now.items()
    }


def _seen(view: BrokerView) -> dict[str, Json]:
    outflow = view.outflow.depth if view.outflow is not None else None
    return {"outflow": outflow, "pending": view.pending_acks, "attached": view.attached}


class Draining:
    """The three waiting verbs; each works pair by pair on both brokers."""

    def __init__(self, observer: Observer, recipe: MirrorRecipe, sender: Sender) -> None:
        self._observer, self._recipe, self._sender = observer, recipe, sender

    def _pairs(self, move: Move) -> list[tuple[Access, Access]]:
        """Both brokers of each pair, the source's first."""
        sites = self._observer.brokers
        return [(source, sites[move.target][pair]) for pair, source in sites[move.source].items()]

    # catch-up

    def catch_up(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """While the source serves: both links attached, and little enough under way that a drain takes a moment."""
        outcome: Outcome = Done("nothing to catch up with")
        for brokers in self._pairs(move):
            outcome = self._catch_up(brokers, step, hand)
            if not isinstance(outcome, Done):
                return outcome
        return outcome

    def _catch_up(self, brokers: Sequence[Access], step: PlannedStep, hand: Hand) -> Outcome:
        mender = Mender(self._recipe, self._sender, brokers)
        until = hand.monotonic() + step.limits["within"]
        trail = Trail()
        while True:
            now = flows(self._observer, brokers)
            why = trail.why(now, hand)
            trail.note(now, why, hand)
            attached = all(isinstance(told, Flow) and told.attached for told in now.values())
            total = depth(now)
            if attached and total is not None and total <= SMALL:
                return Done(f"{total} events under way", {"under_way": total, "restarts": mender.restarts})
            if hand.monotonic() > until:
                break
            mender.tend(now, hand)
            hand.wait(CATCH_UP_POLL_S)
        if total is None or not attached:
            return Refused(f"not caught up: {why}")
        if trail.first is not None and total >= trail.first:
            return Refused(f"the outflow grows while clients work: {trail.first} events, then {total}")
        return Done(f"{total} events under way and falling", {"under_way": total, "restarts": mender.restarts})

    # drain

    def drain(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """Lift the pauses and wait, side by side, until nothing is under way in either direction."""
        began = hand.monotonic()
        lifting = self._observer.pool.submit(self._lift, move, hand)
        try:
            outcome: Outcome = Done("nothing to drain")
            for brokers in self._pairs(move):
                outcome = self._drain(brokers, step, hand, began)
                if not isinstance(outcome, Done):
                    break
        finally:
            lifted = _ended(lifting)
        return outcome if not isinstance(outcome, Done) or lifted is None else Refused(f"pauses: {lifted}")

    def _lift(self, move: Move, hand: Hand) -> str | None:
        """Resume what quiesce paused; None when all of it was seen to be resumed."""
        source = list(self._observer.brokers[move.source].values())
        calls = [call for access in source for call in self._recipe.lifts(access.look(), move)]
        hand.change(calls, self._sender.send)
        left = [call.about for access in source for call in self._recipe.lifts(access.look(), move)]
        return checks.some(left) if left else None

    def _drain(self, brokers: Sequence[Access], step: PlannedStep, hand: Hand, began: float) -> Outcome:
        mender = Mender(self._recipe, self._sender, brokers)
        trail = Trail()
        calm = 0
        while True:
            now = flows(self._observer, brokers)
            why = trail.why(now, hand)
            trail.note(now, why, hand)
            if opened := [site for site, told in now.items() if isinstance(told, Flow) and told.doors_open]:
                return Refused(f"{opened[0]} was opened to clients during the drain")
            empty = all(isinstance(told, Flow) and told.attached and told.empty for told in now.values())
            calm = calm + 1 if empty else 0
            if calm >= CALM:
                return Done("nothing is under way", {"restarts": mender.restarts})
            took = hand.monotonic() - began
            left = f"{trail.last if trail.last is not None else 'an unknown number of'} events under way"
            if took > step.limits["within"]:
                reason = why or "they move too slowly"
                return Refused(f"not drained after {duration(took)}: {left}; {reason}", code=ExitCode.DRAIN_TIMEOUT)
            if trail.stalled_s(hand) > step.limits["stall"]:
                reason = why or "nothing says why"
                text = f"nothing moved for {duration(step.limits['stall'])}: {left}; {reason}"
                return Refused(text, code=ExitCode.DRAIN_TIMEOUT)
            mender.tend(now, hand)
            hand.wait(self._recipe.poll_s)

    # verify

    def verify(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """The whole gate over its window, then parity by counts and by origin ids."""
        evidence: dict[str, Json] = {}
        for brokers in self._pairs(move):
            outcome = self._verify(brokers, step, move, hand)
            if not isinstance(outcome, Done):
                return outcome
            evidence[brokers[0].pair] = dict(outcome.evidence)
        return Done("the gate holds, and both sites hold the same", evidence)

    def _verify(self, brokers: Sequence[Access], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        until = hand.monotonic() + step.limits["within"]
        wanted = max(int(step.limits["stable"]), 2)
        window: list[gate.Sample] = []
        differing: tuple[list[Difference], float] | None = None
        while True:
            now, reasons = self._sample(brokers, window, hand)
            window = [*window, now] if now is not None and not reasons else []
            steady = len(window) >= wanted and window[-1].at_s - window[0].at_s >= gate.LEAST_WINDOW_S
            if steady and now is not None:
                wrong = self._not_equal(now, move)
                if not wrong:
                    return self._same_ids(now, len(window))
                if differing is None or differing[0] != wrong:
                    differing = (wrong, hand.monotonic())
                reasons = ["; ".join(each.told(move.source, move.target) for each in wrong)]
                if hand.monotonic() - differing[1] > UNCHANGED_S:
                    text = f"nothing is under way, and the sites differ: {checks.some(reasons)}"
                    remedy = "Find out why; --accept-difference QUEUE=N moves with exactly that difference."
                    return Refused(text, findings=(checks.error("DR-PARITY-003", text, remedy),))
            hand.waiting("reasons that keep the gate shut", len(reasons), checks.some(reasons) if reasons else None)
            if hand.monotonic() > until:
                why = checks.some(reasons) if reasons else "it was not stable for long enough"
                return Refused(f"the gate did not open in time: {why}", code=ExitCode.DRAIN_TIMEOUT)
            hand.wait(self._recipe.poll_s)

    def _sample(
        self, brokers: Sequence[Access], window: Sequence[gate.Sample], hand: Hand
    ) -> tuple[gate.Sample | None, list[str]]:
        try:
            source, target = self._observer.together(lambda access: access.look(), brokers)
        except BrokerError as error:
            return None, [str(error)]
        now = gate.Sample(hand.monotonic(), source, target)
        hand.sample({view.site: _seen(view) for view in (source, target)})
        return now, gate.why_not_yet(now, window[0] if window else None)

    def _not_equal(self, now: gate.Sample, move: Move) -> list[Difference]:
        found = parity.differences(now.source, now.target, self._observer.queues)
        return parity.not_accepted(found, move.ask.accept_difference)

    def _same_ids(self, now: gate.Sample, samples: int) -> Outcome:
        """Compare who the messages are, where a queue is shallow enough to look at each."""
        here = parity.selected(now.source, self._observer.queues)
        there = parity.selected(now.target, self._observer.queues)
        shallow = [
            name
            for name, queue in here.items()
            if name in there and not queue.scheduled and 0 < queue.depth == there[name].depth <= parity.ORIGINS_UP_TO
        ]

        def ids(access: Access) -> list[frozenset[Origin]]:
            view, queues = (now.source, here) if access.site == now.source.site else (now.target, there)
            return origin_ids(access.reader(), view, [queues[name] for name in shallow], limit=parity.ORIGINS_UP_TO)

        brokers = [self._observer.brokers[view.site][view.pair] for view in (now.source, now.target)]
        mine, others = self._observer.together(ids, brokers)
        for name, ours, theirs in zip(shallow, mine, others, strict=True):
            if ours != theirs:
                text = f"{name}: {len(ours - theirs)} message(s) only at {now.source.site}, {len(theirs - ours)} only "
                text += f"at {now.target.site}, although the counts are equal"
                return Refused(text, findings=(checks.error("DR-PARITY-004", text, "Find out why before moving."),))
        depths: dict[str, Json] = {name: queue.depth for name, queue in here.items() if queue.depth}
        compared = sum(len(each) for each in mine)
        return Done("the gate holds", {"samples": samples, "ids_compared": compared, "depths": depths})


def _ended(lifting: Future[str | None]) -> str | None:
    """The end of the lifting, which is always waited for: its calls are in the journal."""
    try:
        return lifting.result()
    except BrokerError as error:
        return str(error)
