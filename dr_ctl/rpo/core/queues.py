"""Computes, from the readings of queues, how many messages of each were under way between two readings: at most, and
likely. The figures are added up by scope (the total, then each class of the objectives) and by reading of the outflow
that serves them. The cut is the newest reading up to which all that was sent is certainly at the other site
(core/cut.py).

    loss        sent since the cut, and no more than the queue held
    age         time since the cut, while anything is lost
    duplicates  consumed since the cut of the acknowledgements, among the messages that were shipped

For a bound, sends are counted at the interval's end and the cut is that of its start: the difference is the largest. If
a cut is unknown (just after a restart) the content of the queue bounds the loss. A likely figure belongs to one
reading, and uses the likely cut, which is interpolated between two readings. Messages *without a copy* at the other
site, where ids are compared, count beside those under way (docs/rpo-method.md)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np

from dr_ctl.rpo.core.arrays import (
    NA,
    Flags,
    Floats,
    Ints,
    begins_of,
    in_order,
    index_of,
    last_true,
    newest_of,
    next_true,
)
from dr_ctl.rpo.core.cut import (
    COMPARED_US,
    LONGEST_GAP_US,
    QUEUE,
    SHARED,
    UNCOPIED,
    Columns,
    Outflows,
    Side,
    grown,
    lost_in_restarts,
)

UNEXPLAINED: Final = 0.01
"""This share of what went into an outflow may be missing from the queues' counters, which are read a moment apart."""


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """Figures of single queues, NA where not known. `row` is the reading of the queue. The figure counts at `width`
    readings of its outflow, of which `index` is the last. With `is_floor` the age is a lower bound."""

    index: Ints
    row: Ints
    width: Ints
    loss: Ints
    age: Ints
    duplicates: Ints
    is_floor: Flags


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of the queues of each scope (the first is the total), one column a reading of the outflow: of the interval
    that ends with it (bounds), or of the reading itself (likely). `queues` says how many were counted; `…_unknown`
    marks sums in which at least one of them is missing."""

    queues: Ints
    loss: Ints
    age: Ints
    duplicates: Ints
    loss_unknown: Flags
    duplicates_unknown: Flags
    is_floor: Flags

    @classmethod
    def none(cls, scopes: int, readings: int) -> Self:
        nothing: list[Any] = [np.zeros((scopes, readings), kind) for kind in (*(np.int64,) * 4, *(np.bool_,) * 3)]
        return cls(*nothing)

    def add(self, rows: QueueFigures, counts: Flags) -> None:
        """Add queues by scope and index. An interval that readings of the outflow part counts in each part."""
        lost, duplicated = rows.loss != NA, rows.duplicates != NA
        for scope, counted in enumerate(counts):
            inside = counted[rows.row]
            sums = {
                "queues": inside | (scope == 0),  # queues left out count nothing in the total, and were read
                "loss": rows.loss * (inside & lost),
                "duplicates": rows.duplicates * (inside & duplicated),
                "loss_unknown": inside & ~lost,
                "duplicates_unknown": inside & ~duplicated,
                "is_floor": inside & rows.is_floor,
            }
            for name, values in sums.items():
                total = getattr(self, name)[scope]
                total += _spread(rows.index, rows.width, values, len(total)).astype(total.dtype)
            some = inside & lost & (rows.age > 0)
            _spread_most(rows.index[some], rows.width[some], rows.age[some], self.age[scope])


def _spread(index: Ints, width: Ints, values: Any, readings: int) -> Any:
    """Add each value at an index and at so many indices up to it."""
    begins, ends = (np.bincount(at, values, readings + 1) for at in (index - width + 1, index + 1))
    return np.cumsum(begins - ends)[:readings]


def _spread_most(index: Ints, width: Ints, values: Ints, most: Ints) -> None:
    """Let the largest of the values count at an index and at so many indices up to it."""
    while len(index):
        np.maximum.at(most, index, values)
        further = width > 1
        index, width, values = index[further] - 1, width[further] - 1, values[further]


@dataclass(frozen=True, slots=True)
class Unread:
    """Existing queues that a reading did not include, by scope and reading (the end of an interval). `missing` counts
    those that were read before and after, or were not empty at their last reading; `maybe_deleted` those that were
    empty then. `is_any` says whether the scope has a queue at that outflow at all."""

    missing: Ints
    maybe_deleted: Ints
    is_any: Flags

    @classmethod
    def none(cls, scopes: int, readings: int, outflows: int) -> Self:
        missing, maybe_deleted = (np.zeros((scopes, readings + 1), np.int64) for _ in range(2))
        return cls(missing, maybe_deleted, np.zeros((scopes, outflows), bool))

    def add(self, new: Flags, us: Ints, index: Ints, depth: Ints, counts: Flags, flows: Outflows) -> None:
        flow = flows.flow[index]
        # A hole: the queue was read again after so long a time that its counters say nothing about it.
        hole = np.flatnonzero(~new & (us - np.concatenate([us[:1], us[:-1]]) > LONGEST_GAP_US))
        last = np.flatnonzero(np.append(new[1:], True))
        full, stop = depth[last] > 0, flows.ends[flow[last]] + 1
        within = flows.after(flow[last], us[last] + LONGEST_GAP_US)
        for scope, counted in enumerate(counts):
            some = hole[counted[hole]]
            _mark(self.missing[scope], index[some - 1] + 1, index[some])
            some = counted[last]
            _mark(self.missing[scope], index[last][some & full] + 1, stop[some & full])
            _mark(self.maybe_deleted[scope], index[last][some & ~full] + 1, within[some & ~full])
            self.is_any[scope, flow[last[counted[last]]]] = True

    def flags(self, scope: int, flows: Outflows, read: Flags, put: Floats, accounted: Floats) -> Flags:
        """Flag the readings that lack an existing queue, so that only the outflow bounds it. Each interval between
        readings that include queues (`read`) is decided as a whole; after the last of them all queues are missing. An
        empty queue that is no longer read was deleted if the other queues account for everything that goes into the
        outflow. `put` and `accounted` count, by reading, the entries since the reading before, and those that queues
        account for."""
        readings = np.arange(len(flows.us))
        ends = flows.ends[flows.flow]
        # The reading that ends the interval between two whole readings.
        whole = np.flatnonzero(read)
        index = np.searchsorted(whole, readings)
        at = np.append(whole, -1)[index]
        is_ended = (at >= 0) & (at <= ends)
        at = np.where(is_ended, at, 0)
        missing, maybe_deleted = (np.cumsum(marks[scope])[:-1] > 0 for marks in (self.missing, self.maybe_deleted))
        open_ = ~is_ended & self.is_any[scope][flows.flow]
        is_unread: Flags = open_ | (is_ended & missing[at])
        doubtful = is_ended & maybe_deleted[at]
        if doubtful.any():
            run = np.cumsum(np.diff(np.concatenate([[0], doubtful.astype(np.int8)])) > 0)
            entered, explained = (np.bincount(run, things * doubtful) for things in (put, accounted))
            is_unread |= doubtful & (entered - explained > UNEXPLAINED * entered)[run]
        return is_unread


def _mark(counts: Ints, begin: Ints, end: Ints) -> None:
    good = end > begin
    np.add.at(counts, begin[good], 1)
    np.add.at(counts, end[good], -1)


TOP: Final = 10
"""So many queues are named, those with most messages under way."""


@dataclass(frozen=True, slots=True)
class Share:
    """A queue's part of the likely loss: message-milliseconds, and the most at a reading. Queues that are not named
    share one entry, without a name."""

    flow: int
    queue: str
    message_ms: int
    most: int


class Queues:
    """The queues of the outflows. `within` adds them up by the reading that ends an interval, `likely` by reading, and
    `last` at each outflow's last reading that read a queue too. `uncopied_…` has messages without a copy, of the
    outflows whose ids are `compared`. `accounted` counts the things put into the outflow in each interval that the
    queues' counters account for. `shares` names the queues with most messages under way."""

    def __init__(self, flows: Outflows, scopes: int) -> None:
        readings, outflows = len(flows.us), len(flows.keys)
        self.within, self.likely, self.uncopied_within, self.uncopied_likely = (
            Sums.none(scopes, readings) for _ in range(4)
        )
        self.last, self.uncopied_last = (Sums.none(scopes, outflows) for _ in range(2))
        self.compared, self.accounted = np.zeros(outflows, bool), np.zeros(readings)
        self.unread = Unread.none(scopes, readings, outflows)
        self.shares: list[Share] = []

    def add(self, rows: Columns, flows: Outflows, mask_of: Callable[[str], int], within_us: tuple[int, int]) -> None:
        """Bound every queue of the rows, which have all readings of it; `mask_of` says by bits in which scopes a queue
        counts (1: in the total). Shares are of readings within that time."""
        compares = {rows.words[pair] for pair in np.unique(rows.pair[rows.kind == UNCOPIED]).tolist()}
        self.compared |= np.array([pair in compares for pair, _ in flows.keys], bool)
        scopes, q = len(self.within.queues), _Readings(rows, flows)
        if not len(q.us):
            return
        masks = [mask_of(rows.words[name]) for name in q.queue[q.new].tolist()]
        counts = np.array([[mask >> scope & 1 for mask in masks] for scope in range(scopes)], bool)[:, q.thing]
        cut = acked = _Cut.of(q, flows, flows.sends.cut_us, q.index, q.series)
        sent = consumed = _Likely.of(q, flows, flows.sends, q.index)
        if flows.acks is not flows.sends or not np.array_equal(q.acks, q.index):
            acked = _Cut.of(q, flows, flows.acks.cut_us, q.acks, q.series)
            consumed = _Likely.of(q, flows, flows.acks, q.acks)
        end = np.flatnonzero(~q.new)
        end = end[q.us[end] - q.us[end - 1] <= LONGEST_GAP_US]
        likely, pairs = _likely(q, flows, sent, consumed), (end - 1, end)  # the intervals of each queue, by their ends
        self.within.add(_bounds_between(q, flows, cut, acked, *pairs), counts)
        self.within.add(_first_readings(q, flows), counts)
        self.likely.add(likely, counts)
        # The last reading of each outflow that read a queue too is an interval without length.
        last = _at_last(q, flows)
        at_last, flow = _bounds_between(q, flows, cut, acked, last, last), flows.flow[q.index[last]]
        self.last.add(replace(at_last, index=flow, width=np.ones_like(last)), counts)
        self.accounted += _accounted(q, flows, pairs)
        self.unread.add(q.new, q.us, q.index, q.depth, counts, flows)
        lost = likely.loss
        if self.compared.any():
            uncopied = _Uncopied.of(rows, q, self.compared[flows.flow[q.index]])
            uncopied_likely, first = uncopied.likely(q), np.flatnonzero(q.new)
            intervals = (np.concatenate([ends, first]) for ends in pairs)
            self.uncopied_within.add(uncopied.between(q, flows, *intervals), counts)
            self.uncopied_likely.add(uncopied_likely, counts)
            self.uncopied_last.add(replace(uncopied.between(q, flows, last, last), index=flow), counts)
            lost = lost + np.maximum(uncopied_likely.loss, 0)
        self.shares = _largest_named([*self.shares, *_shares(rows, q, flows, lost * counts[0], within_us)])


