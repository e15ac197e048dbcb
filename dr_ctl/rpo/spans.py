"""From looks to bounds: what of each queue and outflow was under way between two looks, at most.

With A for what was sent to a queue, K for what was consumed from it:

    loss        sent since the cut, and no more than the queue held
    age         time since the cut, while anything is lost
    duplicates  consumed since the cut of the acknowledgements, among the messages that were shipped

Between two looks the truth moves; each figure is taken from the end of the interval that makes it larger (sends at the
end, cut at the start), so that it is never below the truth anywhere in between. Where a cut is not known (just after a
restart; a queue that has just appeared) the depth of the outflow is the bound.

Rows are as narrow as they can be: what is sorted here is as long as the history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dr_ctl.rpo import sql
from dr_ctl.rpo.looks import SHARED
from dr_ctl.rpo.result import pattern_regex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from dr_ctl.rpo.facts import Flow

NOW: Final = 0
"""The number that stands for the last look itself; intervals between looks count from 1."""
BROADCAST_LOOKS: Final = 2_000_000
"""An outflow's looks up to so many go to the queues; more are moved as the queues are."""
PARTS: Final = (
    "pair, flow, n, is_queue, mask, loss, age_us, duplicates, is_floor, told, "
    "sends_depth, acks_depth, covered, stalled, put"
)


def queue_looks(history: DataFrame, outflows: DataFrame, site: str, *, masks: str, looks: int) -> DataFrame:
    """One row per queue and look at which its outflow was read too, with the moments of both cuts.

    A queue's own outflow serves it where there is one, else the one that serves all of its pair.
    """
    hint = "/*+ BROADCAST(shared), BROADCAST(own) */" if looks <= BROADCAST_LOOKS else ""
    return sql.over(
        """
        SELECT {hint} q.pair, CASE WHEN own.sends_depth IS NOT NULL THEN own.flow ELSE shared.flow END AS flow,
          q.queue, q.mask, q.us, coalesce(own.n, shared.n) AS n, q.depth, q.added, q.removed, q.consumed, q.oldest_ms,
          q.sent, CASE WHEN own.sends_depth IS NOT NULL THEN own.sends_cut_us ELSE shared.sends_cut_us END AS cut_us,
          CASE WHEN own.acks_depth IS NOT NULL THEN own.acks_cut_us ELSE shared.acks_cut_us END AS acked_us,
          xxhash64(q.start, CASE WHEN own.sends_depth IS NOT NULL THEN own.series ELSE shared.series END,
            CASE WHEN own.acks_depth IS NOT NULL THEN own.series
                 WHEN shared.acks_depth IS NOT NULL THEN shared.series END) AS era
        FROM (
          SELECT pair, name AS queue, unix_micros(ts) AS us, depth, added, removed,
            coalesce(acked, removed) AS consumed, oldest_ms, greatest(added, removed + depth) AS sent, start,
            {masks} AS mask
          FROM {history} WHERE kind = 'queue' AND site = {site}) q
        LEFT JOIN (SELECT * FROM {outflows} WHERE site = {site} AND flow = '{shared}') shared
          ON shared.pair = q.pair AND shared.us = q.us
        LEFT JOIN (SELECT * FROM {outflows} WHERE site = {site} AND flow != '{shared}') own
          ON own.pair = q.pair AND own.us = q.us AND own.flow = q.queue
        WHERE own.sends_depth IS NOT NULL OR shared.sends_depth IS NOT NULL
        """,
        history=history,
        outflows=outflows,
        site=sql.text(site),
        masks=masks,
        hint=hint,
        shared=SHARED,
    )


def cut_looks(looks: DataFrame, *, split: bool) -> DataFrame:
    """Add what the queue's counters stood at where history is cut: `cut` for its sends, `acked` for acknowledgements.

    `split`: some outflow carries acknowledgements alone, so that the two cuts differ. A new series begins wherever the
    counters of the queue or of its outflow do; a cut before it is not known. Of two rows of one look one counts.
    """
    in_series = sql.over(
        """
        WITH seen AS (
          SELECT *, lag(us) OVER thing AS before_us,
            NOT (era <=> lag(era) OVER thing) OR coalesce(added < lag(added) OVER thing, false)
              OR coalesce(removed < lag(removed) OVER thing, false)
              OR coalesce(consumed < lag(consumed) OVER thing, false) AS begins
          FROM {looks} WINDOW thing AS (PARTITION BY pair, flow, queue ORDER BY us)),
        series AS (
          SELECT *, sum(int(begins)) OVER (
            PARTITION BY pair, flow, queue ORDER BY us ROWS UNBOUNDED PRECEDING) AS series
          FROM seen WHERE NOT (before_us <=> us))
        SELECT pair, flow, queue, mask, us, n, depth, added, consumed, oldest_ms, sent, cut_us, acked_us, series,
          CASE WHEN lead(series) OVER thing = series THEN lead(sent) OVER thing END AS sent_after
        FROM series WINDOW thing AS (PARTITION BY pair, flow, queue ORDER BY us)
        """,
        looks=looks,
    )
    if not split:
        return _with_cut(in_series, "cut_us", "us, added, sent_after, consumed", "cut")
    cut = _with_cut(in_series, "cut_us", "us, added, sent_after, consumed", "cut")
    return _with_cut(cut, "acked_us", "consumed", "acked")


