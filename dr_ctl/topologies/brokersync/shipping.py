"""The waits on copies, `catch-up` and `drain`, and a restart; a connector is left started.

Messages consumed at one site that still lie at the other are found by id, removed by evidence, and looked for again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from dr_ctl.core.model import Finding, Json
from dr_ctl.core.notation import if_known
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Done, Move, Outcome, Refused, StepContext, StepPlan
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.brokersync import listing, parity
from dr_ctl.topologies.brokersync.checks import not_compared, possible_duplicates, unproven
from dr_ctl.topologies.brokersync.listing import listed, own
from dr_ctl.topologies.brokersync.proven import covered
from dr_ctl.topologies.brokersync.reading import Access, Way
from dr_ctl.topologies.brokersync.sync.accounts import DELETED
from dr_ctl.topologies.brokersync.tools import SyncTools
from dr_ctl.topologies.brokersync.view import BrokerView, SyncSnapshot
from dr_ctl.topologies.classic.ids import MOST, may_remove, moves, removes, shown
from dr_ctl.topologies.classic.operations import MOVE_MATCHING, START, STOP
from dr_ctl.topologies.common.calls import call, request
from dr_ctl.topologies.common.consumed import Consumed
from dr_ctl.topologies.common.gate import accepting, refused
from dr_ctl.topologies.common.names import quarantine_queue
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.tools import not_done
from dr_ctl.topologies.common.verbs.quiesce import LIFTED, lifting
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.common.waiting import Wait, attached
from dr_ctl.topologies.common.wants import SOURCE, TARGET, AtBroker, planning

NOT_CONNECTED: Final = "it is not connected"
RESTARTS: Final = 3
UNEXPLAINED: Final = "they were consumed at the other site before, or nothing explains why they lie only there"
CONSUMED: Final = "copies of what was consumed lie there"
ATTACH_S: Final = 30.0  # a network connector that lost its peer tries again after up to half a minute
SMALL: Final = 500
UNDER_WAY: Final = "copies under way between the sites"


def _switched(view: BrokerView, goal: Goal, when: str | None = None) -> list[Call]:
    """Start or stop the network connector to the peer."""
    if view.network is None:
        return []
    verb, operation = ("start", START) if goal is Goal.LINK_UP else ("stop", STOP)
    asked = request(view.network.bean, operation)
    return [call(view, goal, view.network.name, asked, f"{verb} network connector {view.network.name}", when)]


def tries(view: BrokerView) -> list[Call]:
    """Let a connector that is not connected try at once: by itself it tries again after up to half a minute."""
    calls = (*_switched(view, Goal.LINK_DOWN, NOT_CONNECTED), *_switched(view, Goal.LINK_UP, NOT_CONNECTED))
    return [replace(each, at_most=RESTARTS) for each in calls]


def connects(at: AtBroker) -> list[Call]:
    """What ships to the peer is connected."""
    return tries(at.view)


def may_move(view: BrokerView, queue: Queue, when: str | None = UNEXPLAINED, to: str | None = None) -> Call:
    """Plan a move aside, or to another queue; the run finds out which messages."""
    name = to or quarantine_queue(view.site, queue.name)
    asked = request(queue.bean, MOVE_MATCHING, ("JMSMessageID IN (…)", name))
    return call(view, Goal.MOVE, queue.name, asked, f"move them from {queue.name} to {name}", when, MOST)


draft_catch_up: Final = planning(
    SOURCE,
    "{serving}the network connector connected, the copy queues small",
    (connects, SOURCE),
    limits=Rules.catching_up,
)
SHIPPED: Final = planning(
    TARGET,
    "all copies shipped; copies of what was consumed removed; pauses lifted meanwhile",
    *LIFTED,
    (connects, SOURCE),
    limits=Rules.draining,
)


def draft_drain(rules: Rules, step: RunbookStep, snapshot: SyncSnapshot, move: Move) -> StepPlan:
    """Consumed messages are removed by id: the removal needs no undo, whoever serves afterwards."""
    shipped = SHIPPED(rules, step, snapshot, move)
    removes = (
        may_remove(there, there.named[name], CONSUMED)
        for here in snapshot.views(move.source)
        if (there := snapshot.view(move.target, here.pair)) is not None
        for name in here.copying
        if name in there.named
    )
    return replace(shipped, calls=(*shipped.calls, *removes))


# A connected connector too: one that hangs may say that it is connected.
draft_restart: Final = planning(
    SOURCE,
    "stop and start the network connector of {source}, until it is connected; clients stay where they are",
    (lambda at: _switched(at.view, Goal.LINK_DOWN), SOURCE),
    (lambda at: _switched(at.view, Goal.LINK_UP), SOURCE),
    limits=lambda _, __, move: {"within": move.ask.timeout_s or ATTACH_S},
)


@dataclass(frozen=True, slots=True)
class Apart:
    """A queue of a fenced source and of its target, by id: what the target lacks; what may be removed there, or None;
    what lies there alone otherwise, and why that stays."""

    lacks: frozenset[str]
    gone: Consumed | None
    stays: frozenset[str]
    why: str

    @classmethod
    def of(cls, tools: SyncTools, way: Way, source: BrokerView, target: BrokerView, queue: str) -> Apart:
        """Raises `BrokerError`."""
        views = {source.site: source, target.site: target}
        here, there = tools.observer.together(
            lambda access: listed(access, views[access.site], views[access.site].named.get(queue)), way
        )
        copies = there.whole.ids - own(way[1], target, queue, there)
        lacks, alone = here.whole.ids - there.whole.ids, there.whole.ids - here.whole.ids
        gone = covered(source, queue, copies, here.whole)
        if isinstance(gone, Consumed):
            stays = alone - gone.ids
            why = f"{len(stays)} were sent at {target.site}, and never shipped"
            return cls(lacks, gone if gone.ids else None, stays, why)
        return cls(lacks, None, alone, gone)


def cleared(tools: SyncTools, way: Way, move: Move, context: StepContext) -> Outcome:
    """Compare every queue by id, then remove at the target what the fenced source has consumed, where its counters
    cover that and nobody holds. Nothing is removed where the target lacks what the source holds, or has what nothing
    proves. Raises `BrokerError`."""
    source, target = (access.read() for access in way)
    deep = listing.too_deep(tools.rules, source, target, move)
    found: list[tuple[parity.Counts, Apart]] = []
    left: list[Finding] = []
    for each in parity.counts(source, target, tools.observer.queues):
        if each.queue not in source.copying or not (each.source or each.target):
            continue
        apart_by = abs(each.source - each.target)
        if each.queue not in deep:
            found.append((each, Apart.of(tools, way, source, target, each.queue)))
        elif apart_by and apart_by != move.ask.accept_difference.get(each.queue):  # equal numbers are the gate's
            text = f"{each.told(source.site, target.site)}: too many to compare by id in time"
            return Refused(text, findings=(not_compared(each, source.site, target.site),))
    for each, apart in found:
        accepted = move.ask.accept_difference.get(each.queue)
        if apart.lacks and len(apart.lacks) != accepted:
            return _lacks(each.queue, apart.lacks, source, target)
        if apart.stays and len(apart.stays) != accepted:
            finding = unproven(each, len(apart.stays), apart.why, source, target)
            return Refused(f"{each.queue}: {apart.why}", findings=(finding,))
        if apart.stays:
            left.append(possible_duplicates(each.queue, len(apart.stays), target.site))
    if any(apart.gone is not None for _, apart in found) and way[0].read().start != source.start:
        return Refused(f"the broker of {source.site} was restarted: its counters prove nothing any more")
    removed: dict[str, Json] = {}
    for each, apart in found:
        count = 0
        if apart.gone is not None:
            refused = remove(tools, way[1], target.named[each.queue], apart.gone, context, (way[0], source))
            if refused is not None:
                return refused
            removed[each.queue] = count = len(apart.gone.ids)
        if not apart.lacks and not apart.stays:
            tools.compared.note(source, target, each.queue, count)
    stays: dict[str, Json] = {each.queue: len(apart.stays) for each, apart in found if apart.stays}
    return Done(
        "nothing of what was consumed lies there", {"removed": removed, "possible_duplicates": stays}, tuple(left)
    )


def _lacks(queue: str, ids: frozenset[str], source: BrokerView, target: BrokerView) -> Refused:
    return refused(
        "DR-PARITY-004.one_queue_by_id",
        {queue: {f"only at {source.site}": ids}},
        count=len(ids),
        queue=queue,
        site=source.site,
        other_site=target.site,
        accepting=accepting({queue: len(ids)}),
    )


def remove(
    tools: SyncTools,
    access: Access,
    queue: Queue,
    gone: Consumed,
    context: StepContext,
    serving: tuple[Access, BrokerView],
) -> Refused | None:
    """Remove these copies, and look whether they are gone; gives None where they are. `serving` is the broker whose
    clients consumed them. Raises `BrokerError`."""
    counts, view = serving
    # Noted first: if this process dies meanwhile, the broker's counters prove too little, not too much.
    counts.note(view.start, DELETED, queue.name, len(gone.ids))
    outcomes = tools.change(list(removes(access.names(), queue, gone)), context)
    now = access.read().named.get(queue.name)
    if now is None or now.depth == queue.depth - len(gone.ids):
        return None
    left = shown(access, now).keys() & gone.ids
    counts.note(view.start, DELETED, queue.name, -len(left))
    about = f"of {len(gone.ids)} message(s) could not be removed from {queue.name} at {access.site}"
    return not_done(left, about, outcomes)


def moved(
    tools: SyncTools, access: Access, queue: Queue, ids: Collection[str], context: StepContext, to: str | None = None
) -> Refused | None:
    """Move these messages to another queue, else aside, and look whether they are gone from theirs; gives None where
    they are. Raises `BrokerError`."""
    name = to or quarantine_queue(access.site, queue.name)
    outcomes = tools.change(list(moves(access.names(), queue, ids, name)), context)
    left = shown(access, queue).keys() & {*ids}
    return not_done(left, f"message(s) of {queue.name} at {access.site} could not be moved", outcomes)


class Copies:
    """The copies that one broker ships to its peer. A connector with copies to ship that is not connected is restarted,
    a few times."""

    mending = "its network connector is not connected: restarting it"

    def __init__(self, here: Access, there: Access, context: StepContext, timeouts: Timeouts) -> None:
        self.here, self.there = here, there
        self._context, self._timeouts = context, timeouts
        self._restarted = 0
        self._again_at = context.monotonic() + timeouts.link_lost_s

    def left(self, here: BrokerView, _there: BrokerView) -> int | None:
        return here.link.to_ship

    def why(self, here: BrokerView, _there: BrokerView) -> list[str]:
        return (
            [] if here.link.attached or not here.copying else [f"the network connector of {here.site} is not connected"]
        )

    def mends(self, here: BrokerView, _there: object) -> list[Call]:
        if here.link.attached or not here.copying:
            self._again_at = self._context.monotonic() + self._timeouts.link_lost_s
            return []
        if self._restarted >= RESTARTS or self._context.monotonic() < self._again_at:
            return []
        self._restarted += 1
        self._again_at = self._context.monotonic() + self._timeouts.link_between_s * 2**self._restarted
        return tries(here)


def catch_up(tools: SyncTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """While the source serves: connected, and little enough to ship that a drain takes a moment."""
    wait = Wait(
        tools, [Copies(*way, context, tools.timeouts) for way in tools.observer.ways(move)], context, UNDER_WAY, SMALL
    )
    failed = wait.until(tools.timeouts.link_poll_s, step.limits)
    if failed is not None:
        if wait.first is not None and wait.last is not None and wait.last >= wait.first > SMALL:
            return Refused(f"the copy queues grow while clients work: {wait.first} to ship, then {wait.last}")
        return Refused(failed.text)
    return Done(f"{if_known(wait.last)} to ship", {"under_way": wait.last, "started": wait.mended})


def drain(tools: SyncTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    with lifting(tools, move, context) as lifted:
        wait = Wait(
            tools, [Copies(*way, context, tools.timeouts) for way in tools.observer.ways(move)], context, UNDER_WAY
        )
        failed = wait.until(tools.rules.drain.poll, step.limits, lambda view: [view.pair] if view.open else [])
        outcome = failed or _cleared(tools, move, context)
    return lifted.judged(outcome)


def _cleared(tools: SyncTools, move: Move, context: StepContext) -> Outcome:
    removed: dict[str, Json] = {}
    findings: list[Finding] = []
    for way in tools.observer.ways(move):
        outcome = cleared(tools, way, move, context)
        if not isinstance(outcome, Done):
            return outcome
        removed[way[0].pair] = outcome.evidence["removed"]
        findings += outcome.findings
    count = sum(_count(each) for each in removed.values())
    suffix = f"; {count} copies of what was consumed removed" if count else ""
    return Done(f"nothing to ship{suffix}", {"removed": removed}, tuple(findings))


def _count(counts: Json) -> int:
    return sum(each for each in counts.values() if isinstance(each, int)) if isinstance(counts, Mapping) else 0


def restart(tools: SyncTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    tools.change([call for call in step.calls if call.goal is Goal.LINK_DOWN], context)
    tools.change([call for call in step.calls if call.goal is Goal.LINK_UP], context)

    def away() -> dict[str, str]:
        views = tools.observer.look_at(move.source)
        return {f"{view.site}/{view.pair}": "" for view in views if not view.link.attached}

    return attached(tools, step, move, context, "the network connector", away)


def connected(at: AtBroker) -> list[Call]:
    """A stopped connector and an absent peer look the same: what a step stops is started, however it was before."""
    return _switched(at.view, Goal.LINK_UP, NOT_CONNECTED) if at.named(Goal.LINK_UP) else []


UNDO: Final = Undo(source=(connected,))
