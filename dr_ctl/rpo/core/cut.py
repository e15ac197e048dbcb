"""Rows of a history as NumPy columns: the readings of outflows, and the cut of each reading.

An outflow is first in, first out: `shipped + depth` were ever put into it, and `shipped` were ever shipped. The cut of
a reading is the newest earlier reading at which no more had been put in than is shipped now: everything sent up to the
cut is at the other site, anything sent later may not be. The likely cut is the moment after it at which the number put
in passed the number shipped now. A cut is within one series: counters begin anew after a restart, and readings are out
of order where the clock was set back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.rpo.core.arrays import NA, SECOND_US, Flags, Ints, Rows, begins_of, index_of, last_true, next_true
from dr_ctl.rpo.core.starts import first_texts, node_of

SHARED: Final = "*"
"""The name of an outflow that serves all queues of its pair."""
KINDS: Final = ("queue", "mirror", "acks", "mixed", "site", "uncopied")
QUEUE, MIRROR, ACKS, MIXED, SITE, UNCOPIED = range(6)
READ: Final = ("ts", "pair", "kind", "name", "depth", "added", "removed", "acked", "oldest_ms", "link", "start")


@dataclass(frozen=True, slots=True)
class Columns(Rows):
    """`kind` is an index into `KINDS`; `pair`, `name` are indices into `words`, -1 is none; `start` numbers starts."""

    words: Sequence[str]
    us: Ints
    kind: Ints
    pair: Ints
    name: Ints
    depth: Ints
    added: Ints
    removed: Ints
    acked: Ints
    oldest_ms: Ints
    link: Flags
    start: Ints

    @classmethod
    def of(cls, table: pa.Table) -> Self:
        """Take an Arrow table with the columns `READ`, `ts` in microseconds. A row without all of its counters counts
        as not read."""
        coded = [table[column].combine_chunks().dictionary_encode() for column in ("kind", "pair", "name", "start")]
        # The order of the words does not depend on the rows.
        all_words = sorted({word for column in coded for word in column.dictionary.to_pylist()})
        words = {word: index for index, word in enumerate(all_words)}
        kind, pair, name = (_numbered(column, words) for column in coded[:3])
        starts = first_texts(coded[3].dictionary.to_pylist())
        start = _numbered(coded[3], {word: words[first] for word, first in starts.items()})
        kinds = np.full(len(words) + 1, -1)
        kinds[[words[word] for word in KINDS if word in words]] = [n for n, word in enumerate(KINDS) if word in words]
        counted = {column: _ints(table[column]) for column in ("depth", "added", "removed", "acked", "oldest_ms")}
        link = pc.fill_null(table["link"], fill_value=True).to_numpy().astype(bool)
        columns = cls(tuple(words), _ints(table["ts"]), kinds[kind], pair, name, **counted, link=link, start=start)
        is_read = np.logical_and.reduce([counted[column] != NA for column in ("depth", "added", "removed")])
        return columns.only((columns.kind >= 0) & (np.isin(columns.kind, (SITE, UNCOPIED)) | is_read))

    def by_time(self) -> Self:
        return self if (self.us[1:] >= self.us[:-1]).all() else self.take(np.argsort(self.us, kind="stable"))


def _numbered(column: pa.DictionaryArray, words: Mapping[str, int]) -> Ints:
    """Return the index of each row's word; -1 stands for none."""
    indices = np.array([*(words[word] for word in column.dictionary.to_pylist()), -1], np.int64)
    return indices[pc.fill_null(column.indices, -1).to_numpy()]


def _ints(column: pa.ChunkedArray) -> Ints:
    return pc.fill_null(column.cast(pa.int64()), NA).to_numpy()


LONGEST_GAP_US: Final = 600 * SECOND_US
"""The counters of an outflow or a queue that was not read for longer than this are not compared over the gap."""
COMPARED_US: Final = 120 * SECOND_US
"""A comparison of ids is too old for a queue's content after so long."""
AFFECTED_READINGS: Final = 2
"""Counters that fall within one start of a broker show that a clock was set back: the order of readings is wrong there.
So many readings on either side begin a series each."""
NO_ROLE, SERVING, STANDBY, DOWN = range(4)


