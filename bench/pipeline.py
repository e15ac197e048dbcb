"""The estimate and reconcile beside DuckDB and Polars, on the same files: whole processes.

    python bench/pipeline.py [ROWS ...]         default 1e6 1e7; 1e8 is the estimate alone, and without Polars

All answer the same question. DuckDB's and Polars' estimates make the same cut and the same bound of loss and
duplicates, with their time-weighted quantiles, which must be the same; they make no age, no drain, no intervals, no
classes and nothing of the next minutes. `CPU` is the processor time of dr-ctl. Last, reconcile alone over the smallest
number of ids, with none, few and many of them lost.
"""

from __future__ import annotations

import ast
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path

import duckdb
import polars as pl

QUEUES, POLL_S = 100, 5
FIRST_DAY, LOOKS_OF_A_DAY = date(2026, 3, 1), 86_400 // POLL_S
ONCE_FROM = 10_000_000
ALONE_FROM = 100_000_000
"""From here on the estimate beside DuckDB alone: Polars would hold all of it in memory."""
BUCKET = 0.02
"""By so much at most dr-ctl rounds a quantile up: to the largest figure in its bucket."""
HERE = Path(__file__)


def rows_of_queues(begin: int, end: int, queues: int) -> str:
    """The part of a COPY that writes the looks at queues, over macros `moment`, `sent` and `consumed`."""
    return f"""SELECT moment(n) AS ts, 'orders-1' AS pair, 'queue' AS kind, 'orders.' || q AS name,
                (sent(q, n) - consumed(q, n))::BIGINT AS depth, 0::BIGINT AS delivering, sent(q, n)::BIGINT AS added,
                consumed(q, n)::BIGINT AS removed, consumed(q, n)::BIGINT AS acked, NULL::BIGINT AS oldest_ms,
                NULL::BIGINT AS pending, NULL::BOOLEAN AS link, '1' AS start
              FROM range({begin}, {end}) r(n), range({queues}) t(q)"""


