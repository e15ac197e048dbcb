"""From bounds of queues to series: of each flow, of each class, and in total.

The total is a series of its own: quantiles do not add up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dr_ctl.rpo.estimate.cells import CLASS, METRICS, TOTAL
from dr_ctl.rpo.estimate.spans import NOW, flow_key
from dr_ctl.rpo.spark import sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from dr_ctl.rpo.estimate.facts import Flow

_FIGURES: Final = (*METRICS, "covered", "is_floor", "stalled")


def by_flow(parts: DataFrame, flow_parts: DataFrame, flows: Sequence[Flow], *, classes: int) -> DataFrame:
    """Add the queues up per outflow, interval and scope (the total, each class), within what the outflow can hold.

    `told` is what the queues' counters account for of `put`, which went into a mixed outflow.
    """
    scopes = [f"CASE WHEN NOT is_queue OR mask & {2 << k} != 0 THEN '{CLASS}{k}' END" for k in range(classes)]
    return sql.over(
        """
        WITH counted AS (
          SELECT flow_key, n, {scope} AS scope, is_queue, is_floor, told, sends_depth, acks_depth, covered, stalled,
            put, CASE WHEN NOT is_queue OR mask & 1 = 1 THEN loss ELSE 0 END AS loss,
            CASE WHEN NOT is_queue OR mask & 1 = 1 THEN age_us ELSE 0 END AS age_us,
            CASE WHEN NOT is_queue OR mask & 1 = 1 THEN duplicates ELSE 0 END AS duplicates
          FROM (SELECT * FROM {parts} UNION ALL SELECT {columns} FROM {flow_parts})),
        added_up AS (
          SELECT flow_key, n, scope, count_if(is_queue) AS queues, sum(told) AS told, max(put) AS put,
            sum(CASE WHEN is_queue THEN loss END) AS loss, max(is_queue AND loss IS NULL) AS loss_unknown,
            max(CASE WHEN is_queue THEN age_us END) AS age_us, max(is_queue AND age_us IS NULL) AS age_unknown,
            sum(CASE WHEN is_queue THEN duplicates END) AS duplicates,
            max(is_queue AND duplicates IS NULL) AS duplicates_unknown,
            max(CASE WHEN NOT is_queue THEN age_us END) AS flow_age_us,
            max(sends_depth) AS sends_depth, max(acks_depth) AS acks_depth, max(covered) AS covered,
            max(stalled) AS stalled, max(is_floor) AS is_floor
          FROM counted GROUP BY flow_key, n, scope),
        bounded AS (
          SELECT *, sends_depth IS NULL AND acks_depth IS NOT NULL AS acks_only, scope = 'total' AS in_total,
            CASE WHEN sends_depth IS NULL AND acks_depth IS NOT NULL THEN 0 ELSE sends_depth END AS most_lost
          FROM added_up),
        figures AS (
          SELECT b.*, r.pair, r.flow, {loss} AS flow_loss, {duplicates} AS flow_duplicates,
            CASE WHEN sends_depth = 0 THEN 0 ELSE ceil(sends_depth * 1000 / r.sends_rate) END AS sends_ms,
            CASE WHEN acks_depth = 0 THEN 0 ELSE ceil(acks_depth * 1000 / r.acks_rate) END AS acks_ms
          FROM bounded b JOIN {rates} r ON r.flow_key = b.flow_key)
        SELECT pair, flow, n, scope, CAST(flow_loss AS BIGINT) AS loss,
          CAST(ceil(CASE WHEN flow_loss = 0 THEN 0 WHEN queues > 0 AND NOT age_unknown THEN age_us ELSE flow_age_us END
                    / 1000) AS BIGINT) AS age_ms,
          CAST(flow_duplicates AS BIGINT) AS duplicates,
          -- Both directions drain side by side; null where something is there and no rate is known.
          CASE WHEN queues = 0 AND NOT in_total THEN 0L
               WHEN (sends_depth IS NULL OR sends_ms IS NOT NULL) AND (acks_depth IS NULL OR acks_ms IS NOT NULL)
               THEN CAST(greatest(sends_ms, acks_ms) AS BIGINT) END AS drain_ms,
          coalesce(covered, false) AS covered, coalesce(flow_loss > 0 AND is_floor, false) AS is_floor,
          coalesce(stalled, false) AS stalled, acks_only,
          CASE WHEN in_total AND queues > 0 AND NOT loss_unknown THEN put END AS put,
          CASE WHEN in_total AND queues > 0 AND NOT loss_unknown AND put IS NOT NULL THEN told END AS told
        FROM figures
        """,
        parts=parts,
        flow_parts=flow_parts,
        columns=", ".join(parts.columns),
        scope=f"explode(array_compact(array('{TOTAL}', {', '.join(scopes)})))" if scopes else f"'{TOTAL}'",
        loss=_within("loss", "most_lost"),
        duplicates=_within("duplicates", "acks_depth"),
        rates=sql.rows(
            "flow_key, pair, flow, sends_rate, acks_rate",
            [
                (flow_key(f), sql.text(f.pair), sql.text(f.flow), _number(f.sends_rate), _number(f.acks_rate))
                for f in flows
            ],
            "0L, '', '', 0D, 0D",
        ),
    )


def _within(column: str, most: str) -> str:
    """No queue was read: all that the outflow holds, in the total. One is not known: the same. Else their sum."""
    return (
        f"CASE WHEN queues = 0 AND in_total THEN {most} WHEN queues = 0 THEN 0 "
        f"WHEN {column}_unknown THEN {most} ELSE least({column}, {most}) END"
    )


def _number(value: float | None) -> str:
    return "CAST(NULL AS DOUBLE)" if value is None else f"{value!r}D"


def states(by_flow_: DataFrame, outflows: DataFrame, flows: Sequence[Flow], site: str) -> DataFrame:
    """One series per scope: from `from_us` on, for `weight_us`, each state held.

    Pairs are not looked at in the same instant; where there are several, the total is added up anew wherever one of
    them changes. Of one flow alone the total is all there is to say: it has no scope of its own.
    """
    timed = _timed(by_flow_, outflows, site)
    figures = ", ".join(_FIGURES)
    if len(flows) == 1:
        return timed.selectExpr("scope", "from_us", "to_us - from_us AS weight_us", *_FIGURES)
    single = f"{_SINGLE} UNION ALL "
    per_pair = f"""SELECT scope, pair, from_us, to_us, {_summed("NOT acks_only")} FROM {{timed}}
        GROUP BY scope, pair, from_us, to_us"""
    if len({flow.pair for flow in flows}) == 1:
        return sql.over(
            f"{single} SELECT scope, from_us, to_us - from_us, {{figures}} FROM ({per_pair})",
            timed=timed,
            figures=figures,
        )
    return sql.over(
        f"""
        WITH pairs AS ({per_pair}),
        marks AS (SELECT scope, from_us AS us FROM pairs UNION SELECT scope, to_us FROM pairs),
        lives AS (SELECT scope, pair, min(from_us) AS first_us FROM pairs GROUP BY scope, pair),
        cells AS (
          SELECT m.scope, l.pair, m.us,
            last_value(CASE WHEN p.to_us IS NOT NULL THEN struct(p.to_us, {_of("p")}) END, true) OVER (
              PARTITION BY m.scope, l.pair ORDER BY m.us ROWS UNBOUNDED PRECEDING) AS held
          -- A pair counts from its first look on, and to the end: one that is no longer read is not known, not gone.
          FROM marks m JOIN lives l ON l.scope = m.scope AND m.us >= l.first_us
          LEFT JOIN pairs p ON p.scope = m.scope AND p.pair = l.pair AND p.from_us = m.us),
        live AS (SELECT scope, us, CASE WHEN held.to_us > us THEN held END AS held FROM cells),
        told AS (SELECT scope, us, held.* FROM live),
        summed AS (SELECT scope, us, {_summed("true")} FROM told GROUP BY scope, us)
        {single}
        SELECT * FROM (
          SELECT scope, us, lead(us) OVER (PARTITION BY scope ORDER BY us) - us AS weight_us, {{figures}} FROM summed)
        WHERE weight_us IS NOT NULL
        """,
        timed=timed,
        figures=figures,
    )


def flow_states(by_flow_: DataFrame, outflows: DataFrame, site: str) -> DataFrame:
    """The series of the flows alone, without a total."""
    return sql.over(_SINGLE, timed=_timed(by_flow_, outflows, site), figures=", ".join(_FIGURES))


_SINGLE: Final = """
        SELECT concat('flow:', pair, '\\n', flow) AS scope, from_us, to_us - from_us AS weight_us, {figures}
        FROM {timed} WHERE scope = 'total'"""


def _timed(by_flow_: DataFrame, outflows: DataFrame, site: str) -> DataFrame:
    return sql.over(
        """
        WITH times AS (
          SELECT pair, n, us AS from_us, lead(us) OVER (PARTITION BY pair ORDER BY n) AS to_us
          FROM (SELECT DISTINCT pair, n, us FROM {outflows} WHERE site = {site}))
        SELECT f.*, t.from_us, t.to_us FROM {flows} f JOIN times t ON t.pair = f.pair AND t.n = f.n
        WHERE f.n != {now} AND t.to_us IS NOT NULL
        """,
        flows=by_flow_,
        outflows=outflows,
        site=sql.text(site),
        now=NOW,
    )


def _of(alias: str) -> str:
    return ", ".join(f"{alias}.{figure}" for figure in _FIGURES)


def _summed(has_duplicates: str) -> str:
    """Messages add up, times run side by side. What is not known of one is not known of the sum.

    What an outflow of acknowledgements alone holds is counted with the queues that it serves.
    """

    def whole(column: str, fold: str, counts: str = "true") -> str:
        folded = f"{fold}(CASE WHEN {counts} THEN {column} END)" if counts != "true" else f"{fold}({column})"
        return f"CASE WHEN NOT max({counts} AND {column} IS NULL) THEN {folded} END AS {column}"

    return ", ".join(
        [
            whole("loss", "sum"),
            whole("age_ms", "max"),
            whole("duplicates", "sum", has_duplicates),
            whole("drain_ms", "max"),
            "min(coalesce(covered, false)) AS covered",
            "max(coalesce(is_floor, false)) AS is_floor",
            "max(coalesce(stalled, false)) AS stalled",
        ]
    )


def last_states(by_flow_: DataFrame) -> DataFrame:
    """The state at the last look: one row per scope."""
    return sql.over(
        f"""
        SELECT concat('flow:', pair, '\\n', flow) AS scope, {", ".join(_FIGURES)}
        FROM {{flows}} WHERE n = {NOW} AND scope = 'total'
        UNION ALL
        SELECT scope, {_summed("NOT acks_only")} FROM {{flows}} WHERE n = {NOW} GROUP BY scope
        """,
        flows=by_flow_,
    )
