"""`catch-up` and `drain`: waits until little is under way, and, behind the fence, until both sites hold the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dr_ctl.core.document import document
from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, some
from dr_ctl.core.notation import duration, if_known
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Done, Move, Outcome, Refused, StepContext
from dr_ctl.engine.waiting import Waited, until
from dr_ctl.jolokia.client import READ_S
from dr_ctl.topologies.common.consumed import NotWhole
from dr_ctl.topologies.common.figures import evidence, total
from dr_ctl.topologies.common.gate import Sample, accepting, clients_of, moved, why_not_yet
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.verbs.quiesce import LIFTED, lifting
from dr_ctl.topologies.common.wants import SOURCE, TARGET, planning
from dr_ctl.topologies.continuity import copies
from dr_ctl.topologies.continuity.copies import Compared
from dr_ctl.topologies.continuity.reading import Way
from dr_ctl.topologies.continuity.tools import Both, ContinuityTools, PluginTimeouts
from dr_ctl.topologies.continuity.view import SiteView

SMALL: Final = 500
CALM: Final = 2
# The finding names at most so many ids of a queue; the journal has all.
_NAMED: Final = 5


draft_catch_up: Final = planning(
    SOURCE,
    "{serving}all bridges connected, the outflow small, nothing left to deliver from staging; second copies at "
    "{target} removed by id",
    (copies.second_removed, TARGET),
    limits=Rules.catching_up,
)
draft_drain: Final = planning(
    TARGET,
    "everything shipped and applied, in both directions; copies that must not be delivered removed by id; pauses "
    "lifted meanwhile",
    *LIFTED,
    (copies.done_removed, TARGET),
    limits=Rules.draining,
)


def catch_up(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Wait, while the source serves, until bridges are connected, little is under way, and staged messages are
    delivered."""
    ways = tools.observer.ways(move)
    if not ways:
        return Done("nothing is under way", {"under_way": 0})
    ends_s = context.monotonic() + step.limits["within"]
    known: list[int] = []
    idle = _Idle(tools.waits, tools.had)

    def look() -> _Look:
        pairs = tools.look(ways)
        left = under_way(pairs)
        why = [
            reason for way, both in zip(ways, pairs, strict=True) for reason in idle.why(way, both, context.monotonic())
        ]
        why += [
            f"a bridge of {view.site} is not connected" for both in pairs for view in both if not view.link.attached
        ]
        if left is None:
            why.append("what is under way was not read: the continuity plugin has not started")
        else:
            known.append(left)
        context.sample(evidence((view.site, view.link) for both in pairs for view in both))
        context.waiting("under way between the sites", left, some(why) if why else None)
        return _Look(pairs, left, why)

    def until_little() -> Waited[_Look]:
        within_s, poll_s = ends_s - context.monotonic(), tools.waits.poll_s
        return until(context, look, holds=lambda now: now.little, within_s=within_s, poll_s=poll_s)

    waited, removed = until_little(), 0
    if waited.held and (removed := _without_echoes(tools, ways, waited.look.pairs, context)):
        waited = until_little()  # the removal took a moment, in which clients worked on
    left, why = waited.look.left, waited.look.why
    if waited.held:
        beside = f"; {removed} second copies removed at {move.target}" if removed else ""
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
            yield found("DR-CONT-017.not_taken", source=source.site, queues=some(staged))


def _without_echoes(tools: ContinuityTools, ways: Sequence[Way], pairs: Sequence[Both], context: StepContext) -> int:
    """Remove staged messages that also lie in the target's queue, and count how many were seen to be gone. Remove no
    message where the ids could not be read, for the drain compares all of them."""
    removed = 0
    for (_, there), (_, target) in zip(ways, pairs, strict=True):
        try:
            if twice := copies.echoes(there.reader(), target):
                places = [(target.places(name)[1], gone) for name, gone in twice.items()]
                tools.change([call for staged, gone in places for call in copies.remove(target, staged, gone)], context)
                left = copies.echoes(there.reader(), target)
                removed += sum(
                    len(gone.ids - (left[name].ids if name in left else set())) for name, gone in twice.items()
                )
        except BrokerError as error_:
            context.notice(f"second copies at {target.site} are left for the drain: {error_}")
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

    def __init__(self, waits: PluginTimeouts, had: dict[str, dict[str, frozenset[str]]]) -> None:
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


