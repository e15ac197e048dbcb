"""The total: outflows added up over time. It is a series of its own, for quantiles do not add up."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final, Self

import numpy as np

from dr_ctl.rpo.core.columns import NA, SITE, Columns, Flags, Ints, begins_of, last_true
from dr_ctl.rpo.core.cut import AWAY_US, DOWN, NO_ROLE, STANDBY, Outflows, roles_of
from dr_ctl.rpo.core.steps import METRICS, Figures, Steps


@dataclass(frozen=True, slots=True)
class Silence:
    """Time in which the monitor looked at a site that served, and got no whole answer: its stretches, in order;
    `lacks`: none of that pair's outflows was looked at at all."""

    begin: Ints
    end: Ints
    lacks: Flags

    @classmethod
    def of(cls, rows: Columns, flows: Outflows) -> Self:
        """Between two rows of a site's role of which one came without any outflow of its pair. The role of a site that
        does not answer is the one that it had before."""
        of_site = rows.take(np.flatnonzero(rows.kind == SITE))
        order = np.lexsort((of_site.us, of_site.pair))
        pair, us, role = of_site.pair[order], of_site.us[order], roles_of(rows.words)[of_site.name[order]]
        new = begins_of(pair)
        known = last_true(role != NO_ROLE, new)
        role = np.where(known >= 0, role[known], NO_ROLE)
        answered, lacks = np.zeros(len(us), bool), np.zeros(len(us), bool)
        for code in np.unique(pair).tolist():
            mine = [n for n, key in enumerate(flows.keys) if code < 0 or key[0] == rows.words[code]]
            at, times = pair == code, flows.us[np.isin(flows.flow, mine)]
            answered[at] = np.isin(us[at], times)
            lacks[at] = code >= 0 and not len(times)
        silent = ~new[1:] & ~(answered[1:] & answered[:-1]) & (us[1:] - us[:-1] <= AWAY_US) & (us[1:] > us[:-1])
        at = np.flatnonzero(silent & (role[:-1] != STANDBY) & (role[:-1] != DOWN))
        at = at[np.argsort(us[at], kind="stable")]
        return cls(us[at], us[at + 1], lacks[at])

    def at(self, us: Ints) -> Flags:
        return self._within(us, np.ones(len(self.begin), bool))

    def lacks_a_pair(self, us: Ints) -> Flags:
        return self._within(us, self.lacks)

    def _within(self, us: Ints, which: Flags) -> Flags:
        """Whether moments lie in some of the stretches."""
        begin, end = np.sort(self.begin[which]), np.sort(self.end[which])
        found: Flags = np.searchsorted(begin, us, "right") > np.searchsorted(end, us, "right")
        return found


_NONE: Final = np.zeros(0, np.int64)
NOTHING: Final = Silence(_NONE, _NONE, _NONE > 0)
AT_ONCE: Final = 1_000_000
"""Cells of a table of outflows by time that are held at once."""


def fold(steps: Steps, acks_only: Flags, silence: Silence = NOTHING) -> Steps:
    """Sum step functions: figures not known of one are not known of the sum. An outflow counts from its first look on,
    and to the end of all; one whose site is on standby has nothing at stake. `acks_only` by outflow: its duplicates
    are counted with the queues that it serves."""
    marks = np.unique(np.concatenate([steps.begin, steps.end, silence.begin, silence.end]))
    begin, end = marks[:-1], marks[1:]
    zero, none = np.zeros(len(begin), np.int64), np.zeros(len(begin), bool)
    sums = [{each.name: zero for each in fields(Figures)} | {"urge_ms": zero - 1} for _ in range(3)]
    holds, idles, alive, late, floor, stalled = ~none, ~none, none, none, none, none
    for flows, rows, born, live in _alike(steps, begin):
        idle = live & steps.idle[rows]
        counts = live & ~idle
        for figures, told in zip((steps.bound, *steps.likely), sums, strict=True):
            for name in METRICS:
                values, tells = figures.of(name)[rows], ~acks_only[flows] if name == "duplicates" else np.True_
                known = counts & tells & (values != NA)
                unknown = (born & ~idle & tells & ~known).any(axis=0)
                how = np.maximum if name == "age_ms" else np.add
                more = how.reduce(np.where(known, values, 0), axis=0)
                told[name] = np.where(unknown | (told[name] == NA), NA, how(told[name], more))
            urge = np.where(counts, figures.urge_ms[rows], -1)
            at = rows[urge.argmax(axis=0), np.arange(len(begin))]
            longer = urge.max(axis=0) > told["urge_ms"]
            for name in ("drain", "drain_flow", "drain_acks", "urge_ms"):
                told[name] = np.where(longer, figures.of(name)[at], told[name])
        alive = alive | born
        holds = holds & (~born | idle | (live & steps.covered[rows])).all(axis=0)
        idles = idles & (~born | idle).all(axis=0)
        late = late | (counts & steps.late[rows] | born & ~live).any(axis=0)
        floor = floor | (counts & steps.is_floor[rows]).any(axis=0)
        stalled = stalled | (counts & steps.stalled[rows]).any(axis=0)
    silent = silence.at(begin)
    covered = holds & alive & ~idles & ~silence.lacks_a_pair(begin)
    idle = idles & alive & ~silent
    late = (late | silent) & ~covered & ~idle
    bound, first, last = (Figures(**told) for told in sums)
    return Steps(zero, begin, end, bound, (first, last), covered, idle, late, floor, stalled)


def _alike(steps: Steps, marks: Ints) -> Iterator[tuple[Ints, Ints, Flags, Flags]]:
    """Outflows that were looked at at the same moments, some at once: their numbers (a column), and at each mark the
    places of their steps, whether they had begun, and whether they were looked at."""
    numbers, starts = np.unique(steps.flow, return_index=True)
    stops = np.append(starts[1:], len(steps.flow))
    groups: dict[tuple[bytes, bytes], list[int]] = defaultdict(list)
    for place, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        groups[steps.begin[start:stop].tobytes(), steps.end[start:stop].tobytes()].append(place)
    for places in groups.values():
        own = slice(starts[places[0]], stops[places[0]])
        at = np.searchsorted(steps.begin[own], marks, "right") - 1
        born, at = at >= 0, np.maximum(at, 0)
        live = born & (steps.end[own][at] > marks)
        size = max(1, AT_ONCE // max(1, len(at)))
        for some in range(0, len(places), size):
            flows = np.array(places[some : some + size])
            yield numbers[flows, None], starts[flows, None] + at, born, live