@dataclass(frozen=True, slots=True)
class Side:
    """Messages, or acknowledgements, in an outflow at each reading; NA: not read.

    `cut_us` is the moment of the reading that cuts history, `likely_us` that of the likely cut, also of one before a
    restart, because the outflow keeps its content. NA: not known."""

    depth: Ints
    added: Ints
    shipped: Ints
    cut_us: Ints
    likely_us: Ints

    @property
    def known(self) -> Flags:
        return self.depth != NA

    def most(self, begin: Ints, end: Ints) -> Ints:
        """Bound the content between two readings of a series: the content at the first and all that came until the
        second, or the content at the second if that is more, because figures of both sites are never of the same
        instant."""
        return np.maximum(self.depth[begin] + self.added[end] - self.added[begin], self.depth[end])


class Outflows:
    """The readings of all outflows, by outflow (`flow`, an index into `keys`: pair and name) and time. `times` has the
    moments of all readings; `indices` has outflow and moment in one number.

    `goes_on` flags readings that continue the series of the reading before, `taken_over` those with another active node
    than there. Only restarts separate the series of one `life`. A `fresh` reading is the first of an outflow, or
    follows a long gap. Messages in an outflow were sent after `oldest_us`; with `is_floor` no cut is known, or none
    since the clock was set back, and they may be older."""

    def __init__(self, rows: Columns) -> None:
        of_outflows = rows.take(np.flatnonzero(np.isin(rows.kind, (MIRROR, ACKS, MIXED)) & (rows.pair >= 0)))
        many = len(rows.words) + 1
        codes, flow_of = np.unique(of_outflows.pair * many + of_outflows.name, return_inverse=True)
        self.keys = tuple((rows.words[code // many], rows.words[code % many]) for code in codes)
        self.times, moment = np.unique(of_outflows.us, return_inverse=True)
        indices, at = np.unique(flow_of * len(self.times) + moment, return_inverse=True)
        flow, us = indices // max(1, len(self.times)), self.times[indices % max(1, len(self.times))]
        sides = [_read(of_outflows, kinds, at, len(indices)) for kinds in ((MIRROR, MIXED), (ACKS, MIXED))]
        link, start = np.ones(len(indices), bool), np.full(len(indices), -1)
        np.logical_and.at(link, at, of_outflows.link)
        np.maximum.at(start, at, of_outflows.start)
        is_mixed, is_twice = (np.zeros(len(indices), bool) for _ in range(2))
        is_mixed[at[of_outflows.kind == MIXED]] = True
        sends = sides[0][1]
        kind = np.where(is_mixed, MIXED, np.where(sends != NA, MIRROR, ACKS))
        first = np.where(sends != NA, sends, sides[1][1])
        is_twice[at[(of_outflows.kind == kind[at]) & (of_outflows.added != first[at])]] = True
        kept = np.flatnonzero(~(_missed(flow, us, sends != NA) | _missed(flow, us, sides[1][1] != NA)))
        flow, us, start, sides = flow[kept], us[kept], start[kept], [side[:, kept] for side in sides]
        fresh, begins, restarts, was_put_back = _series(flow, us, start, is_twice[kept], [*sides[0][1:], *sides[1][1:]])
        self.indices: Ints = indices[kept]
        self.flow: Ints = flow
        self.us: Ints = us
        self.role = _roles(rows, (codes // many)[flow], us)
        self.link: Flags = link[kept]
        self.is_mixed: Flags = is_mixed[kept]
        self.goes_on: Flags = ~begins
        is_node = np.array([bool(node_of(word)) for word in rows.words] + [False])[start]
        self.taken_over: Flags = ~fresh  # where the start of a node among several follows that of another one
        self.taken_over[1:] &= is_node[1:] & is_node[:-1] & (start[1:] != start[:-1])
        self.fresh = fresh
        self.series: Ints = np.cumsum(begins)
        self.life: Ints = np.cumsum(begins & ~restarts)
        self.sends = self.acks = _side(sides[0], us, begins, restarts)
        if not np.array_equal(sides[0], sides[1]):
            self.acks = _side(sides[1], us, begins, restarts)
        known = last_true(self.sends.cut_us != NA, fresh)
        self.oldest_us: Ints = np.where(known >= 0, self.sends.cut_us[known], us[last_true(fresh, fresh)])
        self.is_floor: Flags = (known < 0) | (known < last_true(was_put_back, fresh))

    def at(self, flow: Ints, moment: Ints) -> Ints:
        """Return the indices of the readings of these outflows at these moments (indices into `times`); -1 where there
        is none."""
        key = np.where((flow >= 0) & (moment >= 0), flow * len(self.times) + moment, -1)
        return index_of(self.indices, key)

    def after(self, flow: Ints, us: Ints) -> Ints:
        """Return the index behind the last reading of these outflows not after these moments."""
        if not len(self.us):
            return np.zeros(len(us), np.int64)
        first = int(self.us.min())
        span = int(max(self.us.max(), us.max(initial=first))) - first + 1
        return np.searchsorted(self.flow * span + self.us - first, flow * span + us - first, "right")

    @property
    def ends(self) -> Ints:
        return np.searchsorted(self.flow, np.arange(len(self.keys)), "right") - 1


def _read(rows: Columns, kinds: tuple[int, ...], at: Ints, count: int) -> Ints:
    """Return depth, added and shipped of one direction; NA where it was not read."""
    of_kinds = np.flatnonzero(np.isin(rows.kind, kinds))[::-1]  # of two rows of one reading the first counts
    counters = np.full((3, count), NA)
    counters[:, at[of_kinds]] = [column[of_kinds] for column in (rows.depth, rows.added, rows.removed)]
    return counters


def _missed(flow: Ints, us: Ints, known: Flags) -> Flags:
    """Flag readings without a side (messages or acknowledgements) that was read shortly before or after: the side is
    not known there, and not empty."""
    new = begins_of(flow)
    before, after = last_true(known, new), next_true(known, new)
    near = (before >= 0) & (us - us[before] <= LONGEST_GAP_US)
    return ~known & (near | ((after < len(flow)) & (us[np.minimum(after, len(flow) - 1)] - us <= LONGEST_GAP_US)))


def _roles(rows: Columns, pair: Ints, us: Ints) -> Ints:
    """Return the role of the site at each reading, by the row of the pair, or by a row that names none."""
    of_site = rows.take(np.flatnonzero(rows.kind == SITE))
    role = roles_of(rows.words)[of_site.name]
    times = np.unique(of_site.us)
    named = np.full(len(us), -1)
    for wanted in (pair, np.full(len(pair), -1)):
        key = (of_site.pair + 1) * len(times) + np.searchsorted(times, of_site.us)
        order = np.argsort(key, kind="stable")
        moment = index_of(times, us)
        at = index_of(key[order], np.where(moment >= 0, (wanted + 1) * len(times) + moment, -1))
        if len(order):
            named = np.where((named < 0) & (at >= 0), role[order][np.maximum(at, 0)], named)
    return np.maximum(named, NO_ROLE)


def roles_of(words: Sequence[str]) -> Ints:
    """Return the role that each word names; -1, the last, names none."""
    known = {"serving": SERVING, "standby": STANDBY, "down": DOWN}
    return np.array([known.get(word, NO_ROLE) for word in words] + [NO_ROLE])


def _series(
    flow: Ints, us: Ints, start: Ints, is_twice: Flags, counters: list[Ints]
) -> tuple[Flags, Flags, Flags, Flags]:
    """Flag the readings at which an outflow begins, or goes on after a long gap; at which a series begins; at which
    only a restart begins it; and at which a clock was set back."""
    count = len(flow)
    fell, comes = np.zeros(count, bool), np.zeros(count, bool)
    fresh = begins_of(flow)
    fresh[1:] |= us[1:] - us[:-1] > LONGEST_GAP_US
    for counter in counters:
        fell[1:] |= (counter[1:] < counter[:-1]) & (counter[1:] != NA)
        comes[1:] |= (counter[1:] == NA) != (counter[:-1] == NA)
    is_new = fresh.copy()
    is_new[1:] |= start[1:] != start[:-1]
    back = (fell | is_twice) & ~is_new & (start >= 0)
    begins, restarts = is_new | fell | comes | back, (is_new | fell) & ~fresh & ~comes
    for index in np.flatnonzero(back).tolist():  # rare
        near = np.arange(max(0, index - AFFECTED_READINGS), min(count, index + AFFECTED_READINGS + 1))
        near = near[flow[near] == flow[index]]
        begins[near], restarts[near] = True, False
    return fresh, begins, restarts, back


def _side(counters: Ints, us: Ints, begins: Flags, restarts: Flags) -> Side:
    """Find the cuts. For the likely cut counters go on over restarts, because an outflow keeps what was not shipped."""
    strict = side_of(counters, us, np.cumsum(begins), begins)
    if not restarts.any():
        return strict
    depth, added, shipped = (np.where(counters[0] == NA, 0, column) for column in counters)
    put, parts, before = shipped + depth, begins & ~restarts, np.arange(len(us)) - 1
    came = put[before] + grown(added, us, begins)
    lacks = lost_in_restarts(np.maximum(came - put, shipped[before]), restarts, parts)
    going_on = np.array([counters[0], counters[1], np.where(counters[0] == NA, NA, shipped + lacks)])
    return replace(strict, likely_us=side_of(going_on, us, np.cumsum(parts), parts).likely_us)


def grown(counter: Ints, us: Ints, begins: Flags) -> Ints:
    """Return the likely growth of a counter since the reading before a restart: its new count, or more by its earlier
    pace."""
    before, took = np.diff(counter, prepend=0)[:-1], np.diff(us, prepend=0)
    pace = np.zeros(len(us))
    pace[1:] = np.where(begins[:-1], 0, before * (took[1:] / np.maximum(1, took[:-1])))
    return np.maximum(counter, pace.astype(np.int64))


def lost_in_restarts(lacks: Ints, restarts: Flags, begins: Flags) -> Ints:
    """Return the counts that restarts took from counters since their life began."""
    sums = np.cumsum(np.where(restarts, lacks, 0))
    return sums - sums[np.maximum.accumulate(np.where(begins, np.arange(len(lacks)), 0))]


def side_of(counters: Ints, us: Ints, series: Ints, begins: Flags) -> Side:
    """Find the cuts of readings by series and time, with depth, added and shipped; `begins` flags the first of each
    series."""
    depth, added, shipped = counters
    known = depth != NA
    put, out = np.where(known, shipped + depth, 0), np.where(known, shipped, 0)
    # Each series gets an offset, so that one running maximum and one search serve all of them.
    base = series * (int(put.max(initial=0)) + int(out.max(initial=0)) + 1)
    top = np.maximum.accumulate(base + put)
    indices = np.arange(len(us))
    cut = np.minimum(np.searchsorted(top, base + out, "right") - 1, indices)
    is_cut = known & (cut >= np.maximum.accumulate(np.where(begins, indices, 0)))
    cut = np.maximum(cut, 0)
    after = np.minimum(cut + 1, indices)
    past = (base + out - top[cut]) / np.maximum(1, top[after] - top[cut])
    likely_us = us[cut] + (np.clip(past, 0, 1) * (us[after] - us[cut])).astype(np.int64)
    return Side(depth, added, shipped, np.where(is_cut, us[cut], NA), np.where(is_cut, likely_us, NA))
