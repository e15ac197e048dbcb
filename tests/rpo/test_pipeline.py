"""What Spark says is what is said by hand, row for row and figure for figure: of everything at once, and of hours that
are kept, whatever came in between: files that are late, fixed, torn, joined, gone or from the future; other versions
beside this one."""

import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import cache
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dr_ctl.core.model import Finding
from dr_ctl.rpo.core.arrays import HOUR_US
from dr_ctl.rpo.core.hour import HourQuery, hour
from dr_ctl.rpo.core.rows import SCHEMA
from dr_ctl.rpo.estimate.estimate import LoadedHistory, LoadHistory, backtest, estimate
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.result import LossClass, LossLimit, Objectives
from dr_ctl.rpo.history.files import tables_of
from dr_ctl.rpo.history.row import Row, micros
from dr_ctl.rpo.history.upkeep import Upkeep
from dr_ctl.settings.model import HistoryLocation
from tests.clocks import FixedClock
from tests.rpo import by_hand
from tests.rpo.fifo import FifoSite, at
from tests.rpo.files import tear, write
from tests.rpo.simulator import LOADS, history

HOUR_S = 3600
OBJECTIVES = Objectives(
    LossLimit(1000, 60.0), (LossClass(("orders.#",), LossLimit(500)), LossClass(("a",), LossLimit(5)))
)
# Of a queue nobody looks for some minutes, of another any more, of a third before.
UNREAD = {"a": range(200, 290), "b": range(301, 999), "orders.c": range(70)}


@cache
def lives() -> list[Row]:
    """Five hours: outflows of all shapes, which stall for hours while queues come, go and come back, a restart, time
    without looks, a pair that goes; and for two hours one that is looked at often, and one that restarts often."""
    rows: list[Row] = []
    for load in (LOADS[3], LOADS[6]):
        rows += history(load, 4, hours=2, pair=load.name, every_s=20.0, step_s=5.0)[0]
    rows = [replace(row, ts=row.ts + timedelta(hours=12)) for row in rows]
    for style in ("mixed", "split", "bridges", "plugin"):
        machine = FifoSite(style, style, tuple(UNREAD))
        for number in range(330):
            now = 60.0 * number
            machine.copies = style != "plugin" or number % 100 > 9
            for queue in machine.queues:
                machine.send(queue, now)
            machine.consume("b")
            for outflow in list(machine.outflows):
                for _ in range(0 if 100 < number < 230 else 5):
                    machine.ship(outflow)
            if number == 245:
                machine.restart()
            compared = ("a", "b") if style == "plugin" and number % 3 == 0 else ()
            looks = machine.look(now, compared=compared)
            looks = [row for row in looks if row.kind != "queue" or number not in UNREAD[row.name]]
            if not 260 < number < 275 and not (style == "split" and number > 290):
                rows += [Row(site="london", ts=at(now), pair=style, kind="site", name="serving"), *looks]
    return sorted(rows, key=lambda row: row.ts)


def append(root: Path, after_s: float, until_s: float) -> None:
    write([row for row in lives() if at(after_s) <= row.ts < at(until_s)], root)


def asked(root: Path | str, **more: Any) -> Request:
    return Request(history=root, site="london", objectives=OBJECTIVES, **more)


def told(make: LoadHistory, request: Request) -> tuple[Any, ...]:
    """The answer; and all rows behind it, where they are put together."""
    FixedClock(at(90 * 86_400))
    asked_of = list[LoadedHistory | Finding]()

    def kept(request: Request, now_us: int) -> LoadedHistory | Finding:
        asked_of.append(make(request, now_us))
        return asked_of[-1]

    answer = estimate(request, kept, charted=True)
    [made] = asked_of
    assert isinstance(made, LoadedHistory)
    return answer.data, answer.curves, [finding.id for finding in answer.findings], made.facts, rows_of(made)


def rows_of(made: LoadedHistory) -> list[str]:
    table: Any = made.figures.args[0]
    rows = table if isinstance(table, pa.Table) else table.select(*SCHEMA.names).toArrow()
    return in_rows(by_hand.in_cells(rows, made.end_us))


