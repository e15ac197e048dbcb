"""How fast outflows were shipped, and how fast things were put into them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from dr_ctl.rpo.core.columns import NA, Floats, Ints
from dr_ctl.rpo.core.cut import Outflows, Side

LEVELS: Final = 63
ALIKE: Final = 3
"""How a backlog drains is told by those of an eighth of it and more."""


@dataclass(frozen=True, slots=True)
class Drained:
    """By the end of an interval: things shipped a second, how many, and how much waited at the start (its power of
    two)."""

    flow: Ints
    us: Ints
    rate: Floats
    more: Ints
    level: Ints

    @classmethod
    def of(cls, flows: Outflows, side: Side) -> Drained:
        """Intervals in which something waited at both ends and something was shipped."""
        on = flows.goes_on[1:] & flows.link[1:] & flows.link[:-1] & (side.depth[1:] > 0) & (side.depth[:-1] > 0)
        good = np.flatnonzero(on & (side.shipped[1:] > side.shipped[:-1]))
        more = side.shipped[good + 1] - side.shipped[good]
        level = np.floor(np.log2(side.depth[good])).astype(np.int64)
        rate = more * 1e6 / (flows.us[good + 1] - flows.us[good])
        return cls(flows.flow[good + 1], flows.us[good + 1], rate, more, level)

    def by_flow(self, flows: int) -> Floats:
        """The rates of each outflow."""
        found = np.full((flows, LEVELS), np.nan)
        edges = np.searchsorted(self.flow, np.arange(flows + 1))
        for flow in np.flatnonzero(np.diff(edges)).tolist():
            mine = slice(int(edges[flow]), int(edges[flow + 1]))
            found[flow] = rates(self.rate[mine], self.more[mine], self.level[mine])
        return found


def rates(rate: Floats, more: Ints, level: Ints) -> Floats:
    """Things shipped a second by how much waited at the start: at place k from intervals with at least 2^k; a tenth of
    what was shipped in them went slower. Not a number where none tells. In step it is the traffic that limits what is
    shipped, behind it is the link: backlogs are therefore compared with backlogs alike."""
    order = np.argsort(rate, kind="stable")
    rate, more, level = rate[order], more[order], level[order]
    found = np.full(LEVELS, np.nan)
    for least in range(int(level.max(initial=-1)) + 1):
        some = level >= least
        below = np.cumsum(more[some])
        found[least] = rate[some][np.searchsorted(below, 0.1 * below[-1])]
    return found


def drain_ms(most: Ints, of: Floats) -> Ints:
    """How long so much takes at the rates of its outflow (one row for all, or one each); NA where that is not known."""
    waited = np.maximum(most, 1)
    level = np.maximum(np.log2(waited).astype(np.int64) - ALIKE, 0)
    alike, any_ = (of[level], of[0]) if of.ndim == 1 else (of[np.arange(len(most)), level], of[:, 0])
    took = np.ceil(waited * 1000 / np.where(np.isnan(alike), any_, alike))
    known = (most != NA) & ~np.isnan(took)
    return np.where(most == 0, 0, np.where(known, np.where(known, took, 0), NA)).astype(np.int64)


def put_rates(flows: Outflows) -> tuple[Ints, Ints, Floats]:
    """At which rates things were put in, a second: the outflow, the end of the interval, the rate."""
    known = flows.sends.known
    good = np.flatnonzero(flows.goes_on[1:] & known[1:] & known[:-1])
    more = flows.sends.added[good + 1] - flows.sends.added[good]
    return flows.flow[good + 1], flows.us[good + 1], more * 1e6 / (flows.us[good + 1] - flows.us[good])