class _Readings:
    """Readings of queues, by queue and time, each with the index of the reading of the outflow that serves it, and the
    index of the reading of its acknowledgements' outflow (`acks`: -1 without one). `moment` is an index into the times
    at which outflows were read; `passed` counts messages ever sent to the queue, from its own side, and is at least
    `sent`. A `life` continues over restarts, which begin a new series."""

    def __init__(self, rows: Columns, flows: Outflows) -> None:
        at = np.flatnonzero((rows.kind == QUEUE) & (rows.pair >= 0))
        name = rows.pair[at] * (len(rows.words) + 1) + rows.name[at]
        order = in_order(name, rows.us[at])
        q, name = rows.take(at[order]), name[order]
        moment = index_of(flows.times, q.us)
        index, acks = _serving_outflows(q, begins_of(name), moment, flows)
        again = ~begins_of(name)  # of two rows of one reading the first counts
        again[1:] &= q.us[1:] == q.us[:-1]
        kept = np.flatnonzero((index >= 0) & ~again)
        # A queue is another thing where another outflow serves it.
        thing = name[kept] * max(1, len(flows.keys)) + flows.flow[index[kept]]
        order = in_order(thing, q.us[kept])
        self.new, at = begins_of(thing[order]), kept[order]
        q, self.moment, self.index, self.acks = q.take(at), moment[at], index[at], acks[at]
        self.thing: Ints = np.cumsum(self.new) - 1
        self.pair, self.queue, self.us = q.pair, q.name, q.us
        self.depth, self.sent = q.depth, q.added
        self.consumed: Ints = np.where(q.acked == NA, q.removed, q.acked)
        self.passed: Ints = np.maximum(q.added, q.removed + q.depth)
        self.oldest_us: Ints = np.where(q.oldest_ms == NA, NA, q.oldest_ms * 1000)
        self.begins = self.new.copy()
        self.begins[1:] |= q.us[1:] - q.us[:-1] > LONGEST_GAP_US
        for key in (q.start, flows.series[self.index], np.where(self.acks >= 0, flows.series[self.acks], -1)):
            self.begins[1:] |= key[1:] != key[:-1]
        series = flows.series[self.index]
        self.restarts: Flags = np.zeros(len(q.us), bool)
        self.restarts[1:] = ~begins_of(flows.life[self.index])[1:] & (series[1:] != series[:-1])
        self.restarts &= ~self.new
        self.restarts[1:] &= q.us[1:] - q.us[:-1] <= LONGEST_GAP_US
        for counter in (q.added, q.removed, self.consumed):
            self.begins[1:] |= counter[1:] < counter[:-1]
        self.series: Ints = np.cumsum(self.begins)
        self.life: Ints = np.cumsum(self.begins & ~self.restarts)

    def continued(self, counter: Ints, of: Ints) -> Ints:
        """Return a counter that goes on over restarts as `of` does."""
        lacks = counter[np.arange(len(counter)) - 1] + grown(of, self.us, self.begins) - counter
        return counter + lost_in_restarts(lacks, self.restarts, self.begins & ~self.restarts)

    def newest(self, moment: Ints, times: int) -> Ints:
        """Return the queue's newest reading not after a moment, and not after this one; it is below 0, or another's, if
        none is."""
        base = self.thing * times
        at = newest_of(base + self.moment, base + moment)
        return np.minimum(at, np.arange(len(self.us)))