def in_rows(table: pa.Table) -> list[str]:
    return sorted(map(str, by_hand.concatenated([table.select(SCHEMA.names).cast(SCHEMA)]).to_pylist()))


def both(make: LoadHistory, root: Path | str, **more: Any) -> tuple[Any, ...]:
    """By Spark, from hours that are kept, and by hand: the same."""
    by_tables = told(make, asked(root, **{"store": True, **more}))

    assert by_tables == told(by_hand.made, asked(root, **more))
    return by_tables


def of_the_past(make: LoadHistory, root: Path) -> dict[str, Any]:
    FixedClock(at(90 * 86_400))
    found = backtest(asked(root), make)
    assert found.backtest is not None
    return found.data


@pytest.mark.spark
def test_what_is_kept_tells_what_all_rows_tell_hour_after_hour(
    tmp_path: Path, make: LoadHistory, summed: list[int]
) -> None:
    nobody_adds = tmp_path / "summary/aaaaaaaaaaaa-bbbbbbbbbbbb/site=london/hours/day=2026-03-01/part.parquet"
    nobody_adds.parent.mkdir(parents=True)
    nobody_adds.write_bytes(b"")
    os.utime(nobody_adds, (at(-8 * 86_400).timestamp(),) * 2)
    append(tmp_path, 0, 1.1 * HOUR_S)
    both(make, tmp_path)
    append(tmp_path, 1.1 * HOUR_S, 3 * HOUR_S)
    late(tmp_path)
    both(make, tmp_path)
    both(make, tmp_path, since=at(0.3 * HOUR_S), until=at(2.4 * HOUR_S))

    assert summed == [2, 3, 2]  # of what has not changed only the hours that are cut
    assert not nobody_adds.exists()


