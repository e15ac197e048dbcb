"""From series to histograms: how long each figure stayed where, and how it moved within a horizon.

A few thousand rows come out of a history of any length; all that follows from them is worked out in `figures` and
`horizon`, without Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dr_ctl.rpo.estimate.cells import AGE_FLOOR, BOTH, COVERED, HELD, HERE, LAST, PUT, STEP, TIME, TOLD, Cell
from dr_ctl.rpo.estimate.scope_names import METRICS
from dr_ctl.rpo.estimate.scopes import last_states
from dr_ctl.rpo.spark import sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXACT_BELOW: Final = 64
BUCKET_GROWTH: Final = 1.02


@dataclass(frozen=True, slots=True)
class Blocks:
    """The window cut into blocks of equal length."""

    first_us: int
    last_us: int
    count: int

    def number(self, us: str) -> str:
        span = max(1, self.last_us - self.first_us + 1)
        return (
            f"CAST(least(greatest(({us} - {self.first_us}L) * {self.count} div {span}L, 0), {self.count - 1}) AS INT)"
        )


def bucket(value: str) -> str:
    """Number the bucket of a value: exact below 64, then 2 % wide; below zero as above it, towards zero."""
    above = f"{EXACT_BELOW} + ceil(ln(abs({value}) / {EXACT_BELOW}D) / ln({BUCKET_GROWTH}D))"
    below = f"-({EXACT_BELOW} + floor(ln(abs({value}) / {EXACT_BELOW}D) / ln({BUCKET_GROWTH}D)))"
    exact = f"abs({value}) < {EXACT_BELOW}"
    return f"CAST(CASE WHEN {exact} THEN {value} WHEN {value} > 0 THEN {above} ELSE {below} END AS INT)"


def histograms(states: DataFrame, blocks: Blocks) -> DataFrame:
    """How long each metric of each scope stayed in each bucket, by block; `value` is the largest seen in it.

    Rows of `held` weigh time and count states; those of `both` count the steps from one state to the next by the
    smaller of the two: states above a value less steps that stay above it are excursions above it.
    """
    each = [f"named_struct('metric', '{m}', 'value', CAST({m} AS BIGINT), 'before', before.{m})" for m in METRICS]
    none = "CAST(NULL AS BIGINT)"
    each += [
        f"named_struct('metric', '{COVERED}', 'value', 0L, 'before', {none})",
        f"named_struct('metric', '{AGE_FLOOR}', 'value', CASE WHEN is_floor THEN 0L END, 'before', {none})",
    ]
    return sql.over(
        """
        WITH steps AS (
          SELECT *, lag(struct({metrics})) OVER (PARTITION BY scope ORDER BY from_us) AS before
          FROM {states} WHERE covered),
        each AS (SELECT scope, {block} AS block, weight_us, inline(array({each})) FROM steps),
        told AS (
          SELECT scope, metric, block, inline(array(
            named_struct('kind', '{held}', 'value', value, 'weight_us', weight_us),
            named_struct('kind', '{both}', 'value', CASE WHEN before IS NOT NULL THEN least(value, before) END,
                         'weight_us', 0L)))
          FROM each WHERE value IS NOT NULL)
        SELECT kind, scope, metric, block, 0 AS level, false AS stalled, {bucket} AS bucket,
          sum(weight_us) AS weight_us, max(value) AS value, count(*) AS states
        FROM told WHERE value IS NOT NULL AND (kind = '{held}' OR value > 0) GROUP BY ALL
        """,
        states=states,
        metrics=", ".join(METRICS),
        each=", ".join(each),
        block=blocks.number("from_us"),
        bucket=bucket("value"),
        held=HELD,
        both=BOTH,
    )


def moves(states: DataFrame, blocks: Blocks, *, horizon_us: int, since_us: int) -> DataFrame:
    """How loss and age had changed one horizon later, by what they were: `level` is the magnitude of the loss.

    Moments whose horizon reaches beyond the history, or over time that is not covered, say nothing.
    """
    return sql.over(
        """
        WITH numbered AS (
          SELECT *, sum(int(NOT covered)) OVER (PARTITION BY scope ORDER BY from_us ROWS UNBOUNDED PRECEDING) AS holes
          FROM {states} WHERE from_us >= {since}),
        later AS (
          SELECT *, last_value(struct(loss, age_ms, holes, from_us + weight_us AS to_us)) OVER (
              PARTITION BY scope ORDER BY from_us RANGE BETWEEN CURRENT ROW AND {horizon} FOLLOWING) AS then
          FROM numbered),
        known AS (
          SELECT scope, {block} AS block, {level} AS level, stalled, weight_us, inline(array(
            named_struct('metric', 'loss', 'value', then.loss - loss),
            named_struct('metric', 'age_ms', 'value', then.age_ms - age_ms)))
          FROM later
          WHERE covered AND then.holes = holes AND then.to_us >= from_us + {horizon} AND loss IS NOT NULL)
        SELECT '{step}' AS kind, scope, metric, block, level, stalled, {bucket} AS bucket, sum(weight_us) AS weight_us,
          max(value) AS value, count(*) AS states
        FROM known WHERE value IS NOT NULL GROUP BY ALL
        """,
        states=states,
        since=f"{since_us}L",
        horizon=f"{horizon_us}L",
        block=blocks.number("from_us"),
        level=LEVEL,
        bucket=bucket("value"),
        step=STEP,
    )


def last(states: DataFrame) -> DataFrame:
    """The state of the last covered interval of each scope: what changes are counted from."""
    return sql.over(
        """
        SELECT '{last}' AS kind, scope, metric, 0 AS block, 0 AS level, state.stalled AS stalled, 0 AS bucket,
          0L AS weight_us, value, 1L AS states
        FROM (
          SELECT scope, state, inline(array(
            named_struct('metric', 'loss', 'value', state.loss),
            named_struct('metric', 'age_ms', 'value', state.age_ms)))
          FROM (SELECT scope, max_by(struct(loss, age_ms, stalled), from_us) AS state
                FROM {states} WHERE covered GROUP BY scope))
        """,
        states=states,
        last=LAST,
    )


LEVEL: Final = "CASE WHEN loss = 0 THEN 0 ELSE 1 + CAST(floor(log2(loss)) AS INT) END"


def timeline(states: DataFrame, bins: Blocks) -> DataFrame:
    """The most of each metric in total by bin of time, for a chart; time that is not covered has none."""
    each = ", ".join(f"named_struct('metric', '{m}', 'value', CAST({m} AS BIGINT))" for m in METRICS)
    return sql.over(
        """
        SELECT '{time}' AS kind, 'total' AS scope, metric, block, 0 AS level, false AS stalled, 0 AS bucket,
          0L AS weight_us, max(value) AS value, count(*) AS states
        FROM (SELECT {block} AS block, inline(array({each})) FROM {states} WHERE covered AND scope = 'total')
        WHERE value IS NOT NULL GROUP BY metric, block
        """,
        states=states,
        each=each,
        block=bins.number("from_us"),
        time=TIME,
    )


def here(by_flow: DataFrame) -> DataFrame:
    """The last look: the metrics of each scope, and whether it stalls."""
    each = ", ".join(f"named_struct('metric', '{m}', 'value', CAST({m} AS BIGINT))" for m in METRICS)
    return sql.over(
        """
        SELECT '{here}' AS kind, scope, metric, 0 AS block, 0 AS level, stalled, 0 AS bucket, 0L AS weight_us, value,
          1L AS states
        FROM (SELECT scope, stalled, inline(array({each})) FROM {last})
        """,
        last=last_states(by_flow),
        each=each,
        here=HERE,
    )


def accounted(by_flow: DataFrame) -> DataFrame:
    """What went into the mixed outflows in covered time, and what of it the queues' counters tell."""
    return sql.over(
        """
        WITH flows AS (
          SELECT CASE WHEN grouping(pair) = 1 THEN 'total' ELSE concat('flow:', pair, '\\n', flow) END AS scope,
            sum(put) AS put, sum(least(told, put)) AS told
          FROM {flows} WHERE put IS NOT NULL AND covered GROUP BY GROUPING SETS ((pair, flow), ()))
        SELECT kind, scope, 'put' AS metric, 0 AS block, 0 AS level, false AS stalled, 0 AS bucket, 0L AS weight_us,
          CAST(round(value) AS BIGINT) AS value, 1L AS states
        FROM (SELECT scope, inline(array(named_struct('kind', '{put}', 'value', put),
                                         named_struct('kind', '{told}', 'value', told))) FROM flows)
        WHERE value IS NOT NULL
        """,
        flows=by_flow,
        put=PUT,
        told=TOLD,
    )


def collected(frame: DataFrame) -> list[Cell]:
    rows: Any = frame.collect()
    return [Cell(**row.asDict()) for row in rows]
