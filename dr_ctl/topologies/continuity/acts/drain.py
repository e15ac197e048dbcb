"""The act of `drain`: a wait behind the fence until both sites hold the same, pauses lifted beside it.

A zero counts only once the bridges' confirmations are in, which come up to two seconds late. Ids decide after that:
messages that must not be delivered at the other site are removed there, and a message without its copy there refuses
the move. Removing does not wait for the plugin's commands, which say nothing of messages and are confirmed as late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, Json, some
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.jolokia.client import READ_S
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.common.acts.quiesce import lifting
from dr_ctl.topologies.common.consumed import NotWhole
from dr_ctl.topologies.common.evidence import evidence, total
from dr_ctl.topologies.common.gate import Sample, clients_of, moved, why_not_yet
from dr_ctl.topologies.continuity import copies
from dr_ctl.topologies.continuity.access import Way
from dr_ctl.topologies.continuity.acts.catch_up import under_way
from dr_ctl.topologies.continuity.copies import Compared
from dr_ctl.topologies.continuity.findings import (
    COPIES_NOT_COVERED,
    FLOWS_DIFFER,
    NO_COPY_AT_TARGET,
    STAGED_NOT_DELIVERED,
)
from dr_ctl.topologies.continuity.tools import Both, ContinuityTools
from dr_ctl.topologies.continuity.view import SiteView

CALM: Final = 2
# The finding names at most so many ids of a queue; the journal has all.
_NAMED: Final = 5


def act(tools: ContinuityTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Lift the pauses beside it; wait, compare by id, remove, and wait again for what that set going."""
    drain = _Drain(tools.observer.ways(move), step, move, hand, tools.waits.look_s)
    # The gate's window may begin with the first look: the lifts look too, and a broker answers one after the other.
    first = _look(tools, drain)
    with lifting(tools, move, hand) as lifted:
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
        drain.hand.waiting("reasons that keep the drain going", len(reasons), some(reasons) if reasons else None)
        if drain.calm(still=still) and (refused := _compare(tools, drain, pairs)) is not None and quiet:
            return refused
        if drain.same and quiet:
            break
        if (late := drain.why_late(reasons)) is not None:
            return late
        drain.hand.wait(tools.waits.poll_s)
        answer = _look(tools, drain)
    return drain.done()


def _compare(tools: ContinuityTools, drain: _Drain, pairs: Sequence[Both]) -> Refused | None:
    """Remove messages that must not be delivered; a removal has to settle. Gives the reason against the move."""
    removed = False
    for (here, there), (source, target) in zip(drain.ways, pairs, strict=True):
        if lacking := copies.one_sided(source, target):
            return _one_sided(lacking, source.site, target.site)
        compared = copies.compare(here.reader(), there.reader(), source, target, tools.had.get(source.pair, {}))
        unread = [each.queue for each in compared if not each.known]
        if unread and _differs(source, target, unread, drain.move):
            drain.unread = f"{some(unread)} could not be compared by id, and a count does not show what would be lost"
            return None
        if (undelivered := _undelivered(compared, drain.move)) is not None:
            return undelivered
        if (missing := _missing(compared, drain.move)) is not None:
            return missing
        if (unproven := _unproven(compared, drain.move)) is not None:
            return unproven
        if started := [flow.queue for flow in target.flows if flow.target_bridge.started]:
            return Refused(f"{target.site}: its delivery of {some(started)} is started although it is not active")
        if any(each.surplus or each.done for each in compared):
            [(later, _)] = tools.look([(here, there)])
            try:
                calls = list(copies.removals(later, target, compared))
            except NotWhole as error_:
                drain.unread = str(error_)
                return None
            tools.change(calls, drain.hand)
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
    hand: Hand
    look_s: float
    removed: dict[str, set[str]] = field(default_factory=dict)
    unread: str | None = None
    same: bool = False
    begun: dict[str, list[Sample[SiteView]]] = field(default_factory=dict)
    _calm: int = 0
    _left: int | None = None

    def __post_init__(self) -> None:
        self._began = self._moved_at = self.hand.monotonic()

    def note(self, pairs: Sequence[Both]) -> None:
        staged = sum(flow.in_mirror.scheduled for _, target in pairs for flow in target.flows)
        left = total([under_way(pairs), staged])
        if left != self._left:
            self._left, self._moved_at = left, self.hand.monotonic()
        self.hand.sample(evidence((view.site, view.link) for both in pairs for view in both))
        self._note_begun(pairs)

    def _note_begun(self, pairs: Sequence[Both]) -> None:
        for source, target in pairs:
            # The time when the look ended, as its numbers may be that young: a window that is too short would prove
            # nothing.
            now = Sample(self.hand.monotonic(), source, target)
            was = self.begun.get(source.pair)
            if not all(view.link.attached and not view.open and not [*view.under_way()] for view in (source, target)):
                self.begun.pop(source.pair, None)
            elif was is None or moved(was[0], now):
                self.begun[source.pair] = [now]
            else:
                self.begun[source.pair] = [*was, now] if not why_not_yet(now, was[0]) else was[:1]

    def calm(self, *, still: bool) -> bool:
        """Say whether the messages were still for long enough to be compared, and have not been since."""
        self._calm = self._calm + 1 if still else 0
        self.same = self.same and still
        return self._calm >= CALM and not self.same

    def begin_anew(self) -> None:
        self._calm, self._moved_at = 0, self.hand.monotonic()
        self.begun = {pair: looks[:1] for pair, looks in self.begun.items()}

    def count(self, compared: Sequence[Compared]) -> None:
        for each in compared:
            if ids := {*each.surplus, *each.done}:
                self.removed.setdefault(each.queue, set()).update(ids)

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
        removed: dict[str, Json] = {queue: len(ids) for queue, ids in self.removed.items()}
        suffix = f"; {sum(map(len, self.removed.values()))} message(s) removed that had been done" if removed else ""
        return Done(f"nothing is under way, and both sites hold the same{suffix}", {"removed": removed})


