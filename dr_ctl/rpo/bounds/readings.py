"""The readings of one pair in the last minutes as arrays, and the most messages that came in a window of time: those of
the busiest window of that length. A burst counts completely, and gaps are filled first (docs/rpo-method.md, "What came
since" and "A gap is no burst"). `NA`: not read. A reading has two moments: of the request (`asked`) and of the reply
(`us`). Its counts are of a moment between the two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.core.model import by_key
from dr_ctl.rpo.core.arrays import NA, SECOND_US, Flags, Ints, begins_of, parts
from dr_ctl.rpo.core.cut import COMPARED_US, side_of
from dr_ctl.rpo.history.newest import OUTFLOWS, Recent, gaps, longest_us, usual_us

LONGEST_US: Final = 60 * SECOND_US
"""A longer window is made of several, because the last minutes have few windows of its length."""


@dataclass(frozen=True)
class Windows:
    """The moments of readings, and windows of time that have a reading before and after them."""

    us: Ints
    asked: Ints
    start_id: Ints

    def split(self, us: int) -> Sequence[tuple[int, int]] | None:
        """Split a time into windows: pairs of number and length. The result is None if no window has readings around
        it, or the time is negative."""
        if us < 0 or (us and self.longest_us <= 0):
            return None
        number, rest_us = divmod(us, self.longest_us) if us else (0, 0)
        return [(count, length) for count, length in ((number, self.longest_us), (1, rest_us)) if count and length]

    @cached_property
    def longest_us(self) -> int:
        """The longest window that has a reading before and after it."""
        eras = [era for _, era in parts(self.start_id) if era.stop - era.start > 2]  # noqa: PLR2004
        return min(LONGEST_US, max((int(self._asked[era][-1] - self.us[era][1]) for era in eras), default=0))

    def enclosing_readings(self, us: int) -> tuple[Ints, Ints]:
        """Return the indices of the readings before and after each window of this length. A window that begins between
        two readings ends before the first reading that was requested that length after the second one."""
        end = np.searchsorted(self._asked, self.us[1:] + us)
        begin = np.flatnonzero(end < len(self.us))
        begin = begin[self.start_id[begin] == self.start_id[end[begin]]]
        return begin, end[begin]

    @cached_property
    def _asked(self) -> Ints:
        """The earliest request of each reading and all later ones, because readings of two monitors overlap."""
        return np.minimum.accumulate(self.asked[::-1])[::-1]


@dataclass(frozen=True)
class Grids(Windows):
    """Counters by name. A column is a reading. A row is an outflow (`flows`) or a queue (`queues`, only at readings
    that read queues: `full` has their indices). Counters are compared within one start of the broker."""

    full: Ints
    flows: Mapping[str, Ints]
    queues: Mapping[str, Ints]

    @cached_property
    def put(self) -> Counters:
        return Counters.of(self.flows["added"], self.start_id)

    @cached_property
    def counted(self) -> Mapping[str, Counters]:
        return {name: Counters.of(grid, self.start_id[self.full]) for name, grid in self.queues.items()}

    def at(self, indices: Ints) -> Grids:
        is_kept = np.isin(self.full, indices)
        return Grids(
            self.us[indices],
            self.asked[indices],
            self.start_id[indices],
            np.searchsorted(indices, self.full[is_kept]),
            {name: grid[:, indices] for name, grid in self.flows.items()},
            {name: grid[:, is_kept] for name, grid in self.queues.items()},
        )


@dataclass(frozen=True)
class Counters:
    """Counters (rows) by reading. The true count is at least `low` and at most `high`; the two differ where it was not
    read."""

    low: Ints
    high: Ints

    @classmethod
    def of(cls, counters: Ints, start_id: Ints) -> Counters:
        """Make counters from readings. A counter that first appears within an era counts from zero."""
        before = _unwrapped(_carried(counters, start_id), start_id)
        known = np.where(counters == NA, NA, before)
        after = _carried(known[:, ::-1], start_id[::-1])[:, ::-1]
        low = np.where(before == NA, 0, before)
        return cls(low, np.where(after == NA, low, after))

    def sum_of(self, rows: Sequence[int]) -> Counters:
        return Counters(self.low[rows].sum(0, keepdims=True), self.high[rows].sum(0, keepdims=True))

    def grouped(self, group: Ints, count: int) -> Counters:
        """Sum the counters of each group; a row of group -1 is in no group."""
        rows, sums = np.flatnonzero(group >= 0), np.zeros((2, count, self.low.shape[1]), np.int64)
        for total, counters in zip(sums, (self.low, self.high), strict=True):
            np.add.at(total, group[rows], counters[rows])
        return Counters(*sums)

    def most(self, begin: Ints | int, end: Ints | int) -> Ints:
        return self.high[:, end] - self.low[:, begin]

    def least(self, begin: Ints | int, end: Ints | int) -> Ints:
        return np.maximum(0, self.low[:, end] - self.high[:, begin])


def _carried(counters: Ints, start_id: Ints) -> Ints:
    """Repeat the last value of the same era where nothing was read."""
    indices = np.maximum.accumulate(np.where(counters == NA, -1, np.arange(counters.shape[1])), axis=1)
    values = np.take_along_axis(counters, np.maximum(indices, 0), axis=1)
    return np.where((indices >= 0) & (start_id[np.maximum(indices, 0)] == start_id), values, NA)


def _unwrapped(counters: Ints, start_id: Ints) -> Ints:
    """Continue a counter that restarts at zero within an era, because its queue was re-created."""
    fell = (counters[:, 1:] < counters[:, :-1]) & (counters[:, 1:] != NA) & (start_id[1:] == start_id[:-1])
    if not fell.any():
        return counters
    lost = np.cumsum(np.where(fell, counters[:, :-1], 0), axis=1, dtype=np.int64)
    offsets = np.concatenate([np.zeros_like(counters[:, :1]), lost], axis=1)
    offsets -= offsets[:, np.searchsorted(start_id, start_id)]  # only of the same era; eras are sorted
    return np.where(counters == NA, NA, counters + offsets)


BURST_FACTOR: Final = 1.5
"""More arrivals in a gap than this multiple of the highest known pace contain a burst."""
MIN_SERIES_US: Final = 10 * SECOND_US
"""Gaps are filled only if readings without a gap cover so long in all."""
MIN_PACE_US: Final = 2 * SECOND_US
"""A series of readings this long shows a pace."""
MOST_SERIES: Final = 16
"""The pace is that of so many of the longest series. With fewer series the bound is higher, never lower."""


def gaps_filled(grids: Grids) -> Grids:
    """Add readings in the gaps. They serve only to bound the messages that come in a window of time."""
    quick = np.flatnonzero(grids.us - grids.asked <= longest_us(grids.us))
    if len(grids.us) / 2 < len(quick) < len(grids.us):
        grids = grids.at(quick)
    same_start = grids.start_id[1:] == grids.start_id[:-1]
    is_gap = same_start & gaps(grids.us)
    if not is_gap.any() or np.diff(grids.us)[same_start & ~is_gap].sum() < MIN_SERIES_US:
        return grids
    return _GapFiller(grids, is_gap).gaps_filled()


@dataclass(frozen=True)
class _Gap:
    """Readings added after the reading at index `at`; `is_full` flags those that read queues. A long gap has some at
    its begin and some at its end, flagged by `later`: no window reaches from the begin to the end."""

    at: int
    us: Ints
    is_full: Flags
    later: Flags


class _GapFiller:
    def __init__(self, grids: Grids, is_gap: Flags) -> None:
        self._grids, interval_us = grids, max(1, usual_us(grids.us))
        # Readings without a gap between them are one series.
        self._series = grids.start_id + np.concatenate([[0], np.cumsum(is_gap)])
        full_us = np.diff(grids.us[grids.full])
        every = max(1, int(np.median(full_us)) // interval_us) if len(full_us) else 1
        self._gaps = [self._gap(at, interval_us, every) for at in np.flatnonzero(is_gap).tolist()]
        self._low, self._high = (counters.sum(0).astype(float) for counters in (grids.put.low, grids.put.high))

    def _gap(self, at: int, usual_us: int, every: int) -> _Gap:
        begin, end = self._grids.us[at : at + 2].tolist()
        indices, most = np.arange(1, -(-(end - begin) // usual_us)), LONGEST_US // usual_us + 2
        later = np.zeros(len(indices), bool)
        if len(indices) > 2 * most:
            indices, later = np.concatenate([indices[:most], indices[-most:]]), np.arange(2 * most) >= most
        return _Gap(at, begin + indices * usual_us, indices % every == 0, later)

    def gaps_filled(self) -> Grids:
        grids, indices = self._grids, np.arange(len(self._grids.us))
        us = np.concatenate([grids.us, *(gap.us for gap in self._gaps)])
        order = np.argsort(us, kind="stable")
        eras, added_eras = grids.start_id.copy(), []
        for gap in self._gaps:
            added_eras.append(eras[gap.at] + gap.later)
            eras[gap.at + 1 :] += gap.later.any()  # a new era begins in the middle of a long gap
        asked, start_id = np.concatenate([grids.asked, us[len(indices) :]]), np.concatenate([eras, *added_eras])
        is_full = np.concatenate([np.isin(indices, grids.full), *(gap.is_full for gap in self._gaps)])
        full_order = np.argsort(us[is_full], kind="stable")
        added = [gap.us for gap in self._gaps], [gap.us[gap.is_full] for gap in self._gaps]
        flows = {name: self._filled(grid, indices, added[0])[:, order] for name, grid in grids.flows.items()}
        queues = {name: self._filled(grid, grids.full, added[1])[:, full_order] for name, grid in grids.queues.items()}
        return Grids(us[order], asked[order], start_id[order], np.flatnonzero(is_full[order]), flows, queues)

    def _filled(self, grid: Ints, columns: Ints, added: list[Ints]) -> Ints:
        """Return counters at the readings in `columns`, followed by those at the added readings."""
        counters, is_read = Counters.of(grid, self._grids.start_id[columns]), grid != NA
        known = counters, is_read, columns, self._series_windows(columns)
        spread = (self._spread(*known, *part) for part in zip(self._gaps, added, strict=True))
        return np.concatenate([np.where(is_read, counters.low, NA), *spread], axis=1)

    def _spread(
        self,
        counters: Counters,
        is_read: Flags,
        columns: Ints,
        series: Sequence[tuple[int, Windows]],
        gap: _Gap,
        us: Ints,
    ) -> Ints:
        """Return the counters at the readings added in a gap. Between the readings around the gap that read them they
        grow in step with the outflows, and evenly between two readings of the outflows."""
        grids, low, at = self._grids, self._low, gap.at
        start_id = grids.start_id[columns] == grids.start_id[at]
        before, after = int(np.searchsorted(columns, at, "right")) - 1, int(np.searchsorted(columns, at + 1))
        if before < 0 or after == len(columns) or not (start_id[before] and start_id[after]):
            return np.full((len(counters.low), len(us)), NA)
        first, last = columns[before], columns[after]
        put, within = low[last] - low[first], (us - grids.us[at]) / (grids.us[at + 1] - grids.us[at])
        share = (us - grids.us[first]) / (grids.us[last] - grids.us[first])
        if put > 0:
            share = (low[at] + (self._high[at + 1] - low[at]) * within - low[first]) / put
        begin = counters.low[:, before]
        grown = np.maximum(0, counters.high[:, after] - begin)
        highest = _highest_growth(counters, series, int(grids.us[last] - grids.us[first]))
        ordinary = np.where(grown <= BURST_FACTOR * highest, grown, highest)
        burst = (grown - ordinary)[:, None] * (us >= (grids.us[at] + grids.us[at + 1]) // 2)
        spread = begin[:, None] + np.floor(ordinary[:, None] * np.clip(share, 0, 1)).astype(np.int64) + burst
        sides = np.arange(len(columns)) <= before, np.arange(len(columns)) >= after
        is_known = np.logical_and.reduce([(is_read & start_id & side).any(axis=1) for side in sides])
        return np.where(is_known[:, None], spread, NA)

    def _series_windows(self, columns: Ints) -> Sequence[tuple[int, Windows]]:
        """Return the longest series of readings without a gap between them, each with the index of its first one."""
        series, us, asked = self._series[columns], self._grids.us[columns], self._grids.asked[columns]
        found = [(rows.start, Windows(us[rows], asked[rows], series[rows])) for _, rows in parts(series)]
        longest = sorted(found, key=lambda item: item[1].us[0] - item[1].us[-1])[:MOST_SERIES]
        return [(start, windows) for start, windows in longest if windows.us[-1] - windows.us[0] >= MIN_PACE_US]


def _highest_growth(counters: Counters, series: Sequence[tuple[int, Windows]], time_us: int) -> Ints:
    """Return the most by which each counter grows in such a time, by series of readings."""
    highest = np.zeros(len(counters.low), np.int64)
    for start, windows in series:
        growth = np.zeros(len(counters.low), np.int64)
        for number, length_us in windows.split(time_us) or ():
            begin, end = windows.enclosing_readings(length_us)
            growth += number * counters.most(start + begin, start + end).max(axis=1, initial=0)
        highest = np.maximum(highest, growth)
    return highest


ASSUMED_REPLY_US: Final = SECOND_US
"""The time from the request to the reply of a reading whose rows do not tell it; a monitor waits no longer."""


@dataclass(frozen=True)
class Counts:
    """Counts of outflows or queues (rows) by reading (columns). `queues_added` and `queues_acked` are sums over the
    queues of an outflow."""

    names: Sequence[tuple[str, str]]
    depth: Ints
    added: Ints
    acked: Ints
    delivering: Ints
    pending: Ints
    queues_added: Ints
    queues_acked: Ints

    @classmethod
    def of(cls, rows: pa.Table, kinds: Sequence[str], us: Ints) -> Self:
        rows = rows.filter(pc.is_in(rows["kind"], pa.array(kinds)))
        kind, name = (pc.dictionary_encode(rows[column].combine_chunks()) for column in ("kind", "name"))
        size = max(1, len(name.dictionary))
        keys, number = np.unique(_codes(kind) * size + _codes(name), return_inverse=True)
        indices = number * len(us) + np.searchsorted(us, rows["us"].to_numpy())
        acked = pc.coalesce(rows["acked"], rows["removed"])
        grids = []
        for column in fields(cls)[1:]:
            grid = np.full((len(keys), len(us)), NA)
            # Of two rows of one moment the last counts.
            grid.flat[indices] = pc.fill_null(acked if column.name == "acked" else rows[column.name], NA).to_numpy()
            grids.append(grid)
        names = ((kind.dictionary[int(key) // size].as_py(), name.dictionary[int(key) % size].as_py()) for key in keys)
        return cls([*names], *grids)

    @cached_property
    def rows(self) -> Mapping[str, Sequence[int]]:
        return by_key((name, row) for row, (_, name) in enumerate(self.names))


class Readings:
    """The readings of one pair that read an outflow. `full` has the indices of those that read queues too. `at_both`
    has the readings that also read the queues of the other site; `peer_queues` has the messages there, and
    `peer_outflows` the outflows of that site. `uncopied` has the messages without a copy there, at readings with a
    comparison of ids."""

    def __init__(self, pair: str, recorded: Recent) -> None:
        begin, end = recorded.spans.get(pair, (0, -1))
        rows = recorded.table.filter(pc.equal(recorded.table["pair"], pair))
        rows = rows.filter(pc.and_(pc.greater_equal(rows["us"], begin), pc.less_equal(rows["us"], end)))
        self.rows = rows
        outflow_rows = rows.filter(pc.is_in(rows["kind"], pa.array(OUTFLOWS)))
        self.us: Ints = np.unique(outflow_rows["us"].to_numpy())
        queue_rows = rows.filter(pc.is_in(rows["kind"], pa.array(["queue", "staged", "uncopied"])))
        queues_us = queue_rows.filter(pc.equal(queue_rows["kind"], "queue"))["us"].to_numpy()
        self.full: Ints = np.flatnonzero(np.isin(self.us, queues_us))
        full_us = self.us[self.full]
        queue_rows = queue_rows.filter(pc.is_in(queue_rows["us"], pa.array(full_us)))
        peer = rows.slice(0, 0) if recorded.peer_rows is None else recorded.peer_rows
        peer = peer.filter(pc.and_(pc.equal(peer["pair"], pair), pc.is_valid(peer["start"])))
        peer = peer.filter(pc.is_in(peer["us"], pa.array(full_us)))
        self.at_both: Ints = np.flatnonzero(np.isin(full_us, peer["us"].to_numpy()))
        self.outflows = Counts.of(outflow_rows, OUTFLOWS, self.us)
        self.peer_outflows = Counts.of(peer, OUTFLOWS, full_us)
        # The other site's queues become `staged` rows. Rows that a reading has as `staged` itself replace them.
        peer_rows = peer.filter(pc.equal(peer["kind"], "queue"))
        kinds = pa.repeat(pa.scalar("staged", pa.string()), peer_rows.num_rows)
        peer_rows = peer_rows.set_column(peer_rows.schema.get_field_index("kind"), "kind", kinds).select(
            queue_rows.column_names
        )
        self.peer_queues = Counts.of(pa.concat_tables([peer_rows, queue_rows]), ("staged",), full_us)
        self.queues, self.uncopied = (Counts.of(queue_rows, (kind,), full_us) for kind in ("queue", "uncopied"))
        answered = rows.filter(pc.and_(pc.equal(rows["kind"], "site"), pc.is_valid(rows["took_ms"])))
        answered = answered.filter(pc.is_in(answered["us"], pa.array(self.us)))
        took_us = np.full(len(self.us), ASSUMED_REPLY_US)
        took_us[np.searchsorted(self.us, answered["us"].to_numpy())] = answered["took_ms"].to_numpy() * 1000
        self.asked: Ints = self.us - took_us
        self.start_id = _eras(outflow_rows, self.us, self.outflows)

    def uncopied_of(self, name: str) -> int | None:
        """Return how many messages of a queue had no copy at the other site at the last comparison of ids. The result
        is None if the comparison left the queue out, or if it is too old; 0 if the monitor compares no ids."""
        return self._of_last_comparison(name, self.uncopied.depth) if self.uncopied.names else 0

    def held(self, name: str) -> int:
        return self._of_last_comparison(name, self.uncopied.delivering) or 0

    def _of_last_comparison(self, name: str, grid: Ints) -> int | None:
        compared, full_us = np.flatnonzero((self.uncopied.depth != NA).any(axis=0)), self.us[self.full]
        if not len(compared) or full_us[-1] - full_us[compared[-1]] > COMPARED_US:
            return None
        counts = [int(grid[row, compared[-1]]) for row in self.uncopied.rows.get(name, ())]
        return None if not counts or counts[-1] == NA else counts[-1]

    def newest(self, name: str, after_us: int = 0) -> tuple[int, int, int] | None:
        """Return the depth of a queue at its newest reading, and how many had come and gone, which may be unread. The
        result is None if it was not read after that moment."""
        if (row := self.index.get(name)) is None:
            return None
        read = np.flatnonzero((self.queues.depth[row] != NA) & (self.us[self.full] > after_us))
        if not len(read):
            return None
        depth, added, acked = (
            int(of[row, read[-1]]) for of in (self.queues.depth, self.queues.added, self.queues.acked)
        )
        return depth, added, acked

    @cached_property
    def last_start(self) -> str | None:
        known = self.rows.filter(pc.is_valid(self.rows["start"])).sort_by("us")["start"]
        return known[-1].as_py() if len(known) else None

    @cached_property
    def index(self) -> Mapping[str, int]:
        return {name: index for index, (_, name) in enumerate(self.queues.names)}

    def most_delivering(self, index: int) -> int | None:
        """Return the most messages of a queue in delivery, or None if the last reading of the queue did not read
        them."""
        counts, read = self.queues.delivering[index], np.flatnonzero(self.queues.depth[index] != NA)
        return None if not len(read) or counts[read[-1]] == NA else max(0, int(counts.max()))

    @cached_property
    def cuts(self) -> Ints:
        """The index of the cut of each outflow (row) at each reading; -1 where it is not known."""
        row, index = np.nonzero((self.outflows.depth != NA) & (self.outflows.added != NA))
        depth, added = self.outflows.depth[row, index], self.outflows.added[row, index]
        begins = begins_of(row * (len(self.us) + 1) + self.start_id[index])
        cut_us = side_of(np.stack([depth, added, added - depth]), self.us[index], np.cumsum(begins), begins).cut_us
        cuts = np.full(self.outflows.depth.shape, -1)
        cuts[row, index] = np.where(cut_us == NA, -1, np.searchsorted(self.us, cut_us))
        return cuts

    @cached_property
    def grids(self) -> Grids:
        flows = {name: getattr(self.outflows, name) for name in ("added", "queues_added", "queues_acked")}
        queues = {"added": self.queues.added, "acked": self.queues.acked}
        return Grids(self.us, self.asked, self.start_id, self.full, flows, queues)


def _codes(encoded: pa.DictionaryArray) -> Ints:
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _eras(rows: pa.Table, us: Ints, outflows: Counts) -> Ints:
    """Number the eras: a start of the broker begins one, and so does a reading at which a counter of an outflow
    fell."""
    starts = pc.dictionary_encode(pc.fill_null(rows["start"], "").combine_chunks())
    start = np.full(len(us), NA)
    start[np.searchsorted(us, rows["us"].to_numpy())] = _codes(starts)
    new = np.zeros(len(us), bool)
    new[1:] = start[1:] != start[:-1]
    for added in outflows.added:
        read = np.flatnonzero(added != NA)
        new[read[1:][np.diff(added[read]) < 0]] = True
    return np.cumsum(new)
