"""Plans `trim`: copies of processed messages removed where they wait for nothing. Pure."""

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.bridges.messages import NUMBER
from dr_ctl.topologies.bridges.view import ORIGIN, BrokerView
from dr_ctl.topologies.common.calls import call
from dr_ctl.topologies.common.consumed import Consumed
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.console.requests import request

REMOVE: Final = "removeMessages(java.lang.String)"
PROCESSED: Final = "the id stores of both sites hold its id"
BATCH: Final = 100  # messages of one call: a broker looks at the whole queue for each call
CALLS: Final = 50


def draft(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    del rules, step
    calls: list[Call] = []
    for view in seen.views(move.source):
        peer = seen.view(move.target, view.pair)
        for unit in view.among(move.ask.includes):
            if peer is None or view.units[unit] or not peer.units.get(unit):
                continue
            calls += [_may_remove(view, queue) for queue in view.queues_of(unit) if queue.depth]
    about = f"copies at {move.source} that both sites have processed are removed, by the ids in both id stores"
    return Draft(move.source, about, tuple(calls))


def removes(view: BrokerView, queue: Queue, consumed: Consumed) -> Iterator[Call]:
    """Remove these copies, named by origin and number, in batches."""
    names = sorted((each.rpartition(":")[0], int(each.rpartition(":")[2])) for each in consumed.ids)
    for origin, group in groupby(names, key=lambda each: each[0]):
        numbers = [number for _, number in group]
        for start in range(0, len(numbers), BATCH):
            some = numbers[start : start + BATCH]
            # Selectors know lists of texts alone.
            chosen = " OR ".join(f"{ORIGIN} = {_quoted(origin)} AND {NUMBER} = {each}" for each in some)
            text = f"remove {len(some)} processed copies of {queue.name}"
            yield call(view, Goal.REMOVE, queue.name, request(queue.bean, REMOVE, (chosen,)), text)


def _may_remove(view: BrokerView, queue: Queue) -> Call:
    """Plan it, before anything was compared."""
    text = f"remove processed copies of {queue.name}, {queue.depth} at the most,"
    return call(view, Goal.REMOVE, queue.name, request(queue.bean, REMOVE, ("…",)), text, PROCESSED, CALLS)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
