"""The total: outflows added up over time. It is a series of its own, for quantiles do not add up."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final, Self

import numpy as np

from dr_ctl.rpo.core.columns import NA, SITE, Columns, Flags, Ints, begins_of, last_true
from dr_ctl.rpo.core.cut import AWAY_US, DOWN, NO_ROLE, STANDBY, Outflows, roles_of
from dr_ctl.rpo.core.steps import Figures, Steps


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
        role = np.where(known >= 0, role[np.maximum(known, 0)], NO_ROLE) if len(role) else role
        looked: dict[int, Ints] = {}
        for code in np.unique(pair).tolist():
            mine = [n for n, key in enumerate(flows.keys) if code < 0 or key[0] == rows.words[code]]
            looked[code] = np.unique(flows.us[np.isin(flows.flow, mine)])
        answered = np.zeros(len(us), bool)
        lacks = np.zeros(len(us), bool)
        for code, times in looked.items():
            at = pair == code
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


AT_ONCE: Final = 1_000_000
"""Cells of a table of outflows by time that are held at once."""
_KNOWN: Final = ("loss", "age_ms", "duplicates", "waits")


def fold(steps: Steps, acks_only: Flags, silence: Silence) -> Steps:
    """Sum step functions: figures not known of one are not known of the sum. An outflow counts from its first look on,
    and to the end of all; one whose site is on standby has nothing at stake. `acks_only` by outflow: its duplicates
    are counted with the queues that it serves."""
    edges = [steps.begin, steps.end, silence.begin, silence.end]
    marks = np.unique(np.concatenate(edges))
    whole = _Sum(marks[:-1], marks[1:])
    for flows, begin, end, first in _alike(steps):
        at = np.searchsorted(begin, marks[:-1], "right") - 1
        born = at >= 0
        at = np.maximum(at, 0)
        live = born & (end[at] > marks[:-1])
        size = max(1, AT_ONCE // max(1, len(at)))
        for some in range(0, len(flows), size):
            rows = first[some : some + size, None] + at[None, :]
            whole.add(steps, rows, born, live, acks_only[flows[some : some + size], None])
    return whole.steps(silence)


def _alike(steps: Steps) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
    """Outflows that were looked at at the same moments: their numbers, these moments, and where the steps of each
    begin."""
    numbers, starts = np.unique(steps.flow, return_index=True)
    stops = np.append(starts[1:], len(steps.flow))
    groups: dict[tuple[bytes, bytes], list[int]] = defaultdict(list)
    for place, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        groups[steps.begin[start:stop].tobytes(), steps.end[start:stop].tobytes()].append(place)
    for places in groups.values():
        start, stop = int(starts[places[0]]), int(stops[places[0]])
        yield numbers[places], steps.begin[start:stop], steps.end[start:stop], starts[places]


class _Sum:
    def __init__(self, begin: Ints, end: Ints) -> None:
        self._begin, self._end = begin, end
        count = len(begin)
        self._figures = [{each.name: np.zeros(count, np.int64) for each in fields(Figures)} for _ in range(3)]
        self._unknown = [{name: np.zeros(count, bool) for name in _KNOWN} for _ in range(3)]
        self._holds, self._idle, self._alive = np.ones(count, bool), np.ones(count, bool), np.zeros(count, bool)
        self._floor, self._stalled, self._late = (np.zeros(count, bool) for _ in range(3))

    def add(self, steps: Steps, rows: Ints, born: Flags, live: Flags, acks_only: Flags) -> None:
        """Add outflows that were looked at at the same moments: `rows` are the places of their steps, by outflow and
        time."""
        idle = live & steps.idle[rows]
        counts = live & ~idle
        for place, figures in enumerate((steps.bound, *steps.likely)):
            for name in _KNOWN[:3]:
                values = figures.of(name)[rows]
                mine = counts & ~acks_only if name == "duplicates" else counts
                known = mine & (values != NA)
                unknown = born & ~idle & ~known & ~(acks_only if name == "duplicates" else False)
                self._unknown[place][name] |= unknown.any(axis=0)
                values = np.where(known, values, 0)
                told = self._figures[place]
                told[name] = (
                    np.maximum(told[name], values.max(axis=0)) if name == "age_ms" else told[name] + values.sum(axis=0)
                )
            self._longest(place, figures, rows, counts)
        self._alive |= born
        self._holds &= (~born | idle | (live & steps.covered[rows])).all(axis=0)
        self._idle &= (~born | idle).all(axis=0)
        self._late |= (counts & steps.late[rows] | born & ~live).any(axis=0)
        self._floor |= (counts & steps.is_floor[rows]).any(axis=0)
        self._stalled |= (counts & steps.stalled[rows]).any(axis=0)

    def _longest(self, place: int, figures: Figures, rows: Ints, counts: Flags) -> None:
        waits = figures.waits[rows]
        self._unknown[place]["waits"] |= (counts & (waits == NA)).any(axis=0)
        urge = np.where(counts & (waits != NA), figures.urge_ms[rows], -1)
        best = urge.argmax(axis=0)
        at = rows[best, np.arange(rows.shape[1])]
        told = self._figures[place]
        longer = urge.max(axis=0) > told["urge_ms"]
        for name in ("waits", "waits_flow", "waits_acks", "urge_ms"):
            told[name] = np.where(longer, getattr(figures, name)[at], told[name])

    def steps(self, silence: Silence) -> Steps:
        bound, *likely = (
            Figures(
                **{name: np.where(unknown[name], NA, each) if name in unknown else each for name, each in told.items()}
            )
            for told, unknown in zip(self._figures, self._unknown, strict=True)
        )
        silent = silence.at(self._begin)
        covered = self._holds & self._alive & ~self._idle & ~silence.lacks_a_pair(self._begin)
        idle = self._idle & self._alive & ~silent
        late = (self._late | silent) & ~covered & ~idle
        flow = np.zeros(len(self._begin), np.int64)
        return Steps(
            flow, self._begin, self._end, bound, (likely[0], likely[1]), covered, idle, late, self._floor, self._stalled
        )
