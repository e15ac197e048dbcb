"""The calls that only a fan-out pair has: messages removed and copied by the ids that producers gave them. Pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from dr_ctl.core.model import Json
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.classic.operations import REMOVE_MATCHING, by_ids
from dr_ctl.topologies.common.calls import call
from dr_ctl.topologies.common.consumed import Consumed
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.console.requests import request
from dr_ctl.topologies.fanout.view import BrokerView

COPY: Final = "copy"  # the queue
IDS: Final = "ids"
BATCH: Final = 100  # ids in one call
MOST: Final = 100_000
CONSUMED: Final = "they were consumed at the other site"
LACKING: Final = "they lie at the other site only"


def batches(ids: Collection[str]) -> Iterator[Sequence[str]]:
    listed = sorted(ids)
    return (listed[start : start + BATCH] for start in range(0, len(listed), BATCH))


def removes(view: BrokerView, queue: Queue, gone: Consumed) -> Iterator[Call]:
    """Remove these messages of a queue; a message that is gone already is no error."""
    for batch in batches(gone.ids):
        asked = request(queue.bean, REMOVE_MATCHING, (by_ids(batch, view.own.id_header),))
        yield call(view, Goal.REMOVE, queue.name, asked, f"remove {len(batch)} message(s) of {queue.name}")


def copies(view: BrokerView, queue: str, ids: Collection[str]) -> Iterator[Call]:
    """Put these messages down there, as they lie at the other site."""
    for batch in batches(ids):
        asked: dict[str, Json] = {COPY: queue, IDS: [*batch]}
        yield call(view, Goal.COPY, queue, asked, f"copy {len(batch)} message(s) of {queue}")


def may_remove(views: Iterable[BrokerView]) -> list[Call]:
    """Plan a removal; the run finds out which messages."""
    return [
        call(
            view,
            Goal.REMOVE,
            name,
            request(queue.bean, REMOVE_MATCHING, (f"{view.own.id_header} IN (…)",)),
            f"remove them from {name} by their ids",
            CONSUMED,
            MOST,
        )
        for view in views
        for name, queue in view.business.items()
        if queue.dead_letter_address is None
    ]


def may_copy(views: Iterable[BrokerView]) -> list[Call]:
    return [
        call(view, Goal.COPY, name, {COPY: name, IDS: ["…"]}, f"copy them to {name} by their ids", LACKING, MOST)
        for view in views
        for name, queue in view.business.items()
        if queue.dead_letter_address is None
    ]
