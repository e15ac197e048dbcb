"""Spark SQL over the hours' rows: what a history is, and the rows of each scope, of which a grouped map reads the
figures."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa
from pydantic import TypeAdapter
from pyspark.sql import DataFrame

from dr_ctl.rpo.core.calendar import HOUR, LATELY, OF_A_DAY, SECOND, over_us
from dr_ctl.rpo.core.calibration import Tested, backtested
from dr_ctl.rpo.core.facts import Facts
from dr_ctl.rpo.core.rows import OWN, SCHEMA, TOTAL, class_name
from dr_ctl.rpo.core.scope import Ask, OfScope, figures
from dr_ctl.rpo.pipeline import sql
from dr_ctl.rpo.pipeline.hours import grouped

Answer = TypeVar("Answer")
TOLD: Final = pa.schema([("scope", pa.string()), ("figures", pa.string())])
"""A scope, and its figures as one JSON document."""
_FACTS: Final = """
    SELECT kind, scope, name, sum(weight) AS weight, sum(count) AS count, max(most) AS most, min(least) AS least,
      max(cell) AS cell
    FROM {rows} WHERE kind IN ('looks', 'spacing', 'role', 'share', 'read') GROUP BY kind, scope, name
    UNION ALL
    SELECT 'hour', get_json_object(scope, '$[0]'), '', 0, 0, 0, 0, cell
    FROM {rows} WHERE kind = 'looks' GROUP BY get_json_object(scope, '$[0]'), cell
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
    told = [tuple(row) for row in sql.over(_FACTS, rows=rows).collect()]
    hours = [(row[1], row[-1]) for row in told if row[0] == "hour"]
    return Facts.of([row for row in told if row[0] != "hour"], hours)


def figures_of(rows: DataFrame, facts: Facts, classes: int, ask: Ask) -> Mapping[str, OfScope]:
    """The figures of every scope."""
    scopes = [TOTAL, *map(class_name, range(classes))]
    parts = _parts(rows, scopes, ask, _cell(ask.end_us), ask.since_us - ask.since_us % HOUR)
    found = _told(parts, partial(figures, ask=ask), TypeAdapter(OfScope).validate_json)
    return {name: found.get(name) or figures(name, SCHEMA.empty_table(), ask) for name in (*scopes, *facts.flows)}


def tested_of(rows: DataFrame, ask: Ask) -> Tested:
    """The test of the total on its own past. Its cells are not those of the calendar."""
    mine = rows.where(f"is_total OR scope IN ({sql.text(TOTAL)}, '') OR kind IN ({_OWN})")
    parts = _parts(mine, [TOTAL], ask, "cell", 0).where(f"of = {sql.text(TOTAL)}")
    return _told(parts, partial(backtested, ask=ask), TypeAdapter(Tested).validate_json)[TOTAL]


def _parts(rows: DataFrame, scopes: Sequence[str], ask: Ask, cell: str, since_us: int) -> DataFrame:
    """The rows that tell of each scope, put together."""
    horizons = (str(int(each * SECOND)) for each in ask.horizons_s or (ask.horizon_s,))
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


def _told(parts: DataFrame, call: Callable[[str, pa.Table], Any], read: Callable[[str], Answer]) -> dict[str, Answer]:
    """What a function says of each scope, which passes as a JSON document."""

    def told(scope: str, table: pa.Table) -> pa.Table:
        return pa.table({"scope": [scope], "figures": [json.dumps(asdict(call(scope, table)))]}, schema=TOLD)

    placed = parts.repartition("of").sortWithinPartitions("of")
    return {row.scope: read(row.figures) for row in grouped(placed, "of", told, TOLD, "dr_ctl_figures").collect()}


def _cell(end_us: int) -> str:
    """The cell of a row: coarser on days that are over."""
    curve, other = (
        f"CASE WHEN cell < {over_us(end_us)} THEN {getattr(OF_A_DAY, name)} ELSE {getattr(LATELY, name)} END"
        for name in ("curve_us", "figures_us")
    )
    return f"cell - cell % CASE kind WHEN 'curve' THEN {curve} ELSE {other} END"