def _serving_outflows(q: Columns, new: Flags, moment: Ints, flows: Outflows) -> tuple[Ints, Ints]:
    """Return the indices of the readings of the outflows of a queue's messages and of its acknowledgements: of its own
    outflow, if it has one, else of the one that serves all of its pair. Rows stand by queue; `new` flags the first of
    each."""
    codes = {key: index for index, key in enumerate(flows.keys)}
    words = [*q.words, None]
    named = zip(q.pair[new].tolist(), q.name[new].tolist(), strict=True)
    queues = [(str(words[pair]), str(words[name])) for pair, name in named]
    at = np.cumsum(new) - 1
    sides = [np.full(len(moment), -1), np.full(len(moment), -1)]
    for keys in ([(pair, SHARED) for pair, _ in queues], queues):  # the queue's own comes last, because it counts first
        flow = np.array([codes.get(key, -1) for key in keys], np.int64)
        if flow.max(initial=-1) < 0:
            continue
        index = flows.at(flow[at], moment)
        for number, side in enumerate((flows.sends, flows.acks)):
            has = (index >= 0) & side.known[index]
            sides[number] = np.where(has, index, sides[number])
    return sides[0], sides[1]


@dataclass(frozen=True, slots=True)
class _Cut:
    """The queue's newest reading not after the cut (`at`, where it is `known`), at each of its readings."""

    at: Ints
    known: Flags

    @classmethod
    def of(cls, q: _Readings, flows: Outflows, cut_us: Ints, index: Ints, series: Ints) -> Self:
        is_cut = (index >= 0) & (cut_us[index] != NA)
        moment = np.searchsorted(flows.times, cut_us, "right")[index] - 1
        at = np.maximum(q.newest(np.where(is_cut, moment, -1), len(flows.times)), 0)
        known = is_cut & (series[at] == series)
        return cls(np.where(known, at, 0), known)


