"""Compares both sites for `reconcile`, and moves unexplained messages aside.

After both directions have drained, a message that lies only at the returned site can be neither shipped nor
acknowledged. Clients would get it, once more or for the first time, as soon as that site serves. A person has to look:
dr-ctl moves the message to a queue of its own there, and never removes it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dr_ctl.core.document import document
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json, some
from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Done, Move, Outcome, Refused, StepContext, StepPlan
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.broker import CREATE_QUEUE, MOVE, internal_queue
from dr_ctl.topologies.common.calls import call, request
from dr_ctl.topologies.common.consumed import Consumed
from dr_ctl.topologies.common.names import quarantine_queue
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.mirror import parity
from dr_ctl.topologies.mirror.origins import RESIDUE_UP_TO, Browsed, Origin, browsed, told
from dr_ctl.topologies.mirror.tools import MirrorTools
from dr_ctl.topologies.mirror.view import BrokerView, MirrorSnapshot

Only = Mapping[Origin, int]


@dataclass(frozen=True, slots=True)
class LeftOver:
    """The messages of one queue that lie at one side alone; the returned broker's with the numbers it gave them.

    `gone` is the proof that `only_there` was done; without one a person has to look at what is moved aside."""

    view: BrokerView
    queue: str
    only_there: Only
    only_here: frozenset[Origin]
    gone: Consumed | None = None


def draft(_rules: Rules, _step: RunbookStep, snapshot: MirrorSnapshot, move: Move) -> StepPlan:
    """Compare both sites once all of it has arrived; take out what lies only at the returned one."""
    calls: list[Call] = []
    for view in snapshot.views(move.target):
        name = quarantine_queue(view.site, "…")
        when = f"messages lie only at {view.site} for longer than anything explains"
        server, up_to = beans.server(view.broker), parity.ORIGINS_UP_TO
        created, moved = (request(server, operation, (name,)) for operation in (CREATE_QUEUE, MOVE))
        calls.append(call(view, Goal.WRITE, name, created, f"create {name}", when, len(view.business)))
        calls.append(call(view, Goal.MOVE, ALL, moved, f"move each of them to {name}", when, up_to))
    return StepPlan(move.source, "what was recovered, duplicated, or left over at one side", tuple(calls))


def act(tools: MirrorTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Name queues that stay different, and move their messages aside: messages under way explain a short difference."""
    first: dict[tuple[str, str], LeftOver] = {}

    def look() -> tuple[MirrorSnapshot, dict[tuple[str, str], parity.Difference]]:
        snapshot = tools.observer.observe()
        wrong = _unexplained(tools, snapshot, move)
        if wrong and not first:
            first.update(_left_over(tools, snapshot, wrong, move))
        return snapshot, wrong

    within_s, poll_s = tools.waits.left_over_s, tools.rules.drain.poll
    snapshot, wrong = until(context, look, holds=lambda now: not now[1], within_s=within_s, poll_s=poll_s).look
    left = _still(first, _left_over(tools, snapshot, wrong, move)) if wrong else []
    told_wrong = [each.told(move.source, move.target) for each in wrong.values()]
    findings: list[Finding] = []
    if told_wrong:
        findings.append(found("DR-RECONCILE-001", queues=some(told_wrong)))
    moved = taken_out(tools, left, context)
    if isinstance(moved, Refused):
        return moved
    if moved:
        findings.append(
            found("DR-RECONCILE-002.kept_aside", target=move.target, count=sum(moved.values()), queues=", ".join(moved))
        )
    text = f"{tools.rejoined.text}{tools.rejoined.duplicates(move.target)}"
    left_over: list[Json] = [*told_wrong]
    evidence: dict[str, Json] = {
        **document(tools.rejoined),
        "left_over": left_over,
        "left_over_ids": {
            each.queue: {
                move.target: [told(origin) for origin in sorted(each.only_there)],
                move.source: [told(origin) for origin in sorted(each.only_here)],
            }
            for each in left
        },
        "quarantined": dict(moved),
    }
    return Done(text, evidence, tuple(findings))


