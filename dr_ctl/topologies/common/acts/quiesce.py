"""What is done for `quiesce`: queues paused, and a wait until clients hold nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from dr_ctl.core.model import Finding, Severity, some
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common.calls import pause
from dr_ctl.topologies.common.drafts.quiesce import lifts, to_pause
from dr_ctl.topologies.common.queues import selected
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker

CALM: Final = 2  # looks in a row without deliveries: one can fall between two dispatches


def act(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    views = tools.observer.look_at(move.source)
    if not any(view.open for view in views):
        return NotNeeded(f"{move.source} is closed to clients already")
    planned = {(call.unit, call.thing): call for call in step.calls if call.when is None}
    calls = []
    for view in views:
        for queue in to_pause(tools.recipe.rules, view):
            new = pause(view, queue, "a queue was created since the look")
            meant = planned.get((view.pair, queue.name), new)
            calls.append(meant if meant.request == new.request else new)
    tools.change(calls, hand)
    until = hand.monotonic() + step.limits["within"]
    calm = 0
    while True:
        busy, unpaused = _dispatch(tools, views, move)
        held = sum(busy.values())
        hand.sample({"delivering": held})
        hand.waiting("messages that clients hold", held, "clients have not finished them" if held else None)
        calm = calm + 1 if held == 0 else 0
        if calm >= CALM:
            break
        if hand.monotonic() > until:
            return _not_quiet(tools, busy, move, step)
        hand.wait(tools.patience.poll_s)
    if unpaused:
        return Refused(f"could not pause {some(unpaused)}")
    return Done("clients hold nothing", {"paused": len(calls)})


def _dispatch(tools: Tools[Broker], views: Iterable[Broker], move: Move) -> tuple[dict[str, int], list[str]]:
    """What clients hold, by queue, and which queues dispatch still: of those that quiesce is for."""
    held: dict[str, int] = {}
    unpaused: list[str] = []
    for view in views:
        queues = tools.observer.brokers[move.source][view.pair].dispatch()
        mine = selected(view, tools.observer.queues)
        for name, (count, paused) in queues.items():
            if name in mine:
                held |= {name: held.get(name, 0) + count} if count else {}
                unpaused += [] if paused else [name]
    return held, unpaused


def _not_quiet(tools: Tools[Broker], busy: Mapping[str, int], move: Move, step: PlannedStep) -> Outcome:
    consumers = [each for view in tools.observer.look_at(move.source) for each in view.consumers if each.queue in busy]
    told = []
    for queue, count in busy.items():
        who = [each.told for each in consumers if each.queue == queue and each.holds != 0]
        told.append(f"{queue}: {count} held by {', '.join(who) or 'a client that is gone'}")
    total = sum(busy.values())
    if move.ask.cut_in_flight:
        text = f"{total} message(s) in delivery are cut and will come again: {some(told)}"
        finding = Finding("DR-QUIESCE-002", Severity.WARNING, text, "The clients must recognise what they have done.")
        return Done(text, {"come_again": total, "queues": dict(busy)}, (finding,))
    text = f"clients did not finish what they hold within {step.limits['within']:g} s: {some(told)}"
    finding = Finding(
        "DR-QUIESCE-001",
        Severity.ERROR,
        text,
        "Stop that client or let it finish, then run again; with --cut-in-flight they are cut and come again.",
    )
    return Refused(text, {"queues": dict(busy)}, (finding,))


def undo(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    del step
    calls = [call for view in tools.observer.look_at(move.source) for call in lifts(tools.recipe.rules, view, move)]
    if not calls:
        return NotNeeded("nothing is paused that was not before")
    tools.change(calls, hand)
    left = [call for view in tools.observer.look_at(move.source) for call in lifts(tools.recipe.rules, view, move)]
    return Refused(f"still paused: {some([call.about for call in left])}") if left else Done("pauses lifted")
