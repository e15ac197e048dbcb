"""Whether bounds hold: they are made from every other look, and held against the looks that were left out."""

from typing import Final

import numpy as np

from dr_ctl.rpo.core.columns import NA, Columns
from dr_ctl.rpo.core.cut import Outflows
from dr_ctl.rpo.core.fold import fold
from dr_ctl.rpo.core.queues import Queues
from dr_ctl.rpo.core.rows import MILLI, Gathered
from dr_ctl.rpo.core.silence import Silence
from dr_ctl.rpo.core.steps import Course, Steps
from dr_ctl.rpo.core.summary import Window

SUMS: Final = ("covered", "was", "excess", "bias", "error")
"""What is told of the moments that were left out, in thousandths: at how many the bound was not below what was likely
there; what that was, and how far the bound lay above it; how far what was likely by the looks around them lay off, with
its sign and without."""


def half(rows: Columns, flows: Outflows, queues: Queues) -> Columns:
    """Leave out the looks of every second stretch between looks at queues."""
    read = queues.likely.queues[0] > 0
    gaps = np.diff(flows.us[read])[np.diff(flows.flow[read]) == 0]
    grid_us = max(1, int(np.median(gaps))) if len(gaps) else 1
    return rows.take(np.flatnonzero(rows.us // grid_us % 2 == 0))


def check(gathered: Gathered, whole: Steps, said: Steps, window: Window) -> None:
    """Compare what all looks say with what is said without those that were left out."""
    if not len(said.begin):
        return
    at = np.maximum(np.searchsorted(said.begin, whole.begin, "right") - 1, 0)
    inside = (said.begin[at] < whole.begin) & (whole.begin < said.end[at]) & said.covered[at]
    inside &= (whole.begin >= window.from_us) & (whole.begin < window.to_us)
    bound, was = said.bound.loss[at], whole.likely[0].loss
    before, after = (end.loss[at] for end in said.likely)
    is_known = np.logical_and.reduce([each != NA for each in (bound, was, before, after)])
    tested = np.flatnonzero(inside & whole.covered & is_known)
    past = (whole.begin - said.begin[at]) / np.maximum(1, said.end[at] - said.begin[at])
    off = before + past * (after - before) - was
    told = (bound >= was, was, bound - was, off, np.abs(off))
    for metric, each in zip(SUMS, told, strict=True):
        gathered.one("check", metric=metric, weight=round(float(each[tested].sum()) * MILLI), count=len(tested))


def total(rows: Columns, course: Course) -> Steps:
    return fold(course.steps(0), ~course.has_sends, Silence.of(rows, course.flows))