def _with_cut(looks: DataFrame, pointer: str, carry: str, into: str) -> DataFrame:
    """Add the `carry` of the newest look of the series not after `pointer`.

    One pass: a look whose cut lies in the past stands on the line of time twice, as itself and where it cuts.
    """
    return sql.over(
        """
        WITH marked AS (
          SELECT * FROM {looks} LATERAL VIEW inline(
            CASE WHEN {pointer} IS NULL OR {pointer} >= us
              THEN array(named_struct('mark', us, 'asks', false, 'is_result', true))
              ELSE array(named_struct('mark', us, 'asks', false, 'is_result', false),
                         named_struct('mark', {pointer}, 'asks', true, 'is_result', true)) END
          ) marks AS mark, asks, is_result),
        found AS (
          SELECT *, last_value(CASE WHEN NOT asks THEN struct(series, {carry}) END, true) OVER (
              PARTITION BY pair, flow, queue ORDER BY mark, asks ROWS UNBOUNDED PRECEDING) AS newest
          FROM marked)
        SELECT * EXCEPT (mark, asks, is_result, newest),
          CASE WHEN {pointer} IS NOT NULL AND newest.series = series THEN newest END AS {into}
        FROM found WHERE is_result
        """,
        looks=looks,
        pointer=pointer,
        carry=carry,
        into=into,
    )


def queue_parts(looks: DataFrame, flows: Sequence[Flow], *, split: bool) -> DataFrame:
    """Bounds per queue and interval: `n` numbers the interval by the look at its start, `NOW` is the last look itself.

    A null bound is not known: the outflow's then takes its place.
    """
    return sql.over(
        """
        WITH known AS (
          SELECT *, {acked} AS acked_consumed, last_value(cut.us, true) OVER so_far AS known_from_us,
            first_value(us) OVER so_far AS first_us, least(coalesce(cut.sent_after, sent), sent) AS passed
          FROM {looks}
          WINDOW so_far AS (PARTITION BY pair, flow, queue ORDER BY us ROWS UNBOUNDED PRECEDING)),
        paired AS (
          SELECT k.pair, k.flow, k.mask, k.us, k.n, k.series, k.depth, k.added, k.consumed, k.oldest_ms, k.passed,
            cut.added AS cut_added, acked_consumed, coalesce(known_from_us, first_us) AS oldest_us,
            known_from_us IS NULL AS is_floor,
            lag(struct(n, us, series, depth, added, consumed, cut.added AS cut_added, acked_consumed, oldest_ms,
                       coalesce(known_from_us, first_us) AS oldest_us, known_from_us IS NULL AS is_floor))
              OVER thing AS b,
            lead(us) OVER thing IS NULL AS is_last
          FROM known k WINDOW thing AS (PARTITION BY pair, flow, queue ORDER BY us)),
        bounded AS (
          SELECT p.*, f.last_n, f.last_us - us <= f.gap_us AS seen_lately, b.series = series AS goes_on,
            CASE WHEN b.series = series THEN {loss} END AS loss,
            -- Nothing in the queue can be older than what was oldest at the start.
            CASE WHEN b.depth = 0 THEN us - b.us ELSE b.oldest_ms * 1000 + us - b.us END AS in_queue_us,
            {loss_here} AS loss_here,
            CASE WHEN depth > 0 THEN oldest_ms * 1000 END AS in_queue_here_us
          FROM paired p JOIN {flows} f ON f.pair = p.pair),
        spans AS (
          SELECT pair, flow, mask, inline(CASE WHEN is_last THEN array(before, after, here) ELSE array(before) END)
          FROM (SELECT pair, flow, mask, is_last, {before} AS before, {after} AS after, {here} AS here FROM bounded))
        SELECT pair, flow, explode(CASE WHEN to_n = from_n + 1 THEN array(from_n) ELSE sequence(from_n, to_n - 1) END)
          AS n, true AS is_queue, mask, loss, age_us, duplicates, is_floor,
          CAST(told / (to_n - from_n) AS DOUBLE) AS told, CAST(NULL AS BIGINT) AS sends_depth,
          CAST(NULL AS BIGINT) AS acks_depth, false AS covered, false AS stalled, CAST(NULL AS DOUBLE) AS put
        FROM spans WHERE from_n IS NOT NULL
        """,
        looks=looks,
        acked="acked.consumed" if split else "CASE WHEN acked_us IS NOT NULL THEN cut.consumed END",
        flows=_of_pairs(flows),
        loss=_not_below_zero("least(added - b.cut_added, b.depth + added - b.added)"),
        loss_here=_not_below_zero("least(added - cut_added, depth)"),
        before=_BEFORE,
        after=_AFTER,
        here=_HERE,
    )


