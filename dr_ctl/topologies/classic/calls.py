"""The calls that several kinds of Classic broker have: messages removed, or moved, by their ids. Pure."""

from collections.abc import Collection, Iterator
from typing import Final

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.classic.broker import ClassicBroker
from dr_ctl.topologies.classic.operations import MOVE_MATCHING, REMOVE_MATCHING, by_ids
from dr_ctl.topologies.common.calls import call
from dr_ctl.topologies.common.consumed import Consumed
from dr_ctl.topologies.common.names import quarantine_queue
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.console.requests import request

BATCH: Final = 100  # ids in one call: 19 000 a second were removed so, and no message is looked at one by one


def removes(view: ClassicBroker, queue: Queue, gone: Consumed) -> Iterator[Call]:
    """Remove these messages of a queue, in batches; a message that is gone already is no error."""
    listed = sorted(gone.ids)
    for start in range(0, len(listed), BATCH):
        batch = listed[start : start + BATCH]
        asked = request(queue.bean, REMOVE_MATCHING, (by_ids(batch),))
        yield call(
            view, Goal.REMOVE, queue.name, asked, f"remove {len(batch)} message(s) of {queue.name}: {gone.by.text}"
        )


def aside(view: ClassicBroker, queue: Queue, ids: Collection[str]) -> Iterator[Call]:
    """Move these messages to a queue of dr-ctl's own, for a person to look at."""
    return moves(view, queue, ids, quarantine_queue(view.site, queue.name))


def moves(view: ClassicBroker, queue: Queue, ids: Collection[str], name: str) -> Iterator[Call]:
    """Move these messages to another queue of the broker, in batches."""
    listed = sorted(ids)
    for start in range(0, len(listed), BATCH):
        batch = listed[start : start + BATCH]
        asked = request(queue.bean, MOVE_MATCHING, (by_ids(batch), name))
        yield call(view, Goal.MOVE, queue.name, asked, f"move {len(batch)} message(s) of {queue.name} to {name}")
