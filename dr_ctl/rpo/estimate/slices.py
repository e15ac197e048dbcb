"""The history cut into slices of time: a slice is one task of Spark, which reads its own files, and as much before them
as the cut needs. Its answer is one row per outflow and look, whatever the number of queues.

A slice is told as JSON and answers in bytes: workers need NumPy and PyArrow, and nothing is shuffled.
"""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from dr_ctl.core.patterns import matches
from dr_ctl.rpo.estimate.periods import HOUR, Calendar
from dr_ctl.rpo.estimate.summary import SCHEMA as SCHEMA_OF_ROWS
from dr_ctl.rpo.estimate.summary import Last, Window, summarized
from dr_ctl.rpo.history.files import SCHEMA
from dr_ctl.rpo.history.row import micros
from dr_ctl.rpo.series.columns import NA, READ, SITE, Columns
from dr_ctl.rpo.series.cut import AWAY_US, Outflows
from dr_ctl.rpo.series.envelope import envelope
from dr_ctl.rpo.series.flow import Flow, joined, parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_OF_A_SLICE: Final = 1_000_000
WORTH_SHARING: Final = 50_000
"""Rows from which another task saves more time than it takes."""
FURTHER: Final = 6
"""By so much a look back grows where the cut lies before it."""
_WORDS: Final = ("pair", "kind", "name", "start")
_SCHEMA: Final = pa.schema(
    [pa.field(each.name, pa.dictionary(pa.int32(), pa.string()) if each.name in _WORDS else each.type)
     for each in SCHEMA if each.name in READ]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class File:
    """A file of the history, and the time of its looks."""

    path: str
    first_us: int
    last_us: int
    rows: int

    @classmethod
    def of(cls, path: str) -> Self | None:
        """Read its footer, or None where it holds no row."""
        told = pq.read_metadata(path)
        place = told.schema.to_arrow_schema().get_field_index("ts")
        groups = [told.row_group(number).column(place).statistics for number in range(told.num_row_groups)]
        if not told.num_rows:
            return None
        if not all(each is not None and each.has_min_max for each in groups):
            moments = pq.ParquetFile(path).read(columns=["ts"])["ts"].cast(pa.int64()).to_numpy()
            return cls(path, int(moments.min()), int(moments.max()), told.num_rows)
        return cls(path, micros(min(e.min for e in groups)), micros(max(e.max for e in groups)), told.num_rows)


@dataclass(frozen=True, slots=True)
class Slice:
    """Orders for one task: looks of [from, to), by the files that hold them and what may lie before them; history as a
    whole lies between `begin` and `end`. `include`, `exclude` and `classes` are patterns of queues."""

    from_us: int
    to_us: int
    begin_us: int
    end_us: int
    files: tuple[File, ...]
    include: tuple[str, ...] = ("#",)
    exclude: tuple[str, ...] = ()
    classes: tuple[tuple[str, ...], ...] = ()
    grid_us: int | None = None  # of time cut into cells of that length the looks of every second one count
    goes_back: bool = False  # history has older files than those told

    @classmethod
    def from_json(cls, text: str) -> Self:
        told = json.loads(text)
        told["files"] = tuple(File(**file) for file in told["files"])
        told["classes"] = tuple(map(tuple, told["classes"]))
        return cls(**told)

    def mask(self, queue: str) -> int:
        """By bits: 1 in the total, 2 in the first class, and so on."""
        if not matches(self.include, queue) or matches(self.exclude, queue):
            return 0
        return 1 + sum(2 << number for number, each in enumerate(self.classes) if matches(each, queue))


def plan(whole: Slice, cores: int, rows_each: int = ROWS_OF_A_SLICE, edge_us: int = 1) -> list[Slice]:
    """Cut the time of `whole` into slices of about as many rows; where there is work for them, for all cores alike.
    Between them lie multiples of `edge_us`."""
    rows = sum(each.rows for each in whole.files if each.first_us < whole.to_us and each.last_us >= whole.from_us)
    count = max(1, -(-rows // rows_each))
    count = -(-count // cores) * cores if rows > WORTH_SHARING else count
    edges = [whole.from_us + (whole.to_us - whole.from_us) * number // count for number in range(count + 1)]
    edges[1:-1] = [max(whole.from_us, edge - edge % edge_us) for edge in edges[1:-1]]
    return [
        # A wider look back may need any file before.
        replace(whole, from_us=begin, to_us=end, files=tuple(f for f in whole.files if f.first_us < end + AWAY_US))
        for begin, end in itertools.pairwise(edges)
        if end > begin
    ]


def read(told: Slice, from_us: int) -> Columns:
    """The rows of a slice, from then on, and somewhat beyond its end."""
    to_us = min(told.to_us + AWAY_US, told.end_us)
    paths = [file.path for file in told.files if file.last_us >= from_us and file.first_us < to_us]
    if not paths:
        return Columns.of(_SCHEMA.empty_table())
    low, high = (pa.scalar(us, pa.timestamp("us", tz="UTC")) for us in (from_us, to_us))
    form = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(dictionary_columns=[*_WORDS]))
    within = (ds.field("ts") >= low) & (ds.field("ts") < high)
    table = ds.dataset(paths, schema=_SCHEMA, format=form).to_table(filter=within, use_threads=False)
    rows = Columns.of(table)
    if told.grid_us is None:
        return rows
    return rows.take(np.flatnonzero((rows.us // told.grid_us % 2 == 0) | (rows.kind == SITE)))


def answer(told: Slice) -> list[Flow]:
    """The outflows of a slice, their queues bounded and added up."""
    back_us = AWAY_US
    while True:
        from_us = max(told.begin_us, told.from_us - back_us)
        rows = read(told, from_us)
        flows = Outflows.of(rows)
        if from_us <= told.begin_us or _is_cut(flows, told.from_us, from_us):
            break
        back_us *= FURTHER
    found = envelope(rows, flows, told.mask, 1 + len(told.classes))
    return parts(flows, found, told.from_us, told.to_us)


def _is_cut(flows: Outflows, at_us: int, from_us: int) -> bool:
    """Whether every outflow's cut is known at its last look before a moment, or never can be."""
    before = np.flatnonzero(flows.us < at_us)
    if not len(before):
        return True
    last = before[np.append(flows.flow[before][1:] != flows.flow[before][:-1], True)]
    began = np.flatnonzero(flows.fresh)
    first = began[np.searchsorted(began, last, "right") - 1]
    is_cut = ~(flows.sends.known.any() & flows.is_floor[last])
    for side in (flows.sends, flows.acks):
        is_cut &= ~side.known[last] | (side.cut_us[last] != NA) | (flows.series[last] != flows.series[first])
    return bool((is_cut | (flows.us[first] > from_us + AWAY_US)).all())


@dataclass(frozen=True, slots=True)
class Summarized:
    """Answers of a slice in rows that add up; how each scope stands at the end, where the slice holds the end; by hour,
    from when on it was read. `is_short`: to know where history was cut, older files are needed."""

    rows: pa.Table
    last: dict[str, Last] | None = None
    back_us: Mapping[int, int] = field(default_factory=dict)
    is_short: bool = False


def summarize(told: Slice) -> Summarized:
    """Summarize each hour of a slice by itself: the rows are the same whatever else is asked for."""
    looks, calendar = _Looks(told), Calendar.of(told.begin_us, told.end_us)
    tables: list[pa.Table] = []
    last, back_us = None, {}
    for hour_us in range(told.from_us - told.from_us % HOUR, told.to_us, HOUR):
        told_of = looks.around(hour_us)
        if told_of is None:
            return Summarized(SCHEMA_OF_ROWS.empty_table(), is_short=True)
        found, back_us[hour_us] = told_of
        from_us, to_us = max(hour_us, told.from_us), min(hour_us + HOUR, told.to_us)
        if not found:
            continue
        rows, at_end = summarized(found, 1 + len(told.classes), Window(from_us, to_us, calendar.fineness(hour_us)))
        tables.append(rows)
        last = at_end if hour_us + HOUR >= told.end_us else None
    return Summarized(pa.concat_tables([SCHEMA_OF_ROWS.empty_table(), *tables]), last, back_us)


class _Looks:
    """The rows of a slice, read once, and more of the past where an hour needs it."""

    def __init__(self, told: Slice) -> None:
        self._told = told
        self._from_us = told.to_us
        self._rows = Columns.of(_SCHEMA.empty_table())

    def around(self, hour_us: int) -> tuple[list[Flow], int] | None:
        """The outflows of an hour, and of some time before and after, and from when on was read, or None where the past
        does not reach far enough."""
        told, end_us, back_us = self._told, min(hour_us + HOUR + AWAY_US, self._told.end_us), AWAY_US
        if not len(self._between(max(told.begin_us, hour_us), min(hour_us + HOUR, told.end_us)).us):
            return [], hour_us
        while True:
            from_us = max(told.begin_us, hour_us - back_us)
            rows = self._between(from_us, end_us)
            flows = Outflows.of(rows)
            if _is_cut(flows, hour_us, from_us):
                break
            if told.goes_back and from_us < told.files[0].first_us:
                return None
            if from_us <= told.begin_us:
                break
            back_us *= FURTHER
        found = envelope(rows, flows, told.mask, 1 + len(told.classes))
        return parts(flows, found, hour_us - AWAY_US, end_us), from_us

    def _between(self, from_us: int, to_us: int) -> Columns:
        if from_us < self._from_us:
            self._from_us = min(from_us, self._told.from_us - self._told.from_us % HOUR - AWAY_US)
            rows = read(self._told, max(self._told.begin_us, self._from_us))
            self._rows = rows.take(np.argsort(rows.us, kind="stable"))
        at = np.searchsorted(self._rows.us, [from_us, to_us])
        return self._rows.take(slice(int(at[0]), int(at[1])))


def task(told: str) -> bytes:
    """Entry point that Spark calls."""
    return pickle.dumps(answer(Slice.from_json(told)), pickle.HIGHEST_PROTOCOL)


def summary_task(told: str) -> bytes:
    """Entry point that Spark calls for a summary."""
    return pickle.dumps(summarize(Slice.from_json(told)), pickle.HIGHEST_PROTOCOL)


def flows_of(spark: SparkSession, slices: Sequence[Slice]) -> tuple[Flow, ...]:
    """Have Spark answer all slices, side by side; put the outflows together."""
    return joined(part for parts_ in _answered(spark, task, slices) for part in parts_)


def summaries_of(spark: SparkSession | None, slices: Sequence[Slice]) -> list[Summarized]:
    """Have Spark summarize all slices, side by side; without it in this process, one after the other."""
    return [summarize(each) for each in slices] if spark is None else _answered(spark, summary_task, slices)


def _answered(spark: SparkSession, work: Callable[[str], bytes], slices: Sequence[Slice]) -> list[Any]:
    from dr_ctl.rpo.spark import tasks  # noqa: PLC0415 - the tasks themselves do without Spark

    told = [json.dumps(asdict(each)) for each in slices]
    return [pickle.loads(each) for each in tasks.answers(spark, work, told)]  # noqa: S301 - what `task` made


def in_this_process(slices: Sequence[Slice]) -> tuple[Flow, ...]:
    """Work without Spark, one slice after the other."""
    return joined(part for each in slices for part in answer(each))


def files_of(paths: Sequence[str]) -> tuple[File, ...]:
    return tuple(file for file in map(File.of, paths) if file is not None)
