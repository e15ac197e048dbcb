"""Grouped maps over hours and scopes. A task reads the readings of a block of hours, does the mathematics and returns
rows that add up. Of those rows a second map makes the figures of each scope. A grouped map is an Arrow table function
over a table whose partitions hold whole groups; docs/rpo-method.md says why, and why tasks read files."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from dr_ctl.rpo.core.arrays import HOUR_US, SECOND_US, Ints
from dr_ctl.rpo.core.calibration import CalibrationResult, backtested
from dr_ctl.rpo.core.cut import LONGEST_GAP_US, READ
from dr_ctl.rpo.core.hour import HourQuery, hour
from dr_ctl.rpo.core.rows import LATELY, OF_A_DAY, OWN, SCHEMA, TOTAL, class_name, over_us
from dr_ctl.rpo.core.scope import Facts, ScopeFigures, ScopeQuery, figures
from dr_ctl.rpo.history.files import CODED, Source, Store
from dr_ctl.rpo.history.row import moment
from dr_ctl.rpo.pipeline import sql
from dr_ctl.rpo.pipeline.sql import SUMMED, ddl, version
from dr_ctl.rpo.pipeline.tables import File

Call = Callable[[Any, pa.Table], pa.Table]
AT_ONCE: Final = 1_500_000
"""The queues of an hour with more readings are read in several parts."""
ROWS_OF_A_TASK: Final = 1_000_000
"""A task holds about so many readings, unless a single hour has more."""
UNREADABLE: Final = "a task cannot read"
UNSEEN: Final = "a task does not see"
"""A task raises one of these texts before the quoted name of a file."""
_QUEUES: Final = pc.field("kind") == "queue"


def grouped(rows: DataFrame, key: str, call: Call, returns: pa.Schema, name: str) -> DataFrame:
    """Call a function of each group of the rows; partitions hold whole groups."""
    wanted = version()

    class Groups:
        def __init__(self) -> None:
            if version() != wanted:
                raise RuntimeError(f"a worker of Spark has dr-ctl {version()}, and this is {wanted}")
            self._held: list[pa.RecordBatch] = []

        def eval(self, rows: pa.RecordBatch) -> None:
            self._held.append(rows)

        def terminate(self) -> Iterator[pa.Table]:
            if self._held:
                whole = pa.Table.from_batches(self._held)
                keys = whole[key].unique().to_pylist()
                for value in keys:
                    yield call(value, whole if len(keys) == 1 else whole.filter(pc.field(key) == value))

    spark = rows.sparkSession
    function: Any = f.arrow_udtf(Groups, returnType=ddl(returns))
    spark.udtf.register(name, function)
    return spark.sql(f"SELECT * FROM {name}(TABLE({{rows}}))", rows=rows)


@dataclass(frozen=True, slots=True)
class Readings:
    """The readings of some files of a history, each with its name and the time of its readings."""

    history: str
    files: Sequence[tuple[str, int, int]]

    def between(
        self, from_us: int, to_us: int, which: pc.Expression | None = None, columns: Sequence[str] = READ
    ) -> pa.Table:
        """Return the rows of that time that match. Raises RuntimeError that names a file which cannot be read."""
        within = (pc.field("ts") >= moment(from_us)) & (pc.field("ts") < moment(to_us))
        which = within if which is None else within & which
        names = [name for name, first_us, last_us in self.files if first_us < to_us and last_us >= from_us]
        return pa.concat_tables(
            [CODED.empty_table().select(columns), *(self._of(name, columns, which) for name in names)]
        )

    def _of(self, name: str, columns: Sequence[str], which: pc.Expression) -> pa.Table:
        try:
            rows, why = Source(Store.of(self.history), name).read(columns, which, CODED)
        except FileNotFoundError:
            raise RuntimeError(f"{UNSEEN} {quote(name)}") from None
        if why is not None:
            raise RuntimeError(f"{UNREADABLE} {quote(name)}")
        return rows


def _between(rows: pa.Table, from_us: int, to_us: int) -> pa.Table:
    """Return the rows of that time, by a mask, which is quicker than an expression."""
    ts = rows["ts"]
    return rows.filter(pc.and_(pc.greater_equal(ts, moment(from_us)), pc.less(ts, moment(to_us))))


class _Block:
    """The readings of a block of hours and around them. Too many readings of queues are read in parts (`pieces`)."""

    def __init__(self, readings: Readings, hours: Sequence[int], pieces: int) -> None:
        self._readings, self._pieces, self._begin_us = readings, pieces, hours[0] - LONGEST_GAP_US
        span = self._begin_us, hours[-1] + HOUR_US + LONGEST_GAP_US
        held = readings.between(*span, None if pieces == 1 else ~_QUEUES)
        is_queue = pc.equal(held["kind"], "queue")
        self._others, self._queues = held.filter(pc.invert(is_queue)), held.filter(is_queue)

    def others(self, from_us: int, to_us: int) -> pa.Table:
        before = [self._readings.between(from_us, self._begin_us, ~_QUEUES)] if from_us < self._begin_us else []
        return pa.concat_tables([*before, _between(self._others, from_us, to_us)])

    def moments(self, from_us: int, to_us: int) -> pa.Table:
        read = self._readings.between(from_us, to_us, _QUEUES, ("ts", "pair")).unify_dictionaries()
        return read.group_by(["ts", "pair"], use_threads=False).aggregate([])

    def queues(self, from_us: int, to_us: int, before_us: Ints) -> Iterator[pa.Table]:
        spans: list[tuple[int, int, pc.Expression]] = []
        if len(before_us):
            moments = pa.array(before_us).cast(CODED.field("ts").type)
            spans.append((int(before_us[0]), from_us, _QUEUES & pc.field("ts").isin(moments)))
        if self._pieces == 1:
            before = [self._readings.between(*span) for span in spans]
            yield pa.concat_tables([_between(self._queues, from_us, to_us), *before])
            return
        spans.append((from_us, to_us, _QUEUES))
        every = pa.concat_tables([self._readings.between(*span, ["name"]) for span in spans])
        names = sorted(every["name"].drop_null().unique().to_pylist())
        for number in range(min(self._pieces, max(1, len(names)))):
            some = pc.field("name").isin(names[number :: self._pieces])
            yield pa.concat_tables([self._readings.between(first, end, of & some) for first, end, of in spans])


def _summed_up(
    readings: Readings, query: HourQuery, pieces: Mapping[int, int], _number: int, table: pa.Table
) -> pa.Table:
    """Return the rows that add up of hours that follow each other. `pieces` says in how many parts the queues of an
    hour are held, if it has too many readings for one."""
    hours = sorted(table["hour"].to_pylist())
    read = _Block(readings, hours, pieces.get(hours[0], 1))
    every = [(hour_us, hour(read, hour_us, query)) for hour_us in hours]
    return pa.concat_tables([rows.append_column("hour", pa.repeat(us, rows.num_rows)) for us, rows in every])


class Hours:
    """Hours of a site's files to sum up, and the number of tasks: at least as many as Spark runs at the same time, if
    there are as many hours."""

    def __init__(
        self, spark: SparkSession, history: str, files: Sequence[File], query: HourQuery, hours: Sequence[int]
    ) -> None:
        rows, least = _rows_by_hour(files, hours), int(spark.conf.get("spark.sql.shuffle.partitions", "8") or 8)
        pieces = {hour_us: int(rows[hour_us] // AT_ONCE) + 1 for hour_us in hours if rows[hour_us] > AT_ONCE}
        long = 1 if pieces else max(1, -(-len(hours) // max(least, int(sum(rows.values())) // ROWS_OF_A_TASK)))
        self._blocks: list[list[int]] = []
        for hour_us in hours:
            if not self._blocks or len(self._blocks[-1]) == long or hour_us != self._blocks[-1][-1] + HOUR_US:
                self._blocks.append([])
            self._blocks[-1].append(hour_us)
        self.readings = Readings(history, [(file.name, file.first_us, file.last_us) for file in files])
        self._spark, self._call = spark, partial(_summed_up, self.readings, query, pieces)
        self.tasks = len(self._blocks)

    def rows(self) -> DataFrame:
        blocks = [(number, hour_us) for number, hours in enumerate(self._blocks) for hour_us in hours]
        numbers, hours = (pa.array(column, pa.int64()) for column in zip(*blocks, strict=True))
        todo = self._spark.createDataFrame(pa.table({"block": numbers, "hour": hours}))
        placed = todo.repartitionById(self.tasks, f.expr("CAST(block AS INT)"))
        return grouped(placed, "block", self._call, SUMMED, "dr_ctl_hours").persist()


def _rows_by_hour(files: Sequence[File], hours: Sequence[int]) -> dict[int, float]:
    rows = dict.fromkeys(hours, 0.0)
    for file in files:
        own = range(file.first_us - file.first_us % HOUR_US, file.last_us + 1, HOUR_US)
        for hour_us in own:
            if hour_us in rows:
                rows[hour_us] += file.rows / len(own)
    return rows


Answer = TypeVar("Answer")
SAID: Final = pa.schema([("scope", pa.string()), ("figures", pa.string())])
"""A scope, and its figures as one JSON document."""
_FACTS: Final = """
    SELECT kind, scope, name, sum(weight) AS weight, sum(count) AS count, max(most) AS most, min(least) AS least,
      max(cell) AS cell, pair, hour
    FROM (
      SELECT *, CASE WHEN kind = 'readings' THEN get_json_object(scope, '$[0]') END AS pair
      FROM {rows} WHERE kind IN ('readings', 'spacing', 'role', 'share', 'queues'))
    GROUP BY GROUPING SETS ((kind, scope, name), (pair, hour))
