"""What would shorten a loss, by what the history shows: where most of it lay, when, and what limited its way across.

A sentence stands only where the rows show its reason; where they show none there is no advice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from dr_ctl.core.clock import stamp
from dr_ctl.rpo.core.calendar import SECOND, Calendar
from dr_ctl.rpo.core.rows import MILLI, Rows
from dr_ctl.rpo.estimate.result import QueueShare
from dr_ctl.rpo.estimate.scope import Scope, pair_of
from dr_ctl.rpo.history.row import moment
from dr_ctl.settings.durations import duration

if TYPE_CHECKING:
    from dr_ctl.rpo.estimate.result import Figures, Objectives

TOP: Final = 5
"""So many queues are named."""
MOST: Final = 0.5
"""A queue with this share of what was likely lost is where most comes from."""
WIDE: Final = 3
"""A bound so many times what is likely is wide because looks are far apart."""
NEAR_US: Final = SECOND


def shares(rows: Rows) -> tuple[QueueShare, ...]:
    """The queues in which most was likely to be lost, by how much for how long."""
    weights: dict[tuple[str, str], tuple[int, int]] = {}
    for flow in rows.flows:
        told = rows.part("share", flow)
        for name, weight, most in zip(told.words(rows), told.weight.tolist(), told.most.tolist(), strict=True):
            before = weights.get((pair_of(flow), name), (0, 0))
            weights[pair_of(flow), name] = before[0] + weight, max(before[1], most)
    whole = sum(weight for weight, _ in weights.values())
    order = sorted((key for key in weights if key[1]), key=lambda key: (-weights[key][0], key))
    return tuple(
        QueueShare(pair, name, round(weights[pair, name][0] / whole, 4), weights[pair, name][1])
        for pair, name in order[:TOP]
    )


def advice(
    total: Scope, figures: Figures, queues: Sequence[QueueShare], calendar: Calendar, objectives: Objectives | None
) -> tuple[str, ...]:
    """In the order in which to look."""
    if not queues and not _is_wide(figures):
        return ()
    limit = objectives.loss.messages if objectives is not None else None
    found = [*_when(total, calendar, limit), *_link(total), *_queue(queues), *_looks(total, figures)]
    return tuple(found)


def _when(total: Scope, calendar: Calendar, limit: int | None) -> Iterator[str]:
    """When it was above the limit, by what was likely; without one, when it was most."""
    told = total.part("curve", "loss", likely=True)
    order = np.argsort(told.cell, kind="stable")
    cells, most = told.cell[order], told.most[order]
    if not len(cells) or most.max() <= 0:
        return
    if limit is None or most.max() <= limit:
        at = int(np.argmax(most))
        yield f"Most was likely lost by a death at about {stamp(moment(int(cells[at])))}: {int(most[at])} message(s)."
        return
    above = np.flatnonzero(most > limit)
    lengths = np.array([calendar.fineness(us).curve_us for us in cells[above].tolist()])
    new = np.append(True, cells[above][1:] > cells[above][:-1] + lengths[:-1])
    begins = np.flatnonzero(new)
    took = np.add.reduceat(lengths, begins)
    longest = int(np.argmax(took))
    times = "once" if len(begins) == 1 else f"{len(begins)} times"
    yield (
        f"More than {limit} were likely lost by a death {times} in the history, the longest for about "
        f"{duration(float(took[longest]) / SECOND)} from {stamp(moment(int(cells[above][begins[longest]])))} on: look "
        "what the link and the consumers did then."
    )


def _link(total: Scope) -> Iterator[str]:
    """Links that carried less than came while something waited."""
    for flow in total.flows:
        drained, put = total.rows.part("drained", flow), total.rows.part("put", flow)
        rates = total.rates(flow, acks=False)
        if not len(drained.count) or not len(put.count) or np.isnan(rates[0]):
            continue
        came = int(put.most.max()) / MILLI
        if rates[0] < came:
            yield (
                f"While something waited, the outflow of pair {pair_of(flow)} shipped at {rates[0]:.0f} a second and "
                f"less for a tenth of it, where up to {came:.0f} a second came: a quicker link shortens it."
            )


def _queue(queues: Sequence[QueueShare]) -> Iterator[str]:
    if queues and queues[0].share >= MOST:
        first = queues[0]
        yield (
            f"{first.share:.0%} of what was likely lost lay in {first.name} of pair {first.pair}, at most {first.most} "
            "at a look: consumers that keep up there shorten it, for what is consumed is not lost."
        )


def _is_wide(figures: Figures) -> bool:
    bound, likely = figures.loss.p99, figures.loss.likely.p99
    return bound is not None and likely is not None and bound > WIDE * max(likely, 1)


def _looks(total: Scope, figures: Figures) -> Iterator[str]:
    """What narrows the bound and not the loss."""
    apart_us = max((int(total.rows.part("spacing", flow).most.max(initial=0)) for flow in total.flows), default=0)
    if _is_wide(figures) and apart_us >= NEAR_US:
        yield (
            f"The bound is far above what is likely because looks are {duration(apart_us / SECOND)} apart: a shorter "
            "`history.every` narrows what is said, and loses nothing less."
        )
