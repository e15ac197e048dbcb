"""The estimate over files as the monitor leaves them, beside DuckDB on the same files: whole processes.

    python bench/layouts.py [ROWS ...]         default 1e6 1e7

98 looks; so many rows of one outflow; the same once the hours that are over are summarized, so that only the last of
them is read; and a million rows of 150 queues that have two outflows each, as the continuity plugin has them. All are
asked the same and must answer the same, but for the rounding up to a bucket.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pipeline import POLL_S, QUEUES, agree, duck_estimate, make_history, rows_of_queues, timed

HERE = Path(__file__)
OWN, PLUGIN_ROWS = 150, 1_000_000
FILE_ROWS = 200_000
LOOKS = 98


def make_monitored(folder: Path, rows: int) -> None:
    """The same history as one file an hour, as the monitor joins them; the last hour as one a minute."""
    make_history(folder, rows)
    days = sorted(folder.glob("date=*/site=*/*.parquet"))
    for day in days:
        whole = pq.ParquetFile(day).read().sort_by([("ts", "ascending"), ("kind", "ascending"), ("name", "ascending")])
        day.unlink()
        seconds = pc.divide(whole["ts"].cast(pa.int64()), 1_000_000)
        last = pc.max(seconds).as_py()
        length = pa.scalar(3600)
        hours = pc.subtract(seconds, pc.subtract(seconds, pc.multiply(pc.divide(seconds, length), length)))
        for hour in pc.unique(hours).to_pylist():
            mine = whole.filter(pc.equal(hours, hour))
            is_open = day == days[-1] and last < hour + 3600
            step = (QUEUES + 2) * 60 // POLL_S if is_open else FILE_ROWS
            for begin in range(0, mine.num_rows, step):
                part = mine.slice(begin, step)
                name = f"{part['ts'][0].as_py():%Y%m%dT%H%M%S}-{begin:012}.parquet"
                pq.write_table(part, day.with_name(name))


def make_plugins(folder: Path, rows: int) -> None:
    """Every queue has an outflow for its messages and one for its acknowledgements; now and then one stalls."""
    looks = rows // (3 * OWN + 1)
    con = duckdb.connect()
    con.execute("SET threads = 2; SET TimeZone = 'UTC'")
    con.execute(
        """CREATE MACRO sent(q, n) AS 5 * n + (n * q) % 5;
           CREATE MACRO consumed(q, n) AS sent(q, greatest(n - 2, 0));
           CREATE MACRO reached(q, n) AS CASE WHEN (n + 7 * q) % 720 < 60 THEN greatest(n - (n + 7 * q) % 720 - 1, 0)
             ELSE greatest(n - 1, 0) END;
           CREATE MACRO moment(n) AS TIMESTAMPTZ '2026-03-01 00:00:00Z' + to_seconds(5 * n)"""
    )
    outflow = (
        "0::BIGINT, {0}(q, n)::BIGINT, {0}(q, reached(q, n))::BIGINT, NULL::BIGINT, NULL::BIGINT, NULL::BIGINT, true"
    )
    things = " UNION ALL ".join(
        f"""SELECT moment(n), 'orders-1', '{kind}', 'orders.' || q, ({of}(q, n) - {of}(q, reached(q, n)))::BIGINT,
            {outflow.format(of)}, '1' FROM range({looks}) r(n), range({OWN}) t(q)"""
        for kind, of in (("mirror", "sent"), ("acks", "consumed"))
    )
    nothing = ", ".join(["NULL"] * 8)
    target = folder / "date=2026-03-01" / "site=london"
    target.mkdir(parents=True)
    con.execute(
        f"""COPY (
          {rows_of_queues(0, looks, OWN)}
          UNION ALL {things}
          UNION ALL SELECT moment(n), 'orders-1', 'site', 'serving', {nothing}, '1' FROM range({looks}) r(n)
        ) TO '{target}/20260301T000000-0.parquet' (FORMAT parquet)"""
    )


def duck_plugins(folder: Path) -> None:
    """Loss alone: every queue is cut by its own outflow."""
    con = duckdb.connect()
    con.execute("SET threads = 2")
    [told] = con.execute(
        f"""
        WITH h AS (SELECT *, epoch_us(ts) AS us FROM '{folder}/date=*/site=*/*.parquet'),
        flow AS (SELECT name, us, depth, added, removed, max(removed + depth) OVER (
          PARTITION BY name ORDER BY us ROWS UNBOUNDED PRECEDING) AS put FROM h WHERE kind = 'mirror'),
        cuts AS (SELECT f.name, f.us, f.depth, f.added, p.us AS cut_us FROM flow f ASOF LEFT JOIN (
          SELECT name, put, max(us) AS us FROM flow GROUP BY ALL) p ON p.name = f.name AND f.removed >= p.put),
        looks AS (SELECT q.name, q.us, q.depth, q.added, c.cut_us, c.depth AS held, c.added AS got
          FROM h q JOIN cuts c ON c.name = q.name AND c.us = q.us WHERE q.kind = 'queue'),
        cut AS (SELECT l.*, p.added AS cut_added FROM looks l ASOF LEFT JOIN looks p
          ON p.name = l.name AND p.us <= l.cut_us),
        spans AS (SELECT lag(us) OVER w AS from_us, us, least(
            greatest(least(added - lag(cut_added) OVER w, lag(depth) OVER w + added - lag(added) OVER w), 0),
            lag(held) OVER w + got - lag(got) OVER w) AS loss FROM cut WINDOW w AS (PARTITION BY name ORDER BY us)),
        sums AS (
          SELECT us - from_us AS weight, sum(loss) AS loss FROM spans WHERE from_us IS NOT NULL GROUP BY from_us, us),
        weighed AS (SELECT loss, sum(weight) OVER (ORDER BY loss) AS below, sum(weight) OVER () AS whole FROM sums)
        SELECT min(loss) FILTER (below >= 0.5 * whole), min(loss) FILTER (below >= 0.95 * whole),
          min(loss) FILTER (below >= 0.99 * whole), max(loss) FROM weighed
        """
    ).fetchall()
    print([(*map(int, told), 0, 0)])


def our(folder: Path, **more: bool) -> None:
    from dr_ctl.rpo.estimate.estimate import estimate  # noqa: PLC0415
    from dr_ctl.rpo.estimate.request import Request  # noqa: PLC0415

    answer = estimate(Request(history=folder, master="local[2]", **more))  # type: ignore[arg-type]
    assert answer.estimate is not None
    loss, twice = answer.estimate.total.loss, answer.estimate.total.duplicates
    print([(loss.p50, loss.p95, loss.p99, loss.max, twice.p99, twice.max)])


def our_full(folder: Path) -> None:
    our(folder, settled=False)


def our_settled(folder: Path) -> None:
    our(folder)


def our_settling(folder: Path) -> None:
    our(folder, store=True)


def our_plugins(folder: Path) -> None:
    from dr_ctl.rpo.estimate.estimate import estimate  # noqa: PLC0415
    from dr_ctl.rpo.estimate.request import Request  # noqa: PLC0415

    answer = estimate(Request(history=folder, master="local[2]", settled=False))
    assert answer.estimate is not None
    loss = answer.estimate.total.loss
    print([(loss.p50, loss.p95, loss.p99, loss.max, 0, 0)])


Make = Callable[[Path, int], None]


def line(name: str, ours: str, theirs: str, folder: Path) -> None:
    """Time both in turn, three times, and see that they agree. The wall's seconds alone: what Spark's workers used goes
    with its JVM."""
    took: dict[str, list[float]] = {ours: [], theirs: []}
    told = {}
    for _ in range(3):
        for who, times in took.items():
            told[who], wall, _used = timed(who, folder, HERE)
            times.append(wall)
    agree("estimate", {"our": told[ours], "duck": told[theirs]})
    our_s, duck_s = (sorted(times)[1] for times in took.values())
    load = os.getloadavg()[0]
    print(f"{name:<34}{our_s:>8.1f}{duck_s:>9.1f}{our_s / duck_s:>7.2f}{load:>6.1f}   {told[ours]}", flush=True)


def main(sizes: list[int]) -> None:
    print(f"{'whole process, s':<34}{'dr-ctl':>8}{'DuckDB':>9}{'ratio':>7}{'load':>6}   answer")
    cases: list[tuple[str, Make, int]] = [("98 looks", make_monitored, LOOKS * (QUEUES + 2))]
    cases += [(f"{size:.0e} rows", make_monitored, size) for size in sizes]
    for name, make, size in cases:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "data"
            make(folder, size)
            line(name, "our_full", "duck_estimate", folder)
            if size in sizes:
                timed("our_settling", folder, HERE)
                line(f"{name}, hours summarized", "our_settled", "duck_estimate", folder)
    with tempfile.TemporaryDirectory() as scratch:
        make_plugins(Path(scratch), PLUGIN_ROWS)
        line(f"{PLUGIN_ROWS:.0e} rows of {2 * OWN} outflows", "our_plugins", "duck_plugins", Path(scratch))


if __name__ == "__main__":
    if len(sys.argv) == 3 and "_" in sys.argv[1]:
        {**globals(), "duck_estimate": duck_estimate}[sys.argv[1]](Path(sys.argv[2]))
    else:
        main([int(float(each)) for each in sys.argv[1:]] or [1_000_000, 10_000_000])