@dataclass(frozen=True, slots=True)
class _Likely:
    """The likely cut: `past` of the way from the queue's newest reading not after it to the one after that."""

    low: Ints
    past: Floats
    known: Flags

    @classmethod
    def of(cls, q: _Readings, flows: Outflows, side: Side, index: Ints) -> Self:
        indices, cut = np.arange(len(q.us)), _Cut.of(q, flows, side.likely_us, index, q.life)
        after = np.minimum(cut.at + 1, indices)
        took = np.maximum(1, q.us[after] - q.us[cut.at])
        past = np.clip((side.likely_us[index] - q.us[cut.at]) / took, 0, 1)
        is_between = cut.known & (after > cut.at)
        return cls(np.where(cut.known, cut.at, indices), np.where(is_between, past, 0.0), cut.known)

    def then(self, counter: Ints) -> Floats:
        high = np.minimum(self.low + 1, len(counter) - 1)
        return self.past * (counter[high] - counter[self.low]) + counter[self.low]


def _first_readings(q: _Readings, flows: Outflows) -> QueueFigures:
    """Make the figures of a queue's first reading unknown: a queue that looks new may have existed before."""
    first = np.flatnonzero(q.new)
    first = first[flows.goes_on[q.index[first]]]
    none = np.zeros(len(first), np.int64)
    return QueueFigures(q.index[first], first, none + 1, none + NA, none, none + NA, none > 0)


