"""The act of `trim`: the lowest message number at the serving site shows which messages are done there. Once all ids
from before that look are applied at the waiting site, copies with lower numbers are removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, Json, some
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.jolokia.client import Ask, Listing, Read, Reader
from dr_ctl.jolokia.errors import BadValue
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.bridges import numbers
from dr_ctl.topologies.bridges.access import Access
from dr_ctl.topologies.bridges.barrier import IdBarrier
from dr_ctl.topologies.bridges.drafts.trim import remove
from dr_ctl.topologies.bridges.tools import BridgesTools
from dr_ctl.topologies.bridges.view import BrokerView
from dr_ctl.topologies.bridges.waiting import Direction, wait
from dr_ctl.topologies.common.view import Queue

LISTINGS: Final = 100  # of a queue that clients work on, until one is as long as the queue is deep
LOOK_S = 30.0  # a count by filter looks at each message


def act(tools: BridgesTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    if not step.calls:
        return NotNeeded(f"{move.source} waits with no copies while {move.target} serves")
    sites = tools.observer.brokers
    asked = {(call.unit, call.thing) for call in step.calls}
    ways = [(sites[move.target][pair], sites[move.source][pair]) for pair in sorted({pair for pair, _ in asked})]
    try:
        filters = {way[1].pair: _filters(*way, {name for pair, name in asked if pair == way[1].pair}) for way in ways}
    except BrokerError as error:
        return Refused(f"which copies are processed cannot be told: {error}", code=ExitCode.PRECHECK_FAILED)
    # A consumer sends a processed id before its message leaves the queue: the ids are under way by now.
    waiting = wait(tools, [Direction(*way, _none, IdBarrier()) for way in ways], hand)
    within_s = step.limits["within"]
    if (late := waiting.until(tools.patience.link_poll_s, within_s=within_s, stall_s=within_s)) is not None:
        return Refused(f"processed ids of {move.target} are not applied at {move.source}: {late.text}")
    try:
        # A number is given when a message is sent: a transaction committed meanwhile may hold a lower number.
        committed = [name for way in ways for name in _come_late(*way, filters[way[1].pair])]
    except BrokerError as error:
        return Refused(f"which copies are processed cannot be told: {error}", code=ExitCode.PRECHECK_FAILED)
    if committed:
        text = f"a message with a lower number was committed meanwhile to {some(committed)}; nothing was removed"
        return Refused(text, code=ExitCode.PRECHECK_FAILED)
    removed: dict[str, Json] = {}
    for way in ways:
        outcome = _removed(tools, way[1], filters[way[1].pair], removed, hand)
        if outcome is not None:
            return outcome
    total = sum(count for count in removed.values() if isinstance(count, int))
    return Done(f"{total} processed copies removed at {move.source}", {"removed": removed})


def _none(unit: str | None) -> bool:
    """Ids only: messages of queues that are served go on."""
    del unit
    return False


def _filters(serving: Access, waiting: Access, names: set[str]) -> dict[str, str]:
    """By queue, which of its copies are processed. Raises `BrokerError`."""
    here, there = serving.look(), waiting.look()
    found = {}
    for name in sorted(names):
        queue, copy = here.business.get(name), there.business.get(name)
        flow = here.flow(copy.address) if copy is not None else None
        origin = next((bridge.origin for bridge in flow.bridges if bridge.origin), None) if flow is not None else None
        if queue is None or copy is None or origin is None:
            raise BadValue(f"{name} is not at both sites, or its bridge does not say where it comes from")
        if there.units.get(copy.address) or not here.units.get(copy.address):
            raise BadValue(f"{name} is not served at {here.site} alone any more")
        if queue.depth > numbers.LOOKED_AT:
            raise BadValue(f"{name} holds {queue.depth} at {here.site}, more than can be looked at; try again later")
        _can_be_told(here, queue)
        # Of an empty queue all is done that had arrived here before it was looked at.
        newest = numbers.highest(waiting.reader(), copy, origin, timeout_s=LOOK_S)
        _stays(waiting.reader(), copy)
        oldest, again = _oldest(serving, queue, origin), serving.look()
        _can_be_told(again, again.business.get(name, queue))
        if oldest is not None or newest is not None:
            found[name] = numbers.below(origin, oldest if oldest is not None else (newest or 0) + 1)
    return found


def _come_late(serving: Access, waiting: Access, filters: Mapping[str, str]) -> Iterator[str]:
    """The queues of the serving site in which a message lies by now that its filter would take."""
    here, there = serving.look(), waiting.look()
    for name, chosen in filters.items():
        flow = here.flow(there.business[name].address)
        origin = next((bridge.origin for bridge in flow.bridges if bridge.origin), "") if flow is not None else ""
        oldest = _oldest(serving, here.business[name], origin)
        if oldest is not None and oldest < int(chosen.rpartition(" ")[2]):
            yield name


def _stays(reader: Reader, copy: Queue) -> None:
    """Raises `BadValue` for a copy that its broker deletes once it is empty: a later message would find no queue."""
    if Fields(copy.bean, reader.look([Read(copy.bean, ("AutoDelete",))])[0].value()).flag("AutoDelete"):
        raise BadValue(f"{copy.name} is deleted by its broker once it is empty; set auto-delete to false there first")


def _oldest(serving: Access, queue: Queue, origin: str) -> int | None:
    """The lowest number in a served queue, by a listing of as many messages as the queue holds. Raises `BadValue` where
    none is whole: a message of a transaction that has ended and is not prepared is in none."""
    for _ in range(LISTINGS):
        oldest, is_whole = numbers.lowest(serving.reader(), queue, origin, timeout_s=LOOK_S)
        if is_whole:
            return oldest
    raise BadValue(f"no listing of {queue.name} at {serving.site} has as many messages as it holds; try again later")


def _can_be_told(view: BrokerView, queue: Queue) -> None:
    """Raises `BadValue` where no listing may show some messages: messages that wait for their time, as after a failed
    delivery, and messages of a prepared transaction."""
    if queue.scheduled or view.prepared:
        what = (
            f"{queue.scheduled} message(s) of {queue.name} wait for their time" if queue.scheduled else "a transaction"
        )
        raise BadValue(f"{view.site}: {what}{'' if queue.scheduled else ' is prepared'}; try again later")


def _removed(
    tools: BridgesTools, waiting: Access, filters: dict[str, str], removed: dict[str, Json], hand: Hand
) -> Outcome | None:
    """Remove them, queue by queue, and count before and after; gives None where all are gone."""
    view = waiting.look()
    for name, chosen in filters.items():
        queue = view.business[name]
        before = _count(waiting.reader(), queue, chosen)
        if not before:
            continue
        tools.change([remove(view, queue, chosen)], hand)
        left = _count(waiting.reader(), queue, chosen)
        removed[name] = before - left
        if left:
            return Refused(f"{left} of {before} processed copies of {name} are still at {view.site}", removed)
    return None


def _count(reader: Reader, queue: Queue, chosen: str) -> int:
    count = reader.look([Ask(queue.bean, Listing.COUNT, (chosen,))], timeout_s=LOOK_S)[0].value()
    if isinstance(count, bool) or not isinstance(count, int):
        raise BadValue(f"{reader.url}: a count of messages is no number: {count}")
    return count
