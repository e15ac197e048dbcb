"""The looks at each thing of a site, as columns in order of time."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dr_ctl.rpo.bounds.pace import Pace
from dr_ctl.rpo.history.newest import US
from dr_ctl.rpo.series.columns import KINDS, NA, Columns, Ints, firsts

Counter = Literal["added", "acked"]


@dataclass(frozen=True, slots=True)
class Thing:
    """An outflow or queue. `era` numbers the periods without a restart; a restart resets the counters."""

    us: Ints
    depth: Ints
    added: Ints
    acked: Ints
    era: Ints

    @property
    def last_us(self) -> int:
        return int(self.us[-1])

    def depth_at(self, us: int) -> int | None:
        at = self._at(us)
        return None if at is None else int(self.depth[at])

    def grown(self, counter: Counter, from_us: int, to_us: int) -> int | None:
        """The growth from one look to another. None without such a look, or with a restart between."""
        begin, end = self._at(from_us), self._at(to_us)
        if begin is None or end is None or self.era[begin] != self.era[end]:
            return None
        counts: Ints = getattr(self, counter)
        return int(counts[end] - counts[begin])

    def pace(self, counter: Counter, over_us: int = US) -> Pace | None:
        return Pace.of(self.us, getattr(self, counter), self.era, over_us)

    def _at(self, us: int) -> int | None:
        at = int(np.searchsorted(self.us, us))
        return at if at < len(self.us) and self.us[at] == us else None


def things(rows: Columns) -> Mapping[tuple[str, str, str], Thing]:
    """By pair, kind and name."""
    rows = rows.take(np.flatnonzero((rows.pair >= 0) & (rows.depth != NA)))
    order, new = firsts(rows.pair, rows.kind, rows.name, rows.us)
    rows = rows.take(order[new])
    begins = np.ones(len(rows.us), bool)
    begins[1:] = (np.diff(rows.pair) != 0) | (np.diff(rows.kind) != 0) | (np.diff(rows.name) != 0)
    edges = [*np.flatnonzero(begins).tolist(), len(rows.us)]
    by_key = {}
    for begin, end in itertools.pairwise(edges):
        pair, name = rows.words[rows.pair[begin]], rows.words[rows.name[begin]]
        by_key[pair, KINDS[rows.kind[begin]], name] = _thing(rows.take(np.arange(begin, end)))
    return by_key


def _thing(rows: Columns) -> Thing:
    acked = np.where(rows.acked == NA, rows.removed, rows.acked)
    anew = np.zeros(len(rows.us), bool)
    for counter in (rows.added, acked):
        anew[1:] |= counter[1:] < counter[:-1]
    anew[1:] |= rows.start[1:] != rows.start[:-1]
    return Thing(rows.us, rows.depth, rows.added, acked, np.cumsum(anew))
