"""Bounds made from every second look, against what the looks in between say: DataFrame in, DataFrame out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dr_ctl.rpo.estimate import spans
from dr_ctl.rpo.spark import sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dr_ctl.rpo.estimate.work import Work


def points(work: Work) -> DataFrame:
    """What was under way at each look itself, per flow, and the look before it.

    Known up to one interval between looks: the cut is the newest look that was shipped, not the newest message.
    """
    looks = spans.cut_looks(
        spans.queue_looks(work.rows, work.outflows, work.site, work.flows, masks=work.masks), split=False
    )
    return sql.over(
        """
        WITH flows AS (
          SELECT pair, flow, flow_key, us, sends_depth, lag(us) OVER looks AS before_us,
            lag(series) OVER looks = series AS goes_on
          FROM {outflows} WHERE site = {site} WINDOW looks AS (PARTITION BY site, pair, flow ORDER BY us)),
        queues AS (
          SELECT flow_key, us, max(cut.added IS NULL) AS unknown,
            sum(CASE WHEN mask & 1 = 1 THEN greatest(least(added - cut.added, depth), 0) ELSE 0 END) AS loss
          FROM {looks} GROUP BY flow_key, us)
        SELECT f.pair, f.flow, f.us, f.before_us, least(q.loss, f.sends_depth) AS loss
        FROM flows f JOIN queues q ON q.flow_key = f.flow_key AND q.us = f.us
        WHERE NOT q.unknown AND f.goes_on
        """,
        looks=looks,
        outflows=work.outflows,
        site=sql.text(work.site),
    )


def against_left_out(work: Work, half: Work) -> DataFrame:
    """One row: at how many left-out moments the bound was not below what was seen there, and how far it lay above."""
    return sql.over(
        """
        WITH times AS (
          SELECT pair, n, us AS from_us, lead(us) OVER (PARTITION BY pair ORDER BY n) AS to_us
          FROM (SELECT DISTINCT pair, n, us FROM {outflows} WHERE site = {site})),
        bounds AS (
          SELECT b.pair, b.flow, t.from_us, t.to_us, b.loss FROM {bounds} b
          JOIN times t ON t.pair = b.pair AND t.n = b.n
          WHERE b.scope = 'total' AND b.covered AND b.n > 0),
        tested AS (
          SELECT b.loss AS said, p.loss AS was FROM bounds b
          JOIN {points} p ON p.pair = b.pair AND p.flow = b.flow AND p.before_us = b.from_us
          WHERE p.us < b.to_us AND b.loss IS NOT NULL AND p.loss IS NOT NULL)
        SELECT count(*) AS moments, count_if(said >= was) AS covered, avg(CAST(was AS DOUBLE)) AS mean,
          avg(CAST(said - was AS DOUBLE)) AS excess
        FROM tested
        """,
        outflows=half.outflows,
        bounds=half.by_flow(),
        points=points(work),
        site=sql.text(half.site),
    )