def _span(from_n: str, to_n: str, **figures: str) -> str:
    figures = {"told": "CAST(NULL AS BIGINT)", **figures}
    unknown = "CAST(NULL AS BIGINT)"
    parts = [
        f"'from_n', CAST({from_n} AS INT), 'to_n', CAST({to_n} AS INT)",
        *(
            f"'{name}', CAST({figures.get(name, unknown)} AS BIGINT)"
            for name in ("loss", "age_us", "duplicates", "told")
        ),
        f"'is_floor', {figures.get('is_floor', 'false')}",
    ]
    return f"named_struct({', '.join(parts)})"


def _not_below_zero(figure: str) -> str:
    # `greatest` would take what is not known for nothing.
    return f"CASE WHEN {figure} IS NOT NULL THEN greatest({figure}, 0) END"


def _age(loss: str, since_cut: str, in_queue: str) -> str:
    return f"CASE WHEN {loss} = 0 THEN 0 WHEN {loss} > 0 THEN least({since_cut}, {in_queue}) END"


def _duplicates(acked: str) -> str:
    # `least` and `greatest` skip nulls; an unknown cut is to stay unknown.
    known = f"{acked} IS NOT NULL AND consumed IS NOT NULL"
    return f"CASE WHEN {known} THEN greatest(least(consumed, passed) - {acked}, 0) END"


_BEFORE: Final = f"""CASE
  WHEN b IS NOT NULL THEN {
    _span(
        "b.n",
        "n",
        loss="loss",
        age_us=_age("loss", "us - b.oldest_us", "in_queue_us"),
        duplicates=f"CASE WHEN goes_on THEN {_duplicates('b.acked_consumed')} END",
        is_floor="coalesce(loss > 0 AND b.is_floor AND in_queue_us IS NULL, false)",
        told="CASE WHEN goes_on THEN added - b.added + consumed - b.consumed END",
    )
}
  WHEN n > 1 THEN {_span("n - 1", "n")} END"""
"""Up to this look: from the one before; or the queue has appeared, and nothing is known of the interval in which."""
_AFTER: Final = f"CASE WHEN n < last_n AND seen_lately THEN {_span('n', 'last_n')} END"
"""The queue was not seen any more, though the outflow was: it may be gone, it may not have been read."""
_HERE: Final = f"""CASE
  WHEN n = last_n THEN {
    _span(
        str(NOW),
        str(NOW + 1),
        loss="loss_here",
        age_us=_age("loss_here", "us - oldest_us", "in_queue_here_us"),
        duplicates=_duplicates("acked_consumed"),
        is_floor="coalesce(loss_here > 0 AND is_floor AND in_queue_here_us IS NULL, false)",
    )
}
  WHEN seen_lately THEN {_span(str(NOW), str(NOW + 1))} END"""
"""At the last look itself."""