"""
_SCOPES: Final = """
    SELECT of, kind, metric, flow, level, horizon_us, bucket, likely, acks, stalled, cell, sum(weight) AS weight,
      sum(count) AS count, max(most) AS most, min(least) AS least
    FROM (
      SELECT explode(CASE WHEN kind IN ({own}) THEN array(scope, {shared}) WHEN is_total THEN array(scope, {total})
          WHEN kind = 'check' THEN array({total}) ELSE array(scope) END) AS of,
        kind, metric, CASE WHEN kind IN ({own}) THEN scope ELSE flow END AS flow, level, horizon_us, bucket, likely,
        acks, stalled, {cell} AS cell, weight, count, most, least
      FROM {rows}
      WHERE kind IN ('figure', 'time', 'curve', 'check', {own}) OR kind IN ('now', 'since') AND cell = {hour}
        OR kind = 'change' AND horizon_us IN ({horizons}) AND cell >= {since})
    GROUP BY of, kind, metric, flow, level, horizon_us, bucket, likely, acks, stalled, cell
"""
_OWN: Final = ", ".join(map(sql.text, OWN))


def facts_of(rows: DataFrame) -> Facts:
    sums = sql.over(_FACTS, rows=rows).collect()
    hours = [(row.pair, row.hour) for row in sums if row.kind is None and row.pair is not None]
    return Facts.of([row.asDict() for row in sums if row.kind is not None], hours)


def figures_of(rows: DataFrame, facts: Facts, classes: int, query: ScopeQuery) -> Mapping[str, ScopeFigures]:
    scopes = [TOTAL, *map(class_name, range(classes))]
    parts = _parts(rows, scopes, query, _cell(query.end_us), query.since_us - query.since_us % HOUR_US)
    of_scopes = _map_scopes(parts, partial(figures, query=query), TypeAdapter(ScopeFigures).validate_json)
    return {name: of_scopes.get(name) or figures(name, SCHEMA.empty_table(), query) for name in (*scopes, *facts.flows)}


def backtest_of(rows: DataFrame, query: ScopeQuery) -> CalibrationResult:
    """Test the total on its own past. Its cells do not follow the calendar."""
    of_total = rows.where(f"is_total OR scope IN ({sql.text(TOTAL)}, '') OR kind IN ({_OWN})")
    parts = _parts(of_total, [TOTAL], query, "cell", 0).where(f"of = {sql.text(TOTAL)}")
    return _map_scopes(parts, partial(backtested, query=query), TypeAdapter(CalibrationResult).validate_json)[TOTAL]


def _parts(rows: DataFrame, scopes: Sequence[str], query: ScopeQuery, cell: str, since_us: int) -> DataFrame:
    horizons = (str(int(horizon_s * SECOND_US)) for horizon_s in query.horizons_s or (query.horizon_s,))
    return sql.over(
        _SCOPES,
        rows=rows,
        own=_OWN,
        total=sql.text(TOTAL),
        shared=", ".join(map(sql.text, scopes)),
        hour=query.hour_us,
        cell=cell,
        since=since_us,
        horizons=", ".join(horizons),
    )


def _map_scopes(
    parts: DataFrame, call: Callable[[str, pa.Table], Any], read: Callable[[str], Answer]
) -> dict[str, Answer]:
    """Call a function of each scope; its answers pass as JSON documents."""

    def said(scope: str, table: pa.Table) -> pa.Table:
        return pa.table({"scope": [scope], "figures": [json.dumps(asdict(call(scope, table)))]}, schema=SAID)

    placed = parts.repartition("of")
    return {row.scope: read(row.figures) for row in grouped(placed, "of", said, SAID, "dr_ctl_figures").collect()}


def _cell(end_us: int) -> str:
    """Return the cell of a row in SQL: coarser on past days."""
    curve, other = (
        f"CASE WHEN cell < {over_us(end_us)} THEN {getattr(OF_A_DAY, name)} ELSE {getattr(LATELY, name)} END"
        for name in ("curve_us", "figures_us")
    )
    return f"cell - cell % CASE kind WHEN 'curve' THEN {curve} ELSE {other} END"