def _differs(source: SiteView, target: SiteView, queues: Sequence[str], move: Move) -> bool:
    """True if a queue that only has a count differs from the accepted number, or has no accepted number."""
    accepted = move.ask.accept_difference
    return any(source.business[name].depth - target.lies(name) != accepted.get(name) for name in queues)


def _one_sided(queues: Sequence[str], source: str, target: str) -> Refused:
    text = f"messages in flows that only one of {source} and {target} has: {some(queues)}"
    remedy = (
        "A queue that is deleted with its last consumer takes its flow along: create it again, durable and without "
        f"auto-delete, and let what lies there be consumed at {source}."
    )
    return Refused(text, findings=(FLOWS_DIFFER(text, remedy),))


def _undelivered(compared: Sequence[Compared], move: Move) -> Refused | None:
    """Refuse messages that the source never delivered: nobody can have done them, and their copies must stay."""
    waiting = {each.queue: sorted(each.undelivered) for each in compared if each.known and each.undelivered}
    if not waiting:
        return None
    text = f"staged at {move.source} and never delivered there: {_named(waiting)}"
    remedy = (
        f"`dr-ctl activate {move.source}`, and let it deliver: see that the address takes messages (its size and "
        "policy, the disk). What it goes on refusing was done there: remove that by hand from its queue of what is "
        "staged."
    )
    evidence: dict[str, Json] = {"undelivered": {name: [*ids] for name, ids in waiting.items()}}
    return Refused(text, evidence, (STAGED_NOT_DELIVERED(text, remedy),))


def _named(messages: Mapping[str, Sequence[str]]) -> str:
    """Count the messages of each queue, and name the first ids."""
    return some(
        [
            f"{name}: {len(ids)} ({', '.join(ids[:_NAMED])}{', …' if len(ids) > _NAMED else ''})"
            for name, ids in messages.items()
        ]
    )


def _unproven(compared: Sequence[Compared], move: Move) -> Refused | None:
    """Refuse copies that may be the last of their messages, unless a person accepted that as many may come twice."""
    copied = {each.queue: sorted(each.unproven) for each in compared if each.known and each.unproven}
    wrong = {name: ids for name, ids in copied.items() if move.ask.accept_difference.get(name) != len(ids)}
    if not wrong:
        return None
    text = f"copies at {move.target} that {move.source} lacks, and did not acknowledge since its start: {_named(wrong)}"
    accepted = " ".join(f"--accept-difference {quote(f'{name}={len(ids)}')}" for name, ids in wrong.items())
    remedy = f"Clients of {move.target} get them with {accepted}: those that were consumed before come twice."
    evidence: dict[str, Json] = {"unproven": {name: [*ids] for name, ids in wrong.items()}}
    return Refused(text, evidence, (COPIES_NOT_COVERED(text, remedy),))


def _missing(compared: Sequence[Compared], move: Move) -> Refused | None:
    """Refuse and name messages that would be lost, unless exactly that many were accepted."""
    lacking = {each.queue: sorted(each.missing) for each in compared if each.known and each.missing}
    wrong = {name: ids for name, ids in lacking.items() if move.ask.accept_difference.get(name) != len(ids)}
    if not wrong:
        return None
    text = f"messages of {move.source} that have no copy at {move.target}: {_named(wrong)}"
    remedy = (
        "A client was cut off, or rolled back, while it held them, and the plugin deleted the copies. Let them be "
        f"consumed at {move.source}; --accept-difference QUEUE=N moves without exactly so many."
    )
    evidence: dict[str, Json] = {"missing": {name: [*ids] for name, ids in wrong.items()}}
    return Refused(text, evidence, (NO_COPY_AT_TARGET(text, remedy),))
