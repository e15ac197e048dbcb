"""The act of `catch-up`: a wait while clients work, until little is under way and staged.

Messages that lie at the target twice are then removed, or the drain would do so while clients are kept out. Staged
messages that were consumed at the source stay: a message acknowledged in an open transaction is listed nowhere, and may
come back to its queue.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import Finding, Json, some
from dr_ctl.core.printable import if_known
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.engine.waiting import Waited, until
from dr_ctl.topologies.common.evidence import evidence, total
from dr_ctl.topologies.continuity import copies
from dr_ctl.topologies.continuity.access import Way
from dr_ctl.topologies.continuity.findings import STAGED_NOT_DELIVERED
from dr_ctl.topologies.continuity.patience import PluginPatience
from dr_ctl.topologies.continuity.tools import Both, ContinuityTools

SMALL: Final = 500


def act(tools: ContinuityTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Wait, while the source serves, until bridges are connected, little is under way, and staged messages are
    delivered."""
    ways = tools.observer.ways(move)
    if not ways:
        return Done("nothing is under way", {"under_way": 0})
    ends_s = hand.monotonic() + step.limits["within"]
    known: list[int] = []
    idle = _Idle(tools.waits, tools.had)

    def look() -> _Look:
        pairs = tools.look(ways)
        left = under_way(pairs)
        why = [
            reason for way, both in zip(ways, pairs, strict=True) for reason in idle.why(way, both, hand.monotonic())
        ]
        why += [
            f"a bridge of {view.site} is not connected" for both in pairs for view in both if not view.link.attached
        ]
        if left is None:
            why.append("what is under way was not read: the continuity plugin has not started")
        else:
            known.append(left)
        hand.sample(evidence((view.site, view.link) for both in pairs for view in both))
        hand.waiting("under way between the sites", left, some(why) if why else None)
        return _Look(pairs, left, why)

    def until_little() -> Waited[_Look]:
        within_s, poll_s = ends_s - hand.monotonic(), tools.waits.poll_s
        return until(hand, look, holds=lambda now: now.little, within_s=within_s, poll_s=poll_s)

    waited, removed = until_little(), 0
    if waited.held and (removed := _without_echoes(tools, ways, waited.look.pairs, hand)):
        waited = until_little()  # the removal took a moment, in which clients worked on
    left, why = waited.look.left, waited.look.why
    if waited.held:
        beside = f"; {removed} message(s) removed that lay at {move.target} twice" if removed else ""
        had = {queue: ids for flows in tools.had.values() for queue, ids in flows.items() if ids}
        if had:
            numbers = some([f"{queue}: {len(ids)}" for queue, ids in had.items()])
            beside += f"; staged at {move.source} and refused there, for they were delivered before: {numbers}"
        named: dict[str, Json] = {queue: [*sorted(ids)] for queue, ids in had.items()}
        return Done(f"{if_known(left)} under way{beside}", {"under_way": left, "removed": removed, "had": named})
    if why:
        return Refused(f"not caught up: {some(why)}", findings=tuple(_not_taken(waited.look.pairs)))
    if min(known) >= known[0]:
        return Refused(f"the outflow grows while clients work: {known[0]}, then {if_known(left)}")
    return Done(f"{if_known(left)} under way, less and less", {"under_way": left})


@dataclass(frozen=True, slots=True)
class _Look:
    """A look at all pairs: the number that is under way, and the reasons why it is not little."""

    pairs: Sequence[Both]
    left: int | None
    why: list[str]

    @property
    def little(self) -> bool:
        return self.left is not None and self.left <= SMALL and not self.why


def under_way(pairs: Sequence[Both]) -> int | None:
    """Count the messages to ship and the acknowledgements to apply, or None if a count was not read."""
    return total(each for both in pairs for view in both for each in (view.link.to_ship, view.link.unapplied))


