"""The hours: each row of the history into the hours that rest on it, and the mathematics of an hour as a grouped map;
and of their rows what a history is, and the figures of each scope, as a grouped map too.

A grouped map is an Arrow table function over a table whose partitions hold whole groups. (PySpark's `applyInArrow` does
the same, and insists on pandas; its PARTITION BY of a table function sorts, and looks for the ends of groups row by row
in Python.) Hours that follow each other are brought to a task together, as a block: each reading goes there once.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from dr_ctl.rpo.core.calibration import Tested, backtested
from dr_ctl.rpo.core.cut import AWAY_US, HOUR, KINDS, LATELY, OF_A_DAY, READ, SECOND, over_us
from dr_ctl.rpo.core.hour import SHORT, Orders, hour, needs, part
from dr_ctl.rpo.core.queues import PART
from dr_ctl.rpo.core.rows import OWN, SCHEMA, TOTAL, class_name
from dr_ctl.rpo.core.scope import Ask, Facts, OfScope, figures
from dr_ctl.rpo.pipeline import sql
from dr_ctl.rpo.pipeline.sql import SUMMED, ddl, version
from dr_ctl.rpo.pipeline.tables import File, History

Call = Callable[[Any, pa.Table], pa.Table]
NEEDED: Final = pa.schema([("hour", pa.int64()), ("us", pa.int64())])
PIECE: Final = PART.append(pa.field("block", pa.int64()))
AT_ONCE: Final = 1_500_000
"""More readings of an hour are held some queues at a time."""
ROWS_OF_A_TASK: Final = 1_000_000
"""About so many readings are brought to a task, unless an hour has more."""
_OF: Final = ", ".join(f"l.{name}" for name in ("us", *(each for each in READ if each != "ts")))
_AROUND: Final = f"""
    SELECT * FROM (
      SELECT {_OF}, explode(if(first = last, array(first), array(first, last))) AS block FROM (
        SELECT *, (us - {AWAY_US}) DIV {{long}} * {{long}} AS first, (us + {AWAY_US}) DIV {{long}} * {{long}} AS last
        FROM {{readings}}) l)
    WHERE block IN ({{blocks}})