@pytest.mark.spark
def test_what_is_asked_otherwise_and_the_test_of_the_past_are_those_made_by_hand(
    tmp_path: Path, make: LoadHistory
) -> None:
    append(tmp_path, 0, 1.1 * HOUR_S)
    torn(tmp_path)
    append(tmp_path, 0, 0.5 * HOUR_S)

    both(make, tmp_path.as_uri(), store=False, since=at(1000), horizon_s=900.0)

    assert of_the_past(make, tmp_path) == of_the_past(by_hand.made, tmp_path)


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.parametrize("at_once", [1_500_000, 400], ids=["", "some queues at a time"])
def test_every_row_and_every_figure_is_the_one_made_by_hand(
    tmp_path: Path, make: LoadHistory, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    from dr_ctl.rpo.pipeline import hours  # noqa: PLC0415 - the fast tests do without Spark

    monkeypatch.setattr(hours, "AT_ONCE", at_once)
    for load in LOADS:
        write(history(load, 3, hours=1.4, pair=load.name, every_s=10.0)[0], tmp_path)
    for number in range(6):
        append(tmp_path, number * HOUR_S, (number + 1) * HOUR_S)

    for more in ({}, {"since": at(3000), "horizon_s": 900.0}, {"exclude": ("orders.#",)}):
        both(make, tmp_path, store=False, **more)

    assert of_the_past(make, tmp_path) == of_the_past(by_hand.made, tmp_path)


def test_progress_is_counted_by_the_stage_that_sums_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from dr_ctl.rpo.pipeline import make as module  # noqa: PLC0415 - the fast tests do without Spark

    monkeypatch.setattr(module, "_EVERY_S", 0.001)
    over, said, looks = threading.Event(), list[str](), ((7, 9, 9), (8, 2, 0), (8, 2, 1), (8, 2, 2))
    stages = (SimpleNamespace(stageId=stage, numTasks=of, numCompletedTasks=done) for stage, of, done in looks)
    told = chain(stages, iter(over.set, True))  # and none any more
    tracker = SimpleNamespace(getActiveStageIds=lambda: [0], getStageInfo=lambda _: next(told))
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    with module.counted(spark, said.append, 4, 2):
        assert over.wait(10)

    assert said == [f"summing up: {done} of 4 hour(s)" for done in (0, 0, 0, 2, 4)]


@pytest.mark.parametrize("cell_us", [0, 60_000_000])
def test_an_hour_of_too_many_looks_is_the_same_in_parts(cell_us: int) -> None:
    rows = [row for row in lives() if row.pair in ("mixed", "split", "bridges", "plugin")]
    looks = pa.concat_tables(table for _, table in tables_of(rows)).sort_by("ts")
    begin_us, end_us = (micros(each(looks["ts"]).as_py()) for each in (pc.min, pc.max))
    orders = HourQuery(begin_us, end_us + 1, begin_us, end_us + 1, classes=(("a",),), cell_us=cell_us)
    hour_us = begin_us - begin_us % HOUR_US

    class InParts(by_hand.Looks):
        def queues(self, *asked: Any) -> list[pa.Table]:
            [whole] = super().queues(*asked)
            return [whole.filter(pc.field("name") == name) for name in whole["name"].unique().to_pylist()]

    one, other = (hour(read(looks), hour_us, orders) for read in (by_hand.Looks, InParts))
    assert in_rows(one) == in_rows(other)


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five hours in files of half an hour."""
    root = tmp_path_factory.mktemp("settled")
    for number in range(10):
        append(root, number * HOUR_S / 2, (number + 1) * HOUR_S / 2)
    return root


@pytest.fixture
def root(settled: Path, tmp_path: Path, make: LoadHistory) -> Path:
    """The same, summed up once."""
    told(make, asked(settled, store=True))
    shutil.copytree(settled, tmp_path / "history")
    return tmp_path / "history"


def late(root: Path) -> None:
    """Looks of the third hour, of which somebody knows only now, and who saw another queue."""
    begin, end = at(2.3 * HOUR_S), at(2.6 * HOUR_S)
    rows = [row for row in lives() if row.kind == "queue" and row.pair == "mixed" and begin <= row.ts < end]
    write([replace(row, name="orders.late") for row in rows], root)


def torn(root: Path) -> None:
    (first, *_) = sorted(root.glob("date=*/site=*/*.parquet"))
    first.write_bytes(first.read_bytes()[:-100])


def gone(root: Path) -> None:
    sorted(root.glob("date=*/site=*/*.parquet"))[1].unlink()


def unfinished(root: Path) -> None:
    (some, *_) = root.glob("summary/*/*/hours/*/*.parquet")
    some.write_bytes(some.read_bytes()[:100])


def twice(root: Path) -> None:
    """A run that was cut off before its ledger, and one that comes twice."""
    [hours] = root.glob("summary/*/*/hours/*/*.parquet")
    shutil.copy(hours, hours.with_name("part-00000-again.parquet"))
    [ledger] = root.glob("summary/*/*/files.json")
    ledger.unlink()


def joined(root: Path) -> None:
    upkeep = Upkeep(HistoryLocation.at(root), keep_s=1e9)
    while upkeep.step(at(8 * HOUR_S)):
        pass


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.parametrize(
    ("what", "is_other"),
    [(late, True), (torn, True), (gone, True), (unfinished, False), (twice, False), (joined, False)],
)
def test_hours_whose_files_are_others_now_are_read_again(
    root: Path, what: Callable[[Path], None], is_other: bool, make: LoadHistory, summed: list[int]
) -> None:
    before = told(make, asked(root))

    what(root)

    assert (both(make, root) != before) is is_other
    both(make, root)
    assert (summed[0], summed[-1]) == (0, 0)
    assert 1 <= summed[1] <= 5


@pytest.mark.spark
@pytest.mark.deep
def test_a_file_that_is_torn_inside_is_named_by_every_estimate_until_it_is_mended(
    root: Path, make: LoadHistory
) -> None:
    before = told(make, asked(root))
    second = sorted(root.glob("date=*/site=*/*.parquet"))[1]
    whole, times = second.read_bytes(), second.stat()

    tear(second)
    first, again = both(make, root), told(make, asked(root))
    second.write_bytes(whole)
    os.utime(second, ns=(times.st_atime_ns, times.st_mtime_ns + 1_000_000))

    assert first == again
    assert "DR-RPO-002" in first[2]
    assert both(make, root) == before


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.parametrize("among_others", [False, True])
def test_a_look_from_the_future_changes_no_figure(root: Path, make: LoadHistory, *, among_others: bool) -> None:
    before = told(make, asked(root))
    ahead = [replace(row, ts=row.ts + timedelta(days=400)) for row in lives()[:9]]

    if among_others:
        last = [row for row in lives() if at(5 * HOUR_S) <= row.ts < at(5 * HOUR_S + 1)]
        [there] = write(last, root)
        before = told(make, asked(root))
        pq.write_table(pa.concat_tables([table for _, table in tables_of([*last, *ahead])]), there)
    else:
        write(ahead, root)

    for store in (True, False):
        data, curves, findings, *_ = told(make, asked(root, store=store))
        assert (data, curves) == before[:2]
        assert "DR-RPO-020" in findings


@pytest.mark.spark
@pytest.mark.deep
def test_two_versions_side_by_side_leave_each_others_tables_alone(
    root: Path, make: LoadHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dr_ctl.rpo.pipeline import hours, sql  # noqa: PLC0415 - the fast tests do without Spark

    own = sorted(root.glob("summary/*/*/**/*.*"))

    with monkeypatch.context() as other:
        for module in (sql, hours):
            other.setattr(module, "version", lambda: "0.0.9 (code aaaaaaaaaaaa)")
        both(make, root)

    two = sorted(root.glob("summary/*/*/**/*.*"))
    assert len(two) == 2 * len(own)
    assert set(own) < set(two)
    both(make, root)
    assert sorted(root.glob("summary/*/*/**/*.*")) == two


@pytest.mark.spark
@pytest.mark.deep
def test_of_two_that_end_at_once_one_keeps_what_it_made(root: Path, make: LoadHistory) -> None:
    """The other began before a late file came, and ends after the one that has read it."""
    from dr_ctl.rpo.pipeline import make as module  # noqa: PLC0415 - the fast tests do without Spark

    def meanwhile(tables: Any, *given: Any) -> None:
        with pytest.MonkeyPatch.context() as first:
            first.setattr(module.SummaryTables, "keep", keep)
            late(root)
            both(make, root)
        keep(tables, *given)

    keep = module.SummaryTables.keep
    append(root, 5 * HOUR_S, 5.2 * HOUR_S)
    with pytest.MonkeyPatch.context() as second:
        second.setattr(module.SummaryTables, "keep", meanwhile)
        told(make, asked(root, store=True))

    both(make, root)


@pytest.mark.spark
@pytest.mark.deep
def test_days_that_are_over_are_one_file_each(tmp_path: Path, make: LoadHistory) -> None:
    """Some looks a day for eleven weeks, from the middle of a month on; then the first days are removed."""
    machine, rows = FifoSite("p", "mixed", ("a",)), list[Row]()
    for number in range(11 * 7 * 8):
        now = 86_400 * (number // 8 - 15) + 600.0 * (number % 8)
        machine.send("a", now)
        machine.consume("a")
        for _ in range(0 if number % 100 > 90 else 3):
            machine.ship(("mixed", "*"))
        rows += [Row(site="london", ts=at(now), pair="p", kind="site", name="serving"), *machine.look(now)]
    end_s = [1.6 * 86_400, 40.2 * 86_400, 62.0 * 86_400]
    for from_s, until_s in zip([-1e7, *end_s], end_s, strict=False):
        write([row for row in rows if at(from_s) <= row.ts < at(until_s)], tmp_path)
        both(make, tmp_path)
    both(make, tmp_path)

    days = Counter(path.parent.name for path in tmp_path.glob("summary/*/*/hours/*/*.parquet"))
    assert len(days) > 70
    assert {count for day, count in days.items() if day < "day=2026-04-30"} == {1}
    upkeep = Upkeep(HistoryLocation.at(tmp_path), keep_s=40 * 86_400)
    while upkeep.step(at(end_s[-1])):
        pass
    both(make, tmp_path)
    both(make, tmp_path)
    assert min(path.name for path in tmp_path.glob("summary/*/*/hours/*")) >= "day=2026-03-22"
