"""Step functions of outflows: the messages of each that were under way between two readings, in one scope, at most and
likely; how fast they were shipped; and the state at the last readings. The total is a series of its own, because
quantiles do not add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, Self

import numpy as np

from dr_ctl.rpo.core.arrays import NA, NEVER, SECOND_US, Flags, Floats, Ints, Rows, begins_of, last_true, parts
from dr_ctl.rpo.core.cut import DOWN, LONGEST_GAP_US, NO_ROLE, SITE, STANDBY, Columns, Outflows, Side, roles_of
from dr_ctl.rpo.core.queues import Queues, Sums
from dr_ctl.rpo.core.rows import weighted_quantile

LEVELS: Final = 63
SIMILAR_LEVELS: Final = 3
"""Backlogs of at least an eighth (2^-3) of a backlog show how it drains."""


@dataclass(frozen=True, slots=True)
class Drained:
    """Shipments by interval: messages (or acknowledgements) a second, their number, and the backlog at the start as a
    power of two (`level`)."""

    flow: Ints
    us: Ints
    rate: Floats
    shipped: Ints
    level: Ints

    @classmethod
    def of(cls, flows: Outflows, side: Side) -> Drained:
        """Take intervals with a backlog at both ends in which something was shipped."""
        on = flows.goes_on[1:] & flows.link[1:] & flows.link[:-1] & (side.depth[1:] > 0) & (side.depth[:-1] > 0)
        selected = np.flatnonzero(on & (side.shipped[1:] > side.shipped[:-1]))
        shipped = side.shipped[selected + 1] - side.shipped[selected]
        level = np.floor(np.log2(side.depth[selected])).astype(np.int64)
        rate = shipped * 1e6 / (flows.us[selected + 1] - flows.us[selected])
        return cls(flows.flow[selected + 1], flows.us[selected + 1], rate, shipped, level)

    def by_flow(self, flows: int) -> Floats:
        by_level = np.full((flows, LEVELS), np.nan)
        for flow, own in parts(self.flow):
            by_level[flow] = rates(self.rate[own], self.shipped[own], self.level[own])
        return by_level


def rates(rate: Floats, shipped: Ints, level: Ints) -> Floats:
    """Return rates of shipping by backlog: at index k the rate of intervals that began with at least 2^k, exceeded by
    nine tenths of the messages shipped in them; NaN without such intervals. Without a backlog the traffic limits the
    rate, with one the link does: therefore each backlog is compared with similar ones."""
    by_level = np.full(LEVELS, np.nan)
    for least in range(int(level.max(initial=-1)) + 1):
        some = level >= least
        by_level[least] = weighted_quantile(rate[some], shipped[some], 0.1)
    return by_level


def drain_ms(most: Ints, by_level: Floats) -> Ints:
    """Return the time to ship such content at the rates of its outflow (one row for all, or one each); NA: not
    known."""
    waited = np.maximum(most, 1)
    level = np.maximum(np.log2(waited).astype(np.int64) - SIMILAR_LEVELS, 0)
    row = (np.arange(len(most)),) if by_level.ndim > 1 else ()
    similar, overall = by_level[(*row, level)], by_level[..., 0]
    took = np.ceil(waited * 1000 / np.where(np.isnan(similar), overall, similar))
    known = (most != NA) & ~np.isnan(took)
    return np.where(most == 0, 0, np.where(known, np.where(known, took, 0), NA)).astype(np.int64)


METRICS: Final = ("loss", "age_ms", "duplicates")
GAP_POLLS: Final = 5
"""An interval longer than this many usual ones is a gap, which is not covered time."""
AROUND: Final = 10
"""The usual interval is the median of so many before, this one, and so many after."""
MIN_GAP_US: Final = 10 * SECOND_US
"""A reading may be late by so much, however short intervals are."""
LATE: Final = 60
"""An uncovered interval of up to so many usual ones, or ten minutes, is a late answer of the site."""


@dataclass(frozen=True, slots=True)
class Figures(Rows):
    """Figures by interval or reading, NA where not known. `drain` is the content of the outflow that takes longest to
    drain; `drain_flow` and `drain_acks` name it, and `urge_ms` is its drain time at the rates known by then.
    With `is_floor` the age is at least the figure."""

    loss: Ints
    age_ms: Ints
    duplicates: Ints
    drain: Ints
    drain_flow: Ints
    drain_acks: Ints
    urge_ms: Ints
    is_floor: Flags

    def of(self, metric: str) -> Ints:
        return getattr(self, metric)


@dataclass(frozen=True, slots=True)
class Steps(Rows):
    """Figures that hold from `begin` to `end`, by outflow and time. `covered` time counts. In `idle` time the site was
    on standby, or down, and no message is at stake; in `taken_over` time another node became active; in other `late`
    time the site answered late, in part or not at all. `likely` has figures likely at both ends."""

    flow: Ints
    begin: Ints
    end: Ints
    bound: Figures
    likely: tuple[Figures, Figures]
    covered: Flags
    idle: Flags
    taken_over: Flags
    late: Flags
    stalled: Flags

    @property
    def weight(self) -> Ints:
        return self.end - self.begin

    def clipped(self, from_us: int, to_us: int) -> Self:
        some = self.take(np.flatnonzero((self.end > from_us) & (self.begin < to_us)))
        return replace(some, begin=np.maximum(some.begin, from_us), end=np.minimum(some.end, to_us))


class LagSeries:
    def __init__(self, flows: Outflows, queues: Queues) -> None:
        self.flows, self.queues = flows, queues
        count = len(flows.keys)
        self.ends = flows.ends
        self.last = np.flatnonzero(flows.flow[1:] == flows.flow[:-1]) + 1  # the readings that end an interval
        self.has_sends, self.has_acks = (
            np.bincount(flows.flow, side.known, count) > 0 for side in (flows.sends, flows.acks)
        )
        self.read = queues.likely.queues[0] > 0
        self.drained = Drained.of(flows, flows.sends), Drained.of(flows, flows.acks)
        self.rates = self.drained[0].by_flow(count), self.drained[1].by_flow(count)
        self.gap_us, self.spacing_us = self._usual()
        # Readings of an outflow alone, between or soon after readings of its queues.
        self._begins = begins_of(flows.flow)
        newest = last_true(self.read, self._begins)
        self.full = np.maximum(newest, 0)
        self.near = (newest >= 0) & (flows.us - flows.us[self.full] <= LONGEST_GAP_US)
        self.outflow_only = ~self.read & self.near
        self.put = np.zeros(len(flows.us))
        b, e = self.last - 1, self.last
        known = flows.goes_on[e] & flows.sends.known[e] & flows.sends.known[b]
        self.put[e] = np.where(known, flows.sends.added[e] - flows.sends.added[b], 0)

    def _usual(self) -> tuple[Ints, Ints]:
        """Return the longest covered interval at each reading, and the usual interval of each outflow."""
        took = self.flows.us[self.last] - self.flows.us[self.last - 1]
        gap, spacing = np.zeros(len(took), np.int64), np.zeros(len(self.flows.keys), np.int64)
        for flow, own in parts(self.flows.flow[self.last]):
            lengths = took[own]
            spacing[flow] = int(np.sort(lengths)[(len(lengths) + 1) // 2 - 1])
            usual: Floats = np.full(len(lengths), spacing[flow])
            # Otherwise no interval can be a gap.
            if len(lengths) > AROUND and lengths.max() > GAP_POLLS * lengths.min():
                around = np.pad(lengths, AROUND, mode="reflect")
                usual = np.median(np.lib.stride_tricks.sliding_window_view(around, 2 * AROUND + 1), axis=1)
            gap[own] = np.maximum(GAP_POLLS * usual, MIN_GAP_US).astype(np.int64)
        return gap, spacing

    def unread(self, scope: int) -> Flags:
        return self.queues.unread.flags(scope, self.flows, self.read, self.put, self.queues.accounted)

    def accounted(self, within_us: tuple[int, int]) -> tuple[Ints, Ints]:
        """Return, by mixed outflow, the things put in between readings that read queues, and how many of them the
        queues' counters tell. Arrivals between two such readings are compared as a whole, because the counters of an
        outflow and of its queues are read at other moments in between."""
        flows = self.flows
        whole = np.flatnonzero(self.read)
        b, e = whole[:-1], whole[1:]
        breaks = np.cumsum(~flows.goes_on | self.queues.within.loss_unknown[0])
        selected = (flows.flow[b] == flows.flow[e]) & (breaks[b] == breaks[e]) & flows.is_mixed[e]
        selected &= (flows.us[e] >= within_us[0]) & (flows.us[e] < within_us[1])
        b, e = b[selected], e[selected]
        put, own = (np.cumsum(of)[e] - np.cumsum(of)[b] for of in (self.put, self.queues.accounted))
        count = len(flows.keys)
        both = np.bincount(flows.flow[e], put, count), np.bincount(flows.flow[e], np.minimum(np.rint(own), put), count)
        return both[0].astype(np.int64), both[1].astype(np.int64)

    def steps(self, scope: int) -> Steps:
        flows, b, e = self.flows, self.last - 1, self.last
        on = flows.goes_on[e]
        sides = flows.sends, flows.acks
        sends, acks = (np.where(on & side.known[b] & side.known[e], side.most(b, e), NA) for side in sides)
        took = flows.us[e] - flows.us[b]
        unread = self.unread(scope)
        bound = self.figures(scope, self.queues.within, e, b, flows.us[e], unread[e], sends, acks)
        bound = self._without_copy(scope, bound, self.queues.uncopied_within, [e, self.full[e]], e)
        likely = self.likely(scope, unread)
        idle = (flows.role[b] == STANDBY) | (flows.role[b] == DOWN)
        covered = on & (took <= self.gap_us) & ~idle
        taken_over = flows.taken_over[e] & ~idle
        late = ~covered & ~idle & ~taken_over & (took <= np.maximum(self.gap_us // GAP_POLLS * LATE, LONGEST_GAP_US))
        stalled = on & self._stalls(b, e, b)
        ends = (likely.take(b), likely.take(e))
        spans = flows.flow[e], flows.us[b], flows.us[e]
        return Steps(*spans, bound, ends, covered, idle, taken_over, late, stalled)

    def _without_copy(self, scope: int, figures: Figures, sums: Sums, at: Sequence[Ints], indices: Ints) -> Figures:
        """Add to the figures the messages that have no copy at the other site and are not on their way. `at` has the
        positions of the sums of each reading (`indices`), of which the largest counts. If only the outflow was read
        since, the messages are still there; if a queue was not read for long, their number is not known."""
        if not self.queues.compared.any():
            return figures
        flows, full = self.flows, self.full[indices]
        loss, age = (np.max([of[scope][index] for index in at], axis=0) for of in (sums.loss, sums.age))
        flags = sums.loss_unknown, sums.is_floor
        is_unknown, floor = (np.any([of[scope][index] for index in at], axis=0) for of in flags)
        missing = (np.cumsum(self.queues.unread.missing[scope])[:-1] > 0) & self.queues.compared[flows.flow]
        is_unknown = np.where(self.near[indices], is_unknown, missing[indices]) | (figures.loss == NA)
        loss = np.where(self.near[indices], loss, 0)
        age = np.where(loss > 0, age + flows.us[indices] - flows.us[full], 0)
        age_ms = np.where(is_unknown | (figures.age_ms == NA), NA, np.maximum(figures.age_ms, -(-age // 1000)))
        is_floor = figures.is_floor | (floor & (loss > 0))
        loss = np.where(is_unknown, NA, figures.loss + loss)
        return replace(figures, loss=loss, age_ms=age_ms, is_floor=is_floor)

    def likely(self, scope: int, unread: Flags) -> Figures:
        figures, indices = self.under_way(scope, unread), np.arange(len(self.flows.us))
        return self._without_copy(scope, figures, self.queues.uncopied_likely, [self.full], indices)

    def under_way(self, scope: int, unread: Flags) -> Figures:
        """Return the figures at each reading: no more than the outflow's content, and all of it if some queue was not
        read. A reading of the outflow alone has the share of it that the reading before had."""
        flows, sums, outflow_only = self.flows, self.queues.likely, self.outflow_only
        sends, acks, indices = flows.sends.depth, flows.acks.depth, np.arange(len(flows.us))
        is_any = self.queues.unread.is_any[scope][flows.flow]
        unread = (unread | (is_any & (sums.queues[scope] == 0))) & ~outflow_only
        figures = self.figures(scope, sums, indices, indices, flows.us, unread, sends, acks)
        if not outflow_only.any():
            return figures

        def shared(figure: Ints, most: Ints) -> Ints:
            last = last_true(~outflow_only & (figure != NA) & (most > 0), self._begins)
            share = np.where(last >= 0, figure[last] / np.maximum(1, most[last]), 1.0)
            some = np.rint(np.maximum(most, 0) * share).astype(np.int64)
            return np.where(outflow_only, np.where(most == NA, NA, some), figure)

        loss, duplicates = shared(figures.loss, sends), shared(figures.duplicates, acks)
        since = flows.us - np.where(flows.sends.likely_us == NA, flows.oldest_us, flows.sends.likely_us)
        age_ms = np.where(loss > 0, -(-since // 1000), loss)
        # No message is older than the last known age plus the time since.
        last = last_true(~outflow_only & (figures.age_ms != NA), self._begins)
        aged = np.where(last >= 0, figures.age_ms[last] - (-(flows.us - flows.us[last]) // 1000), NEVER)
        age_ms = np.where(outflow_only, np.minimum(age_ms, aged), figures.age_ms)
        return replace(figures, loss=loss, duplicates=duplicates, age_ms=age_ms)

    def now(self, scope: int) -> Steps:
        """Return the last reading of each outflow, all at one moment, without those that were last read long ago."""
        flows, ends = self.flows, self.ends
        us, indices = flows.us[ends], np.arange(len(ends))
        pairs = np.unique([pair for pair, _ in flows.keys], return_inverse=True)[1]
        last_us = np.zeros(len(ends), np.int64)
        np.maximum.at(last_us, pairs, us)
        gap = np.zeros(len(flows.us), np.int64)
        gap[self.last] = self.gap_us
        at_last = us == last_us[pairs]
        sends, acks = (np.where(at_last, side.depth[ends], NA) for side in (flows.sends, flows.acks))
        outflow_only, full, unread = self.outflow_only[ends], self.full[ends], self.unread(scope)
        at_full = unread[np.where(outflow_only, full, ends)]
        bound = self.figures(scope, self.queues.last, indices, ends, us, at_full, sends, acks)
        bound = self._grown(bound, outflow_only, sends, acks)
        bound = self._without_copy(scope, bound, self.queues.uncopied_last, [indices], ends)
        likely = self.likely(scope, unread).take(ends)
        before = np.maximum(ends - 1, 0)
        stalled = flows.goes_on[ends] & (flows.flow[before] == indices) & self._stalls(before, ends, ends)
        none = indices < 0
        now = Steps(indices, none + 0, none + 1, bound, (likely, likely), ~none, none, none, none, stalled)
        return now.only(at_last | (last_us[pairs] - us <= gap[ends]))

    def _stalls(self, begin: Ints, end: Ints, at: Ints) -> Flags:
        sends = self.flows.sends
        return (sends.depth[at] > 0) & (sends.shipped[end] == sends.shipped[begin])

    def _grown(self, bound: Figures, outflow_only: Flags, sends: Ints, acks: Ints) -> Figures:
        """Cap the bound: since the last reading of the queues no more can have come than was put into the outflow."""
        flows, end, full, breaks = self.flows, self.ends, self.full[self.ends], np.cumsum(~self.flows.goes_on)

        def grown(then: Ints, side: Side, most: Ints) -> Ints:
            known = (breaks[end] == breaks[full]) & side.known[full] & (then != NA)
            now = np.where(known, np.minimum(most, then + side.added[end] - side.added[full]), most)
            return np.where(outflow_only, now, then)

        loss, duplicates = grown(bound.loss, flows.sends, sends), grown(bound.duplicates, flows.acks, acks)
        age_ms = np.where(sends == NA, NA, -((flows.oldest_us[end] - flows.us[end]) // 1000))
        age_ms = np.where(outflow_only, np.where(loss == 0, 0, age_ms), bound.age_ms)
        return replace(bound, loss=loss, duplicates=duplicates, age_ms=age_ms)

    def figures(
        self, scope: int, sums: Sums, at: Ints, then: Ints, us: Ints, unread: Flags, sends: Ints, acks: Ints
    ) -> Figures:
        """Add up the queues. If a queue is not known, or in the total none was read, take the outflow's whole content.
        `at` has the positions of the sums; the reading `then` shows when the content at `us` was sent."""
        flow = self.flows.flow[then]
        flow_age = np.where(sends > 0, us - self.flows.oldest_us[then], sends)
        summed = Sums(*(getattr(sums, column.name)[scope][at] for column in fields(Sums)))
        none = (summed.queues == 0) & ~unread

        def within(total: Ints, is_unknown: Flags, most: Ints) -> Ints:
            least = np.where(most == NA, total, np.minimum(total, most))
            return np.where(none, 0 if scope else most, np.where(is_unknown | unread, most, least))

        loss = within(summed.loss, summed.loss_unknown, np.where(self.has_sends[flow], sends, 0))
        duplicates = within(summed.duplicates, summed.duplicates_unknown, acks)
        of_queues = ~none & ~summed.loss_unknown & ~unread
        age = np.where(of_queues, np.where(flow_age == NA, summed.age, np.minimum(summed.age, flow_age)), flow_age)
        age = np.where(loss == 0, 0, age)
        age_ms = np.where((loss == NA) | (age == NA), NA, -(-age // 1000))
        is_floor = (loss > 0) & (summed.is_floor | (self.flows.is_floor[then] & (sends > 0)))
        drain = self._drain(flow, sends, acks, none & (scope > 0))
        return Figures(loss, age_ms, duplicates, *drain, is_floor)

    def _drain(self, flow: Ints, sends: Ints, acks: Ints, none: Flags) -> tuple[Ints, Ints, Ints, Ints]:
        """Return the direction that takes longest to drain, because both drain at the same time. An unknown one counts
        as the longest."""
        waits, side_of, urge = (np.zeros(len(flow), np.int64) for _ in range(3))
        sides = zip((sends, acks), self.rates, (self.has_sends, self.has_acks), strict=True)
        for side, (most, rates, has) in enumerate(sides):
            took = drain_ms(most, rates[flow])
            # Without a known rate a backlog counts as draining at one a second.
            took = np.where(most == NA, NEVER, np.where(took == NA, most * 1000, took))
            longer = has[flow] & ~none & (took > urge)
            both = (most, waits), (side, side_of), (took, urge)
            waits, side_of, urge = (np.where(longer, new, old) for new, old in both)
        return waits, flow, side_of, urge


@dataclass(frozen=True, slots=True)
class Gaps:
    """The spans, in order, in which the monitor got no complete answer of a serving site; `lacks` flags those of a pair
    of which no outflow was ever read."""

    begin: Ints
    end: Ints
    lacks: Flags

    @classmethod
    def of(cls, rows: Columns, flows: Outflows) -> Self:
        """Find the spans between two rows of a site's role of which one has no outflow of its pair. A site that does
        not answer keeps the role that it had before."""
        of_site = rows.take(np.flatnonzero(rows.kind == SITE))
        order = np.lexsort((of_site.us, of_site.pair))
        pair, us, role = of_site.pair[order], of_site.us[order], roles_of(rows.words)[of_site.name[order]]
        new = begins_of(pair)
        known = last_true(role != NO_ROLE, new)
        role = np.where(known >= 0, role[known], NO_ROLE)
        answered, lacks = np.zeros(len(us), bool), np.zeros(len(us), bool)
        for code in np.unique(pair).tolist():
            own = [n for n, key in enumerate(flows.keys) if code < 0 or key[0] == rows.words[code]]
            at, times = pair == code, flows.us[np.isin(flows.flow, own)]
            answered[at] = np.isin(us[at], times)
            lacks[at] = code >= 0 and not len(times)
        silent = ~new[1:] & ~(answered[1:] & answered[:-1]) & (us[1:] - us[:-1] <= LONGEST_GAP_US) & (us[1:] > us[:-1])
        at = np.flatnonzero(silent & (role[:-1] != STANDBY) & (role[:-1] != DOWN))
        at = at[np.argsort(us[at], kind="stable")]
        return cls(us[at], us[at + 1], lacks[at])

    def at(self, us: Ints, which: Flags | slice = slice(None)) -> Flags:
        begin, end = np.sort(self.begin[which]), np.sort(self.end[which])
        return np.searchsorted(begin, us, "right") > np.searchsorted(end, us, "right")


_NONE: Final = np.zeros(0, np.int64)
NOTHING: Final = Gaps(_NONE, _NONE, _NONE > 0)


def fold(steps: Steps, acks_only: Flags, gaps: Gaps = NOTHING) -> Steps:
    """Sum step functions. A figure that is not known of one is not known of the sum. An outflow counts from its first
    reading on, and to the end of all; an outflow of a standby adds nothing. The duplicates of
    outflows flagged by `acks_only` are counted with the queues that they serve."""
    marks = np.unique(np.concatenate([steps.begin, steps.end, gaps.begin, gaps.end]))
    begin, end = marks[:-1], marks[1:]
    zero, none = np.zeros(len(begin), np.int64), np.zeros(len(begin), bool)
    initial = {column.name: zero for column in fields(Figures)} | {"urge_ms": zero - 1, "is_floor": none}
    sums = [{**initial} for _ in range(3)]
    holds, idles, alive, taken_over, late, stalled = ~none, ~none, none, none, none, none
    for flow, own in parts(steps.flow):
        at = np.searchsorted(steps.begin[own], begin, "right") - 1
        born, rows = at >= 0, own.start + np.maximum(at, 0)
        live = born & (steps.end[rows] > begin)
        idle = live & steps.idle[rows]
        counts = live & ~idle
        for figures, total in zip((steps.bound, *steps.likely), sums, strict=True):
            for name in METRICS:
                values, tells = figures.of(name)[rows], name != "duplicates" or not acks_only[flow]
                known = counts & tells & (values != NA)
                unknown = (born & ~idle & tells & ~known) | (total[name] == NA)
                how = np.maximum if name == "age_ms" else np.add
                total[name] = np.where(unknown, NA, how(total[name], np.where(known, values, 0)))
            total["is_floor"] = total["is_floor"] | (counts & figures.is_floor[rows])
            urge = np.where(counts, figures.urge_ms[rows], -1)
            longer = urge > total["urge_ms"]
            for name in ("drain", "drain_flow", "drain_acks", "urge_ms"):
                total[name] = np.where(longer, figures.of(name)[rows], total[name])
        alive = alive | born
        holds = holds & (~born | idle | (live & steps.covered[rows]))
        idles = idles & (~born | idle)
        taken_over = taken_over | (counts & steps.taken_over[rows])
        late = late | (counts & steps.late[rows]) | (born & ~live)
        stalled = stalled | (counts & steps.stalled[rows])
    silent = gaps.at(begin)
    covered = holds & alive & ~idles & ~gaps.at(begin, gaps.lacks)
    idle = idles & alive & ~silent
    late = (late | silent) & ~covered & ~idle & ~taken_over
    bound, first, last = (Figures(**total) for total in sums)
    return Steps(zero, begin, end, bound, (first, last), covered, idle, taken_over, late, stalled)