def drain(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Lift the pauses beside it; wait, compare by id, remove, and wait again for what that set going."""
    drain = _Drain(tools.observer.ways(move), step, move, context, tools.waits.look_s)
    # The gate's window may begin with the first look: the lifts look too, and a broker answers one after the other.
    first = _look(tools, drain)
    with lifting(tools, move, context) as lifted:
        outcome = _until_same(tools, drain, first)
    tools.gate.begun = drain.begun
    return lifted.judged(outcome)


def _look(tools: ContinuityTools, drain: _Drain) -> list[Both] | BrokerError:
    """Look at both sites, and note what is to be kept of it."""
    try:
        pairs = tools.look(drain.ways, timeout_s=drain.look_s)
    except BrokerError as error_:
        drain.begun = {}
        drain.look_s = min(2 * drain.look_s, READ_S)
        return error_
    drain.note(pairs)
    return pairs


def _until_same(tools: ContinuityTools, drain: _Drain, answer: list[Both] | BrokerError) -> Outcome:
    # A law of its own: the first look is from before the lifts, and what a comparison removes begins the calm anew.
    while drain.ways:
        pairs = answer if isinstance(answer, list) else []
        views = [view for both in pairs for view in both]
        reasons = [reason for view in views for reason in view.link.unsettled()]
        reasons += [f"{view.site} was opened" for view in views if view.open]
        reasons += [] if isinstance(answer, list) else [str(answer)]
        quiet = not reasons
        still = quiet or (bool(views) and not any([*view.uncomparable(), *clients_of(view)] for view in views))
        drain.context.waiting("reasons that keep the drain going", len(reasons), some(reasons) if reasons else None)
        if drain.is_stable(still=still) and (refused := _compare(tools, drain, pairs)) is not None and quiet:
            return refused
        if drain.same and quiet:
            break
        if (late := drain.why_late(reasons)) is not None:
            return late
        drain.context.wait(tools.waits.poll_s)
        answer = _look(tools, drain)
    return drain.done()


def _compare(tools: ContinuityTools, drain: _Drain, pairs: Sequence[Both]) -> Refused | None:
    """Remove messages that must not be delivered; a removal has to settle. Gives the reason against the move."""
    removed = False
    for (here, there), (source, target) in zip(drain.ways, pairs, strict=True):
        if lacking := copies.one_sided(source, target):
            finding = found("DR-CONT-005.one_sided", source=source.site, target=target.site, queues=some(lacking))
            return Refused.of(finding)
        compared = copies.compare(here.reader(), there.reader(), source, target, tools.had.get(source.pair, {}))
        unread = [each.queue for each in compared if not each.known]
        if unread and _differs(source, target, unread, drain.move):
            drain.unread = f"{some(unread)} could not be compared by id, and a count does not show what would be lost"
            return None
        if (refused := _wrong(compared, drain.move)) is not None:
            return refused
        if started := [flow.queue for flow in target.flows if flow.target_bridge.started]:
            return Refused(f"{target.site}: its delivery of {some(started)} is started although it is not active")
        if any(each.surplus or each.done for each in compared):
            [(later, _)] = tools.look([(here, there)])
            try:
                calls = list(copies.removals(later, target, compared))
            except NotWhole as error_:
                drain.unread = str(error_)
                return None
            tools.change(calls, drain.context)
            drain.count(compared)
            drain.begin_anew()
            removed = True
    drain.same = not removed
    return None


@dataclass
class _Drain:
    """How far one drain is. `begun`: by pair the first look after which nothing was on its way, nor came in, then the
    last of those at which the gate held. The time in which bridges confirm late runs while what has arrived waits for
    the staging delay. `look_s`: how long a look may take: more after each that took longer, for a console may be slow
    and a look that hangs is rare. `same`: the last comparison left nothing to remove, and nothing was on its way since.
    `removed`: by queue, the ids."""

    ways: Sequence[Way]
    step: PlannedStep
    move: Move
    context: StepContext
    look_s: float
    removed: dict[str, set[str]] = field(default_factory=dict)
    unread: str | None = None
    same: bool = False
    begun: dict[str, list[Sample[SiteView]]] = field(default_factory=dict)
    _calm: int = 0
    _left: int | None = None

    def __post_init__(self) -> None:
        self._began = self._moved_at = self.context.monotonic()

    def note(self, pairs: Sequence[Both]) -> None:
        staged = sum(flow.in_mirror.scheduled for _, target in pairs for flow in target.flows)
        left = total([under_way(pairs), staged])
        if left != self._left:
            self._left, self._moved_at = left, self.context.monotonic()
        self.context.sample(evidence((view.site, view.link) for both in pairs for view in both))
        self._note_begun(pairs)

    def _note_begun(self, pairs: Sequence[Both]) -> None:
        for source, target in pairs:
            # The time when the look ended, as its numbers may be that young: a window that is too short would prove
            # nothing.
            now = Sample(self.context.monotonic(), source, target)
            was = self.begun.get(source.pair)
            if not all(view.link.attached and not view.open and not [*view.under_way()] for view in (source, target)):
                self.begun.pop(source.pair, None)
            elif was is None or moved(was[0], now):
                self.begun[source.pair] = [now]
            else:
                self.begun[source.pair] = [*was, now] if not why_not_yet(now, was[0]) else was[:1]

    def is_stable(self, *, still: bool) -> bool:
        """Say whether the messages were still for long enough to be compared, and have not been since."""
        self._calm = self._calm + 1 if still else 0
        self.same = self.same and still
        return self._calm >= CALM and not self.same

    def begin_anew(self) -> None:
        self._calm, self._moved_at = 0, self.context.monotonic()
        self.begun = {pair: looks[:1] for pair, looks in self.begun.items()}

    def count(self, compared: Sequence[Compared]) -> None:
        for each in compared:
            if ids := {*each.surplus, *each.done}:
                self.removed.setdefault(each.queue, set()).update(ids)

    def why_late(self, reasons: Sequence[str]) -> Refused | None:
        took = self.context.monotonic() - self._began
        why = some(reasons) if reasons else self.unread or "it was not still for long enough"
        if took > self.step.limits["within"]:
            return Refused(f"not drained after {duration(took)}: {why}", code=ExitCode.DRAIN_TIMEOUT)
        if self.context.monotonic() - self._moved_at > self.step.limits["stall"]:
            text = f"nothing moved for {duration(self.step.limits['stall'])}: {why}"
            return Refused(text, code=ExitCode.DRAIN_TIMEOUT)
        return None

    def done(self) -> Done:
        removed: dict[str, Json] = {queue: len(ids) for queue, ids in self.removed.items()}
        suffix = f"; {sum(map(len, self.removed.values()))} message(s) removed that had been done" if removed else ""
        return Done(f"nothing is under way, and both sites hold the same{suffix}", {"removed": removed})


def _differs(source: SiteView, target: SiteView, queues: Sequence[str], move: Move) -> bool:
    """True if a queue that only has a count differs from the accepted number, or has no accepted number."""
    accepted = move.ask.accept_difference
    return any(source.business[name].depth - target.lies(name) != accepted.get(name) for name in queues)


def _wrong(compared: Sequence[Compared], move: Move) -> Refused | None:
    """Refuse and name messages that the source never delivered, as nobody can have done them and their copies must
    stay; messages that would be lost; and copies that may be the last of their messages. Of the latter two exactly as
    many can be accepted."""
    known, accepted = [each for each in compared if each.known], move.ask.accept_difference

    def apart(ids: Callable[[Compared], frozenset[str]]) -> dict[str, list[str]]:
        return {each.queue: sorted(ids(each)) for each in known if len(ids(each)) not in (0, accepted.get(each.queue))}

    if waiting := {each.queue: sorted(each.undelivered) for each in known if each.undelivered}:
        finding = found("DR-CONT-017.undelivered", source=move.source, messages=_named(waiting))
        return Refused.of(finding, evidence={"undelivered": document(waiting)})
    if missing := apart(lambda each: each.missing):
        finding = found("DR-CONT-013", source=move.source, target=move.target, messages=_named(missing))
        return Refused.of(finding, evidence={"missing": document(missing)})
    if unproven := apart(lambda each: each.unproven):
        options, copied = accepting({name: len(ids) for name, ids in unproven.items()}), _named(unproven)
        finding = found("DR-CONT-019.unproven", target=move.target, source=move.source, options=options, copies=copied)
        return Refused.of(finding, evidence={"unproven": document(unproven)})
    return None


def _named(messages: Mapping[str, Sequence[str]]) -> str:
    """Count the messages of each queue, and name the first ids."""
    return some(
        [
            f"{name}: {len(ids)} ({', '.join(ids[:_NAMED])}{', …' if len(ids) > _NAMED else ''})"
            for name, ids in messages.items()
        ]
    )
