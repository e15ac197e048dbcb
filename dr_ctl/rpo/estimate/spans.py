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

from dr_ctl.rpo.estimate.looks import SHARED
from dr_ctl.rpo.estimate.result import pattern_regex
from dr_ctl.rpo.spark import sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from dr_ctl.rpo.estimate.facts import Flow

NOW: Final = 0
"""The number that stands for the last look itself; intervals between looks count from 1."""
BROADCAST_LOOKS: Final = 2_000_000
"""An outflow's looks up to so many go to the queues; more are moved as the queues are."""


def queue_looks(history: DataFrame, outflows: DataFrame, site: str, flows: Sequence[Flow], *, masks: str) -> DataFrame:
    """One row per queue and look at which its outflow was read too, with the moments of both cuts.

    A queue's own outflow serves it where there is one, else the one that serves all of its pair. Names stay behind:
    `thing` stands for the queue in its outflow, `flow_key` for the outflow.
    """
    hint = "/*+ BROADCAST(shared), BROADCAST(own) */" if sum(flow.looks for flow in flows) <= BROADCAST_LOOKS else ""
    has_own = any(flow.flow != SHARED for flow in flows)
    own = f"""LEFT JOIN (SELECT * FROM {{outflows}} WHERE site = {{site}} AND flow != '{SHARED}') own
          ON own.pair = q.pair AND own.us = q.us AND own.flow = q.queue"""

    def served(column: str) -> str:
        return f"CASE WHEN own.sends_depth IS NOT NULL THEN own.{column} ELSE shared.{column} END"

    def of(column: str) -> str:
        return served(column) if has_own else f"shared.{column}"

    own_acks = "WHEN own.acks_depth IS NOT NULL THEN own.{0}" if has_own else ""
    acks = f"CASE {own_acks} WHEN shared.acks_depth IS NOT NULL THEN shared.{{0}} END"
    return sql.over(
        f"""
        SELECT {hint} xxhash64(q.queue, {of("flow_key")}) AS thing, {of("flow_key")} AS flow_key, q.mask, q.us,
          {"coalesce(own.n, shared.n)" if has_own else "shared.n"} AS n, q.depth, q.added, q.removed, q.consumed,
          q.oldest_ms, {of("sends_cut_us")} AS cut_us, {acks.format("acks_cut_us")} AS acked_us,
          {of("oldest_us")} AS oldest_us, {of("is_floor")} AS is_floor,
          xxhash64(q.start, {of("series")}, {acks.format("series")}) AS era
        FROM (
          SELECT pair, name AS queue, unix_micros(ts) AS us, depth, added, removed,
            coalesce(acked, removed) AS consumed, oldest_ms, start, {{masks}} AS mask
          FROM {{history}} WHERE kind = 'queue' AND site = {{site}}) q
        {"LEFT" if has_own else ""} JOIN (SELECT * FROM {{outflows}} WHERE site = {{site}} AND flow = '{SHARED}') shared
          ON shared.pair = q.pair AND shared.us = q.us
        {own if has_own else ""}
        WHERE shared.sends_depth IS NOT NULL {"OR own.sends_depth IS NOT NULL" if has_own else ""}
        """,
        history=history,
        outflows=outflows,
        site=sql.text(site),
        masks=masks,
    )


def cut_looks(looks: DataFrame, *, split: bool) -> DataFrame:
    """Add what the queue's counters stood at where history is cut: `cut` for its sends, `acked` for acknowledgements.

    `split`: some outflow carries acknowledgements alone, so that the two cuts differ. A new series `begins` wherever
    the counters of the queue or of its outflow do; a cut before it is not known. Of two rows of one look one counts.
    """
    seen = sql.over(
        """
        SELECT * EXCEPT (removed, era) FROM (
          SELECT *, lag(us) OVER looks AS before_us, lag(added) OVER looks AS before_added,
            lag(consumed) OVER looks AS before_consumed,
            NOT (era <=> lag(era) OVER looks) OR coalesce(added < lag(added) OVER looks, false)
              OR coalesce(removed < lag(removed) OVER looks, false)
              OR coalesce(consumed < lag(consumed) OVER looks, false) AS begins,
            greatest(added, removed + depth) AS sent
          FROM {looks} WINDOW looks AS (PARTITION BY thing ORDER BY us))
        WHERE NOT (before_us <=> us)
        """,
        looks=looks,
    )
    cut = _with_cut(seen, "cut_us", ("added", "consumed"), "cut")
    return _with_cut(cut, "acked_us", ("consumed",), "acked") if split else cut