"""


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


class Hours:
    """Hours to sum up, of a site's files, in turn by so many tasks; there are at least so many where there are as many
    hours."""

    def __init__(
        self,
        spark: SparkSession,
        history: History,
        files: Sequence[File],
        orders: Orders,
        hours: Sequence[int],
        least: int,
    ) -> None:
        self._spark, self._history, self._files, self._orders = spark, history, files, orders
        self._hours, rows = hours, _rows_of(files, hours)
        self._large = {hour_us: int(rows[hour_us] // AT_ONCE) + 1 for hour_us in hours if rows[hour_us] > AT_ONCE}
        tasks = max(least, int(sum(rows.values())) // ROWS_OF_A_TASK)
        self._long = HOUR if self._large else HOUR * max(1, -(-len(hours) // tasks))
        self.tasks = len({hour_us // self._long for hour_us in hours})
        self._further = dict.fromkeys(hours, 0)

    def rows(self) -> DataFrame:
        """The rows that add up of all hours."""
        near = self._summed(self._hours, self._long).persist()
        short = sorted(row.hour for row in near.where(f"kind = '{SHORT}'").select("hour").collect())
        rows = near.where(f"kind <> '{SHORT}'")
        return rows.unionByName(self._far(short).persist()) if short else rows

    @property
    def reach(self) -> dict[int, int]:
        """From when on readings were read for each hour; from ever on where there were no more."""
        reach = {hour_us: self._orders.reach_us(hour_us, further) for hour_us, further in self._further.items()}
        return {hour_us: 0 if from_us <= self._orders.begin_us else from_us for hour_us, from_us in reach.items()}

    def _far(self, short: Sequence[int]) -> DataFrame:
        """The rows of hours whose cut lies further back than ten minutes before them."""
        waiting = [*short]
        needed: list[DataFrame] = []
        while waiting:
            self._further.update((hour_us, self._further[hour_us] + 1) for hour_us in waiting)
            moments = self._needed(waiting).persist()
            needed.append(moments.where("us IS NOT NULL"))
            waiting = [row.hour for row in moments.where("us IS NULL").select("hour").collect()]
        past = sql.over(
            f"SELECT {_OF}, n.hour AS block FROM {{readings}} l JOIN {{moments}} n USING (us) WHERE kind = 'queue'",
            readings=self._before_readings(short),
            moments=f.broadcast(sql.union(needed)),
        )
        outer = self._before(short, self._before_readings(short).where("kind <> 'queue'"))
        return self._summed(short, HOUR, [outer, past])

    def _needed(self, hours: Sequence[int]) -> DataFrame:
        """The moments of the readings of queues that these hours rest on, of those before the ten minutes around them;
        one that is not known where an hour needs outflows from further back."""
        orders, further = self._orders, dict(self._further)
        readings = self._before_readings(hours)
        outer, zeros = readings.where("kind <> 'queue'"), ("depth", "added", "removed", "acked", "oldest_ms")
        known = (
            "us",
            "pair",
            "kind",
            "'' AS name",
            *(f"0L AS {name}" for name in zeros),
            "true AS link",
            "'' AS start",
        )
        whole = readings.where("kind = 'queue'").selectExpr(*known).distinct()
        parts = [
            self._around(hours, HOUR).where("kind <> 'queue'"),
            self._before(hours, outer),
            self._before(hours, whole),
        ]

        def call(hour_us: int, table: pa.Table) -> pa.Table:
            moments = needs(table, hour_us, orders, orders.reach_us(hour_us, further[hour_us]))
            us = pa.array([None] if moments is None else moments, pa.int64())
            return pa.table({"hour": pa.array([hour_us] * len(us), pa.int64()), "us": us})

        return grouped(self._placed(sql.union(parts), len(hours), HOUR), "block", call, NEEDED, "dr_ctl_needs")

    def _around(self, hours: Sequence[int], long: int) -> DataFrame:
        """Readings ten minutes around blocks of hours, by the begins of these."""
        readings = self._readings([(hour_us - AWAY_US, hour_us + HOUR + AWAY_US) for hour_us in hours])
        blocks = ", ".join(sorted({f"{hour_us - hour_us % long}L" for hour_us in hours}))
        return sql.over(_AROUND, readings=readings, long=long, blocks=blocks)

    def _before_readings(self, hours: Sequence[int]) -> DataFrame:
        return self._readings([(self._orders.reach_us(us, self._further[us]), us - AWAY_US) for us in hours])

    def _readings(self, spans: Sequence[tuple[int, int]]) -> DataFrame:
        """The readings of the files that have some of these times."""
        names = [file.name for file in self._files if any(file.touches(*span) for span in spans)]
        kinds = ", ".join(map(sql.text, KINDS))
        return self._history.readings(names).where(f"us < {self._orders.end_us} AND kind IN ({kinds})")

    def _before(self, hours: Sequence[int], readings: DataFrame) -> DataFrame:
        """Readings before these, as far back as is asked of each hour."""
        reach = [self._orders.reach_us(hour_us, self._further[hour_us]) for hour_us in hours]
        todo = pa.table({"hour": pa.array(hours, pa.int64()), "from_us": pa.array(reach, pa.int64())})
        return sql.over(
            f"SELECT {_OF}, t.hour AS block FROM {{readings}} l JOIN {{todo}} t "
            f"ON l.us >= t.from_us AND l.us < t.hour - {AWAY_US}",
            readings=readings,
            todo=f.broadcast(self._spark.createDataFrame(todo)),
        )

    def _placed(self, parts: DataFrame, blocks: int, long: int) -> DataFrame:
        """Each block in a partition of its own, where none lies between them."""
        number = f.expr(f"CAST(block DIV {long} % {blocks} AS INT)")
        return parts.repartitionById(blocks, number).withColumnRenamed("us", "ts")

    def _summed(self, hours: Sequence[int], long: int, past: Sequence[DataFrame] = ()) -> DataFrame:
        orders, further = self._orders, dict(self._further)
        parts = sql.union([self._around(hours, long), *past])
        blocks: dict[int, list[int]] = defaultdict(list)
        for hour_us in hours:
            blocks[hour_us - hour_us % long].append(hour_us)

        def call(block: int, table: pa.Table) -> pa.Table:
            return pa.concat_tables([summed(hour_us, table) for hour_us in blocks[block]])

        def summed(hour_us: int, table: pa.Table) -> pa.Table:
            from_us, us = orders.reach_us(hour_us, further[hour_us]), table["ts"].to_numpy()
            readings, of_queues = table.filter(pa.array((us >= from_us) & (us < hour_us + HOUR + AWAY_US))), None
            if "what" in table.column_names:
                some = table.filter(pc.is_valid(table["what"]))
                of_queues = some.select(PART.names) if some.num_rows else None
            rows = hour(readings, hour_us, orders, from_us, of_queues)
            return rows.append_column("hour", pa.array([hour_us] * rows.num_rows, pa.int64()))

        if self._large:
            is_large = parts.block.isin([*self._large])
            outer = parts.where(is_large & (parts.kind != "queue"))
            whole = parts.where(~is_large).unionByName(outer)
            parts = whole.unionByName(self._of_queues(parts.where(is_large)), allowMissingColumns=True)
        return grouped(self._placed(parts, len(blocks), long), "block", call, SUMMED, "dr_ctl_hours")

    def _of_queues(self, parts: DataFrame) -> DataFrame:
        """What queues say in hours with more readings than a task holds at once, some queues at a time."""
        orders, of = self._orders, [hour_us for hour_us, pieces in self._large.items() for _ in range(pieces)]
        first = [of.index(hour_us) for hour_us in self._large]
        pieces = {"at": [*self._large], "first": first, "pieces": [*self._large.values()]}
        split = sql.over(
            """
            SELECT p.*, explode(CASE WHEN kind = 'queue' THEN array(t.first + pmod(xxhash64(name), t.pieces))
              ELSE sequence(t.first, t.first + t.pieces - 1) END) AS piece
            FROM {parts} p JOIN {split} t ON t.at = p.block
            """,
            parts=parts,
            split=f.broadcast(self._spark.createDataFrame(pa.table(pieces))),
        )
        placed = split.repartitionById(len(of), f.expr("CAST(piece AS INT)")).withColumnRenamed("us", "ts")

        def call(piece: int, table: pa.Table) -> pa.Table:
            rows = part(table, of[piece], orders)
            return rows.append_column("block", pa.array([of[piece]] * rows.num_rows, pa.int64()))

        return grouped(placed, "piece", call, PIECE, "dr_ctl_queues")


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


def figures_of(rows: DataFrame, facts: Facts, classes: int, ask: Ask) -> Mapping[str, OfScope]:
    """The figures of every scope."""
    scopes = [TOTAL, *map(class_name, range(classes))]
    parts = _parts(rows, scopes, ask, _cell(ask.end_us), ask.since_us - ask.since_us % HOUR)
    of_scopes = _scoped(parts, partial(figures, ask=ask), TypeAdapter(OfScope).validate_json)
    return {name: of_scopes.get(name) or figures(name, SCHEMA.empty_table(), ask) for name in (*scopes, *facts.flows)}


def tested_of(rows: DataFrame, ask: Ask) -> Tested:
    """The test of the total on its own past. Its cells are not those of the calendar."""
    of_total = rows.where(f"is_total OR scope IN ({sql.text(TOTAL)}, '') OR kind IN ({_OWN})")
    parts = _parts(of_total, [TOTAL], ask, "cell", 0).where(f"of = {sql.text(TOTAL)}")
    return _scoped(parts, partial(backtested, ask=ask), TypeAdapter(Tested).validate_json)[TOTAL]


def _parts(rows: DataFrame, scopes: Sequence[str], ask: Ask, cell: str, since_us: int) -> DataFrame:
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