def _not_taken(pairs: Sequence[Both]) -> Iterator[Finding]:
    """Report the messages each serving site has staged and its queues do not take, with a remedy."""
    for source, _ in pairs:
        staged = [f"{flow.queue}: {flow.in_mirror.depth}" for flow in source.flows if flow.in_mirror.depth]
        if staged:
            text = f"staged at {source.site} and not taken by its queues: {some(staged)}"
            remedy = (
                f"See that these addresses take messages at {source.site}: their size and policy, the disk. What a "
                "queue refuses while it takes what clients send was there before, and dr-ctl goes on: run the command "
                "again while they send to it. Remove it by hand from what is staged only where those who process it "
                "say so by its id: what was never done would be lost."
            )
            yield STAGED_NOT_DELIVERED(text, remedy)


def _without_echoes(tools: ContinuityTools, ways: Sequence[Way], pairs: Sequence[Both], hand: Hand) -> int:
    """Remove staged messages that also lie in the target's queue, and count how many were seen to be gone. Remove no
    message where the ids could not be read, for the drain compares all of them."""
    removed = 0
    for (_, there), (_, target) in zip(ways, pairs, strict=True):
        try:
            if twice := copies.echoes(there.reader(), target):
                places = [(target.places(name)[1], gone) for name, gone in twice.items()]
                tools.change([call for staged, gone in places for call in copies.remove(target, staged, gone)], hand)
                left = copies.echoes(there.reader(), target)
                removed += sum(
                    len(gone.ids - (left[name].ids if name in left else set())) for name, gone in twice.items()
                )
        except BrokerError as error_:
            hand.notice(f"what lies twice at {target.site} is left for the drain: {error_}")
    return removed


@dataclass(frozen=True, slots=True)
class _Still:
    """The staged and confirmed counts of a flow; since when they are the same, and how many messages the queue had been
    given by then."""

    staged: int
    confirmed: int
    since_s: float
    added: int


class _Idle:
    """Messages staged at a serving site that do not move: `had` by pair and queue the ids that the site had before."""

    def __init__(self, waits: PluginPatience, had: dict[str, dict[str, frozenset[str]]]) -> None:
        self._waits, self._had = waits, had
        self._still: dict[tuple[str, str], _Still] = {}

    def why(self, way: Way, both: Both, now_s: float) -> list[str]:
        """Name the messages still being delivered, except messages long refused that this site had before."""
        source, found = both[0], []
        for flow in source.flows:
            queue = source.business.get(flow.queue)
            now = _Still(flow.in_mirror.depth, flow.target_bridge.acked, now_s, queue.added if queue is not None else 0)
            was = self._still.get((source.pair, flow.queue), now)
            if (now.staged, now.confirmed) != (was.staged, was.confirmed):
                was = now
            self._still[source.pair, flow.queue] = was
            for_s = now_s - was.since_s
            stuck = flow.stuck and for_s >= self._waits.stuck_s
            takes = for_s >= self._waits.refused_s and now.added > was.added
            unread = ""
            try:
                refused = stuck and self._refused(way, both, flow.queue, takes=takes)
            except BrokerError as error_:
                refused, unread = False, f" (whether it refuses them was not read: {error_})"
            if now.staged and not refused:
                found.append(f"{source.site} still delivers {now.staged} staged message(s) of {flow.queue}{unread}")
        return found

    def _refused(self, way: Way, both: Both, queue: str, *, takes: bool) -> bool:
        """True if a queue that takes no staged message also lacks none. A message in neither its queue nor at the other
        site was consumed. A message still at the other site but not in this queue was had here, if the queue takes
        other messages; otherwise the address or the disk may be full."""
        here, there = way
        if queue in copies.one_sided(*both):
            return False
        left = copies.still_to_deliver(here.reader(), there.reader(), *both, queue)
        if left and not (takes and copies.refuses_only_what_it_had(here.reader(), both[0], queue)):
            return False
        self._had.setdefault(both[0].pair, {})[queue] = left
        return True
