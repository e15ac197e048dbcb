"""The estimate and reconcile beside DuckDB, which answers the same question on the same files: whole processes.

    python bench/pipeline.py [ROWS ...]         default 1000000 10000000; 100000000 takes some 10 GB of disk and memory

DuckDB's estimate makes the same cut and the same bound of loss and duplicates, with their time-weighted quantiles; it
makes no age, no drain, no intervals, no classes and nothing of the next minutes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

QUEUES, POLL_S, STEP_ROWS = 100, 5, 2_000_000
ONCE_ABOVE = 10_000_000
HERE = Path(__file__)


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
    target = folder / "date=2026-03-01" / "site=london"
    target.mkdir(parents=True)
    nothing = ", ".join(["NULL"] * 8)
    step = max(1, STEP_ROWS // (QUEUES + 2))
    for begin in range(0, looks, step):
        con.execute(
            f"""COPY (
              SELECT moment(n) AS ts, 'orders-1' AS pair, 'queue' AS kind, 'orders.' || q AS name,
                (sent(q, n) - consumed(q, n))::BIGINT AS depth, 0::BIGINT AS delivering, sent(q, n)::BIGINT AS added,
                consumed(q, n)::BIGINT AS removed, consumed(q, n)::BIGINT AS acked, NULL::BIGINT AS oldest_ms,
                NULL::BIGINT AS pending, NULL::BOOLEAN AS link, '1' AS start
              FROM range({begin}, {min(looks, begin + step)}) r(n), range({QUEUES}) t(q)
              UNION ALL
              SELECT moment(n), 'orders-1', 'mixed', '*', put - shipped, 0, put, shipped, NULL, NULL, NULL, true, '1'
              FROM flows WHERE n >= {begin} AND n < {begin + step}
              UNION ALL
              SELECT moment(n), 'orders-1', 'site', 'serving', {nothing}, '1'
              FROM flows WHERE n >= {begin} AND n < {begin + step})
            TO '{target}/20260301T000000-{begin:012}.parquet' (FORMAT parquet)"""
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


def our_estimate(folder: Path) -> None:
    from dr_ctl.rpo.estimate import estimate  # noqa: PLC0415

    answer = estimate(folder, master="local[2]", may_take_time=True)
    assert answer.estimate is not None
    loss, twice = answer.estimate.total.loss, answer.estimate.total.duplicates
    print([(loss.p50, loss.p95, loss.p99, loss.max, twice.p99, twice.max)])


def make_ledgers(folder: Path, ids: int) -> None:
    """As many sent as consumed; one in ten thousand is lost, one in twenty thousand comes twice."""
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
            FROM (SELECT n FROM range({ids}) r(n) WHERE n % 10000 != 7 UNION ALL
                  SELECT n FROM range({ids}) r(n) WHERE n % 20000 = 11))
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


def our_reconcile(folder: Path) -> None:
    from dr_ctl.rpo.reconcile import reconcile  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as out:
        found = reconcile(
            [str(folder / f"{name}.parquet") for name in ("sent", "consumed")], Path(out), master="local[2]"
        )
    print([(*(found.parts[kind].count for kind in ("lost", "doubled", "unexpected")), found.differing)])


def main(sizes: list[int]) -> None:
    """Make the files, then time whole processes in turn: the median of three, above ten million rows of one."""
    print(f"{'whole process, s':<34}{'dr-ctl':>10}{'DuckDB':>10}{'ratio':>8}   answers")
    for size in sizes:
        for work, make, unit in (("estimate", make_history, "rows"), ("reconcile", make_ledgers, "+ as many ids")):
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch) / "data"
                make(folder, size)
                took: dict[str, list[float]] = {"our": [], "duck": []}
                told: dict[str, str] = {}
                for _ in range(3 if size < ONCE_ABOVE else 1):
                    for who, times in took.items():
                        began = time.perf_counter()
                        command = [sys.executable, str(HERE), f"{who}_{work}", str(folder)]
                        done = subprocess.run(command, check=True, capture_output=True, text=True)
                        times.append(time.perf_counter() - began)
                        told[who] = done.stdout.strip()
                ours, theirs = (sorted(times)[len(times) // 2] for times in took.values())
            name = f"{work}, {size:.0e} {unit}"
            print(
                f"{name:<34}{ours:>10.1f}{theirs:>10.1f}{ours / theirs:>8.1f}   {told['our']} {told['duck']}",
                flush=True,
            )


if __name__ == "__main__":
    if len(sys.argv) == 3 and "_" in sys.argv[1]:
        globals()[sys.argv[1]](Path(sys.argv[2]))
    else:
        main([int(float(each)) for each in sys.argv[1:]] or [1_000_000, 10_000_000])
