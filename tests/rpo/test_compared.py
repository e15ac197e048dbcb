"""An outflow whose depth is told by comparing both sites, as of a queue that an agent keeps clean: two sites are never
read in one instant, and its depth may grow by more than its counter."""

from pathlib import Path

import numpy as np

from dr_ctl.rpo.core.columns import NA
from dr_ctl.rpo.core.now import Now
from dr_ctl.rpo.core.steps import METRICS
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from tests.rpo.fifo import at
from tests.rpo.files import course_of

BEYOND = (0, 2, 5, 1, 4, 4, 7, 3)
"""How many more copies than counters tell were seen at the other site, by look."""


def test_no_bound_is_below_what_is_likely(tmp_path: Path) -> None:
    rows = []
    for number, beyond in enumerate(BEYOND):
        told = {"site": "london", "ts": at(5 * number), "pair": "orders-1", "start": "1"}
        removed = 5600 + 3 * number
        rows += [
            Row(**told, kind="site", name="serving"),
            Row(**told, kind="queue", name="q", depth=10, added=removed + 10, removed=removed, acked=removed),
            Row(**told, kind="mirror", name="q", depth=0, added=removed + 10, removed=removed + 10, link=True),
            Row(**told, kind="acks", name="q", depth=removed + beyond, added=removed, removed=0, link=True),
        ]
    course = course_of(write(rows, tmp_path))

    steps, now = course.steps(0), Now.of(course, 0)

    for metric in METRICS:
        for bound, likely in (
            *((steps.bound.of(metric), each.of(metric)) for each in steps.likely),
            (now.bound.of(metric), now.likely.of(metric)),
        ):
            known = (bound != NA) & (likely != NA)
            assert known.any()
            assert (likely[known] <= bound[known]).all(), (metric, bound, likely)
    assert np.array_equal(now.likely.duplicates, now.bound.duplicates)
