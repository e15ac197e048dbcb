"""What a failover likely loses, beside the most that it may: by the likely cut of the last looks.

What was likely under way at the last look, and more by as much a second as that grew over the looks before it: a link
in step ships what comes in after the last look as well, one that stalls ships nothing of it. `None` = not known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from dr_ctl.rpo.history.newest import Recent
from dr_ctl.rpo.series.columns import NA, Columns, Flags, Ints
from dr_ctl.rpo.series.cut import Outflows
from dr_ctl.rpo.series.envelope import envelope
from dr_ctl.rpo.series.flow import Flow, joined, parts
from dr_ctl.rpo.series.steps import Steps, scope_of

LOOKS: Final = 4
"""Over so many looks it is seen whether what is under way grows."""
EVER: Final = 1 << 62


def likely(seen: Recent, death_us: int, pairs: Collection[str]) -> tuple[int | None, int | None]:
    """How many messages are likely lost, and how many likely come twice, if the site died then."""
    flows = _flows(seen)
    if not flows or {flow.pair for flow in flows} != set(pairs):
        return None, None
    steps = [(flow, scope_of(flow, 0, int(flow.us[-1])).steps) for flow in flows]
    lost = _sum(_ahead(each, "loss", death_us) for flow, each in steps if flow.has_sends)
    twice = _sum(_ahead(each, "duplicates", death_us) for flow, each in steps if flow.has_sends)
    return lost, twice


def _flows(seen: Recent) -> Sequence[Flow]:
    if not seen.tables:
        return ()
    rows = Columns.of(pa.concat_tables(seen.tables))
    flows = Outflows.of(rows)
    return joined(parts(flows, envelope(rows, flows, lambda _: 1, 1), 0, EVER))


def _ahead(steps: Steps, metric: str, death_us: int) -> int | None:
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
    return int(values[-1] + round(rate * max(0, death_us - int(at[-1]))))


def _sum(told: Iterable[int | None]) -> int | None:
    figures = list(told)
    known = [each for each in figures if each is not None]
    return sum(known) if known and len(known) == len(figures) else None
