"""The act of `quiesce`: queues paused, clients waited for; beside a drain the pauses are lifted again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import Severity, some
from dr_ctl.core.system import beside
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.common.calls import TOGETHER, pause, resume
from dr_ctl.topologies.common.drafts.quiesce import lifts, meant, pauses, to_lift, to_pause
from dr_ctl.topologies.common.findings import CLIENTS_HOLD_MESSAGES, COME_AGAIN, COUNTED_BELOW_ZERO
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker

LEFT_OUT: Final = "the call for all that begin alike left it out"
CALM: Final = 2  # looks in a row without deliveries, as a look can fall between two dispatches


def act(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    views = tools.observer.pauses_at(move.source)
    if not any(view.open for view in views):
        return NotNeeded(f"{move.source} is closed to clients already")
    views, paused = _pause(tools, step, views, move, hand)

    def look() -> _Dispatch:
        now = _dispatch(tools, views, move)
        now.unwritten = _written_down(tools, now, move)
        hand.sample({"delivering": now.total})
        hand.waiting("messages that clients hold", now.total, now.why)
        return now

    waited = until(
        hand,
        look,
        holds=lambda now: now.total == 0 and now.unwritten is None,
        hopeless=lambda now: now.unwritten is not None,
        within_s=step.limits["within"],
        poll_s=tools.patience.poll_s,
        calm=CALM,
    )
    if waited.look.unwritten is not None:
        return Refused(waited.look.unwritten)
    if not waited.held:
        return _not_quiet(tools, waited.look, move, step)
    if waited.look.unpaused:
        return Refused(f"could not pause {some(waited.look.unpaused)}")
    return Done("clients hold nothing", {"paused": paused})


def _pause(
    tools: Tools[Broker], step: PlannedStep, views: list[Broker], move: Move, hand: Hand
) -> tuple[list[Broker], int]:
    """Pause what delivers, one by one where a call for many did not come through; the brokers as they were last seen,
    and how many queues that was."""
    planned = {(call.unit, call.part, call.thing): call for call in step.calls if call.when is None}
    calls = []
    for view in views:
        for each in pauses(tools.rules, view, move):
            plan = planned.get((each.unit, each.part, each.thing))
            new = replace(each, when="queues were created, or paused, since the look")
            calls.append(plan if plan is not None and plan.request == each.request else new)
    count = sum(len(to_pause(tools.rules, view, move)) for view in views)
    if _left_out(calls, tools.change(calls, hand)):
        views = tools.observer.pauses_at(move.source)
        left = [(view, queue) for view in views for queue in to_pause(tools.rules, view, move)]
        tools.change([pause(view, queue, LEFT_OUT) for view, queue in left], hand)
    return views, count


def _written_down(tools: Tools[Broker], now: _Dispatch, move: Move) -> str | None:
    """Write down queues that were created between the look and a call for many: the call paused them too. A later run,
    after a crash, has to know them."""
    why = [tools.sender.paused_too(move.source, pair, names) for pair, names in now.new.items()]
    return next((each for each in why if each is not None), None)


@dataclass
class _Dispatch:
    """A poll: messages that clients hold by queue, queues that dispatch still, and queues that cannot be counted.
    `new`: by pair, queues paused since the look; `unwritten`: why these could not be written down."""

    busy: dict[str, int] = field(default_factory=dict)
    unpaused: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    new: dict[str, list[str]] = field(default_factory=dict)
    unwritten: str | None = None

    @property
    def total(self) -> int | None:
        return sum(self.busy.values()) if not self.unknown else None

    @property
    def why(self) -> str | None:
        if self.unknown:
            return f"cannot be told: {some(self.unknown)}"
        return "clients have not finished them" if self.busy else None


def _polled(tools: Tools[Broker], views: Iterable[Broker]) -> list[Mapping[str, tuple[int, bool]]]:
    """Messages in delivery and the pause of each queue, by broker."""
    return tools.observer.together(
        lambda access: access.dispatch(), [tools.observer.brokers[view.site][view.pair] for view in views]
    )


def _dispatch(tools: Tools[Broker], views: Sequence[Broker], move: Move) -> _Dispatch:
    """Poll the queues that quiesce is for. A queue missing from the poll is ignored only if a look shows it gone."""
    now = _Dispatch()
    for view, queues in zip(views, _polled(tools, views), strict=True):
        access = tools.observer.brokers[move.source][view.pair]
        mine = [queue.name for queue in meant(tools.rules, view, move)]
        for name in [name for name in mine if name in queues]:
            count, paused = queues[name]
            if count < 0:
                now.unknown.append(f"{name} has {count} in delivery")
            elif count:
                now.busy[name] = now.busy.get(name, 0) + count
            now.unpaused += [] if paused else [name]
        if found := [name for name, (_, paused) in queues.items() if paused and name not in view.named]:
            now.new[view.pair] = found
        if missing := [name for name in mine if name not in queues]:
            there = access.look()
            gone = set(missing) - set(there.business) if there.queues else set()
            now.unknown += [f"{name} was not read" for name in missing if name not in gone]
    return now


def _not_quiet(tools: Tools[Broker], now: _Dispatch, move: Move, step: PlannedStep) -> Outcome:
    busy = now.busy
    if now.unknown:
        text = f"what clients hold cannot be told: {some(now.unknown)}"
        finding = COUNTED_BELOW_ZERO(text, "Its counters begin anew with a restart of that broker.")
        if not move.ask.cut_in_flight:
            return Refused(text, {"queues": dict(busy)}, (finding,))
        return Done(text, {"come_again": None}, (replace(finding, severity=Severity.WARNING),))
    consumers = [each for view in tools.observer.look_at(move.source) for each in view.consumers if each.queue in busy]
    holders = []
    for queue, count in busy.items():
        who = [each.told for each in consumers if each.queue == queue and each.holds != 0]
        holders.append(f"{queue}: {count} held by {', '.join(who) or 'a client that is gone'}")
    total = sum(busy.values())
    if move.ask.cut_in_flight:
        text = f"{total} message(s) in delivery are cut and will come again: {some(holders)}"
        finding = COME_AGAIN(text, "The clients must recognise what they have done.")
        return Done(text, {"come_again": total, "queues": dict(busy)}, (finding,))
    text = f"clients did not finish what they hold within {step.limits['within']:g} s: {some(holders)}"
    finding = CLIENTS_HOLD_MESSAGES(
        text, "Stop that client or let it finish, then run again; with --cut-in-flight they are cut and come again."
    )
    return Refused(text, {"queues": dict(busy)}, (finding,))


def undo(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    del step
    views = tools.observer.answering(move.source)
    pairs = {view.pair for view in views if to_lift(tools.rules, view, move)}
    if left := _lift_all(tools, [view for view in views if view.pair in pairs], move, hand):
        return Refused(f"still paused: {some(left)}")
    if away := sorted(set(tools.observer.brokers[move.source]) - {view.pair for view in views}):
        return Refused(f"{move.source}: {some(away)} silent: whether anything is paused there is not known")
    return Done("pauses lifted") if pairs else NotNeeded("nothing is paused that was not before")


@dataclass
class Lifting:
    """Pauses that are being lifted; `why_not` once the block has ended: the pauses still on, or None."""

    why_not: str | None = None

    def judged(self, outcome: Outcome) -> Outcome:
        """The end of the drain that it was beside."""
        return Refused(f"pauses: {self.why_not}") if isinstance(outcome, Done) and self.why_not else outcome


@contextmanager
def lifting(tools: Tools[Broker], move: Move, hand: Hand) -> Iterator[Lifting]:
    """Lift the pauses while the block runs. The block always waits for the end: the calls are in the journal."""
    lifted = Lifting()
    under_way = beside(partial(_lift, tools, move, hand), "lift pauses")
    try:
        yield lifted
    finally:
        try:
            lifted.why_not = under_way.result()
        except BrokerError as error:
            lifted.why_not = str(error)


def _lift(tools: Tools[Broker], move: Move, hand: Hand) -> str | None:
    """Gives None once all queues were seen to be resumed."""
    known = [access.names() for access in tools.observer.at(move.source)]
    left = _lift_all(tools, _paused_now(tools, known), move, hand)
    return some(left) if left else None


def _paused_now(tools: Tools[Broker], known: Sequence[Broker]) -> list[Broker]:
    """The pauses of these brokers as one small poll tells them; a broker is looked at where that tells of a paused
    queue that is not known yet."""

    def now(view: Broker) -> Broker:
        access = tools.observer.brokers[view.site][view.pair]
        paused = {name: paused for name, (_, paused) in access.dispatch().items()}
        if any(each and name not in view.named for name, each in paused.items()):
            return access.pauses()
        there = [queue for queue in view.queues if queue.name in paused or not queue.business]
        return replace(view, queues=tuple(replace(each, paused=paused.get(each.name, each.paused)) for each in there))

    return tools.observer.together(now, known)


def _lift_all(tools: Tools[Broker], views: Sequence[Broker], move: Move, hand: Hand) -> list[str]:
    """Resume the queues at these brokers that were not paused before, one by one where a call for many left some out;
    gives the queues still paused, in words. Raises `BrokerError`."""

    def left() -> list[Call]:
        now = _paused_now(tools, views)
        return [resume(view, queue, LEFT_OUT) for view in now for queue in to_lift(tools.rules, view, move)]

    calls = [call for view in views for call in lifts(tools.rules, view, move)]
    outcomes = tools.change(calls, hand)
    still = left() if views else []
    if still and _left_out(calls, outcomes):
        tools.change(still, hand)
        still = left()
    return [call.about for call in still]


def _left_out(calls: Sequence[Call], outcomes: Sequence[Outcome]) -> bool:
    """True if a call for many queues was not answered well: the call may have reached all, some, or no queues."""
    return any(
        call.part == TOGETHER and not isinstance(outcome, Done) for call, outcome in zip(calls, outcomes, strict=True)
    )
