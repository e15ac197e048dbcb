"""Waits at the gate: all that must hold, over a window, on every pair; then parity by counts and by origin ids.

Holds nothing that could change a broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, Json
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.mirror import checks, gate, parity
from dr_ctl.topologies.mirror.access import Access, Observer
from dr_ctl.topologies.mirror.browsing import Origin, origin_ids
from dr_ctl.topologies.mirror.parity import Difference
from dr_ctl.topologies.mirror.view import BrokerView
from dr_ctl.topologies.mirror.waiting import Way, ways

UNCHANGED_S: Final = 2.0

Told = BrokerView | BrokerError


class Verifying:
    """The gate of one command. `seen` is how each pair was when it was last seen to hold."""

    def __init__(self, observer: Observer, poll_s: float) -> None:
        self._observer, self._poll_s = observer, poll_s
        self.seen: dict[str, gate.Sample] = {}

    def verify(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """Done with what was compared, by pair; refused with what keeps the gate shut."""
        waits = [_AtTheGate(self._observer, way, step, move, hand) for way in ways(self._observer, move)]
        while going_on := [each for each in waits if each.outcome is None]:
            told = self._look(going_on)
            if all(isinstance(each, BrokerView) for both in told for each in both):
                hand.sample(_evidence(told))
            for each, (source, target) in zip(going_on, told, strict=True):
                each.look(source, target, hand)
            reasons = [reason for each in going_on if each.outcome is None for reason in each.reasons]
            why = checks.some(reasons) if reasons else None
            hand.waiting("reasons that keep the gate shut", len(reasons), why)
            for each in going_on:
                if each.outcome is not None and not isinstance(each.outcome, Done):
                    named = f"{each.pair}: " if len(waits) > 1 else ""
                    return replace(each.outcome, text=f"{named}{each.outcome.text}")
            if any(each.outcome is None for each in going_on):
                hand.wait(self._poll_s)
        self.seen = {each.pair: each.window[-1] for each in waits}
        evidence: dict[str, Json] = {each.pair: dict(each.outcome.evidence) for each in waits if each.outcome}
        return Done("the gate holds, and both sites hold the same", evidence)

    def _look(self, waits: Sequence[_AtTheGate]) -> list[tuple[Told, Told]]:
        def ask(access: Access) -> Told:
            try:
                return access.look()
            except BrokerError as error:
                return error

        told = self._observer.together(ask, [access for each in waits for access in each.way])
        return list(zip(told[::2], told[1::2], strict=True))


@dataclass
class _AtTheGate:
    """The wait of one pair."""

    observer: Observer
    way: Way
    step: PlannedStep
    move: Move
    hand: Hand

    def __post_init__(self) -> None:
        self.pair = self.way[0].pair
        self.outcome: Outcome | None = None
        self.reasons: list[str] = []
        self.window: list[gate.Sample] = []
        self._until = self.hand.monotonic() + self.step.limits["within"]
        self._differing: tuple[list[Difference], float] | None = None

    def look(self, source: Told, target: Told, hand: Hand) -> None:
        """Add one sample to the window, or begin it anew; note whether the wait has ended."""
        if isinstance(source, BrokerView) and isinstance(target, BrokerView):
            now = gate.Sample(hand.monotonic(), source, target)
            self.reasons = gate.why_not_yet(now, self.window[0] if self.window else None)
            self.window = [*self.window, now] if not self.reasons else []
        else:
            self.reasons = [str(each) for each in (source, target) if isinstance(each, BrokerError)]
            self.window = []
        self.outcome = self._judged(hand)

    def _judged(self, hand: Hand) -> Outcome | None:
        wanted = max(int(self.step.limits["stable"]), 2)
        if len(self.window) >= wanted and self.window[-1].at_s - self.window[0].at_s >= gate.LEAST_WINDOW_S:
            now = self.window[-1]
            wrong = self._not_equal(now)
            if not wrong:
                return self._same_ids(now)
            if self._differing is None or self._differing[0] != wrong:
                self._differing = (wrong, hand.monotonic())
            self.reasons = ["; ".join(each.told(self.move.source, self.move.target) for each in wrong)]
            if hand.monotonic() - self._differing[1] > UNCHANGED_S:
                text = f"nothing is under way, and the sites differ: {checks.some(self.reasons)}"
                remedy = "Find out why; --accept-difference QUEUE=N moves with exactly that difference."
                return Refused(text, findings=(checks.error("DR-PARITY-003", text, remedy),))
        if hand.monotonic() > self._until:
            why = checks.some(self.reasons) if self.reasons else "it was not stable for long enough"
            return Refused(f"the gate did not open in time: {why}", code=ExitCode.DRAIN_TIMEOUT)
        return None

    def _not_equal(self, now: gate.Sample) -> list[Difference]:
        found = parity.differences(now.source, now.target, self.observer.queues)
        return parity.not_accepted(found, self.move.ask.accept_difference)

    def _same_ids(self, now: gate.Sample) -> Outcome:
        """Compare who the messages are, where a queue is shallow enough to look at each."""
        here = parity.selected(now.source, self.observer.queues)
        there = parity.selected(now.target, self.observer.queues)
        shallow = [
            name
            for name, queue in here.items()
            if name in there and not queue.scheduled and 0 < queue.depth == there[name].depth <= parity.ORIGINS_UP_TO
        ]

        def ids(access: Access) -> list[frozenset[Origin]]:
            view, queues = (now.source, here) if access.site == now.source.site else (now.target, there)
            return origin_ids(access.reader(), view, [queues[name] for name in shallow], limit=parity.ORIGINS_UP_TO)

        try:
            mine, others = self.observer.together(ids, self.way)
        except BrokerError as error:
            return Refused(f"the messages could not be compared by their ids: {error}")
        for name, ours, theirs in zip(shallow, mine, others, strict=True):
            if ours != theirs:
                text = f"{name}: {len(ours - theirs)} message(s) only at {now.source.site}, {len(theirs - ours)} only "
                text += f"at {now.target.site}, although the counts are equal"
                return Refused(text, findings=(checks.error("DR-PARITY-004", text, "Find out why before moving."),))
        depths: dict[str, Json] = {name: queue.depth for name, queue in here.items() if queue.depth}
        compared = sum(len(each) for each in mine)
        return Done("the gate holds", {"samples": len(self.window), "ids_compared": compared, "depths": depths})


def _evidence(told: Sequence[tuple[Told, Told]]) -> dict[str, Json]:
    """The figures of one look by site, of all pairs together."""
    found: dict[str, Json] = {}
    views = [each for pair in told for each in pair if isinstance(each, BrokerView)]
    for site in dict.fromkeys(view.site for view in views):
        mine = [view for view in views if view.site == site]
        depths = [view.outflow.depth if view.outflow is not None else None for view in mine]
        found[site] = {
            "outflow": None if None in depths else sum(depth or 0 for depth in depths),
            "pending": sum(view.pending_acks for view in mine),
            "attached": all(view.attached for view in mine),
        }
    return found