def _at_last(q: _Readings, flows: Outflows) -> Ints:
    newest = np.full(len(flows.keys), -1)
    flow = flows.flow[q.index]
    np.maximum.at(newest, flow, q.index)
    return np.flatnonzero(q.index == newest[flow])


def _bounds_between(q: _Readings, flows: Outflows, cut: _Cut, acked: _Cut, b: Ints, e: Ints) -> QueueFigures:
    goes_on = ~q.begins[e] | (b == e)
    held = q.depth[b] + q.sent[e] - q.sent[b]
    loss = np.maximum(np.where(cut.known[b], np.minimum(q.sent[e] - q.sent[cut.at[b]], held), held), 0)
    indices = np.arange(len(q.us))
    passed = np.where(cut.known, np.minimum(q.passed[np.minimum(cut.at + 1, indices)], q.passed), q.passed)
    duplicates = np.maximum(np.minimum(q.consumed, passed)[e] - q.consumed[acked.at[b]], 0)
    duplicates = _or_whole_outflow(duplicates, acked.known[b], flows, q.acks[b], q.acks[e])
    took = q.us[e] - q.us[b]
    # No message in the queue can be older than what was oldest at the start.
    in_queue = np.where(q.depth[b] == 0, took, np.where(q.oldest_us[b] == NA, NA, q.oldest_us[b] + took))
    since = q.us[e] - flows.oldest_us[q.index[b]]
    age, is_floor = _age(loss, since, in_queue, flows.is_floor[q.index[b]])
    index = q.index[e]
    loss, duplicates = np.where(goes_on, loss, NA), np.where(goes_on, duplicates, NA)
    return QueueFigures(index, e, index - q.index[b], loss, age, duplicates, is_floor & goes_on)


