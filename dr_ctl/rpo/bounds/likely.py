"""What a failover likely loses, beside the most that it may: by the likely cut of the last looks.

What was likely under way at the last look, and more by as much a second as that grew over the looks before it: a link
in step ships what comes in after the last look as well, one that stalls ships nothing of it. `None` = not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dr_ctl.rpo.bounds.looks import Looks
from dr_ctl.rpo.bounds.pair import Pair, total
from dr_ctl.rpo.series.columns import NA, Flags, Ints
from dr_ctl.rpo.series.flow import joined, parts
from dr_ctl.rpo.series.steps import Steps, scope_of

LOOKS: Final = 4
"""Over so many looks it is seen whether what is under way grows."""
EVER: Final = 1 << 62


def likely(looks: Looks | None, pairs: Sequence[Pair], end_us: int) -> tuple[int | None, int | None]:
    """How many messages are likely lost, and how many likely come twice, if the site died then."""
    flows = () if looks is None else joined(parts(looks.flows, looks.found, 0, EVER))
    if not flows or {flow.pair for flow in flows} != {pair.name for pair in pairs}:
        return None, None
    steps = [scope_of(flow, 0, int(flow.us[-1])).steps for flow in flows if flow.has_sends]
    lost = [_ahead(each, "loss", end_us) for each in steps] or [None]
    twice = [_ahead(each, "duplicates", end_us) for each in steps] or [None]
    return total(lost), total(twice)


def _ahead(steps: Steps, metric: str, end_us: int) -> int | None:
    if not len(steps.end):
        return None
    found: Ints = steps.likely[1][metric][-LOOKS:]
    known: Flags = found != NA
    if not known[-1]:
        return None
    at, values = steps.end[-LOOKS:][known], found[known]
    grown = np.diff(values)
    # Only what grows with every look goes on growing.
    rate = (values[-1] - values[0]) / (at[-1] - at[0]) if len(grown) > 1 and (grown > 0).all() else 0.0
    return int(values[-1] + round(rate * max(0, end_us - int(at[-1]))))
