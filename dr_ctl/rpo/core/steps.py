"""From outflows to step functions: what was under way of each between two looks, in one scope, at most and likely; and
at the last looks, of each and in total."""

from dataclasses import dataclass, fields, replace
from typing import Final, Self

import numpy as np

from dr_ctl.rpo.core.columns import NA, Flags, Floats, Ints, begins_of, last_true
from dr_ctl.rpo.core.cut import AWAY_US, DOWN, STANDBY, Outflows
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
class Figures:
    """By interval or look, NA where not known. `waits`: how much lies in the outflow that takes longest to drain, which
    that is, and whether in its acknowledgements; `urge_ms`: how long by the looks at hand."""

    loss: Ints
    age_ms: Ints
    duplicates: Ints
    waits: Ints
    waits_flow: Ints
    waits_acks: Ints
    urge_ms: Ints

    def take(self, at: Ints | slice) -> Self:
        return type(self)(*(getattr(self, each.name)[at] for each in fields(self)))

    def of(self, metric: str) -> Ints:
        found: Ints = getattr(self, metric)
        return found


@dataclass(frozen=True, slots=True)
class Steps:
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

    def take(self, at: Ints | slice) -> Self:
        told = {each.name: getattr(self, each.name) for each in fields(self)}
        likely = (self.likely[0].take(at), self.likely[1].take(at))
        rest = {name: each[at] for name, each in told.items() if name not in ("bound", "likely")}
        return type(self)(bound=self.bound.take(at), likely=likely, **rest)

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
        age = np.where(sends > 0, flows.us[e] - flows.oldest_us[b], sends)
        floor = (sends > 0) & flows.is_floor[b]
        unread = self.unread(scope)
        bound, is_floor = self.figures(scope, self.queues.within, e, unread[e], sends, acks, age, floor)
        likely = self.likely(scope, unread)
        idle = (flows.role[b] == STANDBY) | (flows.role[b] == DOWN)
        covered = on & (took <= self.gap_us) & ~idle
        late = ~covered & ~idle & (took <= np.maximum(self.gap_us // GAP_POLLS * LATE, AWAY_US))
        stalled = on & (flows.sends.depth[b] > 0) & (flows.sends.shipped[e] == flows.sends.shipped[b])
        ends = (likely.take(b), likely.take(e))
        return Steps(flows.flow[e], flows.us[b], flows.us[e], bound, ends, covered, idle, late, is_floor, stalled)

    def likely(self, scope: int, unread: Flags) -> Figures:
        """At each look: no more than lies in the outflow, and that where some queue was not read. A look at the outflow
        alone has the share of it that the look before had."""
        flows, sums, alone = self.flows, self.queues.likely, self.alone
        sends, acks, places = flows.sends.depth, flows.acks.depth, np.arange(len(flows.us))
        age = np.where(sends > 0, flows.us - flows.oldest_us, sends)
        is_any = self.queues.unread.is_any[scope][flows.flow] if len(places) else alone
        unread = (unread | (is_any & (sums.queues[scope] == 0))) & ~alone
        found = self.figures(scope, sums, places, unread, sends, acks, age, np.zeros(len(age), bool))[0]
        if not alone.any():
            return found
        loss, duplicates = (
            np.where(alone, self._shared(told, most), told)
            for told, most in ((found.loss, sends), (found.duplicates, acks))
        )
        since = flows.us - np.where(flows.sends.likely_us == NA, flows.oldest_us, flows.sends.likely_us)
        age_ms = np.minimum(np.where(loss > 0, -(-since // 1000), loss), self._aged(found.age_ms))
        return replace(found, loss=loss, duplicates=duplicates, age_ms=np.where(alone, age_ms, found.age_ms))

    def _shared(self, figure: Ints, most: Ints) -> Ints:
        """A figure where it was not told: the part of the most that it was where told last with something there."""
        last = last_true(~self.alone & (figure != NA) & (most > 0), self._begins)
        at = np.maximum(last, 0)
        share = np.where(last >= 0, figure[at] / np.maximum(1, most[at]), 1.0)
        found: Ints = np.where(most == NA, NA, np.rint(np.maximum(most, 0) * share)).astype(np.int64)
        return found

    def _aged(self, age_ms: Ints) -> Ints:
        """An age where it was not told: no older than what was oldest where it was told last has become."""
        last = last_true(~self.alone & (age_ms != NA), self._begins)
        at = np.maximum(last, 0)
        found: Ints = np.where(last >= 0, age_ms[at] - (-(self.flows.us - self.flows.us[at]) // 1000), -NA)
        return found

    def figures(
        self, scope: int, sums: Sums, at: Ints, unread: Flags, sends: Ints, acks: Ints, flow_age: Ints, floor: Flags
    ) -> tuple[Figures, Flags]:
        """With a queue not known, or in the total none read: the outflow's whole content. Otherwise: their sum. `at`:
        where the sums of each stand."""
        flow = self.flows.flow[at] if len(sums.age[0]) == len(self.flows.us) else at
        queues, lost, duplicates, age, lost_unknown, duplicates_unknown, is_floor = (
            each[scope][at]
            for each in (
                sums.queues,
                sums.loss,
                sums.duplicates,
                sums.age,
                sums.loss_unknown,
                sums.duplicates_unknown,
                sums.is_floor,
            )
        )
        none = (queues == 0) & ~unread

        def within(total: Ints, is_unknown: Flags, most: Ints) -> Ints:
            least = np.where(most == NA, total, np.minimum(total, most))
            return np.where(none, 0 if scope else most, np.where(is_unknown | unread, most, least))

        loss = within(lost, lost_unknown, np.where(self.has_sends[flow], sends, 0))
        duplicates = within(duplicates, duplicates_unknown, acks)
        of_queues = ~none & ~lost_unknown & ~unread
        age = np.where(of_queues, np.where(flow_age == NA, age, np.minimum(age, flow_age)), flow_age)
        age = np.where(loss == 0, 0, age)
        age_ms = np.where((loss == NA) | (age == NA), NA, -(-age // 1000))
        waits = self._waits(flow, sends, acks, none if scope else np.zeros(len(none), bool))
        return Figures(loss, age_ms, duplicates, *waits), (loss > 0) & (is_floor | floor)

    def _waits(self, flow: Ints, sends: Ints, acks: Ints, none: Flags) -> tuple[Ints, Ints, Ints, Ints]:
        """Directions drain side by side: the one that takes longer, by the looks at hand."""
        waits, side_of, urge = (np.zeros(len(flow), np.int64) for _ in range(3))
        unread = np.zeros(len(flow), bool)
        for side, (most, of, has) in enumerate(
            ((sends, self.rates[0], self.has_sends), (acks, self.rates[1], self.has_acks))
        ):
            there = has[flow] & ~none
            took = drain_ms(most, of[flow])
            mine = np.where(took == NA, most * 1000, took)  # a backlog nobody saw drain counts as one a second
            longer = there & (most != NA) & (mine > urge)
            waits, side_of, urge = (
                np.where(longer, new, old) for new, old in ((most, waits), (side, side_of), (mine, urge))
            )
            unread |= there & (most == NA)
        return np.where(unread, NA, waits), flow, side_of, urge


@dataclass(frozen=True, slots=True)
class Now:
    """By outflow, without those that were last read long ago: the bound, what is likely, whether it stalls."""

    bound: Figures
    likely: Figures
    stalled: Flags
    acks_only: Flags
    flow: Ints

    @classmethod
    def of(cls, course: Course, scope: int) -> Self:
        flows, ends, count = course.flows, course.ends, len(course.flows.keys)
        us = flows.us[ends]
        pairs = np.unique([pair for pair, _ in flows.keys], return_inverse=True)[1] if count else np.zeros(0, np.int64)
        last_us = np.zeros(count, np.int64)
        np.maximum.at(last_us, pairs, us)
        gap = np.zeros(len(flows.us), np.int64)
        gap[course.last] = course.gap_us
        at_last = us == last_us[pairs]
        sends, acks = (np.where(at_last, side.depth[ends], NA) for side in (flows.sends, flows.acks))
        age = np.where(sends > 0, us - flows.oldest_us[ends], sends)
        floor = (sends > 0) & flows.is_floor[ends]
        alone, full = course.alone[ends], course.full[ends]
        unread = course.unread(scope)
        places = np.arange(count)
        bound, _ = course.figures(
            scope, course.queues.last, places, unread[np.where(alone, full, ends)], sends, acks, age, floor
        )
        bound = _grown(bound, course, np.flatnonzero(alone), sends, acks, age)
        likely = course.likely(scope, unread).take(ends)
        before = np.maximum(ends - 1, 0)
        goes_on = flows.goes_on[ends] & (flows.flow[before] == places)
        stalled = goes_on & (flows.sends.depth[ends] > 0) & (flows.sends.shipped[ends] == flows.sends.shipped[before])
        there = np.flatnonzero(at_last | (last_us[pairs] - us <= gap[ends]))
        return cls(bound.take(there), likely.take(there), stalled[there], ~course.has_sends[there], there)

    def of_flow(self, flow: int) -> Self | None:
        at = np.flatnonzero(self.flow == flow)
        return (
            type(self)(self.bound.take(at), self.likely.take(at), self.stalled[at], self.acks_only[at], at)
            if len(at)
            else None
        )

    @property
    def total(self) -> tuple[dict[str, int], dict[str, int], bool] | None:
        """The bound and what is likely of all together, and whether one stalls; None of none."""
        if not len(self.flow):
            return None
        return self._summed(self.bound), self._summed(self.likely), bool(self.stalled.any())

    def _summed(self, told: Figures) -> dict[str, int]:
        twice = np.flatnonzero(~self.acks_only) if len(self.flow) > 1 else np.arange(len(self.flow))
        found = {
            "loss": _sum(told.loss),
            "duplicates": _sum(told.duplicates[twice]),
            "age_ms": NA if (told.age_ms == NA).any() else int(told.age_ms.max()),
        }
        most = int(told.urge_ms.argmax())
        waits = NA if (told.waits == NA).any() else int(told.waits[most])
        return {
            **found,
            "waits": waits,
            "waits_flow": int(told.waits_flow[most]),
            "waits_acks": int(told.waits_acks[most]),
        }


def _sum(values: Ints) -> int:
    return NA if (values == NA).any() else int(values.sum())


def _grown(bound: Figures, course: Course, alone: Ints, sends: Ints, acks: Ints, age: Ints) -> Figures:
    """Since the last look at the queues no more can have come than was put into the outflow."""
    flows = course.flows
    end, full = course.ends[alone], course.full[course.ends[alone]]
    breaks = np.cumsum(~flows.goes_on)
    told = {each.name: getattr(bound, each.name).copy() for each in fields(bound)}
    for name, side, most in (("loss", flows.sends, sends), ("duplicates", flows.acks, acks)):
        grown = told[name][alone] + side.added[end] - side.added[full]
        known = (breaks[end] == breaks[full]) & side.known[full] & (told[name][alone] != NA)
        told[name][alone] = np.where(known, np.minimum(most[alone], grown), most[alone])
    age_ms = -(-age[alone] // 1000)
    told["age_ms"][alone] = np.where(told["loss"][alone] == 0, 0, np.where(age[alone] == NA, NA, age_ms))
    return Figures(**told)
