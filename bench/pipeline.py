"""The estimate over files as the monitor leaves them, beside DuckDB on the same files: whole processes, in turn.

    python -m bench pipeline                1e6 and 1e7 rows
    python -m bench pipeline-large          1e8 rows

Files of an hour, the last hour a file a minute; the same once the hours that are over are summarized, so that only the
last of them is read; a million rows of 150 queues that have two outflows each, as the continuity plugin has them; and
what two long questions need of memory. DuckDB makes the same cut and the same bound of loss and duplicates with their
time-weighted quantiles, which must be the same but for the rounding up to a bucket; no age, no drain, no intervals, no
classes and nothing of the next minutes. Memory is that of all processes of a question together, sampled.
"""

import ast
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from bench.histories import OWN, make_long, make_monitored, make_plugins
from bench.table import Figure

BUCKET = 0.02
"""By so much at most dr-ctl rounds a quantile up: to the largest figure in its bucket."""
PLUGIN_ROWS = 1_000_000
SMALL, LARGE = (1_000_000, 10_000_000), (100_000_000,)
ONCE_FROM = 10_000_000
TIMES = 3
GOALS = {1_000_000: None, 10_000_000: 3.0, 100_000_000: 1.0}
"""Of the ratio to DuckDB where all is read, by rows."""
FIRST_S, NEW_HOUR_S = 12.0, 15.0
"""For a first estimate of the smaller history, and for one new hour of the largest: whole processes, their JVM too."""
PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20


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


def our(folder: Path, **more: Any) -> None:
    from dr_ctl.rpo.estimate.estimate import estimate  # noqa: PLC0415
    from dr_ctl.rpo.estimate.request import Request  # noqa: PLC0415
    from dr_ctl.rpo.pipeline.make import reading  # noqa: PLC0415

    with reading() as make:
        answer = estimate(Request(history=str(folder), master="local[2]", **more), make)
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
    from dr_ctl.rpo.pipeline.make import reading  # noqa: PLC0415

    with reading() as make:
        answer = estimate(Request(history=str(folder), master="local[2]", settled=False), make)
    assert answer.estimate is not None
    loss = answer.estimate.total.loss
    print([(loss.p50, loss.p95, loss.p99, loss.max, 0, 0)])


def our_backtest(folder: Path) -> None:
    from dr_ctl.rpo.estimate.backtest import backtest  # noqa: PLC0415
    from dr_ctl.rpo.estimate.request import Request  # noqa: PLC0415
    from dr_ctl.rpo.pipeline.make import reading  # noqa: PLC0415

    with reading() as make:
        answer = backtest(Request(history=str(folder), master="local[2]"), make)
    assert answer.backtest is not None
    print([(answer.backtest.bound.moments, len(answer.backtest.rows))])


def agree(told: dict[str, tuple[int, ...]]) -> None:
    """See that all gave the same answer: the maxima alike, quantiles but for the rounding up to a bucket."""
    ours, theirs = told.values()
    assert all(ours[k] == theirs[k] for k in (3, 5)), told
    assert all(theirs[k] <= ours[k] <= theirs[k] * (1 + BUCKET) + 1 for k in (0, 1, 2, 4)), told


class Took(NamedTuple):
    answer: tuple[int, ...]
    seconds: float
    mib: float