def _unexplained(tools: MirrorTools, snapshot: MirrorSnapshot, move: Move) -> dict[tuple[str, str], parity.Difference]:
    return {
        (pair, each.queue): each
        for pair in snapshot.sites[move.source]
        if (here := snapshot.view(move.source, pair)) and (there := snapshot.view(move.target, pair))
        for each in parity.unexplained(here, there, tools.observer.queues, snapshot.moved.get(pair, {}))
    }


def _left_over(
    tools: MirrorTools, snapshot: MirrorSnapshot, wrong: Iterable[tuple[str, str]], move: Move
) -> dict[tuple[str, str], LeftOver]:
    """Name the messages that lie at one side alone, of the queues that are shallow enough to look at each message."""
    found = {}
    for pair, name in wrong:
        views = [view for site in (move.source, move.target) if (view := snapshot.view(site, pair)) is not None]
        queues = [view.business.get(name) for view in views]
        # A message that a client holds, or that waits for its time, is not browsed: the message would seem to lie only
        # at the other side.
        held = any(queue is not None and (queue.delivering or queue.scheduled) for queue in queues)
        if len(views) == 2 and not held and all(q is None or q.depth <= parity.ORIGINS_UP_TO for q in queues):  # noqa: PLR2004
            here, there = (_messages(tools, view, name) for view in views)
            # A message whose origin is not shown may be any of the other site's: then none is known to lie alone.
            if not here.unnamed and not there.unnamed:
                only_there = {origin: number for origin, number in there.numbers.items() if origin not in here.ids}
                found[pair, name] = LeftOver(views[1], name, only_there, here.ids - there.ids)
    return found


def _messages(tools: MirrorTools, view: BrokerView, name: str) -> Browsed:
    reader = tools.observer.brokers[view.site][view.pair].reader()
    queue = view.business.get(name)  # an empty queue may have been removed by its broker
    return browsed(reader, view, [queue], limit=RESIDUE_UP_TO)[0] if queue is not None else Browsed({})


def _still(first: Mapping[tuple[str, str], LeftOver], now: Mapping[tuple[str, str], LeftOver]) -> list[LeftOver]:
    """Keep only messages that lie at one side alone since the beginning: clients of the other side go on meanwhile."""
    found = []
    for key, each in now.items():
        was = first.get(key)
        if was is not None:
            only_there = {origin: n for origin, n in each.only_there.items() if origin in was.only_there}
            found.append(LeftOver(each.view, each.queue, only_there, each.only_here & was.only_here))
    return found


def taken_out(tools: MirrorTools, left: Iterable[LeftOver], context: StepContext) -> dict[str, int] | Refused:
    """Move what lies only at that broker; how many went to each queue."""
    moved: dict[str, int] = {}
    for each in left:
        if not each.only_there:
            continue
        name = quarantine_queue(each.view.site, each.queue)
        outcomes = tools.change(take_out(each.view, each.queue, each.only_there), context)
        after = _messages(tools, tools.observer.brokers[each.view.site][each.view.pair].read(), each.queue)
        if stayed := [origin for origin in each.only_there if origin in after.ids]:
            refused = [outcome.text for outcome in outcomes if not isinstance(outcome, Done)]
            text = f"{len(stayed)} message(s) of {each.queue} could not be moved to {name}"
            done = len(each.only_there) - len(stayed) + sum(moved.values())
            text += f" ({done} were moved and stay there)"
            return Refused(f"{text}: {next(iter(refused), 'they are still there')}")
        moved[name] = moved.get(name, 0) + len(each.only_there)
    return moved


def take_out(view: BrokerView, queue: str, messages: Only) -> list[Call]:
    """Move messages of a queue to one of dr-ctl's own beside it."""
    name = quarantine_queue(view.site, queue)
    created = call(
        view,
        Goal.WRITE,
        name,
        request(beans.server(view.broker), CREATE_QUEUE, (json.dumps(internal_queue(name, "")), True)),
        f"create {name}",
    )
    bean = view.business[queue].bean
    return [
        created,
        *(
            call(
                view,
                Goal.MOVE,
                queue,
                request(bean, MOVE, (number, name)),
                f"move {told(origin)} from {queue} to {name}",
            )
            for origin, number in sorted(messages.items())
        ),
    ]
