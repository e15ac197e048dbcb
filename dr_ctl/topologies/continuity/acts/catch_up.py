"""What is done for `catch-up`: a wait while clients work, until little is under way and staged.

Then what lies at the target twice is removed, which the drain would have to do while clients are kept out. What is
staged there and was consumed at the source is not: a message that a client has acknowledged in a transaction is listed
nowhere, and may come back to its queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import Finding, some
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common.checks import error
from dr_ctl.topologies.common.evidence import evidence, total
from dr_ctl.topologies.continuity import copies
from dr_ctl.topologies.continuity.access import Way
from dr_ctl.topologies.continuity.tools import Both, ContinuityTools

SMALL: Final = 500


def act(tools: ContinuityTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """While the source serves: all bridges connected, little under way, and all that was staged there delivered."""
    ways = tools.observer.ways(move)
    until = hand.monotonic() + step.limits["within"]
    known: list[int] = []
    idle = _Idle(tools.patience.stuck_s)
    removed: int | None = None
    while ways:
        pairs = tools.look(ways)
        left = under_way(pairs)
        why = [
            reason for way, both in zip(ways, pairs, strict=True) for reason in idle.why(way, both, hand.monotonic())
        ]
        why += [f"a bridge of {view.site} is not connected" for both in pairs for view in both if not view.attached]
        if left is None:
            why.append("what is under way was not read: the continuity plugin has not started")
        else:
            known.append(left)
        hand.sample(evidence((view.site, view) for both in pairs for view in both))
        hand.waiting("under way between the sites", left, some(why) if why else None)
        if left is not None and left <= SMALL and not why:
            if removed is None and (removed := _without_echoes(tools, ways, pairs, hand)):
                continue  # that took a moment, in which clients worked on
            told = f"; {removed} message(s) removed that lay at {move.target} twice" if removed else ""
            return Done(f"{left} under way{told}", {"under_way": left, "removed": removed})
        if hand.monotonic() > until:
            if why:
                return Refused(f"not caught up: {some(why)}", findings=tuple(_not_taken(pairs)))
            if min(known) >= known[0]:
                return Refused(f"the outflow grows while clients work: {known[0]}, then {left}")
            return Done(f"{left} under way, less and less", {"under_way": left})
        hand.wait(tools.patience.plugin_poll_s)
    return Done("nothing is under way", {"under_way": 0})


def under_way(pairs: Sequence[Both]) -> int | None:
    """What is to ship, and what is not applied, at all of them; None where that was not read."""
    return total(each for both in pairs for view in both for each in (view.to_ship, view.unapplied))


def _not_taken(pairs: Sequence[Both]) -> Iterator[Finding]:
    """What each serving site has staged, which its queues do not take: what to do about it."""
    for source, _ in pairs:
        staged = [f"{flow.queue}: {flow.in_mirror.depth}" for flow in source.flows if flow.in_mirror.depth]
        if staged:
            text = f"staged at {source.site} and not taken by its queues: {some(staged)}"
            remedy = (
                f"See that these addresses take messages at {source.site}: their size and policy, the disk. What is "
                "refused although there is room was there before. Remove it by hand from what is staged only where "
                "those who process it say so by its id: what was never done would be lost."
            )
            yield error("DR-CONT-017", text, remedy)


def _without_echoes(tools: ContinuityTools, ways: Sequence[Way], pairs: Sequence[Both], hand: Hand) -> int:
    """Remove what lies at the target twice from what is staged there, and say how many were seen to be gone; none where
    they could not be read, for the drain compares all of it."""
    removed = 0
    for (_, there), (_, target) in zip(ways, pairs, strict=True):
        try:
            if twice := copies.echoes(there.reader(), target):
                places = [(target.places(name)[1], ids) for name, ids in twice.items()]
                tools.change([call for staged, ids in places for call in copies.remove(target, staged, ids)], hand)
                left = copies.echoes(there.reader(), target)
                removed += sum(len(ids - left.get(name, frozenset())) for name, ids in twice.items())
        except BrokerError as error_:
            hand.notice(f"what lies twice at {target.site} is left for the drain: {error_}")
    return removed


class _Idle:
    """Since when what is staged at a serving site has not moved."""

    def __init__(self, stuck_s: float) -> None:
        self._stuck_s = stuck_s
        self._since: dict[tuple[str, str], tuple[tuple[int, int], float]] = {}

    def why(self, way: Way, both: Both, now_s: float) -> list[str]:
        """Say what is still being delivered: all but what was seen to be refused for long enough, and lies there."""
        source, found = both[0], []
        for flow in source.flows:
            state = (flow.in_mirror.depth, flow.target_bridge.acked)
            was, since = self._since.get((source.pair, flow.queue), (None, now_s))
            if state != was:
                since = now_s
                self._since[source.pair, flow.queue] = (state, since)
            refused = flow.stuck and now_s - since >= self._stuck_s and not _to_deliver(way, both, flow.queue)
            if flow.in_mirror.depth and not refused:
                found.append(f"{source.site} still delivers {flow.in_mirror.depth} staged message(s) of {flow.queue}")
        return found


def _to_deliver(way: Way, both: Both, queue: str) -> bool:
    """Say whether a queue that takes nothing lacks some of it: an address that is full, a disk without room."""
    here, there = way
    if queue in copies.one_sided(*both):
        return True
    return bool(copies.still_to_deliver(here.reader(), there.reader(), *both, queue))
