"""From outflows to series: step functions of each flow, of each class, and in total.

The total is a series of its own: quantiles do not add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dr_ctl.rpo.series.columns import NA, Flags, Floats, Ints
from dr_ctl.rpo.series.cut import AWAY_US, DOWN, STANDBY
from dr_ctl.rpo.series.envelope import Sums
from dr_ctl.rpo.series.flow import Absent, Flow, unread

METRICS: Final = ("loss", "age_ms", "duplicates", "drain_ms")
WAITS, URGE = "waits", "urge"
"""Beside these: the outflow that takes longest to drain, as a code of flow, side and depth; and how long by the looks
at hand, in milliseconds. How long by all that is known is told once that is known."""
DEPTH_BITS: Final = 40
EVER: Final = 1 << 62
ADDED: Final = ("loss", "duplicates")
"""Messages add up; times run side by side."""
LATE: Final = 60
"""An interval of up to so many usual ones is a look that came late, not time in which nobody looked."""
ALIKE: Final = 3
"""How a backlog drains is told by those of an eighth of it and more."""
Figures = dict[str, Ints]


@dataclass(frozen=True, slots=True)
class Steps:
    """Figures that hold from `begin` to `end`, NA where it is not known. `covered` time counts; `idle` is time in which
    the site was on standby, or down: no message is at stake; time that is neither was `missed` where a look came late.
    `likely`: figures likely at both ends."""

    begin: Ints
    end: Ints
    bound: Figures
    likely: tuple[Figures, Figures]
    covered: Flags
    idle: Flags
    missed: Flags
    is_floor: Flags
    stalled: Flags
    acks_only: bool = False

    @property
    def weight(self) -> Ints:
        return self.end - self.begin

    def clipped(self, from_us: int, to_us: int) -> Steps:
        """Cut it to that time."""
        at = np.flatnonzero((self.end > from_us) & (self.begin < to_us))
        flags = {name: getattr(self, name)[at] for name in ("covered", "idle", "missed", "is_floor", "stalled")}
        bound, *likely = ({name: each[at] for name, each in told.items()} for told in (self.bound, *self.likely))
        begin, end = np.maximum(self.begin[at], from_us), np.minimum(self.end[at], to_us)
        return Steps(begin, end, bound, (likely[0], likely[1]), **flags, acks_only=self.acks_only)


@dataclass(frozen=True, slots=True)
class Here:
    """The last look of a scope: the bound, what is likely, and whether it stalls."""

    bound: dict[str, int | None]
    likely: dict[str, int | None]
    stalled: bool
    acks_only: bool = False


@dataclass(frozen=True, slots=True)
class Scope:
    """A flow in one scope: over time, at its last look (None where it was last read long ago), and how many of the
    things `put` into it the queues `told` of (None where nothing was put, or no queue was read)."""

    steps: Steps
    here: Here | None
    put: tuple[int, int] | None
    is_any: bool
    lacking: Steps  # had no queue of it been read


def scope_of(flow: Flow, scope: int, last_us: int, within_us: tuple[int, int] = (0, EVER)) -> Scope:
    """`scope` 0 is the total; `last_us` the last look at any outflow of the pair. Things put in are counted in
    intervals that end within that time."""
    return _Bounded(flow, scope).scope(last_us, within_us)


class _Bounded:
    """The bounds of one flow in one scope, by the look that ends each interval."""

    def __init__(self, flow: Flow, scope: int) -> None:
        self._flow, self._scope = flow, scope
        on = flow.goes_on[1:]
        self._on = on
        self._absent = Absent.of(flow, scope)
        self.acks_only = not flow.has_sends
        self._rates = flow.drained(flow.sends).rates(), flow.drained(flow.acks).rates()
        self._sends, self._acks = (
            np.where(on & side.known[:-1] & side.known[1:], side.depth[:-1] + side.added[1:] - side.added[:-1], NA)
            for side in (flow.sends, flow.acks)
        )
        put = np.where(on & flow.sends.known[1:] & flow.sends.known[:-1], np.diff(flow.sends.added), NA)
        self._put = np.concatenate([[NA], put]) if len(flow.us) else put
        self._unread = unread(flow, self._absent, self._put)

    def scope(self, last_us: int, within_us: tuple[int, int]) -> Scope:
        steps = self._steps()
        here, accounted = self._here(last_us), self._accounted(steps, within_us)
        return Scope(steps, here, accounted, self._absent.is_any, self._lacking(steps))

    def _lacking(self, steps: Steps) -> Steps:
        """Bound it by the outflow alone."""
        self._unread = np.ones_like(self._unread)
        found = self._steps()
        return replace(steps, bound=found.bound, likely=found.likely)

    def _steps(self) -> Steps:
        flow, on = self._flow, self._on
        took = np.diff(flow.us)
        gap = flow.gap_us
        idle = (flow.role[:-1] == STANDBY) | (flow.role[:-1] == DOWN)
        floor = (self._sends > 0) & flow.is_floor[:-1]
        age = np.where(self._sends > 0, flow.us[1:] - flow.oldest_us[:-1], self._sends)
        of_queues = flow.within.take(slice(1, None))
        bound, is_floor = self._figures(of_queues, self._unread[1:], self._sends, self._acks, age, floor)
        likely = self._likely()
        stalled = on & (flow.sends.depth[:-1] > 0) & (flow.sends.shipped[1:] == flow.sends.shipped[:-1])
        covered = on & (took <= gap) & ~idle
        return Steps(
            begin=flow.us[:-1],
            end=flow.us[1:],
            bound=bound,
            likely=tuple(
                {name: each[part] for name, each in likely.items()} for part in (slice(0, -1), slice(1, None))
            ),  # type: ignore[arg-type]
            covered=covered,
            idle=idle,
            missed=~covered & ~idle & (took <= np.maximum(gap // 5 * LATE, AWAY_US)),
            is_floor=is_floor,
            stalled=stalled,
            acks_only=self.acks_only,
        )

    def _likely(self) -> Figures:
        """At each look: no more than lies in the outflow, and that where some queue was not read. A look at the outflow
        alone has the share of it that the look before had."""
        flow, sums = self._flow, self._flow.likely
        sends, acks = flow.sends.depth, flow.acks.depth
        age = np.where(sends > 0, flow.us - flow.oldest_us, sends)
        alone = self._alone
        unread_ = self._unread & ~alone | (self._absent.is_any & (sums.queues[self._scope] == 0) & ~alone)
        found = self._figures(sums, unread_, sends, acks, age, np.zeros(len(age), bool))[0]
        if not alone.any():
            return found
        for name, most in (("loss", sends), ("duplicates", acks)):
            found[name] = np.where(alone, _shared(found[name], most, ~alone), found[name])
        since = flow.us - np.where(flow.sends.likely_us == NA, flow.oldest_us, flow.sends.likely_us)
        age_ms = np.where(found["loss"] > 0, -(-since // 1000), found["loss"])
        found["age_ms"] = np.where(alone, np.minimum(age_ms, _aged(found["age_ms"], flow.us, ~alone)), found["age_ms"])
        return found

    @property
    def _alone(self) -> Flags:
        """Looks at the outflow alone, between or soon after looks at its queues."""
        flow = self._flow
        is_read = flow.likely.queues[0] > 0
        places = np.maximum.accumulate(np.where(is_read, np.arange(len(is_read)), -1))
        lately = (places >= 0) & (flow.us - flow.us[np.maximum(places, 0)] <= AWAY_US)
        found: Flags = ~is_read & lately
        return found

    def _figures(
        self, sums: Sums, unread_: Flags, sends: Ints, acks: Ints, flow_age: Ints, floor: Flags
    ) -> tuple[Figures, Flags]:
        """With a queue not known, or in the total none read: the outflow's whole content. Otherwise: their sum."""
        scope = self._scope
        none = (sums.queues[scope] == 0) & ~unread_

        def within(total: Ints, is_unknown: Flags, most: Ints) -> Ints:
            least = np.where(most == NA, total, np.minimum(total, most))
            return np.where(none, 0 if scope else most, np.where(is_unknown | unread_, most, least))

        most = np.zeros_like(sends) if self.acks_only else sends
        loss = within(sums.loss[scope], sums.loss_unknown[scope], most)
        twice = within(sums.twice[scope], sums.twice_unknown[scope], acks)
        of_queues = ~none & ~sums.loss_unknown[scope] & ~unread_
        age = np.where(loss == 0, 0, np.where(of_queues, sums.age[scope], flow_age))
        age_ms = np.where((loss == NA) | (age == NA), NA, -(-age // 1000))
        drain = {name: np.where(none & (scope > 0), 0, each) for name, each in self._drain(sends, acks).items()}
        figures = {"loss": loss, "age_ms": age_ms, "duplicates": twice, **drain}
        return figures, (loss > 0) & (sums.is_floor[scope] | floor)

    def _drain(self, sends: Ints, acks: Ints) -> Figures:
        """Directions drain side by side; not known where something is there and no rate is known."""
        found, waits, urge = (np.zeros(len(sends), np.int64) for _ in range(3))
        unread_ = np.zeros(len(sends), bool)
        sides = ((sends, self._rates[0], self._flow.has_sends), (acks, self._rates[1], self._flow.has_acks))
        for side, (most, rates, is_there) in enumerate(sides):
            if not is_there:
                continue
            took = drain_ms(most, rates)
            found = np.where((found == NA) | (took == NA), NA, np.maximum(found, took))
            mine = np.where(took == NA, most * 1000, took)  # a backlog nobody saw drain counts as one a second
            longer = (mine > urge) & (most != NA)
            waits, urge = np.where(longer, (side << DEPTH_BITS) + most, waits), np.where(longer, mine, urge)
            unread_ |= most == NA
        return {"drain_ms": found, WAITS: np.where(unread_, NA, waits), URGE: urge}

    def _here(self, last_us: int) -> Here | None:
        flow = self._flow
        at_last = flow.us[-1] == last_us
        if not at_last and last_us - flow.us[-1] > flow.last_gap_us:
            return None
        sends, acks = (np.where(at_last, side.depth[-1:], NA) for side in (flow.sends, flow.acks))
        age = np.where(sends > 0, flow.us[-1:] - flow.oldest_us[-1:], sends)
        floor = (sends > 0) & flow.is_floor[-1:]
        alone, full = self._alone, np.flatnonzero(flow.likely.queues[0] > 0)
        is_unread = self._unread[full[-1:]] if alone[-1] else self._unread[-1:]
        bound, _ = self._figures(flow.last, is_unread, sends, acks, age, floor)
        if alone[-1]:
            self._grow(bound, int(full[-1]), sends, acks, age)
        likely = {name: each[-1:] for name, each in self._likely().items()}
        going = len(flow.us) > 1 and bool(self._on[-1])
        stalled = going and flow.sends.depth[-1] > 0 and flow.sends.shipped[-1] == flow.sends.shipped[-2]
        return Here(_told(bound), _told(likely), bool(stalled), self.acks_only)

    def _grow(self, bound: Figures, full: int, sends: Ints, acks: Ints, age: Ints) -> None:
        """Since the last look at the queues no more can have come than was put into the outflow."""
        flow, goes_on = self._flow, bool(self._on[full:].all())
        for name, side, most in (("loss", flow.sends, sends), ("duplicates", flow.acks, acks)):
            grown = bound[name] + side.added[-1:] - side.added[full : full + 1]
            is_known = goes_on and bool(side.known[full]) and bound[name][0] != NA
            bound[name] = np.minimum(most, grown) if is_known else most
        age_ms = -(-age // 1000)
        bound["age_ms"] = np.where(bound["loss"] == 0, 0, np.where(age == NA, NA, age_ms))

    def _accounted(self, steps: Steps, within_us: tuple[int, int]) -> tuple[int, int] | None:
        """Count the things put into a mixed outflow in covered time, and how many of them the queues' counters tell."""
        flow, put = self._flow, self._put[1:]
        good = steps.covered & flow.is_mixed[1:] & (put != NA) & (flow.within.queues[0][1:] > 0)
        good &= ~flow.within.loss_unknown[0][1:] & (steps.end >= within_us[0]) & (steps.end < within_us[1])
        if self._scope or not good.any():
            return None
        return int(put[good].sum()), round(float(np.minimum(flow.told[1:], put)[good].sum()))


def drain_ms(most: Ints, rates: Floats) -> Ints:
    """How long so much takes at the rates of a flow (`Flow.rates`); NA where that is not known."""
    waited = np.maximum(most, 1)
    alike = rates[np.maximum(np.log2(waited).astype(np.int64) - ALIKE, 0)]
    took = np.ceil(waited * 1000 / np.where(np.isnan(alike), rates[0], alike))
    return np.where(most == 0, 0, np.where((most == NA) | np.isnan(took), NA, took)).astype(np.int64)


def _shared(figure: Ints, most: Ints, told: Flags) -> Ints:
    """A figure where it was not told: the part of the most that it was where told last with something there."""
    is_part = told & (figure != NA) & (most > 0)
    last = np.maximum.accumulate(np.where(is_part, np.arange(len(told)), -1))
    at = np.maximum(last, 0)
    share = np.where(last >= 0, figure[at] / np.maximum(1, most[at]), 1.0)
    found: Ints = np.where(most == NA, NA, np.rint(np.maximum(most, 0) * share)).astype(np.int64)
    return found


def _aged(age_ms: Ints, us: Ints, told: Flags) -> Ints:
    """An age where it was not told: no older than what was oldest where it was told last has become."""
    last = np.maximum.accumulate(np.where(told & (age_ms != NA), np.arange(len(told)), -1))
    since_ms = -(-(us - us[np.maximum(last, 0)]) // 1000)
    found: Ints = np.where(last >= 0, age_ms[np.maximum(last, 0)] + since_ms, -NA)
    return found


def _told(figures: Figures) -> dict[str, int | None]:
    return {name: None if each[0] == NA else int(each[0]) for name, each in figures.items()}


def fold(parts: Sequence[Steps]) -> Steps:
    """Sum step functions: figures not known of one are not known of the sum. A part counts from its first look on, and
    to the end of all; a part whose site is on standby has nothing at stake."""
    if len(parts) == 1:
        return parts[0]
    marks = np.unique(np.concatenate([edge for part in parts for edge in (part.begin, part.end)]))
    whole = _Sum(marks[:-1], marks[1:])
    for part in parts:
        whole.add(part)
    return whole.steps()


class _Sum:
    def __init__(self, begin: Ints, end: Ints) -> None:
        self._begin, self._end = begin, end
        self._number = 0
        count = len(begin)
        self._figures = [{name: np.zeros(count, np.int64) for name in (*METRICS, WAITS, URGE)} for _ in range(3)]
        self._unknown = [{name: np.zeros(count, bool) for name in (*METRICS, WAITS)} for _ in range(3)]
        self._holds, self._idle, self._alive = np.ones(count, bool), np.ones(count, bool), np.zeros(count, bool)
        self._floor, self._stalled, self._missed = (np.zeros(count, bool) for _ in range(3))

    def add(self, part: Steps) -> None:
        at = np.searchsorted(part.begin, self._begin, "right") - 1
        born = at >= 0
        at = np.maximum(at, 0)
        live = born & (part.end[at] > self._begin)
        idle = live & part.idle[at]
        counts = live & ~idle
        for place, figures in enumerate((part.bound, *part.likely)):
            for name in METRICS:
                if name == "duplicates" and part.acks_only:
                    continue  # duplicates are counted with the queues that the outflow serves
                known = counts & (figures[name][at] != NA)
                self._unknown[place][name] |= born & ~idle & ~known
                more = np.where(known, figures[name][at], 0)
                mine = self._figures[place]
                mine[name] = mine[name] + more if name in ADDED else np.maximum(mine[name], more)
            self._longest(place, figures, at, counts)
        self._alive |= born
        self._holds &= ~born | idle | (live & part.covered[at])
        self._idle &= ~born | idle
        self._missed |= counts & part.missed[at] | born & ~live
        self._floor |= counts & part.is_floor[at]
        self._stalled |= counts & part.stalled[at]
        self._number += 1

    def _longest(self, place: int, figures: Figures, at: Ints, counts: Flags) -> None:
        mine, waits, urge = self._figures[place], figures[WAITS][at], figures[URGE][at]
        self._unknown[place][WAITS] |= counts & (waits == NA)
        longer = counts & (waits != NA) & (urge > mine[URGE])
        mine[WAITS] = np.where(longer, (self._number << DEPTH_BITS + 1) + waits, mine[WAITS])
        mine[URGE] = np.where(longer, urge, mine[URGE])

    def steps(self) -> Steps:
        bound, *likely = (
            {
                **{name: np.where(unknown[name], NA, figures[name]) for name in (*METRICS, WAITS)},
                URGE: figures[URGE],
            }
            for figures, unknown in zip(self._figures, self._unknown, strict=True)
        )
        covered = self._holds & self._alive & ~self._idle
        idle = self._idle & self._alive
        missed = self._missed & ~covered & ~idle
        return Steps(
            self._begin, self._end, bound, (likely[0], likely[1]), covered, idle, missed, self._floor, self._stalled
        )


def here_of(told: Sequence[Here | None]) -> Here | None:
    """The last look of several flows together, without a flow that was last read long ago."""
    parts = [part for part in told if part is not None]
    if not parts:
        return None

    def added(of: Sequence[dict[str, int | None]], name: str) -> int | None:
        told = [each[name] for each, part in zip(of, parts, strict=True) if name != "duplicates" or not part.acks_only]
        told = told if len(parts) > 1 else [each[name] for each in of]
        known = [each for each in told if each is not None]
        if len(known) < len(told):
            return None
        return sum(known) if name in ADDED else max(known, default=0)

    bound, likely = (
        {**{name: added(of, name) for name in METRICS}, WAITS: _longest(told, end)}
        for end, of in (("bound", [p.bound for p in parts]), ("likely", [p.likely for p in parts]))
    )
    return Here(bound, likely, any(part.stalled for part in parts))


def _longest(told: Sequence[Here | None], end: str) -> int | None:
    found = [(getattr(part, end), number) for number, part in enumerate(told) if part is not None]
    known = [(each[URGE] or 0, (number << DEPTH_BITS + 1) + each[WAITS])
             for each, number in found if each[WAITS] is not None]  # fmt: skip
    return max(known)[1] if len(known) == len(found) else None