def took(what: str, folder: Path, module: str = "bench.pipeline") -> Took:
    """Do it in processes of its own: the answer, the wall's seconds, and the most that they held together."""
    began, most = time.perf_counter(), 0.0
    words = [sys.executable, "-m", module, what, str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        while process.poll() is None:
            most = max(most, held_mib(process.pid))
            time.sleep(0.2)  # how much a process holds cannot be waited for
        seconds = time.perf_counter() - began
        assert process.stdout is not None
        assert process.returncode == 0
        [answer] = ast.literal_eval(process.stdout.read())
    return Took(answer, seconds, most)


def held_mib(session: int) -> float:
    """What the processes of a session hold; pages that they share count for each of them."""
    pages = 0
    for each in Path("/proc").glob("[0-9]*"):
        try:
            told = (each / "stat").read_text().rpartition(")")[2].split()
            pages += int(told[21]) if int(told[3]) == session else 0
        except (OSError, IndexError):
            continue  # it has ended
    return pages * PAGE / MIB


def beside(
    name: str, ours: str, theirs: str, folder: Path, goal: float | None, times: int, most: float | None = None
) -> list[Figure]:
    """Both in turn, after each other's answers were found to be the same."""
    found: dict[str, list[Took]] = {ours: [], theirs: []}
    for _ in range(times):
        for who, each in found.items():
            each.append(took(who, folder))
        agree({who: each[-1].answer for who, each in found.items()})
    return in_turn(f"estimate of {name}", found[ours], found[theirs], goal, most)


def in_turn(
    name: str, ours: Sequence[Took], theirs: Sequence[Took], goal: float | None = None, most: float | None = None
) -> list[Figure]:
    """Seconds and memory of both."""
    seconds = [tuple(each.seconds for each in took) for took in (ours, theirs)]
    mib = [tuple(float(each.mib) for each in took) for took in (ours, theirs)]
    return [
        Figure(f"{name}, beside DuckDB", "s", seconds[0], seconds[1], goal, most),
        Figure(f"{name}: memory, beside DuckDB's", "MiB", mib[0], mib[1]),
    ]


def measured(sizes: Sequence[int] = SMALL) -> list[Figure]:
    figures = []
    for size in sizes:
        times = 1 if size >= ONCE_FROM else TIMES
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "data"
            make_monitored(folder, size)
            rows = f"1e{len(str(size)) - 1} rows"
            most = FIRST_S if size == SMALL[0] else None
            figures += beside(f"{rows}, all read", "our_full", "duck_estimate", folder, GOALS[size], times, most)
            if size in LARGE:
                figures.append(a_new_hour(rows, folder))
            took("our_settling", folder)
            figures += beside(f"{rows}, summarized", "our_settled", "duck_estimate", folder, None, times)
    if sizes == SMALL:
        with tempfile.TemporaryDirectory() as scratch:
            make_plugins(Path(scratch), PLUGIN_ROWS)
            name = f"1e6 rows of {2 * OWN} outflows, loss alone"
            figures += beside(name, "our_plugins", "duck_plugins", Path(scratch), None, TIMES)
    return figures


def a_new_hour(rows: str, folder: Path) -> Figure:
    """All is summarized but the last hour, which is read each time; another comes, and the one before it is summarized
    with the question."""
    files = sorted(folder.glob("date=*/site=*/*.parquet"), key=lambda each: each.name)
    hours = sorted({each.name[: len("YYYYMMDDTHH")] for each in files})
    with tempfile.TemporaryDirectory(dir=folder.parent) as aside:
        late = [each for each in files if each.name.startswith(hours[-1])]
        for each in late:
            each.rename(Path(aside) / each.name)
        took("our_settling", folder)
        for each in late:
            (Path(aside) / each.name).rename(each)
    again = took("our_settling", folder)
    return Figure(f"estimate of {rows}, summarized but for a new hour", "s", (again.seconds,), most=NEW_HOUR_S)


def large() -> list[Figure]:
    return measured(LARGE)


def long() -> list[Figure]:
    """What a stall of ten hours at ten thousand queues holds, and a backtest over thirty days of default looks."""
    with tempfile.TemporaryDirectory() as scratch:
        make_long(Path(scratch) / "stall", hours=12, queues=10_000, apart_s=5.0, every_s=5.0, stall_h=(1, 11))
        stall = took("our_full", Path(scratch) / "stall")
    with tempfile.TemporaryDirectory() as scratch:
        make_long(Path(scratch) / "month", hours=720, queues=4, apart_s=0.25, every_s=5.0, stall_h=(100, 101))
        month = took("our_backtest", Path(scratch) / "month")
    return [
        Figure("estimate of 12 h at 10000 queues, 10 h of them a stall: memory", "MiB", (stall.mib,), most=2048),
        Figure("estimate of 12 h at 10000 queues, 10 h of them a stall", "s", (stall.seconds,)),
        Figure("backtest of 30 days of default looks: memory", "MiB", (month.mib,)),
        Figure("backtest of 30 days of default looks", "s", (month.seconds,)),
    ]


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