def _with_cut(looks: DataFrame, pointer: str, counters: Sequence[str], into: str) -> DataFrame:
    """Add the `counters` of the newest look of the series not after `pointer`, and `sent_after` of the look after it.

    Where the link is in step that is the look itself or the one before it, which is at hand. Only a look whose cut lies
    further in the past stands on the line of time twice, as itself and where it cuts. The line is walked backwards:
    the look passed last before a cut is the one after it, and that knows the one before it.
    """
    own, before, found = (
        ", ".join(f"{of}{each} AS {each}" for each in counters) for of in ("", "before_", "after.before_")
    )
    carried = ", ".join(f"before_{each}" for each in counters)
    return sql.over(
        """
        WITH marked AS (
          SELECT *, CASE WHEN asks THEN {pointer} ELSE us END AS mark
          FROM {looks} LATERAL VIEW explode(
            CASE WHEN {pointer} < before_us THEN array(false, true) ELSE array(false) END) marks AS asks),
        found AS (
          SELECT *, last_value(CASE WHEN NOT asks THEN struct(before_us, sent, {carried}) END, true)
              OVER backwards AS after,
            last_value(CASE WHEN NOT asks AND begins THEN us END, true) OVER backwards AS begins_us
          FROM marked
          WINDOW backwards AS (PARTITION BY thing ORDER BY mark DESC, NOT asks ROWS UNBOUNDED PRECEDING))
        SELECT * EXCEPT (mark, asks, after, begins_us),
          CASE WHEN {pointer} >= us THEN struct(sent AS sent_after, {own})
               WHEN {pointer} >= before_us THEN CASE WHEN NOT begins THEN struct(sent AS sent_after, {before}) END
               -- The series may have begun anew since.
               WHEN {pointer} < before_us AND after.before_us IS NOT NULL AND NOT coalesce(begins_us <= us, false)
               THEN struct(after.sent AS sent_after, {found}) END AS {into}
        FROM found WHERE asks = coalesce({pointer} < before_us, false)
        """,
        looks=looks,
        pointer=pointer,
        carried=carried,
        own=own,
        before=before,
        found=found,
        into=into,
    )


def queue_parts(looks: DataFrame, flows: Sequence[Flow], *, split: bool) -> DataFrame:
    """Bounds per queue and interval: `n` numbers the interval by the look at its start, `NOW` is the last look itself.

    Each look tells of the intervals since the look before it; the last one of the time after it and of now, too. A
    null bound is not known (the queue has just appeared; it was not read any more): the outflow's then takes its place.
    """
    return sql.over(
        """
        WITH known AS (
          SELECT *, {acked} AS acked_consumed, least(coalesce(cut.sent_after, sent), sent) AS passed FROM {looks}),
        paired AS (
          SELECT flow_key, mask, us, n, begins, depth, added, consumed, oldest_ms, oldest_us, is_floor, passed,
            cut.added AS cut_added, acked_consumed,
            lag(struct(n, us, depth, added, consumed, cut.added AS cut_added, acked_consumed, oldest_ms, oldest_us,
                       is_floor)) OVER looks AS b,
            lead(us) OVER looks IS NULL AS is_last
          FROM known WINDOW looks AS (PARTITION BY thing ORDER BY us)),
        spans AS (
          SELECT p.*, f.last_n, explode(
              CASE WHEN b.n = n - 1 AND NOT is_last THEN array(1)
                   WHEN NOT is_last THEN {before}
                   ELSE concat({before}, {after}, {here}) END) AS back
          FROM paired p JOIN {flows} f ON f.flow_key = p.flow_key),
        bounded AS (
          SELECT flow_key, n - back AS at, mask, consumed, passed,
            CASE WHEN is_here THEN {loss_here} WHEN goes_on THEN {loss} END AS loss,
            CASE WHEN is_here THEN acked_consumed WHEN goes_on THEN b.acked_consumed END AS acked,
            us - CASE WHEN is_here THEN oldest_us ELSE b.oldest_us END AS since_us,
            CASE WHEN is_here THEN is_floor ELSE b.is_floor END AS is_floor,
            -- Nothing in the queue can be older than what was oldest at the start.
            CASE WHEN is_here THEN CASE WHEN depth > 0 THEN oldest_ms * 1000 END
                 WHEN b.depth = 0 THEN us - b.us ELSE b.oldest_ms * 1000 + us - b.us END AS in_queue_us,
            CASE WHEN goes_on THEN (added - b.added + consumed - b.consumed) / (n - b.n) END AS told
          FROM (SELECT *, n - back = {now} AND n = last_n AS is_here,
                  n - back != {now} AND back > 0 AND NOT begins AS goes_on
                FROM spans))
        SELECT flow_key, at AS n, true AS is_queue, mask, loss,
          CASE WHEN loss = 0 THEN 0 WHEN loss > 0 THEN least(since_us, in_queue_us) END AS age_us,
          -- `least` and `greatest` skip nulls; an unknown cut is to stay unknown.
          CASE WHEN acked IS NOT NULL AND consumed IS NOT NULL
               THEN greatest(least(consumed, passed) - acked, 0) END AS duplicates,
          coalesce(loss > 0 AND is_floor AND in_queue_us IS NULL, false) AS is_floor, told,
          CAST(NULL AS BIGINT) AS sends_depth, CAST(NULL AS BIGINT) AS acks_depth, false AS covered, false AS stalled,
          CAST(NULL AS DOUBLE) AS put
        FROM bounded
        """,
        looks=looks,
        acked="acked.consumed" if split else "CASE WHEN acked_us IS NOT NULL THEN cut.consumed END",
        flows=_of_pairs(flows),
        loss=_not_below_zero("least(added - b.cut_added, b.depth + added - b.added)"),
        loss_here=_not_below_zero("least(added - cut_added, depth)"),
        # How many looks back from this one the interval begins.
        before=f"CASE WHEN b.n < n THEN sequence(1, n - b.n) WHEN b IS NULL AND n > 1 THEN array(1) ELSE {_NONE} END",
        after=f"CASE WHEN n < last_n AND {_SEEN_LATELY} THEN sequence(n - last_n + 1, 0) ELSE {_NONE} END",
        here=f"CASE WHEN n = last_n OR {_SEEN_LATELY} THEN array(n - {NOW}) ELSE {_NONE} END",
        now=NOW,
    )


