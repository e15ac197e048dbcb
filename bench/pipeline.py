"""The estimate beside DuckDB on the same history: whole processes, in turn.

    python -m bench pipeline                1e5, 1e6 and 1e7 rows
    python -m bench pipeline-large          1e8 rows

Files of an hour, the last hour a file a minute; the same once all hours are summarized; in a session that is kept one
with nothing new and one with a new hour; a million rows of 150 queues that have two outflows each, as the continuity
plugin has them; and what two long questions need of memory. DuckDB makes the same cut and the same bound of loss and
duplicates with their time-weighted quantiles, which must be the same but for the rounding up to a bucket; no age, no
drain, no intervals, no classes and nothing of the next minutes. Memory is that of all processes of a question
together, sampled.
"""

import ast
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from bench.histories import OWN, make_long, make_monitored, make_plugins
from bench.table import Figure

BUCKET = 0.02
"""The largest relative error of a quantile: dr-ctl rounds it up to the end of its bucket."""
PLUGIN_ROWS = 1_000_000
SMALL, LARGE = (100_000, 1_000_000, 10_000_000), (100_000_000,)
ONCE_FROM = 10_000_000
TIMES = 3
GOALS = {100_000: None, 1_000_000: None, 10_000_000: 3.0, 100_000_000: 1.0}
"""Of the ratio to DuckDB where all is read, by rows."""
FIRST_S, FIRST_CPU_S, NEW_HOUR_S = 12.0, 25.0, 15.0
"""For a first estimate of a smaller history, and for one new hour of the largest: whole processes, their JVM too."""
KEPT_S = (2.0, 5.0)
"""In a session that is kept: with nothing new, and with one new hour."""
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1 << 20