def flow_parts(outflows: DataFrame, flows: Sequence[Flow], site: str) -> DataFrame:
    """The same of the outflows themselves: what each can hold at most, and whether the interval is covered time.

    Time in which the site is on standby is not covered: nobody asks what would be lost with a site that does not serve.
    """
    return sql.over(
        """
        WITH known AS (
          SELECT *, last_value(sends_cut_us, true) OVER so_far AS known_from_us, first_value(us) OVER so_far AS first_us
          FROM {outflows} WHERE site = {site}
          WINDOW so_far AS (PARTITION BY site, pair, flow ORDER BY us ROWS UNBOUNDED PRECEDING)),
        paired AS (
          SELECT k.*, coalesce(known_from_us, first_us) AS oldest_us, known_from_us IS NULL AS is_floor,
            lag(struct(n, us, series, role, sends_depth, sends_added, sends_shipped, acks_depth, acks_added,
                       coalesce(known_from_us, first_us) AS oldest_us, known_from_us IS NULL AS is_floor))
              OVER looks AS b,
            lead(us) OVER looks IS NULL AS is_last
          FROM known k WINDOW looks AS (PARTITION BY site, pair, flow ORDER BY us)),
        bounded AS (
          SELECT p.*, f.last_n AS pair_last_n, f.last_us - us <= f.gap_us AS seen_lately,
            b.series = p.series AS goes_on,
            us - b.us <= f.gap_us AND NOT (b.role <=> 'standby') AS in_time,
            CASE WHEN b.series = p.series THEN b.sends_depth + sends_added - b.sends_added END AS sends_most,
            CASE WHEN b.series = p.series THEN b.acks_depth + acks_added - b.acks_added END AS acks_most
          FROM paired p JOIN {flows} f ON f.pair = p.pair),
        spans AS (
          SELECT pair, flow, inline(array({before}, {after}, {here})) FROM bounded)
        SELECT pair, flow, explode(sequence(from_n, to_n - 1)) AS n, false AS is_queue, 0L AS mask,
          CAST(NULL AS BIGINT) AS loss, age_us, CAST(NULL AS BIGINT) AS duplicates, is_floor,
          CAST(NULL AS DOUBLE) AS told, sends_depth, acks_depth, covered, stalled,
          CAST(put / (to_n - from_n) AS DOUBLE) AS put
        FROM spans WHERE from_n IS NOT NULL
        """,
        outflows=outflows,
        site=sql.text(site),
        flows=_of_pairs(flows),
        before=_flow_span(
            "b IS NOT NULL",
            "b.n",
            "n",
            age_us=_age("sends_most", "us - b.oldest_us", "NULL"),
            is_floor="coalesce(sends_most > 0 AND b.is_floor, false)",
            sends_depth="sends_most",
            acks_depth="acks_most",
            covered="coalesce(goes_on AND in_time, false)",
            stalled="coalesce(goes_on AND b.sends_depth > 0 AND sends_shipped = b.sends_shipped, false)",
            put="CASE WHEN goes_on AND is_mixed THEN sends_added - b.sends_added END",
        ),
        after=_flow_span("is_last AND n < pair_last_n AND seen_lately", "n", "pair_last_n"),
        here=_flow_span(
            "is_last AND (n = pair_last_n OR seen_lately)",
            str(NOW),
            str(NOW + 1),
            age_us=f"CASE WHEN n = pair_last_n THEN {_age('sends_depth', 'us - oldest_us', 'NULL')} END",
            is_floor="n = pair_last_n AND coalesce(sends_depth > 0 AND is_floor, false)",
            sends_depth="CASE WHEN n = pair_last_n THEN sends_depth END",
            acks_depth="CASE WHEN n = pair_last_n THEN acks_depth END",
            covered="n = pair_last_n",
            stalled="coalesce(sends_depth > 0 AND sends_shipped = b.sends_shipped AND goes_on, false)",
        ),
    )


def _flow_span(when: str, from_n: str, to_n: str, **figures: str) -> str:
    numbers = ("age_us", "sends_depth", "acks_depth", "put")
    flags = ("is_floor", "covered", "stalled")
    parts = [
        f"'from_n', CAST({from_n} AS INT), 'to_n', CAST({to_n} AS INT)",
        *(f"'{name}', CAST({figures.get(name, 'NULL')} AS BIGINT)" for name in numbers),
        *(f"'{name}', {figures.get(name, 'false')}" for name in flags),
    ]
    return f"CASE WHEN {when} THEN named_struct({', '.join(parts)}) END"


def _of_pairs(flows: Sequence[Flow]) -> str:
    """What is known of each pair: its last look, and how long an interval may be to count."""
    pairs = sorted({flow.pair for flow in flows})
    rows = []
    for pair in pairs:
        mine = [flow for flow in flows if flow.pair == pair]
        last_n, last_us = max(flow.last_n for flow in mine), max(flow.last_us for flow in mine)
        rows.append((sql.text(pair), str(last_n), f"{last_us}L", f"{max(flow.gap_us for flow in mine)}L"))
    return sql.rows("pair, last_n, last_us, gap_us", rows, "'', 0, 0L, 0L")


def masks(include: Sequence[str], exclude: Sequence[str], classes: Sequence[Sequence[str]]) -> str:
    """Say by bits where a queue counts: bit 0 in the total, bit k + 1 in class k."""
    counts = f"({_matches(include)} AND NOT {_matches(exclude)})"
    bits = [f"CASE WHEN {counts} THEN 1L ELSE 0L END"]
    bits += [
        f"CASE WHEN {counts} AND {_matches(each)} THEN {1 << number}L ELSE 0L END"
        for number, each in enumerate(classes, 1)
    ]
    return " + ".join(bits)


def _matches(patterns: Sequence[str]) -> str:
    if "#" in patterns:
        return "true"
    tests = [f"concat('.', name) RLIKE {sql.text(pattern_regex(pattern))}" for pattern in patterns]
    return f"({' OR '.join(tests)})" if tests else "false"