@dataclass(frozen=True, slots=True)
class _Uncopied:
    """The number of a queue's messages that have no copy at the other site, at each of its readings: by the newest
    comparison of ids (`known`, at the reading `then`), and by the next one (`later`); NA where no recent one
    included that queue. `compares` says whether ids of that queue are compared at all."""

    compares: Flags
    known: Ints
    then: Ints
    later: Ints

    @classmethod
    def of(cls, rows: Columns, q: _Readings, compares: Flags) -> Self:
        counted = rows.take(np.flatnonzero((rows.kind == UNCOPIED) & (rows.depth != NA)))
        times, many = np.unique(np.concatenate([q.us, counted.us])), len(rows.words) + 1

        def key(pair: Ints, name: Ints | int, us: Ints) -> Ints:
            return (pair * many + name) * len(times) + np.searchsorted(times, us)

        order = np.argsort(key(counted.pair, counted.name, counted.us), kind="stable")
        counted = counted.take(order)
        at = index_of(key(counted.pair, counted.name, counted.us), key(q.pair, q.queue, q.us))
        is_told, is_empty = at >= 0, q.depth == 0
        count = np.where(is_empty, 0, NA)
        count[is_told] = np.minimum(counted.depth[at[is_told]], q.depth[is_told])
        left_out = np.isin(key(q.pair, 0, q.us), key(counted.pair, 0, counted.us)) & ~is_told & ~is_empty
        indices = np.arange(len(q.us))
        then = last_true(is_told | is_empty | left_out, q.new)
        is_known = (then >= 0) & (q.us - q.us[then] <= COMPARED_US)
        known = np.where(is_known & (count[then] != NA), np.minimum(count[then], q.depth), NA)
        after = next_true(is_told | is_empty, q.new)
        is_next = after < len(indices)
        after = np.where(is_next, after, indices)
        later = np.where(is_next & (q.us[after] - q.us <= LONGEST_GAP_US), count[after], NA)
        return cls(compares, known, np.where(is_known, then, indices), later)

    def between(self, q: _Readings, flows: Outflows, b: Ints, e: Ints) -> QueueFigures:
        """Bound the messages without a copy from one reading of each queue to another by those of the comparison
        before, with all that was sent since and not put into the outflow, or by those of a later one. If no comparison
        tells, the bound is all that the queue held."""
        then, goes_on = self.then[b], q.series[self.then[b]] == q.series[e]
        held = np.where(~q.begins[e] | (b == e), q.depth[b] + q.sent[e] - q.sent[b], np.maximum(q.depth[b], q.depth[e]))
        put = flows.sends.added[q.index[e]] - flows.sends.added[q.index[then]]
        missed = np.where(goes_on, np.maximum(q.sent[e] - q.sent[then] - put, 0), held)
        uncopied = np.minimum(np.maximum.reduce([self.known[b] + missed, self.known[e], self.later[e]]), held)
        left_out = (self.known[b] == NA) | ((self.known[e] == NA) & (self.later[e] == NA))
        loss = np.where(self.compares[e], np.where(left_out, held, uncopied), 0)
        took = q.us[e] - q.us[b]
        in_queue = np.where(q.depth[b] == 0, took, np.where(q.oldest_us[b] == NA, NA, q.oldest_us[b] + took))
        return self._aged(q, e, loss, in_queue, np.maximum(q.index[e] - q.index[b], 1))

    def likely(self, q: _Readings) -> QueueFigures:
        indices = np.arange(len(q.us))
        return self._aged(q, indices, np.where(self.compares, self.known, 0), q.oldest_us, np.ones_like(indices))

    @staticmethod
    def _aged(q: _Readings, at: Ints, loss: Ints, in_queue: Ints, width: Ints) -> QueueFigures:
        """Messages without a copy may be the oldest of the queue. If the broker does not tell how old that is, they may
        be older than the queue's first reading."""
        first, is_floor = np.flatnonzero(q.new)[q.thing[at]], (loss > 0) & (in_queue == NA)
        age = np.where(loss > 0, np.where(is_floor, q.us[at] - q.us[first], in_queue), 0)
        return QueueFigures(q.index[at], at, width, loss, age, np.zeros_like(loss), is_floor)


def _or_whole_outflow(duplicates: Ints, known: Flags, flows: Outflows, begin: Ints, end: Ints) -> Ints:
    """Where the cut of the acknowledgements is unknown, count everything that their outflow held between two of its
    readings."""
    some = np.flatnonzero(~known)
    begin, end = begin[some], end[some]
    is_read = (begin >= 0) & (end >= 0)
    is_read &= flows.series[begin] == flows.series[end]
    duplicates[some] = np.where(is_read, flows.acks.most(begin, end), NA)
    return duplicates


def _age(loss: Ints, since: Ints, in_queue: Ints, is_floor: Flags) -> tuple[Ints, Flags]:
    age = np.where(loss == 0, 0, np.where(in_queue == NA, since, np.minimum(since, in_queue)))
    return age, is_floor & (loss > 0) & (in_queue == NA)


def _likely(q: _Readings, flows: Outflows, cut: _Likely, acked: _Likely) -> QueueFigures:
    """Compute likely figures, with counters that continue over restarts."""
    counters = ((q.sent, q.sent), (q.consumed, q.consumed), (q.passed, q.sent))
    sent, consumed, passed = (q.continued(counter, of) for counter, of in counters)
    loss = _rounded_together(np.where(cut.known, np.minimum(sent - cut.then(sent), q.depth), q.depth), q.index)
    shipped = np.where(cut.known, cut.then(passed), passed)
    duplicates = _rounded_together(np.minimum(consumed, shipped) - acked.then(consumed), q.index)
    duplicates = _or_whole_outflow(duplicates, acked.known, flows, q.acks, q.acks)
    likely_us = flows.sends.likely_us[q.index]
    since = q.us - np.where(likely_us == NA, flows.oldest_us[q.index], likely_us)
    since = np.minimum(since, _since_sent(q, loss, since))
    age, is_floor = _age(loss, since, q.oldest_us, flows.is_floor[q.index])
    return QueueFigures(q.index, np.arange(len(loss)), np.ones_like(loss), loss, age, duplicates, is_floor)


