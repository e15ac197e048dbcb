"""The history cut into slices of time: a slice is one task, which reads its own files, sums each of its hours up, and
keeps the summaries where the history is. It answers rows that add up.

A slice is told as JSON, so that a task of Spark elsewhere needs nothing but this package, NumPy and PyArrow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, Self

import pyarrow as pa

from dr_ctl.rpo.core.calendar import HOUR, Period
from dr_ctl.rpo.core.cut import AWAY_US
from dr_ctl.rpo.core.hour import Orders
from dr_ctl.rpo.core.left_out import check
from dr_ctl.rpo.core.queues import Queues
from dr_ctl.rpo.core.rows import SCHEMA, Gathered
from dr_ctl.rpo.core.summary import HORIZON_US, summed_up
from dr_ctl.rpo.estimate.kept import Keeper, version
from dr_ctl.rpo.estimate.listing import File
from dr_ctl.rpo.estimate.looks import Gone, Looks, TooShort

NEAR_US: Final = 2 * HOUR
"""So much before a slice its files are told at first; more where the cut lies further back."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Orders for one task: looks of [from, to), by the files that hold them and what lies before them, as far back as
    `reaches_us`. The history as a whole lies between `begin` and `end`. `include`, `exclude` and `classes` are patterns
    of queues. `keep` names the folder for summaries, if these are to be kept. `cell_us`: how long the cells of a test
    of the past are; 0 where nothing is tested."""

    history: str
    from_us: int
    to_us: int
    begin_us: int
    end_us: int
    include: tuple[str, ...] = ("#",)
    exclude: tuple[str, ...] = ()
    classes: tuple[tuple[str, ...], ...] = ()
    horizons_us: tuple[int, ...] = (HORIZON_US,)
    cell_us: int = 0
    keep: str | None = None
    version: str = ""
    reaches_us: int = 0
    files: tuple[File, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        told = json.loads(text)
        told["files"] = tuple(File(**each) for each in told["files"])
        for name in ("include", "exclude", "horizons_us"):
            told[name] = tuple(told[name])
        told["classes"] = tuple(map(tuple, told["classes"]))
        return cls(**told)

    def with_files(self, files: Sequence[File], reaches_us: int) -> Self:
        """Tell its own files, from a moment on."""
        reaches_us = max(self.begin_us, reaches_us)
        mine = tuple(each for each in files if each.touches(reaches_us, self.to_us + AWAY_US))
        return replace(self, files=mine, reaches_us=reaches_us)

    def holds(self, hour_us: int) -> bool:
        """Whether an hour is one of its own."""
        return self.from_us - self.from_us % HOUR <= hour_us < self.to_us

    @property
    def orders(self) -> Orders:
        return Orders(
            self.begin_us,
            self.end_us,
            self.from_us,
            self.to_us,
            self.include,
            self.exclude,
            self.classes,
            self.horizons_us,
            self.cell_us,
        )


def answer(told: Slice) -> Iterator[pa.Table]:
    """The rows of a slice, an hour at a time; what went wrong as rows too."""
    if told.version != version():
        yield _fault("version", version(), 0)
        return
    looks, keeper = Looks(told), Keeper(told)
    for hour_us in range(told.from_us - told.from_us % HOUR, told.to_us, HOUR):
        try:
            yield keeper.take(*_hour(told, looks, hour_us))
        except TooShort as error:
            yield _fault("short", "", error.from_us, cell=hour_us)
            break
        except Gone as error:
            yield _fault("gone", str(error), 0)
            return
    for name, why in looks.torn.items():
        yield _fault("torn", json.dumps([name, why]), 0)
    keeper.close()


def _hour(told: Slice, looks: Looks, hour_us: int) -> tuple[Period, pa.Table, int]:
    """Sum an hour up by itself: the rows are the same whatever else is asked for."""
    period, orders = Period(hour_us, hour_us + HOUR), told.orders
    found = looks.around(period)
    if found is None:
        return period, SCHEMA.empty_table(), hour_us
    window, scopes = orders.window(hour_us), 1 + len(told.classes)
    queues = Queues.of(found.chunks(), found.flows, orders.mask, scopes, (window.from_us, window.to_us))
    gathered = summed_up(found.rows, found.flows, queues, scopes, window)
    if told.cell_us:
        check(gathered, found.rows, found.flows, found.chunks, queues, orders.mask, window)
    return period, gathered.table(), found.from_us


def _fault(metric: str, name: str, most: int, cell: int = 0) -> pa.Table:
    gathered = Gathered()
    gathered.one("fault", metric=metric, name=name, most=most, cell=cell)
    return gathered.table()
