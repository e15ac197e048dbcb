"""Bounds made from every second look, against what the looks in between say."""

from __future__ import annotations

import numpy as np

from dr_ctl.rpo.backtest.calibration import BoundRow
from dr_ctl.rpo.estimate.work import Work
from dr_ctl.rpo.series.columns import NA


def grid_us(work: Work) -> int:
    """How far apart the looks at queues are, as a rule: looks of every second such stretch are left out."""
    gaps = [np.diff(flow.us[flow.likely.queues[0] > 0]) for flow in work.flows]
    usual = [int(np.median(each)) for each in gaps if len(each)]
    return max([*usual, 1])


def against_left_out(work: Work, half: Work) -> BoundRow:
    """At how many left-out moments the bound was not below what was likely there, and how far it lay above."""
    whole, said = work.total.steps, half.total.steps
    if not len(said.begin):
        return BoundRow(0, 0, None, None)
    at = np.maximum(np.searchsorted(said.begin, whole.begin, "right") - 1, 0)
    inside = (said.begin[at] < whole.begin) & (whole.begin < said.end[at]) & said.covered[at]
    bound, was = said.bound["loss"][at], whole.likely[0]["loss"]
    tested = np.flatnonzero(inside & whole.covered & (bound != NA) & (was != NA))
    if not len(tested):
        return BoundRow(0, 0, None, None)
    above = bound[tested] - was[tested]
    return BoundRow(len(tested), int((above >= 0).sum()), float(was[tested].mean()), float(above.mean()))