def _rounded_together(counts: Floats, index: Ints) -> Ints:
    """Round counts of queues, none below zero, so that those of each reading add up: a third of a message in each of a
    thousand queues is not nothing."""
    order = np.argsort(index, kind="stable")
    sums = np.cumsum(np.maximum(counts[order], 0))
    begins = np.searchsorted(index[order], index[order])
    before = np.where(begins > 0, sums[begins - 1], 0.0)
    up_to = np.rint(sums - before).astype(np.int64)
    whole: Ints = np.empty_like(up_to)
    whole[order] = np.where(begins == np.arange(len(order)), up_to, np.diff(up_to, prepend=0))
    return whole


def _since_sent(q: _Readings, lost: Ints, most: Ints) -> Ints:
    """Return how long ago the oldest of so many newest messages was likely sent: when the counter of sends passed them.
    The newest messages are lost, because consumers take the oldest first."""
    some = np.flatnonzero((lost > 0) & ~q.begins)
    age = most.copy()
    if not len(some):
        return age
    first = np.maximum.accumulate(np.where(q.begins, np.arange(len(q.us)), 0))
    grown = q.sent - q.sent[first]
    ends = np.flatnonzero(np.append(q.begins[1:], True))
    base = np.concatenate([[0], np.cumsum(grown[ends] + 2)])[q.series - 1]
    target = np.maximum(grown[some] - lost[some], 0)
    at = np.searchsorted(base + grown, base[some] + target, "right") - 1
    at = np.clip(at, first[some], np.maximum(some - 1, first[some]))
    more = np.maximum(1, grown[at + 1] - grown[at])
    sent_us = q.us[at] + ((target - grown[at]) / more * (q.us[at + 1] - q.us[at])).astype(np.int64)
    is_seen = grown[some] >= lost[some]
    age[some] = np.where(is_seen, np.minimum(most[some], q.us[some] - sent_us), most[some])
    return age


def _accounted(q: _Readings, flows: Outflows, pairs: tuple[Ints, Ints]) -> Floats:
    b, e = pairs
    on = ~q.begins[e]
    b, e = b[on], e[on]
    more = q.sent[e] - q.sent[b] + np.where(flows.is_mixed[q.index[e]], q.consumed[e] - q.consumed[b], 0)
    width = q.index[e] - q.index[b]
    return _spread(q.index[e], width, more / np.maximum(1, width), len(flows.us)).round(9)  # zero stays zero


def _shares(rows: Columns, q: _Readings, flows: Outflows, lost: Ints, within_us: tuple[int, int]) -> Iterator[Share]:
    took = np.zeros(len(q.us), np.int64)
    took[:-1] = np.where(q.new[1:], 0, np.minimum(q.us[1:] - q.us[:-1], LONGEST_GAP_US))
    is_within = (q.us >= within_us[0]) & (q.us < within_us[1])
    lost = np.where(is_within, np.maximum(lost, 0), 0)  # NA is below zero
    weight = np.bincount(q.thing, lost * (took // 1000)).astype(np.int64)
    first = np.flatnonzero(q.new)
    most = np.maximum.reduceat(lost, first)
    for n in np.flatnonzero(weight > 0).tolist():
        yield Share(int(flows.flow[q.index[first[n]]]), rows.words[q.queue[first[n]]], int(weight[n]), int(most[n]))


def _largest_named(shares: Iterable[Share]) -> list[Share]:
    """Name the largest, equal ones in the order of their names, and join the rest of each outflow. The result is the
    same in whatever parts the queues were read."""
    order = sorted(shares, key=lambda share: (not share.queue, -share.message_ms, share.flow, share.queue))
    named, others = order[:TOP], dict[int, int]()
    for share in [*(share for share in named if not share.queue), *order[TOP:]]:
        others[share.flow] = others.get(share.flow, 0) + share.message_ms
    unnamed = [Share(flow, "", ms, 0) for flow, ms in sorted(others.items())]
    return [*(share for share in named if share.queue), *unnamed]
