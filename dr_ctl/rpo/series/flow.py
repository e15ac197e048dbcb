"""One outflow over the whole history, put together from its parts; its usual course by its looks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Final, Self

import numpy as np

from dr_ctl.rpo.series.columns import NA, Flags, Floats, Ints
from dr_ctl.rpo.series.cut import AWAY_US, Outflows, Side
from dr_ctl.rpo.series.envelope import Envelope, Presence, Sums

GAP_POLLS: Final = 5
"""An interval longer than this many usual ones is a gap: not covered time."""
AROUND: Final = 10
"""Usual is the median of so many intervals before, this one, and so many after."""
LEAST_GAP_US: Final = 10 * 1_000_000
"""However short intervals are: a look may be late by so much."""
LEVELS: Final = 63
ARRAYS: Final = ("us", "role", "link", "is_mixed", "goes_on", "oldest_us", "is_floor")


@dataclass(frozen=True, slots=True)
class Drained:
    """By the end of an interval: things shipped a second, how many, and how much waited at the start (its power of
    two)."""

    us: Ints
    rate: Floats
    more: Ints
    level: Ints

    def rates(self) -> Floats:
        """Things shipped a second by how much waited at the start: at place k from intervals with at least 2^k; a
        tenth of what was shipped in them went slower. Not a number where none tells. In step it is the traffic that
        limits what is shipped, behind it is the link: backlogs are therefore compared with backlogs alike."""
        order = np.argsort(self.rate, kind="stable")
        rate, more, level = self.rate[order], self.more[order], self.level[order]
        found = np.full(LEVELS, np.nan)
        for least in range(int(level.max(initial=-1)) + 1):
            below = np.cumsum(more[level >= least])
            found[least] = rate[level >= least][np.searchsorted(below, 0.1 * below[-1])]
        return found


@dataclass(frozen=True, slots=True)
class Flow:
    """The looks at one outflow and its queues added up; `last` is of its last look alone."""

    pair: str
    name: str
    us: Ints
    role: Ints
    link: Flags
    is_mixed: Flags
    goes_on: Flags
    oldest_us: Ints
    is_floor: Flags
    sends: Side
    acks: Side
    within: Sums
    likely: Sums
    last: Sums
    told: Floats
    presence: Presence

    @property
    def has_sends(self) -> bool:
        return bool(self.sends.known.any())

    @property
    def has_acks(self) -> bool:
        return bool(self.acks.known.any())

    @property
    def spacing_us(self) -> int | None:
        return int(_disc(np.diff(self.us), 0.5)) if len(self.us) > 1 else None

    @property
    def gap_us(self) -> Ints:
        """How long each interval between looks may be to count."""
        took = np.diff(self.us)
        if not len(took):
            return took
        usual: Floats = np.full(len(took), _disc(took, 0.5))
        if len(took) > AROUND and took.max() > GAP_POLLS * took.min():  # otherwise no interval can be a gap
            around = np.pad(took, AROUND, mode="reflect")
            usual = np.median(np.lib.stride_tricks.sliding_window_view(around, 2 * AROUND + 1), axis=1)
        found: Ints = np.maximum(GAP_POLLS * usual, LEAST_GAP_US).astype(np.int64)
        return found

    @property
    def last_gap_us(self) -> int:
        gaps = self.gap_us
        return int(gaps[-1]) if len(gaps) else 0

    def drained(self, side: Side) -> Drained:
        """Intervals in which something waited at both ends and something was shipped."""
        on = self.goes_on[1:] & self.link[1:] & self.link[:-1] & (side.depth[1:] > 0) & (side.depth[:-1] > 0)
        more = np.where(on, side.shipped[1:] - side.shipped[:-1], 0)
        good = np.flatnonzero(more > 0)
        level = np.floor(np.log2(side.depth[:-1][good])).astype(np.int64)
        return Drained(self.us[1:][good], more[good] * 1e6 / np.diff(self.us)[good], more[good], level)

    @property
    def put_rates(self) -> tuple[Ints, Floats]:
        """At which rates things were put in, a second, by the ends of the intervals."""
        on = self.goes_on[1:] & self.sends.known[1:] & self.sends.known[:-1]
        return self.us[1:][on], np.diff(self.sends.added)[on] * 1e6 / np.diff(self.us)[on]


def _disc(values: Ints | Floats, probability: float) -> float:
    """The least of the values up to which at least so many of them lie."""
    return float(np.sort(values)[max(0, int(np.ceil(probability * len(values))) - 1)])


def parts(flows: Outflows, found: Envelope, from_us: int, to_us: int) -> list[Flow]:
    """Cut each outflow to its looks of that time; intervals belong to the look that ends them."""
    cut = []
    for number, (pair, name) in enumerate(flows.keys):
        mine = np.flatnonzero((flows.flow == number) & (flows.us >= from_us) & (flows.us < to_us))
        if not len(mine):
            continue
        at = slice(int(mine[0]), int(mine[-1]) + 1)
        arrays = {each: getattr(flows, each)[at] for each in ARRAYS}
        sends, acks = (
            Side(*(getattr(side, each.name)[at] for each in fields(Side))) for side in (flows.sends, flows.acks)
        )
        sums = (found.within.take(at), found.likely.take(at), found.last.take([number]))
        cut.append(Flow(pair, name, **arrays, sends=sends, acks=acks, within=sums[0], likely=sums[1], last=sums[2],
                        told=found.told[at], presence=_present(found.presence, number, from_us, to_us)))  # fmt: skip
    return cut


def _present(found: Presence, flow: int, from_us: int, to_us: int) -> Presence:
    mine = np.flatnonzero((found.flow == flow) & (found.to_us >= from_us) & (found.from_us < to_us))
    return Presence(
        tuple(found.queue[place] for place in mine),
        found.flow[mine],
        found.mask[mine],
        np.maximum(found.from_us[mine], from_us),
        np.minimum(found.to_us[mine], to_us - 1),
    )


def joined(parts_: Iterable[Flow]) -> tuple[Flow, ...]:
    """Put the parts of each outflow together, given in order of time."""
    by_key: dict[tuple[str, str], list[Flow]] = defaultdict(list)
    for part in parts_:
        by_key[part.pair, part.name].append(part)
    return tuple(_whole(by_key[key]) for key in sorted(by_key))


def _whole(mine: Sequence[Flow]) -> Flow:
    arrays = {each: np.concatenate([getattr(part, each) for part in mine]) for each in (*ARRAYS, "told")}
    presence = [part.presence for part in mine]
    return Flow(
        mine[0].pair,
        mine[0].name,
        **arrays,
        sends=_side([part.sends for part in mine]),
        acks=_side([part.acks for part in mine]),
        within=Sums.joined([part.within for part in mine]),
        likely=Sums.joined([part.likely for part in mine]),
        last=mine[-1].last,
        presence=Presence(
            tuple(name for part in presence for name in part.queue),
            *(np.concatenate([getattr(part, each.name) for part in presence]) for each in fields(Presence)[1:]),
        ),
    )


def _side(parts_: Sequence[Side]) -> Side:
    return Side(*(np.concatenate([getattr(part, each.name) for part in parts_]) for each in fields(Side)))


@dataclass(frozen=True, slots=True)
class Absent:
    """Queues of one scope that were not read: by the interval (its end) how many of them were read before and after
    (`between`), and how many were not read any more (`since`); `is_any`: the scope has a queue here at all."""

    between: Ints
    since: Ints
    is_any: bool

    @classmethod
    def of(cls, flow: Flow, scope: int) -> Self:
        told = flow.presence
        mine = np.flatnonzero(told.mask >> scope & 1)
        between, since = (np.zeros(len(flow.us) + 1, np.int64) for _ in range(2))
        names, queue = (
            np.unique([told.queue[place] for place in mine], return_inverse=True) if len(mine) else ((), mine)
        )
        order = np.lexsort((told.from_us[mine], queue))
        queue, begin, end = queue[order], told.from_us[mine][order], told.to_us[mine][order]
        is_last = np.ones(len(order), bool)
        is_last[:-1] = queue[1:] != queue[:-1]
        hole = np.flatnonzero(~is_last[:-1] & (begin[1:] - end[:-1] > AWAY_US)) if len(order) else order
        np.add.at(between, np.searchsorted(flow.us, end[hole], "right"), 1)
        np.add.at(between, np.searchsorted(flow.us, begin[hole + 1], "right"), -1)
        # A queue that only the newest looks lack may not have been read; a queue that long was not read may be gone.
        gone = flow.us[-1] - end[is_last] > flow.last_gap_us
        np.add.at(since, np.searchsorted(flow.us, end[is_last][gone], "right"), 1)
        np.add.at(between, np.searchsorted(flow.us, end[is_last][~gone], "right"), 1)
        return cls(np.cumsum(between)[:-1], np.cumsum(since)[:-1], len(names) > 0)


def unread(flow: Flow, absent: Absent, put: Ints) -> Flags:
    """By interval (its end): whether some queue of the scope lay there unread, so that only the outflow bounds it.

    A queue that is read no more may be gone: gone, where the others tell of what goes into the outflow as well as
    before. `put`: things that went in, NA where that is not known.
    """
    lacking = absent.since > 0
    if not lacking.any():
        return absent.between > 0
    known = put != NA
    excess = np.where(known, np.maximum(0.0, put - flow.told), 0.0)
    found = absent.between > 0
    usual = _share(excess, put, known & ~lacking)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], lacking.astype(np.int8), [0]])))
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        run = np.zeros(len(lacking), bool)
        run[begin:end] = True
        share = _share(excess, put, known & run)
        if share is None or share > (usual or 0.0) + UNEXPLAINED:
            found |= run
    return found


UNEXPLAINED: Final = 0.01


def _share(excess: Floats, put: Ints, where: Flags) -> float | None:
    whole = int(put[where].sum())
    return None if not whole else float(excess[where].sum()) / whole
