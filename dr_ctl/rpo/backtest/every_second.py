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
    """At how many left-out moments the bound was not below what was likely there, and how far it lay above; and how far
    what was likely by the looks around them lay off."""
    whole, said = work.total.steps, half.total.steps
    if not len(said.begin):
        return BoundRow(0, 0, None, None)
    at = np.maximum(np.searchsorted(said.begin, whole.begin, "right") - 1, 0)
    inside = (said.begin[at] < whole.begin) & (whole.begin < said.end[at]) & said.covered[at]
    bound, was = said.bound["loss"][at], whole.likely[0]["loss"]
    before, after = (end["loss"][at] for end in said.likely)
    is_known = np.logical_and.reduce([each != NA for each in (bound, was, before, after)])
    tested = np.flatnonzero(inside & whole.covered & is_known)
    if not len(tested):
        return BoundRow(0, 0, None, None)
    past = (whole.begin - said.begin[at]) / np.maximum(1, said.end[at] - said.begin[at])
    above = (bound - was)[tested]
    off = (before + past * (after - before) - was)[tested]
    mean, excess, bias, error = (float(each.mean()) for each in (was[tested], above, off, np.abs(off)))
    return BoundRow(len(tested), int((above >= 0).sum()), mean, excess, bias, error)