def make_history(folder: Path, rows: int) -> None:
    """One pair with a mixed outflow and a hundred queues; every hour the link stalls for five minutes."""
    looks = rows // (QUEUES + 2)
    con = duckdb.connect()
    con.execute("SET threads = 2; SET TimeZone = 'UTC'")
    con.execute(
        """CREATE MACRO sent(q, n) AS 5 * n + (n * q) % 5;
           CREATE MACRO consumed(q, n) AS sent(q, greatest(n - 2, 0));
           CREATE MACRO moment(n) AS TIMESTAMPTZ '2026-03-01 00:00:00Z' + to_seconds(5 * n)"""
    )
    con.execute(
        f"""CREATE TABLE puts AS SELECT n, sum(sent(q, n) + consumed(q, n))::BIGINT AS put
            FROM range({looks}) r(n), range({QUEUES}) t(q) GROUP BY n"""
    )
    con.execute(
        """CREATE TABLE flows AS SELECT p.n, p.put, coalesce(s.put, 0) AS shipped FROM puts p LEFT JOIN puts s
           ON s.n = CASE WHEN p.n % 720 BETWEEN 300 AND 360 THEN p.n - p.n % 720 + 299 ELSE p.n - 1 END"""
    )
    nothing = ", ".join(["NULL"] * 8)
    for begin in range(0, looks, LOOKS_OF_A_DAY):
        day, end = FIRST_DAY + timedelta(days=begin // LOOKS_OF_A_DAY), min(looks, begin + LOOKS_OF_A_DAY)
        target = folder / f"date={day.isoformat()}" / "site=london"
        target.mkdir(parents=True)
        con.execute(
            f"""COPY (
              {rows_of_queues(begin, end, QUEUES)}
              UNION ALL
              SELECT moment(n), 'orders-1', 'mixed', '*', put - shipped, 0, put, shipped, NULL, NULL, NULL, true, '1'
              FROM flows WHERE n >= {begin} AND n < {end}
              UNION ALL
              SELECT moment(n), 'orders-1', 'site', 'serving', {nothing}, '1'
              FROM flows WHERE n >= {begin} AND n < {end})
            TO '{target}/{day:%Y%m%d}T000000-{begin:012}.parquet' (FORMAT parquet)"""
        )


def duck_estimate(folder: Path) -> None:
    """Loss and duplicates: the cut of every look, the bound of every interval, their quantiles by time."""
    con = duckdb.connect()
    con.execute("SET threads = 2")
    print(
        con.execute(
            f"""
            WITH h AS (SELECT *, epoch_us(ts) AS us FROM '{folder}/date=*/site=*/*.parquet'),
            flow AS (
              SELECT pair, us, start, depth, added, removed, max(removed + depth) OVER (
                PARTITION BY pair, start ORDER BY us ROWS UNBOUNDED PRECEDING) AS put
              FROM h WHERE kind = 'mixed'),
            cuts AS (
              SELECT f.pair, f.us, f.start, f.depth, f.added, p.us AS cut_us
              FROM flow f ASOF LEFT JOIN (SELECT pair, start, put, max(us) AS us FROM flow GROUP BY ALL) p
                ON p.pair = f.pair AND p.start = f.start AND f.removed >= p.put),
            looks AS (
              SELECT q.pair, q.name, q.us, q.start, q.depth, q.added,
                coalesce(q.acked, q.removed) AS consumed, c.cut_us,
                lead(q.added) OVER (PARTITION BY q.pair, q.name, q.start ORDER BY q.us) AS sent_after
              FROM h q JOIN cuts c ON c.pair = q.pair AND c.us = q.us WHERE q.kind = 'queue'),
            cut AS (
              SELECT l.*, p.added AS cut_added, p.consumed AS cut_consumed,
                least(coalesce(p.sent_after, l.added), l.added) AS passed
              FROM looks l ASOF LEFT JOIN looks p
                ON p.pair = l.pair AND p.name = l.name AND p.start = l.start AND p.us <= l.cut_us),
            spans AS (
              SELECT pair, lag(us) OVER w AS from_us, us, lag(start) OVER w = start AS goes_on,
                greatest(least(added - lag(cut_added) OVER w, lag(depth) OVER w + added - lag(added) OVER w), 0)
                  AS loss,
                greatest(least(consumed, passed) - lag(cut_consumed) OVER w, 0) AS twice
              FROM cut WINDOW w AS (PARTITION BY pair, name ORDER BY us)),
            sums AS (
              SELECT pair, from_us, us, sum(loss) AS loss, sum(twice) AS twice FROM spans WHERE goes_on GROUP BY ALL),
            bounds AS (
              SELECT s.us - s.from_us AS weight, least(s.loss, b.depth + a.added - b.added) AS loss,
                least(s.twice, b.depth + a.added - b.added) AS twice
              FROM sums s JOIN flow a ON a.pair = s.pair AND a.us = s.us
              JOIN flow b ON b.pair = s.pair AND b.us = s.from_us),
            weighed AS (
              SELECT loss, twice, sum(weight) OVER (ORDER BY loss) AS loss_below,
                sum(weight) OVER (ORDER BY twice) AS twice_below, sum(weight) OVER () AS whole
              FROM bounds)
            SELECT min(loss) FILTER (loss_below >= 0.5 * whole), min(loss) FILTER (loss_below >= 0.95 * whole),
              min(loss) FILTER (loss_below >= 0.99 * whole), max(loss),
              min(twice) FILTER (twice_below >= 0.99 * whole), max(twice) FROM weighed
            """
        ).fetchall()
    )


def polars_estimate(folder: Path) -> None:
    """The same by Polars."""
    thing, series = ["pair", "name"], ["pair", "name", "start"]
    rows = pl.scan_parquet(folder / "date=*" / "site=*" / "*.parquet", hive_partitioning=False)
    rows = rows.with_columns(us=pl.col("ts").dt.epoch("us"))
    flow = rows.filter(kind="mixed").select("pair", "us", "start", "depth", "added", "removed").sort("us")
    flow = flow.with_columns(put=(pl.col("removed") + pl.col("depth")).cum_max().over("pair", "start"))
    puts = flow.group_by("pair", "start", "put").agg(cut_us=pl.col("us").max()).sort("put")
    cuts = flow.sort("removed").join_asof(
        puts, left_on="removed", right_on="put", by=["pair", "start"], check_sortedness=False
    )
    looks = (
        rows.filter(kind="queue")
        .select(*series, "us", "depth", "added", consumed=pl.coalesce("acked", "removed"))
        .join(cuts.select("pair", "us", pl.col("cut_us").fill_null(-1)), on=["pair", "us"])
        .sort(*thing, "us")
        .with_columns(sent_after=pl.col("added").shift(-1).over(series))
    )
    at_cut = looks.select(
        *series, pl.col("us").alias("at_us"), pl.col("added", "consumed", "sent_after").name.prefix("cut_")
    )
    cut = (
        looks.sort("cut_us")
        .join_asof(at_cut.sort("at_us"), left_on="cut_us", right_on="at_us", by=series, check_sortedness=False)
        .with_columns(passed=pl.min_horizontal(pl.coalesce("cut_sent_after", "added"), "added"))
        .sort(*thing, "us")
    )

    def before(column: str) -> pl.Expr:
        return pl.col(column).shift(1).over(thing)

    def above_zero(one: pl.Expr, other: pl.Expr) -> pl.Expr:
        return pl.max_horizontal(pl.min_horizontal(one, other), 0)

    held = before("depth") + pl.col("added") - before("added")
    acked = pl.min_horizontal("consumed", "passed") - before("cut_consumed")
    sums = (
        cut.select(
            "pair",
            "us",
            from_us=before("us"),
            goes_on=before("start") == pl.col("start"),
            loss=above_zero(pl.col("added") - before("cut_added"), held),
            twice=pl.max_horizontal(acked, 0),
        )
        .filter("goes_on")
        .group_by("pair", "from_us", "us")
        .agg(pl.col("loss", "twice").sum())
    )
    of_flow = flow.select("pair", "us", "depth", "added")
    most = pl.col("depth") + pl.col("added_end") - pl.col("added")
    bounds = (
        sums.join(of_flow.select("pair", "us", added_end="added"), on=["pair", "us"])
        .join(of_flow, left_on=["pair", "from_us"], right_on=["pair", "us"])
        .select(
            weight=pl.col("us") - pl.col("from_us"),
            loss=pl.min_horizontal("loss", most),
            twice=pl.min_horizontal("twice", most),
        )
        .collect()
    )

    def quantile(figure: str, probability: float) -> int:
        below = bounds.sort(figure).with_columns(below=pl.col("weight").cum_sum())
        return int(below.filter(pl.col("below") >= probability * bounds["weight"].sum())[figure][0])

    loss = [quantile("loss", probability) for probability in (0.5, 0.95, 0.99, 1)]
    print([(*loss, *(quantile("twice", probability) for probability in (0.99, 1)))])


def our_estimate(folder: Path) -> None:
    from dr_ctl.rpo.estimate.estimate import estimate  # noqa: PLC0415
    from dr_ctl.rpo.estimate.request import Request  # noqa: PLC0415

    answer = estimate(Request(history=folder, master="local[2]", may_take_time=True))
    assert answer.estimate is not None
    loss, twice = answer.estimate.total.loss, answer.estimate.total.duplicates
    print([(loss.p50, loss.p95, loss.p99, loss.max, twice.p99, twice.max)])


def make_ledgers(folder: Path, ids: int, *, lost: str = "n % 10000 = 7", twice: str = "n % 20000 = 11") -> None:
    """As many sent as consumed; of these some are lost, some come twice."""
    folder.mkdir(parents=True)
    con = duckdb.connect()
    con.execute("SET threads = 2; SET TimeZone = 'UTC'")
    told = "'run-' || n AS id, 'orders.' || n % 20 AS queue"
    moment = "TIMESTAMPTZ '2026-03-01 00:00:00Z' + to_milliseconds(n)"
    con.execute(
        f"COPY (SELECT {told}, 'sent' AS event, 'london' AS site, {moment} AS ts FROM range({ids}) r(n)) "
        f"TO '{folder}/sent.parquet' (FORMAT parquet)"
    )
    con.execute(
        f"""COPY (SELECT {told}, 'consumed' AS event, 'london' AS site, {moment} + INTERVAL 1 MINUTE AS ts
            FROM (SELECT n FROM range({ids}) r(n) WHERE NOT ({lost}) UNION ALL
                  SELECT n FROM range({ids}) r(n) WHERE {twice}))
            TO '{folder}/consumed.parquet' (FORMAT parquet)"""
    )


def duck_reconcile(folder: Path) -> None:
    con = duckdb.connect()
    con.execute("SET threads = 2")
    print(
        con.execute(
            f"""
            WITH m AS (
              SELECT queue, id, count(*) FILTER (event = 'sent') AS sent,
                count(*) FILTER (event = 'consumed') AS consumed
              FROM '{folder}/*.parquet' GROUP BY queue, id)
            SELECT count(*) FILTER (sent > 0 AND consumed = 0), count(*) FILTER (consumed > greatest(sent, 1)),
              count(*) FILTER (sent = 0 AND consumed > 0), len(list((queue, id)) FILTER (sent != consumed)) FROM m
            """
        ).fetchall()
    )


def polars_reconcile(folder: Path) -> None:
    told = (
        pl.scan_parquet(folder / "*.parquet")
        .group_by("queue", "id")
        .agg(sent=(pl.col("event") == "sent").sum(), consumed=(pl.col("event") == "consumed").sum())
        .select(
            lost=((pl.col("sent") > 0) & (pl.col("consumed") == 0)).sum(),
            doubled=(pl.col("consumed") > pl.max_horizontal("sent", 1)).sum(),
            unexpected=((pl.col("sent") == 0) & (pl.col("consumed") > 0)).sum(),
            differing=(pl.col("sent") != pl.col("consumed")).sum(),
        )
    )
    print(told.collect().rows())


def our_reconcile(folder: Path) -> None:
    from dr_ctl.rpo.ledgers.reconcile import reconcile  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as out:
        found = reconcile(
            [str(folder / f"{name}.parquet") for name in ("sent", "consumed")], Path(out), master="local[2]"
        )
    print([(*(found.parts[kind].count for kind in ("lost", "doubled", "unexpected")), found.differing)])


def agree(work: str, told: dict[str, tuple[int, ...]]) -> None:
    """See that all gave the same answer: quantiles but for the rounding up to a bucket, all else alike."""
    ours = told.pop("our")
    for who, theirs in told.items():
        exact = (3, 5) if work == "estimate" else range(3)  # the maxima; lost, doubled, unexpected
        rounded = (0, 1, 2, 4) if work == "estimate" else ()
        assert all(ours[k] == theirs[k] for k in exact), (work, who, ours, theirs)
        assert all(theirs[k] <= ours[k] <= theirs[k] * (1 + BUCKET) + 1 for k in rounded), (work, who, ours, theirs)


def by_difference(ids: int) -> None:
    """Print what reconcile costs by how many ids differ, a whole process each."""
    for lost in (0, 100, ids // 10):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "data"
            # Of every queue alike: where nobody tells of consumption, what is gone is unknown, not lost.
            make_ledgers(folder, ids, lost=f"n * 7919 % {ids} < {lost}", twice="false")
            answer, wall, used = timed("our_reconcile", folder)
            assert answer[:3] == (lost, 0, 0), answer
        load = os.getloadavg()[0]
        print(f"{f'reconcile, {lost} of {ids:.0e} ids lost':<34}{wall:>9.1f}{load:>31.1f}{used:>7.1f}", flush=True)


def timed(what: str, folder: Path, script: Path = HERE) -> tuple[tuple[int, ...], float, float]:
    """Do it in a process of its own: the answer, the wall's seconds and those of the processor."""
    began, used = time.perf_counter(), processor_s()
    done = subprocess.run([sys.executable, str(script), what, str(folder)], check=True, capture_output=True, text=True)
    [answer] = ast.literal_eval(done.stdout)
    return answer, time.perf_counter() - began, processor_s() - used


def processor_s() -> float:
    """What processes that have ended used, their JVMs included: on a shared machine steadier than the wall's clock."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(sizes: list[int]) -> None:
    """Make the files, then time whole processes in turn: the median of three, of the larger sizes one."""
    print(f"{'whole process, s':<34}{'dr-ctl':>9}{'DuckDB':>9}{'Polars':>9}{'ratio':>7}{'load':>6}{'CPU':>7}   answer")
    for size in sizes:
        for work, make, unit in (("estimate", make_history, "rows"), ("reconcile", make_ledgers, "+ as many ids")):
            if work == "reconcile" and size >= ALONE_FROM:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch) / "data"
                make(folder, size)
                took: dict[str, list[float]] = {"our": [], "duck": [], "polars": []}
                processor: list[float] = []
                if size >= ALONE_FROM:
                    del took["polars"]
                told: dict[str, tuple[int, ...]] = {}
                for _ in range(3 if size < ONCE_FROM else 1):
                    for who, times in took.items():
                        told[who], wall, used = timed(f"{who}_{work}", folder)
                        times.append(wall)
                        if who == "our":
                            processor.append(used)
            answer = told["our"]
            agree(work, told)
            medians = {who: round(sorted(times)[len(times) // 2], 1) for who, times in took.items()}
            columns = "".join(f"{medians.get(who, '-'):>9.4}" for who in ("our", "duck", "polars"))
            ratio, load = medians["our"] / medians["duck"], os.getloadavg()[0]
            ours = sorted(processor)[len(processor) // 2]
            print(
                f"{f'{work}, {size:.0e} {unit}':<34}{columns}{ratio:>7.1f}{load:>6.1f}{ours:>7.1f}   {answer}",
                flush=True,
            )


if __name__ == "__main__":
    if len(sys.argv) == 3 and "_" in sys.argv[1]:
        globals()[sys.argv[1]](Path(sys.argv[2]))
    else:
        asked = [int(float(each)) for each in sys.argv[1:]] or [1_000_000, 10_000_000]
        main(asked)
        if min(asked) < ALONE_FROM:
            by_difference(min(asked))
