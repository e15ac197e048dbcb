"""The work of one estimate: from the files of a history to the rows that all figures are made of. Of a backtest: to the
series of each scope."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dr_ctl.core.model import Finding
from dr_ctl.rpo.estimate import notes, slices
from dr_ctl.rpo.estimate.facts import newest_first_of, serving, sites_of
from dr_ctl.rpo.estimate.periods import HOUR
from dr_ctl.rpo.estimate.planned import Planned
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.scopes import Rows
from dr_ctl.rpo.estimate.slices import Slice
from dr_ctl.rpo.estimate.summary import Last
from dr_ctl.rpo.history.row import micros
from dr_ctl.rpo.series.flow import Flow
from dr_ctl.rpo.series.steps import Here, Scope, Steps, fold, here_of, scope_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ELSEWHERE_CORES: Final = 2


@dataclass(frozen=True, slots=True)
class Series:
    """A scope over time, at its last look, and what of the things put in was told of. `is_any`: the history knows a
    queue of it."""

    steps: Steps
    here: Here | None
    put: tuple[int, int] | None
    is_any: bool = True

    @classmethod
    def of(cls, parts: Sequence[Scope]) -> Series:
        put = [part.put for part in parts if part.put is not None]
        added = (sum(one for one, _ in put), sum(other for _, other in put)) if put else None
        steps = fold([part.steps for part in parts])
        return cls(steps, here_of([part.here for part in parts]), added, any(part.is_any for part in parts))


@dataclass(frozen=True, slots=True)
class Work:
    """A site's outflows, and the series of the total, of each class and of each flow."""

    site: str
    serving: str | None
    flows: tuple[Flow, ...]
    total: Series
    classes: tuple[Series, ...]
    of_flow: tuple[Series, ...]

    @classmethod
    def of(cls, spark: SparkSession | None, paths: Sequence[str], asked: Request, grid_us: int | None = None) -> Work | Finding:  # fmt: skip  # noqa: E501
        """Take up what is asked, in Spark (None: in this process); the finding that says why there is nothing to do.
        `grid_us` is as in a slice."""
        serves = serving(newest_first_of(paths), asked)
        site = asked.site or serves
        sites = sites_of(paths)
        if site is None or site not in sites:
            return notes.nothing_of(site, set(sites))
        told = plan(sites[site], asked, grid_us)
        flows = slices.in_this_process(told) if spark is None else slices.flows_of(spark, told)
        if not flows:
            return notes.nothing_of(site, set(sites))
        count = len(asked.objectives.classes) if asked.objectives is not None else 0
        last = {flow.pair: 0 for flow in flows}
        for flow in flows:
            last[flow.pair] = max(last[flow.pair], int(flow.us[-1]))
        scopes = [[scope_of(flow, scope, last[flow.pair]) for flow in flows] for scope in range(1 + count)]
        total, *classes = (Series.of(parts) for parts in scopes)
        of_flow = tuple(Series.of([part]) for part in scopes[0])
        return cls(site, serves, flows, total, tuple(classes), of_flow)

    @property
    def span_us(self) -> tuple[int, int]:
        return min(int(flow.us[0]) for flow in self.flows), max(int(flow.us[-1]) for flow in self.flows)


def plan(paths: Sequence[str], asked: Request, grid_us: int | None = None) -> list[Slice]:
    """Cut what is asked of a site's files into slices."""
    files = slices.files_of(paths)
    begin = max([min(file.first_us for file in files), *([] if asked.since is None else [micros(asked.since)])])
    end = min([max(file.last_us for file in files), *([] if asked.until is None else [micros(asked.until)])])
    whole = Slice(begin, end + 1, begin, end + 1, files, asked.include, asked.exclude, _classes(asked), grid_us)
    return slices.plan(whole, cores(asked.master))


def cores(master: str) -> int:
    """How many tasks run side by side, as far as an address tells."""
    told = re.match(r"local(?:\[(\d+|\*))?", master)
    if told is None:
        return ELSEWHERE_CORES
    return (os.cpu_count() or 1) if told[1] == "*" else int(told[1] or 1)


@dataclass(frozen=True, slots=True)
class Summed:
    """A site's history in rows that add up; `last`: how each scope stands at the end."""

    site: str
    serving: str | None
    rows: Rows
    last: Mapping[str, Last]

    @classmethod
    def of(cls, spark: SparkSession | None, planned: Planned, asked: Request) -> Summed | Finding | None:
        """Take up what is planned, in Spark (None: in this process); the finding that says why there is nothing to do.
        None: more of the past is needed."""
        told = slices.summaries_of(spark, planned.slices(asked, cores(asked.master), HOUR))
        if any(each.is_short for each in told):
            return None
        rows = Rows.of(planned.whole(told, keep=asked.store), planned.calendar)
        if not rows.flows:
            return notes.nothing_of(planned.site, {planned.site})
        last = next((each.last for each in told if each.last is not None), {})
        return cls(planned.site, planned.serving, rows, last)

    @property
    def span_us(self) -> tuple[int, int]:
        looked = [self.rows.looked(flow) for flow in self.rows.flows]
        return min(first for first, _ in looked), max(last for _, last in looked)

    @property
    def looked(self) -> dict[str, int]:
        """When each pair was looked at last."""
        found: dict[str, int] = {}
        for flow in self.rows.flows:
            pair = json.loads(flow)[0]
            found[pair] = max(found.get(pair, 0), self.rows.looked(flow)[1])
        return found

    @property
    def samples(self) -> int:
        """How many looks at outflows there were, of all pairs."""
        found: dict[str, int] = {}
        for flow in self.rows.flows:
            pair = json.loads(flow)[0]
            found[pair] = max(found.get(pair, 0), int(self.rows.part(flow, "looks").weight.sum()))
        return sum(found.values())


def _classes(asked: Request) -> tuple[tuple[str, ...], ...]:
    return () if asked.objectives is None else tuple(each.queues for each in asked.objectives.classes)
