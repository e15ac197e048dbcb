"""Sums an hour up: from step functions to rows that add up."""

from collections.abc import Sequence
from dataclasses import dataclass
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
from dr_ctl.rpo.core.steps import METRICS, Course, Figures, Now, Steps


@dataclass(frozen=True, slots=True)
class Window:
    """From where to where, how finely, and over which horizons changes are told; `cell_us` as in a slice."""

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
        if scope == 0 and not told.is_alone:
            told.flows(steps)
    told.course()
    told.roles(rows)
    return told.gathered


class _Told:
    def __init__(self, gathered: Gathered, course: Course, window: Window) -> None:
        self.gathered, self._course, self._window = gathered, course, window
        self._names = [flow_name(*key) for key in course.flows.keys]
        self.is_alone = len(self._names) == 1

    def scope(self, scope: int, whole: Steps) -> None:
        """The total (told as its only flow, where there is one) or a class."""
        course, window = self._course, self._window
        is_flow = scope == 0 and self.is_alone
        name = self._names[0] if is_flow else TOTAL if scope == 0 else class_name(scope - 1)
        words, code = [*self._names, name], np.full(len(whole.begin), len(self._names))
        self._steps(words, code, whole, window.figures_us, is_total=is_flow)
        if scope:
            self.gathered.one("read", name, count=int(course.queues.unread.is_any[scope].sum()))
        elif len(whole.begin):
            self._curves(words, whole.clipped(window.from_us, window.to_us), is_total=is_flow)
        now = Now.of(course, scope) if self._names else None
        self._last(name, now, is_total=is_flow)
        self._since(name, whole, is_total=is_flow)
        if scope == 0 and now is not None and not self.is_alone:
            for flow, each in enumerate(self._names):
                self._last(each, now.of_flow(flow), is_total=False)

    def flows(self, steps: Steps) -> None:
        """Each flow by itself. Flows may be hundreds: their cells are hours."""
        self._steps(self._names, steps.flow, steps, HOUR, is_total=False)
        edges = np.searchsorted(steps.flow, np.arange(len(self._names) + 1))
        for flow, name in enumerate(self._names):
            self._since(name, steps.take(slice(int(edges[flow]), int(edges[flow + 1]))), is_total=False)

    def _steps(self, words: Sequence[str], scope: Ints, whole: Steps, cell_us: int, *, is_total: bool) -> None:
        window, add = self._window, partial(self.gathered.add, words=words, is_total=is_total)
        inside = np.flatnonzero((whole.end > window.from_us) & (whole.begin < window.to_us))
        steps, of = whole.clipped(window.from_us, window.to_us), scope[inside]
        cell, floor = steps.begin - steps.begin % cell_us, steps.covered & steps.is_floor
        times = {"covered": steps.covered, "late": steps.late, "idle": steps.idle, "floor": floor}
        for metric, flags in times.items():
            at = np.flatnonzero(flags)
            add("time", scope=of[at], metric=metric, cell=cell[at], weight=steps.weight[at], count=np.ones_like(at))
        at = np.flatnonzero(steps.covered)
        once: dict[str, Any] = {"scope": of[at], "cell": cell[at], "weight": steps.weight[at]}
        twice: dict[str, Any] = {name: np.tile(each, 2) for name, each in once.items()}
        bound, ends = steps.bound.take(at), [each.take(at) for each in steps.likely]
        for metric in METRICS:
            values = bound.of(metric)
            add("figure", metric=metric, bucket=bucket(values), most=values, **once)
            # The likely figure at a look holds for half the time to the next.
            values = np.concatenate([each.of(metric) for each in ends])
            add("figure", metric=metric, likely=True, bucket=bucket(values), most=values, **twice)
        for told in (bound, *ends):
            add("figure", likely=told is not bound, **_drain(told), **once)
        code = None if words is self._names else len(words) - 1
        for metric in METRICS[:2]:
            for horizon_us in window.horizons_us:
                found = Changes.of(whole, metric, horizon_us=horizon_us, since_us=window.from_us)
                found = found.take(np.flatnonzero(found.begin < window.to_us))
                level: dict[str, Any] = {"level": found.level, "stalled": found.stalled, "horizon_us": horizon_us}
                told_of: dict[str, Any] = {"weight": found.weight, "count": found.count, "most": found.change}
                cell = found.begin - found.begin % window.changes_us
                of = found.flow if code is None else np.full(len(found.flow), code)
                add("change", scope=of, metric=metric, cell=cell, bucket=bucket_of(found.change), **level, **told_of)

    def _curves(self, words: Sequence[str], steps: Steps, *, is_total: bool) -> None:
        at = np.flatnonzero(steps.covered)
        cell = steps.begin[at] - steps.begin[at] % self._window.fineness.curve_us
        add = partial(self.gathered.add, "curve", words, len(words) - 1, cell=cell, is_total=is_total)
        bound, ends = steps.bound.take(at), [each.take(at) for each in steps.likely]
        for metric in METRICS:
            one, other = (each.of(metric) for each in ends)
            add(metric=metric, most=bound.of(metric))
            add(metric=metric, likely=True, most=np.where(one == NA, NA, np.maximum(one, other)))
        add(**_drain(bound))

    @property
    def _hour(self) -> int:
        return self._window.from_us - self._window.from_us % HOUR

    def _last(self, name: str, now: Now | None, *, is_total: bool) -> None:
        """The last looks of the hour, or soon after it: those of the last hour with looks are the last of all."""
        total = None if now is None else now.total
        if total is None:
            return
        more: dict[str, Any] = {"stalled": total[2], "is_total": is_total, "cell": self._hour}
        for likely, told in zip((False, True), total[:2], strict=True):
            whose: dict[str, Any] = {"flow": self._names[told["waits_flow"]], "acks": told["waits_acks"] > 0}
            for metric in (*METRICS, "drain"):
                value, of = told["waits" if metric == "drain" else metric], whose if metric == "drain" else {}
                found = UNKNOWN if value == NA else 0
                self.gathered.one("now", name, metric=metric, likely=likely, bucket=found, most=value, **more, **of)

    def _since(self, name: str, whole: Steps, *, is_total: bool) -> None:
        """The bounds of the last covered time."""
        covered = np.flatnonzero(whole.covered)
        for metric in METRICS if len(covered) else ():
            value = int(whole.bound.of(metric)[covered[-1]])
            if value >= 0:
                self.gathered.one("since", name, metric=metric, most=value, is_total=is_total, cell=self._hour)

    def course(self) -> None:
        """What is of flows alone: looks, rates, and how much the queues' counters tell of."""
        course, window, gathered, names = self._course, self._window, self.gathered, self._names
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
        at = np.flatnonzero((rows.kind == SITE) & (rows.us >= self._window.from_us) & (rows.us < self._window.to_us))
        for code in np.unique(rows.name[at]).tolist():
            if code >= 0:
                self.gathered.one("role", name=rows.words[code], most=int(rows.us[at][rows.name[at] == code].max()))


def _drain(told: Figures) -> dict[str, Any]:
    """How much waits in the outflow that takes longest; how long that takes is told by the rates of all time."""
    is_something = told.waits > 0  # zero is zero, wherever it is
    flow, acks = (np.where(is_something, each, 0) for each in (told.waits_flow, told.waits_acks))
    return {"metric": "drain", "bucket": bucket(told.waits), "most": told.waits, "flow": flow, "acks": acks}


HORIZON_US: Final = 300_000_000
"""What is told of the next minutes: of these."""
