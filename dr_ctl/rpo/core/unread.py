"""Queues that a look at all of them did not read: whether something may lie in them unseen."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from dr_ctl.rpo.core.columns import Flags, Floats, Ints
from dr_ctl.rpo.core.cut import AWAY_US, Outflows

UNEXPLAINED: Final = 0.01
"""Such a share of what went into an outflow may be told by no queue: noise between two counters."""


@dataclass(frozen=True, slots=True)
class Unread:
    """By scope and look (the end of an interval): how many queues lay there unread, for they were read before and
    after, or had something in them when they were read last (`lacking`); and how many were empty then, and may be gone
    (`lately`). `is_any`: the scope has a queue at that outflow at all."""

    lacking: Ints
    lately: Ints
    is_any: Flags

    @classmethod
    def none(cls, scopes: int, looks: int, outflows: int) -> Self:
        lacking, lately = (np.zeros((scopes, looks + 1), np.int64) for _ in range(2))
        return cls(lacking, lately, np.zeros((scopes, outflows), bool))

    def add(self, new: Flags, us: Ints, place: Ints, depth: Ints, counts: Flags, flows: Outflows) -> None:
        """Take the looks at queues, by queue and time."""
        flow = flows.flow[place]
        # Holes: read again after so long that no counter bridges it.
        hole = np.flatnonzero(~new & (us - np.concatenate([us[:1], us[:-1]]) > AWAY_US))
        last = np.flatnonzero(np.append(new[1:], True))
        full, stop = depth[last] > 0, flows.ends[flow[last]] + 1
        within = flows.after(flow[last], us[last] + AWAY_US)
        for scope, mine in enumerate(counts):
            some = hole[mine[hole]]
            _mark(self.lacking[scope], place[some - 1] + 1, place[some])
            some = mine[last]
            _mark(self.lacking[scope], place[last][some & full] + 1, stop[some & full])
            _mark(self.lately[scope], place[last][some & ~full] + 1, within[some & ~full])
            self.is_any[scope, flow[last[mine[last]]]] = True

    def flags(self, scope: int, flows: Outflows, read: Flags, put: Floats, told: Floats) -> Flags:
        """By look: whether some queue lay there unread, so that only the outflow bounds it. That is asked once per
        interval between looks that read queues (`read`); after the last of these nobody has looked. A queue that was
        empty and is read no more is gone where the others tell of all that goes into the outflow. `put`, `told`: by
        look, things that went in since the look before, and those that queues tell of."""
        looks = np.arange(len(flows.us))
        ends = flows.ends[flows.flow] if len(looks) else looks
        # The look that ends the interval between two whole looks.
        whole = np.flatnonzero(read)
        place = np.searchsorted(whole, looks)
        at = np.append(whole, -1)[place]
        is_ended = (at >= 0) & (at <= ends)
        at = np.where(is_ended, at, 0)
        lacking, lately = (np.cumsum(each[scope])[:-1] > 0 for each in (self.lacking, self.lately))
        open_ = ~is_ended & self.is_any[scope][flows.flow] if len(looks) else is_ended
        found: Flags = open_ | (is_ended & lacking[at])
        doubtful = is_ended & lately[at]
        if doubtful.any():
            run = np.cumsum(np.diff(np.concatenate([[0], doubtful.astype(np.int8)])) > 0)
            went, explained = (np.bincount(run, each * doubtful) for each in (put, told))
            found |= doubtful & (went - explained > UNEXPLAINED * went)[run]
        return found


def _mark(counts: Ints, begin: Ints, end: Ints) -> None:
    """Add one from each beginning to before each end."""
    good = end > begin
    np.add.at(counts, begin[good], 1)
    np.add.at(counts, end[good], -1)
