"""Waits at the gate: every condition must hold over a window on every pair; then both sites must hold the same.

Holds nothing that could change a broker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, Json, some
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.engine.waiting import until_next
from dr_ctl.topologies.common import gate
from dr_ctl.topologies.common.access import Access
from dr_ctl.topologies.common.evidence import evidence
from dr_ctl.topologies.common.findings import STILL_DIFFERENT
from dr_ctl.topologies.common.observer import Observer, V
from dr_ctl.topologies.common.view import Broker


class Verifier(ABC, Generic[V]):
    """The gate of one command. `seen` is how each pair was when it was last seen to hold; `begun`, by pair, samples of
    an earlier wait. The window counts from the first sample, because nothing has moved since. At every later sample the
    gate held, with no other look between.

    A topology gives the least length of the window, and the things to compare."""

    def __init__(self, observer: Observer[V, Any], poll_s: float, least_window_s: float) -> None:
        self.observer, self.least_window_s = observer, least_window_s
        # Three looks that are a little further apart span a short window, and a fourth is not needed.
        spans_s = least_window_s / 2
        self._poll_s = spans_s if poll_s < spans_s < 2 * poll_s else poll_s
        self.patience = observer.patience
        self.seen: dict[str, gate.Sample[V]] = {}
        self.begun: dict[str, list[gate.Sample[V]]] = {}

    def why_not_yet(self, now: gate.Sample[V], before: gate.Sample[V] | None, move: Move) -> list[str]:
        """Everything that keeps the gate shut; `before` is the sample that began the window."""
        del move
        return gate.why_not_yet(now, before)

    @abstractmethod
    def differing(self, now: gate.Sample[V], move: Move) -> list[str]:
        """Differences in counts between the sites that nobody accepted."""

    @abstractmethod
    def same(self, now: gate.Sample[V], move: Move) -> Outcome:
        """Compare the messages by identity; done with what was compared. Raises `BrokerError`."""

    def verify(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """Done with what was compared, by pair; refused with what keeps the gate shut."""
        waits = [_AtTheGate(self, way, step, move, hand) for way in self.observer.ways(move)]
        while going_on := [each for each in waits if each.outcome is None]:
            began = hand.monotonic()
            looks = self._look(going_on)
            if all(isinstance(each, Broker) for both in looks for each in both):
                brokers = [each for both in looks for each in both if isinstance(each, Broker)]
                hand.sample(evidence((each.site, each.link) for each in brokers))
            for each, (source, target) in zip(going_on, looks, strict=True):
                each.look(source, target, hand, began)
            reasons = [reason for each in going_on if not isinstance(each.outcome, Done) for reason in each.reasons]
            why = some(reasons) if reasons else None
            hand.waiting("reasons that keep the gate shut", len(reasons), why)
            for each in going_on:
                if each.outcome is not None and not isinstance(each.outcome, Done):
                    named = f"{each.pair}: " if len(waits) > 1 else ""
                    return replace(each.outcome, text=f"{named}{each.outcome.text}")
            if left := [each for each in going_on if each.outcome is None]:
                until_next(hand, began, max(self._poll_s, min(each.due_s() for each in left) - began))
        self.seen = {each.pair: each.window[-1] for each in waits}
        compared: dict[str, Json] = {each.pair: dict(each.outcome.evidence) for each in waits if each.outcome}
        findings = tuple(finding for each in waits if each.outcome for finding in each.outcome.findings)
        return Done("the gate holds, and both sites hold the same", compared, findings)

    def _look(self, waits: Sequence[_AtTheGate[V]]) -> list[tuple[V | BrokerError, V | BrokerError]]:
        def ask(access: Access[V]) -> V | BrokerError:
            try:
                return access.counts()
            except BrokerError as error:
                return error

        answers = self.observer.together(ask, [access for each in waits for access in each.way])
        return list(zip(answers[::2], answers[1::2], strict=True))


@dataclass
class _AtTheGate(Generic[V]):
    verifier: Verifier[V]
    way: tuple[Access[V], Access[V]]
    step: PlannedStep
    move: Move
    hand: Hand

    def __post_init__(self) -> None:
        self.pair = self.way[0].pair
        self.outcome: Outcome | None = None
        self.reasons: list[str] = []
        begun = self.verifier.begun.get(self.pair, [])
        self.window: list[gate.Sample[V]] = begun[1:]
        self._begun = begun[0] if begun else None
        self._until = self.hand.monotonic() + self.step.limits["within"]
        self._differing: tuple[list[str], float] | None = None

    def look(self, source: V | BrokerError, target: V | BrokerError, hand: Hand, began_s: float) -> None:
        """Add one sample to the window, or begin it anew; note whether the wait has ended."""
        if not isinstance(source, BrokerError) and not isinstance(target, BrokerError):
            now = gate.Sample(began_s, source, target)
            self.reasons = self.verifier.why_not_yet(now, self._begun, self.move)
            self.window = [*self.window, now] if not self.reasons else []
            self._begun = None if self.reasons else self._begun or now
        else:
            self.reasons = [str(each) for each in (source, target) if isinstance(each, BrokerError)]
            self.window, self._begun = [], None
        self.outcome = self._judged(hand)

    def due_s(self) -> float:
        """When the next look is worth its cost: where only the window has to pass, one at its end. Looks make a broker
        slow that has little to do them with, and counters tell what came in between."""
        if self._begun is None or len(self.window) + 1 < self._wanted:
            return 0.0
        return self._begun.at_s + self.verifier.least_window_s

    @property
    def _wanted(self) -> int:
        return max(int(self.step.limits["stable"]), 2)

    def _judged(self, hand: Hand) -> Outcome | None:
        wanted = self._wanted
        now = self.window[-1] if len(self.window) >= wanted else None
        if now is not None and self._begun is not None and now.at_s - self._begun.at_s >= self.verifier.least_window_s:
            wrong = self.verifier.differing(now, self.move)
            if not wrong:
                return self._same(now)
            if self._differing is None or self._differing[0] != wrong:
                self._differing = (wrong, hand.monotonic())
            self.reasons = ["; ".join(wrong)]
            if hand.monotonic() - self._differing[1] > self.verifier.patience.differs_s:
                text = f"nothing is under way, and the sites differ: {some(self.reasons)}"
                remedy = "Find out why; --accept-difference QUEUE=N moves with exactly that difference."
                return Refused(text, findings=(STILL_DIFFERENT(text, remedy),))
        if hand.monotonic() > self._until:
            why = some(self.reasons) if self.reasons else "it was not stable for long enough"
            return Refused(f"the gate did not open in time: {why}", code=ExitCode.DRAIN_TIMEOUT)
        return None

    def _same(self, now: gate.Sample[V]) -> Outcome:
        try:
            outcome = self.verifier.same(now, self.move)
        except BrokerError as error:
            return Refused(f"the messages could not be compared by their ids: {error}")
        return replace(outcome, evidence={"samples": len(self.window), **outcome.evidence})
