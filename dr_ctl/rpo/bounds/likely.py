"""The likely loss of a failover, beside its upper bound.

The figure is the likely backlog at the last look, plus its growth per second over the looks before: a link in step
ships later messages too, a stalled link ships none. The likely cut tells the backlog where the last look read the
queues too. Otherwise a mixed outflow is taken to hold messages and acknowledgements in the ratio of the minute before.
Messages that are not shipped and likely lie in the queues are lost; acknowledgements of shipped messages make them come
twice. `None` = not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dr_ctl.rpo.bounds.looks import Looks
from dr_ctl.rpo.bounds.outflow import Outflow
from dr_ctl.rpo.bounds.pair import Pair, total
from dr_ctl.rpo.history.newest import US
from dr_ctl.rpo.series.columns import NA, Ints
from dr_ctl.rpo.series.flow import joined, parts
from dr_ctl.rpo.series.steps import Steps, scope_of

MINUTE_US: Final = 60 * US
LOOKS: Final = 4
"""Over so many looks it is seen whether what is under way grows."""
EVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Likely:
    lost: int | None
    twice: int | None


def likely(looks: Looks | None, pairs: Sequence[Pair], end_us: int) -> Likely:
    """How many messages are likely lost, and how many likely come twice, if the site died then."""
    flows = () if looks is None else joined(parts(looks.flows, looks.envelope, 0, EVER))
    if looks is None or not flows or {flow.pair for flow in flows} != {pair.name for pair in pairs}:
        return Likely(None, None)
    outflows = {looks.flows.keys[each.number]: each for pair in pairs for each in pair.outflows if each.is_mixed}
    figures = [
        _alone(outflows.get((flow.pair, flow.name))) or _by_cut(scope_of(flow, 0, int(flow.us[-1])).steps, end_us)
        for flow in flows
        if flow.has_sends
    ]
    return Likely(total([each.lost for each in figures] or [None]), total([each.twice for each in figures] or [None]))


def _alone(outflow: Outflow | None) -> Likely | None:
    """The likely figures from looks at a mixed outflow alone. None where the last look read the queues too, or the
    looks do not suffice."""
    if outflow is None or outflow.full_us is None or not outflow.put:
        return None
    minute = outflow.read[outflow.read >= outflow.full_us - MINUTE_US]
    sent, acked = (outflow.counted(counter, int(minute[0])) for counter in ("added", "acked"))
    held = total([each.depth_at(outflow.full_us) for each in outflow.queues.values()])
    depth = _ahead(outflow.looked.us, outflow.looked.depth, outflow.end_us)
    if not sent + acked or held is None or depth is None:
        return None
    took_us = outflow.looked.last_us - outflow.full_us
    put = outflow.put * (1 + max(0, outflow.end_us - outflow.looked.last_us) / took_us)
    messages = depth * sent / (sent + acked)
    lost = max(0.0, min(messages, held + (sent - acked) / (sent + acked) * put))
    return Likely(round(lost), max(0, round(depth - 2 * messages + lost)))


def _by_cut(steps: Steps, end_us: int) -> Likely:
    lost, twice = (_ahead(steps.end, steps.likely[1][metric], end_us) for metric in ("loss", "duplicates"))
    return Likely(lost, twice)


def _ahead(us: Ints, figure: Ints, end_us: int) -> int | None:
    if not len(us) or figure[-1] == NA:
        return None
    known = np.flatnonzero(figure[-LOOKS:] != NA)
    at, values = us[-LOOKS:][known], figure[-LOOKS:][known]
    grown = np.diff(values)
    # Only what grows with every look goes on growing.
    rate = (values[-1] - values[0]) / (at[-1] - at[0]) if len(grown) > 1 and (grown > 0).all() else 0.0
    return int(values[-1] + round(rate * max(0, end_us - int(at[-1]))))
