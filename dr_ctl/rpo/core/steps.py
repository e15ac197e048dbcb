"""From outflows to step functions: what was under way of each between two looks, in one scope, at most and likely; and
at the last looks, of each and in total."""

from dataclasses import dataclass, fields, replace
from typing import Final, Self

import numpy as np

from dr_ctl.rpo.core.columns import NA, NEVER, Flags, Floats, Ints, Rows, begins_of, last_true
from dr_ctl.rpo.core.cut import AWAY_US, DOWN, STANDBY, Outflows, Side
from dr_ctl.rpo.core.queues import Queues
from dr_ctl.rpo.core.rates import Drained, drain_ms
from dr_ctl.rpo.core.sums import Sums

METRICS: Final = ("loss", "age_ms", "duplicates")
GAP_POLLS: Final = 5
"""An interval longer than this many usual ones is a gap: not covered time."""
AROUND: Final = 10
"""Usual is the median of so many intervals before, this one, and so many after."""
LEAST_GAP_US: Final = 10 * 1_000_000
"""However short intervals are: a look may be late by so much."""
LATE: Final = 60
"""An interval of up to so many usual ones, or of up to ten minutes, is one in which the site answered late or not."""


@dataclass(frozen=True, slots=True)
class Figures(Rows):
    """By interval or look, NA where not known. `drain`: how much lies in the outflow that takes longest to drain, which
    that is, and whether in its acknowledgements; `urge_ms`: how long by the looks at hand."""

    loss: Ints
    age_ms: Ints
    duplicates: Ints
    drain: Ints
    drain_flow: Ints
    drain_acks: Ints
    urge_ms: Ints

    def of(self, metric: str) -> Ints:
        found: Ints = getattr(self, metric)
        return found


@dataclass(frozen=True, slots=True)
class Steps(Rows):
    """Figures that hold from `begin` to `end`, by outflow and time. `covered` time counts; `idle` is time in which the
    site was on standby, or down: no message is at stake; `late` is time in which the site answered late, in part or not
    at all. `likely`: figures likely at both ends."""

    flow: Ints
    begin: Ints
    end: Ints
    bound: Figures
    likely: tuple[Figures, Figures]
    covered: Flags
    idle: Flags
    late: Flags
    is_floor: Flags
    stalled: Flags

    @property
    def weight(self) -> Ints:
        return self.end - self.begin

    def of_flow(self, flow: int) -> Self:
        return self.take(np.flatnonzero(self.flow == flow))

    def clipped(self, from_us: int, to_us: int) -> Self:
        """Cut it to that time."""
        some = self.take(np.flatnonzero((self.end > from_us) & (self.begin < to_us)))
        return replace(some, begin=np.maximum(some.begin, from_us), end=np.minimum(some.end, to_us))


