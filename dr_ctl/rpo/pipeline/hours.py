"""The hours: blocks of hours to sum up, of which a task reads the readings and does the mathematics, as a grouped map;
and of the rows that add up what a history is, and the figures of each scope, as a grouped map too.

A grouped map is an Arrow table function over a table whose partitions hold whole groups. (PySpark's `applyInArrow` does
the same, and insists on pandas; its PARTITION BY of a table function sorts, and looks for the ends of groups row by row
in Python.) What comes to a task is the list of its hours: their readings it reads from the files itself. Brought there
by Spark they took four times as long as the mathematics.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from dr_ctl.rpo.core.arrays import Ints
from dr_ctl.rpo.core.calibration import CalibrationResult, backtested
from dr_ctl.rpo.core.cut import AWAY_US, READ
from dr_ctl.rpo.core.hour import SHORT, HourQuery, hour, needs
from dr_ctl.rpo.core.rows import HOUR, LATELY, OF_A_DAY, OWN, SCHEMA, SECOND, TOTAL, Gathered, class_name, over_us
from dr_ctl.rpo.core.scope import Facts, OfScope, ScopeQuery, figures
from dr_ctl.rpo.history.files import CODED, Source, Store
from dr_ctl.rpo.history.row import moment
from dr_ctl.rpo.pipeline import sql
from dr_ctl.rpo.pipeline.sql import REACH, SUMMED, ddl, version
from dr_ctl.rpo.pipeline.tables import File

Call = Callable[[Any, pa.Table], pa.Table]
AT_ONCE: Final = 1_500_000
"""More readings of an hour are held some queues at a time."""
ROWS_OF_A_TASK: Final = 1_000_000
"""About so many readings are held by a task, unless an hour has more."""
UNREADABLE: Final = "a task cannot read"
UNSEEN: Final = "a task does not see"
"""What a task says before the name of a file, quoted."""
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
    """The readings of some files of a history, each told by its name and the time of its readings."""

    history: str
    files: Sequence[tuple[str, int, int]]

    def between(
        self, from_us: int, to_us: int, which: pc.Expression | None = None, columns: Sequence[str] = READ
    ) -> pa.Table:
        """Those of that time of which that is so. Raises RuntimeError that names a file which cannot be read."""
        within = (pc.field("ts") >= moment(from_us)) & (pc.field("ts") < moment(to_us))
        within = within if which is None else within & which
        names = [name for name, first_us, last_us in self.files if first_us < to_us and last_us >= from_us]
        return pa.concat_tables(
            [CODED.empty_table().select(columns), *(self._of(name, columns, within) for name in names)]
        )

    def _of(self, name: str, columns: Sequence[str], which: pc.Expression) -> pa.Table:
        try:
            rows, why = Source(Store.of(self.history), name).read(columns, which, CODED)
        except FileNotFoundError:
            raise RuntimeError(f"{UNSEEN} {quote(name)}") from None
        if why is not None:
            raise RuntimeError(f"{UNREADABLE} {quote(name)}")
        return rows

    def moments(self, from_us: int, to_us: int) -> pa.Table:
        """When queues of each pair were read, and nothing else of them."""
        read = self.between(from_us, to_us, _QUEUES, ("ts", "pair")).unify_dictionaries()
        rows = read.group_by(["ts", "pair"], use_threads=False).aggregate([])
        same: dict[str, Any] = {"kind": "queue", "name": "", "link": True, "start": ""}
        columns = [
            rows[column.name]
            if column.name in rows.column_names
            else pa.repeat(same.get(column.name, 0), rows.num_rows).cast(column.type)
            for column in map(CODED.field, READ)
        ]
        return pa.table(columns, names=[*READ])


@dataclass(frozen=True, slots=True)
class Summing:
    """What a task has to know beside its hours. `pieces`: in how many parts the queues of an hour are held, where it
    has too many readings for one."""

    readings: Readings
    query: HourQuery
    pieces: Mapping[int, int]

    def block(self, _number: int, table: pa.Table) -> pa.Table:
        """The rows that add up of hours that follow each other, and of each one of kind REACH."""
        hours = sorted(table["hour"].to_pylist())
        is_large = hours[0] in self.pieces
        around = self._between(hours[0] - AWAY_US, hours[-1] + HOUR + AWAY_US, ~_QUEUES if is_large else None)
        return pa.concat_tables([self._hour(hour_us, around) for hour_us in hours])

    def _between(self, from_us: int, to_us: int, which: pc.Expression | None = None) -> pa.Table:
        return self.readings.between(from_us, min(to_us, self.query.end_us), which)

    def _hour(self, hour_us: int, around: pa.Table) -> pa.Table:
        query, near_us = self.query, hour_us - AWAY_US
        within = (pc.field("ts") >= moment(near_us)) & (pc.field("ts") < moment(hour_us + HOUR + AWAY_US))
        near, from_us = around.filter(within), query.reach_us(hour_us)
        rows, needed = hour(near, hour_us, query, from_us), None
        if rows.num_rows and rows["kind"][0].as_py() == SHORT:
            from_us, outer, needed = self._needed(hour_us, near)
            near = pa.concat_tables([near, outer])
        if needed is not None or hour_us in self.pieces:
            rows = self._further(hour_us, near, from_us, needed)
        reach = Gathered()
        reach.one(REACH, least=0 if from_us <= query.begin_us else from_us)
        rows = pa.concat_tables([rows, reach.table()])
        return rows.append_column("hour", pa.repeat(hour_us, rows.num_rows))

    def _needed(self, hour_us: int, near: pa.Table) -> tuple[int, pa.Table, Ints]:
        """For an hour whose cut lies further back than ten minutes before it: from when on readings of outflows are
        taken, these, and the moments of the readings of queues that it rests on."""
        outer, near_us = near.filter(~_QUEUES), hour_us - AWAY_US
        for further in count(1):
            from_us = self.query.reach_us(hour_us, further)
            before = self._between(from_us, near_us, ~_QUEUES)
            known = pa.concat_tables([outer, before, self.readings.moments(from_us, near_us)])
            needed = needs(known, hour_us, self.query, from_us)
            if needed is not None:
                return from_us, before, needed
        raise AssertionError  # from the begin of the history on none are needed

    def _further(self, hour_us: int, near: pa.Table, from_us: int, needed: Ints | None) -> pa.Table:
        """The rows of an hour that rests on readings of queues of those moments before too, or whose own are too many
        to be held at once."""
        query, pieces, spans = self.query, self.pieces.get(hour_us, 1), []
        if needed is not None and len(needed):
            moments = pa.array(needed).cast(CODED.field("ts").type)
            spans.append((int(needed[0]), hour_us - AWAY_US, _QUEUES & pc.field("ts").isin(moments)))
        if pieces == 1:
            return hour(pa.concat_tables([near, *(self._between(*span) for span in spans)]), hour_us, query, from_us)
        spans.append((max(from_us, hour_us - AWAY_US), hour_us + HOUR + AWAY_US, _QUEUES))
        every = pa.concat_tables([self.readings.between(*span, ["name"]) for span in spans])
        names = sorted(every["name"].drop_null().unique().to_pylist())
        compared = near.filter(pc.field("kind") == "uncopied")

        def some(number: int) -> pa.Table:
            which = pc.field("name").isin(names[number::pieces])
            queues = [self._between(begin_us, end_us, of & which) for begin_us, end_us, of in spans]
            return pa.concat_tables([*queues, compared])

        return hour(near, hour_us, query, from_us, lambda: map(some, range(min(pieces, len(names)))))


class Hours:
    """Hours to sum up, of a site's files, by so many tasks: at least as many as run side by side, where there are as
    many hours."""

    def __init__(
        self, spark: SparkSession, history: str, files: Sequence[File], query: HourQuery, hours: Sequence[int]
    ) -> None:
        rows, least = _rows_of(files, hours), int(spark.conf.get("spark.sql.shuffle.partitions", "8") or 8)
        pieces = {hour_us: int(rows[hour_us] // AT_ONCE) + 1 for hour_us in hours if rows[hour_us] > AT_ONCE}
        long = 1 if pieces else max(1, -(-len(hours) // max(least, int(sum(rows.values())) // ROWS_OF_A_TASK)))
        self._blocks: list[list[int]] = []
        for hour_us in hours:
            if not self._blocks or len(self._blocks[-1]) == long or hour_us != self._blocks[-1][-1] + HOUR:
                self._blocks.append([])
            self._blocks[-1].append(hour_us)
        readings = Readings(history, [(file.name, file.first_us, file.last_us) for file in files])
        self._spark, self._summing = spark, Summing(readings, query, pieces)
        self.tasks = len(self._blocks)

    def rows(self) -> DataFrame:
        """The rows that add up of all hours; and one of kind REACH of each: from when on readings were read for it, 0
        where there were no more."""
        blocks = [(number, hour_us) for number, hours in enumerate(self._blocks) for hour_us in hours]
        numbers, hours = (pa.array(column, pa.int64()) for column in zip(*blocks, strict=True))
        todo = self._spark.createDataFrame(pa.table({"block": numbers, "hour": hours}))
        placed = todo.repartitionById(self.tasks, f.expr("CAST(block AS INT)"))
        return grouped(placed, "block", self._summing.block, SUMMED, "dr_ctl_hours").persist()


def _rows_of(files: Sequence[File], hours: Sequence[int]) -> dict[int, float]:
    """About how many readings hours have."""
    rows = dict.fromkeys(hours, 0.0)
    for file in files:
        own = range(file.first_us - file.first_us % HOUR, file.last_us + 1, HOUR)
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
      SELECT *, CASE WHEN kind = 'looks' THEN get_json_object(scope, '$[0]') END AS pair
      FROM {rows} WHERE kind IN ('looks', 'spacing', 'role', 'share', 'read'))
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
    sums = [tuple(row) for row in sql.over(_FACTS, rows=rows).collect()]
    hours = [row[-2:] for row in sums if row[0] is None and row[-2] is not None]
    return Facts.of([row[:-2] for row in sums if row[0] is not None], hours)


def figures_of(rows: DataFrame, facts: Facts, classes: int, ask: ScopeQuery) -> Mapping[str, OfScope]:
    """The figures of every scope."""
    scopes = [TOTAL, *map(class_name, range(classes))]
    parts = _parts(rows, scopes, ask, _cell(ask.end_us), ask.since_us - ask.since_us % HOUR)
    of_scopes = _scoped(parts, partial(figures, ask=ask), TypeAdapter(OfScope).validate_json)
    return {name: of_scopes.get(name) or figures(name, SCHEMA.empty_table(), ask) for name in (*scopes, *facts.flows)}


def backtest_of(rows: DataFrame, ask: ScopeQuery) -> CalibrationResult:
    """The test of the total on its own past. Its cells are not those of the calendar."""
    of_total = rows.where(f"is_total OR scope IN ({sql.text(TOTAL)}, '') OR kind IN ({_OWN})")
    parts = _parts(of_total, [TOTAL], ask, "cell", 0).where(f"of = {sql.text(TOTAL)}")
    return _scoped(parts, partial(backtested, ask=ask), TypeAdapter(CalibrationResult).validate_json)[TOTAL]


def _parts(rows: DataFrame, scopes: Sequence[str], ask: ScopeQuery, cell: str, since_us: int) -> DataFrame:
    """The rows that tell of each scope, put together."""
    horizons = (str(int(horizon_s * SECOND)) for horizon_s in ask.horizons_s or (ask.horizon_s,))
    return sql.over(
        _SCOPES,
        rows=rows,
        own=_OWN,
        total=sql.text(TOTAL),
        shared=", ".join(map(sql.text, scopes)),
        hour=ask.hour_us,
        cell=cell,
        since=since_us,
        horizons=", ".join(horizons),
    )


def _scoped(parts: DataFrame, call: Callable[[str, pa.Table], Any], read: Callable[[str], Answer]) -> dict[str, Answer]:
    """What a function says of each scope, which passes as a JSON document."""

    def said(scope: str, table: pa.Table) -> pa.Table:
        return pa.table({"scope": [scope], "figures": [json.dumps(asdict(call(scope, table)))]}, schema=SAID)

    placed = parts.repartition("of")
    return {row.scope: read(row.figures) for row in grouped(placed, "of", said, SAID, "dr_ctl_figures").collect()}


def _cell(end_us: int) -> str:
    """The cell of a row: coarser on days that are over."""
    curve, other = (
        f"CASE WHEN cell < {over_us(end_us)} THEN {getattr(OF_A_DAY, name)} ELSE {getattr(LATELY, name)} END"
        for name in ("curve_us", "figures_us")
    )
    return f"cell - cell % CASE kind WHEN 'curve' THEN {curve} ELSE {other} END"
