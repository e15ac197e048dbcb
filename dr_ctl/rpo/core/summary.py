"""Sums an hour up: from step functions to rows that add up."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from dr_ctl.rpo.core.calendar import HOUR, Fineness
from dr_ctl.rpo.core.changes import Changes
from dr_ctl.rpo.core.columns import NA, SITE, Columns, Ints
from dr_ctl.rpo.core.cut import Outflows
from dr_ctl.rpo.core.fold import Silence, fold
from dr_ctl.rpo.core.histogram import bucket_of
from dr_ctl.rpo.core.queues import Queues
from dr_ctl.rpo.core.rates import put_rates
from dr_ctl.rpo.core.rows import MILLI, TOTAL, UNKNOWN, Gathered, bucket, class_name, flow_name
from dr_ctl.rpo.core.steps import METRICS, Course, Figures, Steps


@dataclass(frozen=True, slots=True)
class Window:
    """From where to where, how finely, and over which horizons changes are told; `cell_us`: of a test of the past."""

    from_us: int
    to_us: int
    fineness: Fineness
    horizons_us: tuple[int, ...]
    cell_us: int = 0

    @property
    def figures_us(self) -> int:
        """How long the cells of the total and of classes are."""
        return self.cell_us or self.fineness.figures_us

    @property
    def changes_us(self) -> int:
        return self.cell_us or HOUR

    def within(self, us: Ints) -> Ints:
        return np.flatnonzero((us >= self.from_us) & (us < self.to_us))


def summed_up(rows: Columns, flows: Outflows, queues: Queues, scopes: int, window: Window) -> Gathered:
    """The rows of a window, from looks of it and of some time before and after."""
    course, silence = Course(flows, queues), Silence.of(rows, flows)
    told = _Told(Gathered(), course, window)
    for scope in range(scopes):
        steps = course.steps(scope)
        told.scope(scope, fold(steps, ~course.has_sends, silence))
        if scope == 0 and not told.is_alone:  # each flow by itself; flows may be hundreds: their cells are hours
            told.steps(told.names, steps, HOUR, is_total=False)
    told.course()
    told.roles(rows)
    return told.gathered


class _Told:
    def __init__(self, gathered: Gathered, course: Course, window: Window) -> None:
        self.gathered, self._course, self._window = gathered, course, window
        self.names = [flow_name(*key) for key in course.flows.keys]
        self.is_alone = len(self.names) == 1
        self._hour = window.from_us - window.from_us % HOUR

    def scope(self, scope: int, whole: Steps) -> None:
        """The total (told as its only flow, where there is one) or a class."""
        course, window = self._course, self._window
        is_flow = scope == 0 and self.is_alone
        name = self.names[0] if is_flow else TOTAL if scope == 0 else class_name(scope - 1)
        words, number = [*self.names, name], len(self.names)
        whole = replace(whole, flow=np.full(len(whole.flow), number))
        self.steps(words, whole, window.figures_us, is_total=is_flow)
        if scope:
            self.gathered.one("read", name, count=int(course.queues.unread.is_any[scope].sum()))
        elif len(whole.begin):
            self._curves(words, whole.clipped(window.from_us, window.to_us), is_total=is_flow)
        if number:
            now = course.now(scope)
            self._last([name], fold(now, ~course.has_sends & (len(now.flow) > 1)), is_total=is_flow)
            if scope == 0 and not self.is_alone:
                self._last(words, now, is_total=False)

    def steps(self, words: Sequence[str], whole: Steps, cell_us: int, *, is_total: bool) -> None:
        """The time of each flow: how it was covered, how long which figure was in which bucket, how figures changed;
        `flow` is a place in `words`."""
        window, add = self._window, partial(self.gathered.add, words=words, is_total=is_total)
        steps = whole.clipped(window.from_us, window.to_us)
        cell, floor = steps.begin - steps.begin % cell_us, steps.covered & steps.is_floor
        times = {"covered": steps.covered, "late": steps.late, "idle": steps.idle, "floor": floor}
        for metric, flags in times.items():
            at = np.flatnonzero(flags)
            count = np.ones_like(at)
            add("time", scope=steps.flow[at], metric=metric, cell=cell[at], weight=steps.weight[at], count=count)
        cell, steps = cell[steps.covered], steps.only(steps.covered)
        once: dict[str, Any] = {"scope": steps.flow, "cell": cell, "weight": steps.weight}
        twice: dict[str, Any] = {name: np.tile(each, 2) for name, each in once.items()}
        for metric in METRICS:
            values = steps.bound.of(metric)
            add("figure", metric=metric, bucket=bucket(values), most=values, **once)
            # The likely figure at a look holds for half the time to the next.
            values = np.concatenate([each.of(metric) for each in steps.likely])
            add("figure", metric=metric, likely=True, bucket=bucket(values), most=values, **twice)
        for told in (steps.bound, *steps.likely):
            add("figure", likely=told is not steps.bound, **_drain(told), **once)
        for metric in METRICS[:2]:
            for horizon_us in window.horizons_us:
                found = Changes.of(whole, metric, horizon_us=horizon_us, since_us=window.from_us)
                found = found.only(found.begin < window.to_us)
                level: dict[str, Any] = {"level": found.level, "stalled": found.stalled, "horizon_us": horizon_us}
                told_of: dict[str, Any] = {"weight": found.weight, "count": found.count, "most": found.change}
                cell = found.begin - found.begin % window.changes_us
                add(
                    "change",
                    scope=found.flow,
                    metric=metric,
                    cell=cell,
                    bucket=bucket_of(found.change),
                    **level,
                    **told_of,
                )
        self._since(words, whole, is_total=is_total)

    def _curves(self, words: Sequence[str], steps: Steps, *, is_total: bool) -> None:
        steps = steps.only(steps.covered)
        cell = steps.begin - steps.begin % self._window.fineness.curve_us
        add = partial(self.gathered.add, "curve", words, len(words) - 1, cell=cell, is_total=is_total)
        for metric in METRICS:
            one, other = (each.of(metric) for each in steps.likely)
            add(metric=metric, most=steps.bound.of(metric))
            add(metric=metric, likely=True, most=np.where(one == NA, NA, np.maximum(one, other)))
        add(**_drain(steps.bound))

    def _last(self, words: Sequence[str], now: Steps, *, is_total: bool) -> None:
        """The last looks of the hour, or soon after it: those of the last hour with looks are the last of all."""
        for at, flow in enumerate(now.flow.tolist()):
            more: dict[str, Any] = {"stalled": now.stalled[at], "is_total": is_total, "cell": self._hour}
            for likely, told in ((False, now.bound), (True, now.likely[0])):
                whose: dict[str, Any] = {"flow": self.names[told.drain_flow[at]], "acks": told.drain_acks[at]}
                for metric in (*METRICS, "drain"):
                    value, of = told.of(metric)[at], whose if metric == "drain" else {}
                    known: dict[str, Any] = {"bucket": UNKNOWN if value == NA else 0, "most": value}
                    self.gathered.one("now", words[flow], metric=metric, likely=likely, **known, **more, **of)

    def _since(self, words: Sequence[str], whole: Steps, *, is_total: bool) -> None:
        """The bounds of the last covered time of each flow."""
        covered = np.flatnonzero(whole.covered)
        flow = whole.flow[covered]
        for at in covered[np.append(flow[1:] != flow[:-1], True)[: len(flow)]].tolist():
            for metric in METRICS:
                value, name = int(whole.bound.of(metric)[at]), words[whole.flow[at]]
                if value >= 0:
                    self.gathered.one("since", name, metric=metric, most=value, is_total=is_total, cell=self._hour)

    def course(self) -> None:
        """What is of flows alone: looks, rates, and how much the queues' counters tell of."""
        course, window, gathered, names = self._course, self._window, self.gathered, self.names
        flows = course.flows
        at = window.within(flows.us)
        us = flows.us[at]
        gathered.add("looks", names, flows.flow[at], cell=us - us % HOUR, count=np.ones_like(at), most=us, least=us)
        for acks, told in enumerate(course.drained):
            at = window.within(told.us)
            rate = (told.rate[at] * MILLI).astype(np.int64)
            keys: dict[str, Any] = {"acks": acks, "level": told.level[at], "bucket": bucket_of(rate)}
            gathered.add("drained", names, told.flow[at], count=told.more[at], least=rate, **keys)
        flow, ends, put = put_rates(flows)
        at = window.within(ends)
        rate = np.ceil(put[at] * MILLI).astype(np.int64)
        gathered.add("put", names, flow[at], bucket=bucket_of(rate), count=np.ones_like(at), most=rate)
        put_in, told_of = course.accounted((window.from_us, window.to_us))
        at = np.flatnonzero(put_in)
        gathered.add("told", names, at, weight=put_in[at], count=told_of[at])
        gathered.add("spacing", names, np.arange(len(names)), most=course.spacing_us, cell=self._hour)
        for share in course.queues.shares:
            gathered.one("share", names[share.flow], name=share.queue, cell=self._hour,
                         weight=share.message_ms, most=share.most)  # fmt: skip

    def roles(self, rows: Columns) -> None:
        window = self._window
        site = rows.only(
            (rows.kind == SITE) & (rows.us >= window.from_us) & (rows.us < window.to_us) & (rows.name >= 0)
        )
        for code in np.unique(site.name).tolist():
            self.gathered.one("role", name=rows.words[code], most=int(site.us[site.name == code].max()))


def _drain(told: Figures) -> dict[str, Any]:
    """How much waits in the outflow that takes longest; how long that takes is told by the rates of all time."""
    is_something = told.drain > 0  # zero is zero, wherever it is
    flow, acks = (np.where(is_something, each, 0) for each in (told.drain_flow, told.drain_acks))
    return {"metric": "drain", "bucket": bucket(told.drain), "most": told.drain, "flow": flow, "acks": acks}


HORIZON_US: Final = 300_000_000
"""What is told of the next minutes: of these."""