_NONE: Final = "CAST(array() AS ARRAY<INT>)"
_SEEN_LATELY: Final = "f.last_us - us <= f.gap_us"


def _not_below_zero(figure: str) -> str:
    # `greatest` would take what is not known for nothing.
    return f"CASE WHEN {figure} IS NOT NULL THEN greatest({figure}, 0) END"


def _age(depth: str, since_cut: str) -> str:
    return f"CASE WHEN {depth} = 0 THEN 0 WHEN {depth} > 0 THEN {since_cut} END"


def flow_parts(outflows: DataFrame, flows: Sequence[Flow], site: str) -> DataFrame:
    """The same of the outflows themselves: what each can hold at most, and whether the interval is covered time.

    Time in which the site is on standby is not covered: nobody asks what would be lost with a site that does not serve.
    """
    return sql.over(
        """
        WITH paired AS (
          SELECT *,
            lag(struct(n, us, series, role, sends_depth, sends_added, sends_shipped, acks_depth, acks_added, oldest_us,
                       is_floor)) OVER looks AS b,
            lead(us) OVER looks IS NULL AS is_last
          FROM {outflows} WHERE site = {site} WINDOW looks AS (PARTITION BY site, pair, flow ORDER BY us)),
        bounded AS (
          SELECT p.*, f.last_n AS pair_last_n, f.last_us - us <= f.gap_us AS seen_lately,
            b.series = p.series AS goes_on,
            us - b.us <= f.gap_us AND NOT (b.role <=> 'standby') AS in_time,
            CASE WHEN b.series = p.series THEN b.sends_depth + sends_added - b.sends_added END AS sends_most,
            CASE WHEN b.series = p.series THEN b.acks_depth + acks_added - b.acks_added END AS acks_most
          FROM paired p JOIN {flows} f ON f.flow_key = p.flow_key),
        spans AS (
          SELECT flow_key, inline(array({before}, {after}, {here})) FROM bounded)
        SELECT flow_key, explode(sequence(from_n, to_n - 1)) AS n, false AS is_queue, 0L AS mask,
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
            age_us=_age("sends_most", "us - b.oldest_us"),
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
            age_us=f"CASE WHEN n = pair_last_n THEN {_age('sends_depth', 'us - oldest_us')} END",
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
    """What is known of each flow's pair: its last look, and how long an interval may be to count."""
    of_pair: dict[str, tuple[str, ...]] = {}
    for pair in {flow.pair for flow in flows}:
        mine = [flow for flow in flows if flow.pair == pair]
        last_n, last_us = max(flow.last_n for flow in mine), max(flow.last_us for flow in mine)
        of_pair[pair] = str(last_n), f"{last_us}L", f"{max(flow.gap_us for flow in mine)}L"
    rows = [(flow_key(flow), *of_pair[flow.pair]) for flow in flows]
    return sql.rows("flow_key, last_n, last_us, gap_us", rows, "0L, 0, 0L, 0L")


def flow_key(flow: Flow) -> str:
    """The key that `looks.outflow_looks` gives a flow, as a literal that Spark works out."""
    return f"xxhash64({sql.text(flow.site)}, {sql.text(flow.pair)}, {sql.text(flow.flow)})"


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