def duck_estimate(folder: Path) -> None:
    """Loss and duplicates: the cut of every reading, the bound of every interval, their quantiles by time."""
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
    [fetchall] = con.execute(
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
    print([(*map(int, fetchall), 0, 0)])


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
    our(folder, from_summaries=False)


def our_settled(folder: Path) -> None:
    our(folder)


def our_settling(folder: Path) -> None:
    our(folder, store=True)


def our_plugins(folder: Path) -> None:
    from dr_ctl.rpo.estimate.estimate import estimate  # noqa: PLC0415
    from dr_ctl.rpo.estimate.request import Request  # noqa: PLC0415
    from dr_ctl.rpo.pipeline.make import reading  # noqa: PLC0415

    with reading() as make:
        answer = estimate(Request(history=str(folder), master="local[2]", from_summaries=False), make)
    assert answer.estimate is not None
    loss = answer.estimate.total.loss
    print([(loss.p50, loss.p95, loss.p99, loss.max, 0, 0)])


def our_backtest(folder: Path) -> None:
    from dr_ctl.rpo.estimate.estimate import backtest  # noqa: PLC0415
    from dr_ctl.rpo.estimate.request import Request  # noqa: PLC0415
    from dr_ctl.rpo.pipeline.make import reading  # noqa: PLC0415

    with reading() as make:
        answer = backtest(Request(history=str(folder), master="local[2]"), make)
    assert answer.backtest is not None
    print([(answer.backtest.bound.moments, len(answer.backtest.rows))])


def agree(value: dict[str, tuple[int, ...]]) -> None:
    """Check that the answers agree: equal maxima, and quantiles within the rounding."""
    ours, yardstick = value.values()
    assert all(ours[k] == yardstick[k] for k in (3, 5)), value
    assert all(yardstick[k] <= ours[k] <= yardstick[k] * (1 + BUCKET) + 1 for k in (0, 1, 2, 4)), value


def our_kept(folder: Path) -> None:
    """The milliseconds of three estimates without new data and of one with a new hour, in one session."""
    from dr_ctl.rpo.estimate.estimate import estimate  # noqa: PLC0415
    from dr_ctl.rpo.estimate.request import Request  # noqa: PLC0415
    from dr_ctl.rpo.pipeline.make import reading  # noqa: PLC0415

    def ask() -> int:
        began = time.perf_counter()
        estimate(Request(history=str(folder), master="local[2]", store=True), make)
        return round((time.perf_counter() - began) * 1000)

    with reading() as make:
        with without_last_hour(folder):
            rows = [ask() for _ in range(1 + TIMES)][1:]
        print([(*rows, ask())])


@contextmanager
def without_last_hour(folder: Path) -> Iterator[None]:
    """Hide the files of the last hour during the block."""
    files = sorted(folder.glob("date=*/site=*/*.parquet"), key=lambda options: options.name)
    with tempfile.TemporaryDirectory(dir=folder.parent) as folder_of_late_files:
        late = [file for file in files if file.name.startswith(files[-1].name[: len("YYYYMMDDTHH")])]
        for item in late:
            item.rename(Path(folder_of_late_files) / item.name)
        yield
        for item in late:
            (Path(folder_of_late_files) / item.name).rename(item)


class Took(NamedTuple):
    answer: tuple[int, ...]
    seconds: float
    mib: float
    cpu_s: float


def took(what: str, folder: Path, module: str = "bench.pipeline") -> Took:
    """Run a function in processes of its own: its answer, seconds, largest memory and processor time."""
    began, most, used = time.perf_counter(), 0.0, dict[str, int]()
    words = [sys.executable, "-m", module, what, str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        while process.poll() is None:
            most = max(most, held_mib(process.pid, used))
            time.sleep(0.2)  # how much a process holds cannot be waited for
        seconds = time.perf_counter() - began
        assert process.stdout is not None
        assert process.returncode == 0
        [answer] = ast.literal_eval(process.stdout.read())
    return Took(answer, seconds, most, sum(used.values()) / TICKS)


def held_mib(session: int, used: dict[str, int]) -> float:
    """The memory of a session's processes; shared pages count for each. `used` gets the ticks of each process, because
    a killed parent does not sum up its children's."""
    pages = 0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = [*map(int, (path / "stat").read_text().rpartition(")")[2].split()[1:])]
            if fields[2] == session:
                pages, used[path.name] = pages + fields[20], fields[10] + fields[11]
        except (OSError, IndexError):
            continue  # it has ended
    return pages * PAGE / MIB


def beside(
    name: str, ours: str, yardstick: str, folder: Path, goal: float | None, times: int, most: float | None = None
) -> list[Figure]:
    """Measure both in turn; fail where the answers differ."""
    item: dict[str, list[Took]] = {ours: [], yardstick: []}
    for _ in range(times):
        for program, value in item.items():
            value.append(took(program, folder))
        agree({program: item[-1].answer for program, item in item.items()})
    return in_turn(f"estimate of {name}", item[ours], item[yardstick], goal, most)


def in_turn(
    name: str, ours: Sequence[Took], yardstick: Sequence[Took], goal: float | None = None, most: float | None = None
) -> list[Figure]:
    """Seconds and memory of both."""
    seconds, cpu_s, mib = (
        [tuple(getattr(item, what) for item in took) for took in (ours, yardstick)]
        for what in ("seconds", "cpu_s", "mib")
    )
    return [
        Figure(f"{name}, beside DuckDB", "s", seconds[0], seconds[1], goal, most),
        Figure(f"{name}: processor time", "s", cpu_s[0], cpu_s[1], None, FIRST_CPU_S if most else None),
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
            most = FIRST_S if size < ONCE_FROM else None
            figures += beside(f"{rows}, all read", "our_full", "duck_estimate", folder, GOALS[size], times, most)
            if size in LARGE:
                figures.append(a_new_hour(rows, folder))
            elif size < ONCE_FROM:
                figures += in_a_session(rows, folder)
            took("our_settling", folder)
            figures += beside(f"{rows}, summarized", "our_settled", "duck_estimate", folder, None, times)
    if sizes == SMALL:
        with tempfile.TemporaryDirectory() as scratch:
            make_plugins(Path(scratch), PLUGIN_ROWS)
            name = f"1e6 rows of {2 * OWN} outflows, loss alone"
            figures += beside(name, "our_plugins", "duck_plugins", Path(scratch), None, TIMES)
    return figures


def in_a_session(rows: str, folder: Path) -> list[Figure]:
    *nothing, hour = (item / 1000 for item in took("our_kept", folder).answer)
    name = f"estimate of {rows} in a session that is kept"
    return [
        Figure(f"{name}, nothing new", "s", tuple(nothing), most=KEPT_S[0]),
        Figure(f"{name}, one new hour", "s", (hour,), most=KEPT_S[1]),
    ]


def a_new_hour(rows: str, folder: Path) -> Figure:
    """Summarize all but the last hour; measure an estimate that summarizes that hour."""
    with without_last_hour(folder):
        took("our_settling", folder)
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
