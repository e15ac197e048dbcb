"""The looks of a history: the rows as they are read, and each outflow's looks, with where each cuts history.

An outflow is first in, first out. What was ever put into it stands at `removed + depth`, what was ever shipped at
`removed`; the look at which the first stood where the second stands now *cuts* history: whatever was sent up to that
look is at the other site, whatever was sent later may not be. Of all looks the newest such is taken, and only within
one series: a restart counts anew, and so do looks among which the clock was put back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dr_ctl.rpo.spark import sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from dr_ctl.rpo.estimate.request import Request

HISTORY: Final = (
    "ts TIMESTAMP, pair STRING, kind STRING, name STRING, depth BIGINT, delivering BIGINT, added BIGINT, "
    "removed BIGINT, acked BIGINT, oldest_ms BIGINT, pending BIGINT, link BOOLEAN, start STRING, "
    "date STRING, site STRING"
)
SHARED: Final = "*"
"""The name of an outflow that serves all queues of its pair."""


def read(spark: SparkSession, paths: Sequence[str], asked: Request) -> DataFrame:
    """Read files of a history. Directories give `date` and `site`, always as words; other columns are left."""
    frame = spark.read.schema(HISTORY).option("basePath", sql.url(str(asked.history))).parquet(*sql.files(paths))
    if asked.since is not None:
        frame = frame.where(f"ts >= TIMESTAMP '{asked.since.isoformat()}'")
    if asked.until is not None:
        frame = frame.where(f"ts <= TIMESTAMP '{asked.until.isoformat()}'")
    return frame


def thinned(history: DataFrame, outflows: DataFrame) -> DataFrame:
    """Leave out every second look at a pair, as if the monitor had looked half as often."""
    return sql.over(
        """
        SELECT h.* FROM {history} h LEFT ANTI JOIN (SELECT DISTINCT site, pair, us FROM {outflows} WHERE n % 2 = 0) out
        ON h.site = out.site AND h.pair = out.pair AND unix_micros(h.ts) = out.us
        """,
        history=history,
        outflows=outflows,
    )


def outflow_looks(history: DataFrame) -> DataFrame:
    """One row per outflow and look: both directions side by side, numbered by look of the pair, cut into series.

    `sends_put` is where the newest thing put in stands, on the scale of `sends_shipped`. It never falls within a
    series: counters that were not read at quite the same instant err towards more under way. `sends_cut_us` and
    `acks_cut_us` are the moments of the looks that cut history; null where the cut lies before the series. What is in
    it was sent after `oldest_us`; `is_floor` where no cut was known so far, and that is the first look.
    """
    return sql.over(
        f"""
        WITH told AS (
          SELECT site, pair, kind, name, unix_micros(ts) AS us, depth, added, removed, link, start
          FROM {{history}} WHERE kind IN ('mirror', 'acks', 'mixed', 'site')
          DISTRIBUTE BY site, pair),
        named AS (
          SELECT *, max(CASE WHEN kind = 'site' THEN name END) OVER (PARTITION BY site, pair, us) AS role FROM told),
        sides AS (
          SELECT site, pair, name AS flow, us, {_side("sends", "mirror")}, {_side("acks", "acks")},
            max(kind = 'mixed') AS is_mixed, max(start) AS start, min(link) AS link, max(role) AS role
          FROM named WHERE kind != 'site' GROUP BY site, pair, name, us),
        read_sides AS (
          SELECT *, max(sends_depth IS NOT NULL) OVER flow_whole AS has_sends,
                    max(acks_depth IS NOT NULL) OVER flow_whole AS has_acks
          FROM sides WINDOW flow_whole AS (PARTITION BY site, pair, flow)),
        fallen AS (
          SELECT *, NOT (start <=> lag(start) OVER flow_looks) AS is_new, {" OR ".join(map(_fell, _COUNTED))} AS fell
          FROM read_sides
          -- A side that was not read at this look is not an empty one: the look is left out.
          WHERE (NOT has_sends OR sends_depth IS NOT NULL) AND (NOT has_acks OR acks_depth IS NOT NULL)
          WINDOW flow_looks AS (PARTITION BY site, pair, flow ORDER BY us)),
        compared AS (
          SELECT *, is_new OR fell OR max(fell AND NOT is_new AND start IS NOT NULL) OVER (
            PARTITION BY site, pair, flow ORDER BY us ROWS BETWEEN {_REACH} PRECEDING AND {_REACH} FOLLOWING) AS begins
          FROM fallen),
        series AS (
          SELECT *, sum(int(begins)) OVER (PARTITION BY site, pair, flow ORDER BY us ROWS UNBOUNDED PRECEDING) AS series
          FROM compared),
        puts AS (
          SELECT *, max(sends_shipped + sends_depth) OVER so_far AS sends_put,
                    max(acks_shipped + acks_depth) OVER so_far AS acks_put
          FROM series
          WINDOW so_far AS (PARTITION BY site, pair, flow, series ORDER BY us ROWS UNBOUNDED PRECEDING)),
        sends_cut AS ({_cut("puts", "sends")}),
        both_cut AS ({_cut("sends_cut", "acks")}),
        known AS (
          SELECT *, last_value(sends_cut_us, true) OVER so_far AS known_us, first_value(us) OVER so_far AS first_us
          FROM both_cut WINDOW so_far AS (PARTITION BY site, pair, flow ORDER BY us ROWS UNBOUNDED PRECEDING)),
        numbered AS (SELECT *, dense_rank() OVER (PARTITION BY site, pair ORDER BY us) AS n FROM known)
        SELECT site, pair, flow, xxhash64(site, pair, flow) AS flow_key, n, us, start, series, link, role, is_mixed,
          sends_depth, sends_added, sends_shipped, sends_cut_us, acks_depth, acks_added, acks_shipped, acks_cut_us,
          coalesce(known_us, first_us) AS oldest_us, known_us IS NULL AS is_floor
        FROM numbered
        """,
        history=history,
    )


_REACH: Final = 2
"""Counters that fall within one start of a broker tell of a clock that was put back: looks of two times lie among each
other there, and the way up from one to the other is no more an interval than the way down. So many on either side."""
_COUNTED: Final = ("sends_added", "sends_shipped", "acks_added", "acks_shipped")


def _side(side: str, kind: str) -> str:
    columns = (("depth", "depth"), ("added", "added"), ("removed", "shipped"))
    return ", ".join(
        f"max(CASE WHEN kind IN ('{kind}', 'mixed') THEN {column} END) AS {side}_{name}" for column, name in columns
    )


def _fell(column: str) -> str:
    return f"coalesce({column} < lag({column}) OVER flow_looks, false)"


def _cut(frame: str, side: str) -> str:
    """Lay what was put in and what was shipped at every look on one line: each `shipped` takes the last `put` before.

    Among equals the earlier look comes first: a cut never lies in the future of what it cuts.
    """
    return f"""
        SELECT * EXCEPT (mark, is_put) FROM (
          SELECT *, last_value(CASE WHEN is_put AND mark IS NOT NULL THEN us END, true) OVER (
              PARTITION BY site, pair, flow, series ORDER BY mark, us, NOT is_put ROWS UNBOUNDED PRECEDING)
            AS {side}_cut_us
          FROM {frame} LATERAL VIEW inline(array(
            named_struct('mark', {side}_put, 'is_put', true),
            named_struct('mark', {side}_shipped, 'is_put', false))) marks AS mark, is_put)
        WHERE NOT is_put"""


def facts(history: DataFrame, outflows: DataFrame) -> DataFrame:
    """What is known of each outflow over the whole history, and when each site was last seen in each role.

    The shipping rates are the 10th percentile over intervals with a backlog and a link at both ends, in things per
    second; intervals in which nothing was shipped are stalls, not a rate. `put_rates` are the 50th, 95th and 99th
    percentile and the greatest rate at which things were put in. Null where there is no such interval.
    """
    return sql.over(
        f"""
        WITH pairs AS (
          SELECT *, us - lag(us) OVER flow_looks AS elapsed_us,
            lag(series) OVER flow_looks = series AS goes_on,
            coalesce(link, true) AND coalesce(lag(link) OVER flow_looks, true) AS linked,
            sends_added - lag(sends_added) OVER flow_looks AS put,
            {_backlogged("sends")}, {_backlogged("acks")}
          FROM {{outflows}} WINDOW flow_looks AS (PARTITION BY site, pair, flow ORDER BY us)),
        rates AS (
          SELECT *, CASE WHEN goes_on THEN put * 1000000D / elapsed_us END AS put_rate,
            CASE WHEN goes_on AND linked THEN sends_more * 1000000D / elapsed_us END AS sends_rate,
            CASE WHEN goes_on AND linked THEN acks_more * 1000000D / elapsed_us END AS acks_rate
          FROM pairs),
        flows AS (
          SELECT site, pair, flow, min(us) AS first_us, max(us) AS last_us, count(*) AS looks, max(n) AS last_n,
            percentile_approx(elapsed_us, 0.5) AS spacing_us, percentile_approx(sends_rate, 0.1) AS sends_rate,
            percentile_approx(acks_rate, 0.1) AS acks_rate,
            percentile_approx(put_rate, array(0.5, 0.95, 0.99, 1.0)) AS put_rates,
            max(is_mixed) AS is_mixed, max(acks_depth IS NOT NULL) AS has_acks
          FROM rates GROUP BY site, pair, flow)
        SELECT *, CAST(NULL AS STRING) AS role FROM flows
        UNION ALL
        SELECT site, NULL, NULL, NULL, max(unix_micros(ts)), count(*), NULL, NULL, NULL, NULL, NULL, NULL, NULL, name
        FROM {{history}} WHERE kind = 'site' GROUP BY site, name
        """,
        history=history,
        outflows=outflows,
    )


def _backlogged(side: str) -> str:
    """What was shipped between two looks that both saw something waiting."""
    before = f"lag({side}_depth) OVER flow_looks"
    more = f"{side}_shipped - lag({side}_shipped) OVER flow_looks"
    return f"CASE WHEN {side}_depth > 0 AND {before} > 0 AND {more} > 0 THEN {more} END AS {side}_more"
