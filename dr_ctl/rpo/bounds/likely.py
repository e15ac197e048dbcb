"""What a failover likely loses, beside the most that it may: by the likely cut of the last looks.

What was likely under way at the last look, and more by as much a second as that grew over the looks before it: a link
in step ships what comes in after the last look as well, one that stalls ships nothing of it. Of a mixed outflow that is
no more than likely lies in the queues. `None` = not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dr_ctl.rpo.bounds.looks import Looks
from dr_ctl.rpo.bounds.outflow import Outflow
from dr_ctl.rpo.bounds.pair import Pair, total
from dr_ctl.rpo.history.newest import US
from dr_ctl.rpo.series.columns import NA, Flags, Ints
from dr_ctl.rpo.series.flow import joined, parts
from dr_ctl.rpo.series.steps import Steps, scope_of

MINUTE_US: Final = 60 * US
LOOKS: Final = 4
"""Over so many looks it is seen whether what is under way grows."""
EVER: Final = 1 << 62


def likely(looks: Looks | None, pairs: Sequence[Pair], end_us: int) -> tuple[int | None, int | None]:
    """How many messages are likely lost, and how many likely come twice, if the site died then."""
    flows = () if looks is None else joined(parts(looks.flows, looks.found, 0, EVER))
    if looks is None or not flows or {flow.pair for flow in flows} != {pair.name for pair in pairs}:
        return None, None
    mixed = {looks.flows.keys[each.number]: each for pair in pairs for each in pair.outflows if each.is_mixed}
    lost, twice = [], []
    for flow in flows:
        if not flow.has_sends:
            continue
        steps = scope_of(flow, 0, int(flow.us[-1])).steps
        one, other = _ahead(steps, "loss", end_us), _ahead(steps, "duplicates", end_us)
        held = _in_queues(mixed[flow.pair, flow.name]) if (flow.pair, flow.name) in mixed else None
        lost.append(one if one is None or held is None else min(one, held))
        twice.append(other)
    return total(lost or [None]), total(twice or [None])


def _in_queues(outflow: Outflow) -> int | None:
    """What lies in the queues at the end: what lay there when they were read last, and as much of what was put in since
    as messages were more than acknowledgements in the minute before."""
    full_us = outflow.full_us
    if full_us is None or not outflow.put:
        return None
    minute = outflow.read[outflow.read >= full_us - MINUTE_US]
    sent, acked = (outflow.told(counter, int(minute[0])) for counter in ("added", "acked"))
    held = [each.depth_at(full_us) for each in outflow.queues.values()]
    if not sent + acked or None in held:
        return None
    took_us = outflow.looked.last_us - full_us
    put = outflow.put * (1 + max(0, outflow.end_us - outflow.looked.last_us) / took_us)
    return max(0, round(sum(each or 0 for each in held) + (sent - acked) / (sent + acked) * put))


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