class Course:
    """What the looks at some outflows say of each of them."""

    def __init__(self, flows: Outflows, queues: Queues) -> None:
        self.flows, self.queues = flows, queues
        count = len(flows.keys)
        self.ends = flows.ends
        self.last = np.flatnonzero(flows.flow[1:] == flows.flow[:-1]) + 1  # the looks that end an interval
        self.has_sends, self.has_acks = (
            np.bincount(flows.flow, side.known, count) > 0 for side in (flows.sends, flows.acks)
        )
        self.read = queues.likely.queues[0] > 0
        self.drained = Drained.of(flows, flows.sends), Drained.of(flows, flows.acks)
        self.rates = self.drained[0].by_flow(count), self.drained[1].by_flow(count)
        self.gap_us, self.spacing_us = self._usual()
        # Looks at an outflow alone, between or soon after looks at its queues.
        self._begins = begins_of(flows.flow)
        newest = last_true(self.read, self._begins)
        self.full = np.maximum(newest, 0)
        self.alone = ~self.read & (newest >= 0) & (flows.us - flows.us[self.full] <= AWAY_US)
        self.put = np.zeros(len(flows.us))
        b, e = self.last - 1, self.last
        known = flows.goes_on[e] & flows.sends.known[e] & flows.sends.known[b]
        self.put[e] = np.where(known, flows.sends.added[e] - flows.sends.added[b], 0)

    def _usual(self) -> tuple[Ints, Ints]:
        """How long each interval may be to count; how far apart the looks at each outflow are."""
        took = self.flows.us[self.last] - self.flows.us[self.last - 1]
        edges = np.searchsorted(self.flows.flow[self.last], np.arange(len(self.flows.keys) + 1))
        gap, spacing = np.zeros(len(took), np.int64), np.zeros(len(self.flows.keys), np.int64)
        for flow in np.flatnonzero(np.diff(edges)).tolist():
            mine = slice(int(edges[flow]), int(edges[flow + 1]))
            each = took[mine]
            spacing[flow] = int(np.sort(each)[(len(each) + 1) // 2 - 1])
            usual: Floats = np.full(len(each), spacing[flow])
            if len(each) > AROUND and each.max() > GAP_POLLS * each.min():  # otherwise no interval can be a gap
                around = np.pad(each, AROUND, mode="reflect")
                usual = np.median(np.lib.stride_tricks.sliding_window_view(around, 2 * AROUND + 1), axis=1)
            gap[mine] = np.maximum(GAP_POLLS * usual, LEAST_GAP_US).astype(np.int64)
        return gap, spacing

    def unread(self, scope: int) -> Flags:
        return self.queues.unread.flags(scope, self.flows, self.read, self.put, self.queues.told)

    def accounted(self, within_us: tuple[int, int]) -> tuple[Ints, Ints]:
        """By outflow, where it is mixed: things put in between looks that read queues, and how many of them the queues'
        counters tell. What came between two such looks is compared as a whole: the counters of an outflow and of its
        queues are read at other moments in between."""
        flows = self.flows
        whole = np.flatnonzero(self.read)
        b, e = whole[:-1], whole[1:]
        breaks = np.cumsum(~flows.goes_on | self.queues.within.loss_unknown[0])
        good = (flows.flow[b] == flows.flow[e]) & (breaks[b] == breaks[e]) & flows.is_mixed[e]
        good &= (flows.us[e] >= within_us[0]) & (flows.us[e] < within_us[1])
        b, e = b[good], e[good]
        put, told = (np.cumsum(each)[e] - np.cumsum(each)[b] for each in (self.put, self.queues.told))
        count = len(flows.keys)
        both = np.bincount(flows.flow[e], put, count), np.bincount(flows.flow[e], np.minimum(np.rint(told), put), count)
        return both[0].astype(np.int64), both[1].astype(np.int64)

    def steps(self, scope: int) -> Steps:
        """`scope` 0 is the total."""
        flows, b, e = self.flows, self.last - 1, self.last
        on = flows.goes_on[e]
        sends, acks = (
            np.where(on & side.known[b] & side.known[e], side.most(b, e), NA) for side in (flows.sends, flows.acks)
        )
        took = flows.us[e] - flows.us[b]
        unread = self.unread(scope)
        bound, is_floor = self.figures(scope, self.queues.within, e, b, flows.us[e], unread[e], sends, acks)
        likely = self.likely(scope, unread)
        idle = (flows.role[b] == STANDBY) | (flows.role[b] == DOWN)
        covered = on & (took <= self.gap_us) & ~idle
        late = ~covered & ~idle & (took <= np.maximum(self.gap_us // GAP_POLLS * LATE, AWAY_US))
        stalled = on & self._stalls(b, e, b)
        ends = (likely.take(b), likely.take(e))
        return Steps(flows.flow[e], flows.us[b], flows.us[e], bound, ends, covered, idle, late, is_floor, stalled)

    def likely(self, scope: int, unread: Flags) -> Figures:
        """At each look: no more than lies in the outflow, and that where some queue was not read. A look at the outflow
        alone has the share of it that the look before had."""
        flows, sums, alone = self.flows, self.queues.likely, self.alone
        sends, acks, places = flows.sends.depth, flows.acks.depth, np.arange(len(flows.us))
        is_any = self.queues.unread.is_any[scope][flows.flow]
        unread = (unread | (is_any & (sums.queues[scope] == 0))) & ~alone
        found, _ = self.figures(scope, sums, places, places, flows.us, unread, sends, acks)
        if not alone.any():
            return found

        def shared(figure: Ints, most: Ints) -> Ints:
            last = last_true(~alone & (figure != NA) & (most > 0), self._begins)
            share = np.where(last >= 0, figure[last] / np.maximum(1, most[last]), 1.0)
            some = np.rint(np.maximum(most, 0) * share).astype(np.int64)
            return np.where(alone, np.where(most == NA, NA, some), figure)

        loss, duplicates = shared(found.loss, sends), shared(found.duplicates, acks)
        since = flows.us - np.where(flows.sends.likely_us == NA, flows.oldest_us, flows.sends.likely_us)
        age_ms = np.where(loss > 0, -(-since // 1000), loss)
        # No older than what was oldest where it was told last has become.
        last = last_true(~alone & (found.age_ms != NA), self._begins)
        aged = np.where(last >= 0, found.age_ms[last] - (-(flows.us - flows.us[last]) // 1000), NEVER)
        age_ms = np.where(alone, np.minimum(age_ms, aged), found.age_ms)
        return replace(found, loss=loss, duplicates=duplicates, age_ms=age_ms)

    def now(self, scope: int) -> Steps:
        """The last look at each outflow, all at one moment, without those that were last read long ago."""
        flows, ends = self.flows, self.ends
        us, places = flows.us[ends], np.arange(len(ends))
        pairs = np.unique([pair for pair, _ in flows.keys], return_inverse=True)[1]
        last_us = np.zeros(len(ends), np.int64)
        np.maximum.at(last_us, pairs, us)
        gap = np.zeros(len(flows.us), np.int64)
        gap[self.last] = self.gap_us
        at_last = us == last_us[pairs]
        sends, acks = (np.where(at_last, side.depth[ends], NA) for side in (flows.sends, flows.acks))
        alone, full, unread = self.alone[ends], self.full[ends], self.unread(scope)
        at_full = unread[np.where(alone, full, ends)]
        bound, floor = self.figures(scope, self.queues.last, places, ends, us, at_full, sends, acks)
        bound = self._grown(bound, alone, sends, acks)
        likely = self.likely(scope, unread).take(ends)
        before = np.maximum(ends - 1, 0)
        stalled = flows.goes_on[ends] & (flows.flow[before] == places) & self._stalls(before, ends, ends)
        none = places < 0
        now = Steps(places, none + 0, none + 1, bound, (likely, likely), ~none, none, none, floor, stalled)
        return now.only(at_last | (last_us[pairs] - us <= gap[ends]))

    def _stalls(self, begin: Ints, end: Ints, there: Ints) -> Flags:
        """Whether something waits, and nothing was shipped."""
        sends = self.flows.sends
        stalls: Flags = (sends.depth[there] > 0) & (sends.shipped[end] == sends.shipped[begin])
        return stalls

    def _grown(self, bound: Figures, alone: Flags, sends: Ints, acks: Ints) -> Figures:
        """Since the last look at the queues no more can have come than was put into the outflow."""
        flows, end, full, breaks = self.flows, self.ends, self.full[self.ends], np.cumsum(~self.flows.goes_on)

        def grown(then: Ints, side: Side, most: Ints) -> Ints:
            known = (breaks[end] == breaks[full]) & side.known[full] & (then != NA)
            now = np.where(known, np.minimum(most, then + side.added[end] - side.added[full]), most)
            return np.where(alone, now, then)

        loss, duplicates = grown(bound.loss, flows.sends, sends), grown(bound.duplicates, flows.acks, acks)
        age_ms = np.where(sends == NA, NA, -((flows.oldest_us[end] - flows.us[end]) // 1000))
        age_ms = np.where(alone, np.where(loss == 0, 0, age_ms), bound.age_ms)
        return replace(bound, loss=loss, duplicates=duplicates, age_ms=age_ms)

    def figures(
        self, scope: int, sums: Sums, at: Ints, then: Ints, us: Ints, unread: Flags, sends: Ints, acks: Ints
    ) -> tuple[Figures, Flags]:
        """With a queue not known, or in the total none read: the outflow's whole content. Otherwise: their sum. `at`:
        where the sums of each stand; what is in the outflow at `us` was sent as the look `then` says."""
        flow = self.flows.flow[then]
        flow_age = np.where(sends > 0, us - self.flows.oldest_us[then], sends)
        told = Sums(*(getattr(sums, each.name)[scope][at] for each in fields(Sums)))
        none = (told.queues == 0) & ~unread

        def within(total: Ints, is_unknown: Flags, most: Ints) -> Ints:
            least = np.where(most == NA, total, np.minimum(total, most))
            return np.where(none, 0 if scope else most, np.where(is_unknown | unread, most, least))

        loss = within(told.loss, told.loss_unknown, np.where(self.has_sends[flow], sends, 0))
        duplicates = within(told.duplicates, told.duplicates_unknown, acks)
        of_queues = ~none & ~told.loss_unknown & ~unread
        age = np.where(of_queues, np.where(flow_age == NA, told.age, np.minimum(told.age, flow_age)), flow_age)
        age = np.where(loss == 0, 0, age)
        age_ms = np.where((loss == NA) | (age == NA), NA, -(-age // 1000))
        is_floor = (loss > 0) & (told.is_floor | (self.flows.is_floor[then] & (sends > 0)))
        drain = self._drain(flow, sends, acks, none & (scope > 0))
        return Figures(loss, age_ms, duplicates, *drain), is_floor

    def _drain(self, flow: Ints, sends: Ints, acks: Ints, none: Flags) -> tuple[Ints, Ints, Ints, Ints]:
        """Directions drain side by side: the one that takes longer, by the looks at hand; none is longer than one that
        nobody knows."""
        waits, side_of, urge = (np.zeros(len(flow), np.int64) for _ in range(3))
        for side, (most, rates, has) in enumerate(
            zip((sends, acks), self.rates, (self.has_sends, self.has_acks), strict=True)
        ):
            took = drain_ms(most, rates[flow])
            # A backlog nobody saw drain counts as one a second.
            took = np.where(most == NA, NEVER, np.where(took == NA, most * 1000, took))
            longer = has[flow] & ~none & (took > urge)
            waits, side_of, urge = (
                np.where(longer, new, old) for new, old in ((most, waits), (side, side_of), (took, urge))
            )
        return waits, flow, side_of, urge
