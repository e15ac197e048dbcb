"""What is told from the tables that are kept is what is told from all rows, whenever they were made and whatever came
in between: files that are late, mended, torn, joined, gone or from the future; other versions beside this one."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dr_ctl.rpo.estimate.estimate import Make, estimate
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.result import LossClass, LossLimit, Objectives
from dr_ctl.rpo.history.files import tables_of, write
from dr_ctl.rpo.history.row import Row
from dr_ctl.rpo.history.upkeep import Upkeep
from tests.rpo import by_hand
from tests.rpo.fifo import FifoSite, at
from tests.rpo.simulator import LOADS, history
from tests.rpo.test_estimate import FixedClock
from tests.rpo.torn import tear

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HOUR_S = 3600
OBJECTIVES = Objectives(
    LossLimit(1000, 60.0), (LossClass(("orders.#",), LossLimit(500)), LossClass(("a",), LossLimit(5)))
)


def asked(root: Path, **more: object) -> Request:
    return Request(history=root, site="london", objectives=OBJECTIVES, **more)  # type: ignore[arg-type]


def told(make: Make, request: Request) -> tuple[Any, ...]:
    answer = estimate(request, make, clock=FixedClock(at(90 * 86_400)), charted=True)
    return answer.as_json(), answer.curves, [each.id for each in answer.findings]


def both(make: Make, root: Path, **more: object) -> tuple[Any, ...]:
    """By the hours that are kept, and by all rows, by hand: the same."""
    by_tables = told(make, asked(root, store=True, **more))

    assert by_tables == told(by_hand.made, asked(root, **more))
    return by_tables


def lives() -> list[Row]:
    """Half a day: three pairs of all shapes, one that comes late and one that goes; queues that come, go and come back;
    a restart, a stall that lasts for hours, time without looks."""
    rows: list[Row] = []
    for load, pair in ((LOADS[3], "outages"), (LOADS[6], "restarts")):
        rows += history(load, 4, hours=11, pair=pair, every_s=20.0, step_s=5.0)[0]
    rows = [replace(row, ts=row.ts + timedelta(hours=12)) for row in rows]
    for style in ("split", "bridges"):
        machine = FifoSite(style, style, ("a", "b", "orders.c"))  # type: ignore[arg-type]
        for number in range(600):
            now = 60.0 * number
            stalls, away = 100 < number < 330, 400 < number < 415
            for queue in machine.queues:
                machine.send(queue, now)
            machine.consume("b")
            for outflow in list(machine.outflows):
                for _ in range(0 if stalls else 5):
                    machine.ship(outflow)
            if number == 450:
                machine.restart()
            looked = [row for row in machine.look(now) if not (row.kind == "queue" and _unread(row.name, number))]
            site = Row(site="london", ts=at(now), pair=style, kind="site", name="serving")
            rows += [] if away or (style == "split" and number > 500) else [site, *looked]
    return rows


def _unread(queue: str, number: int) -> bool:
    return (
        (queue == "a" and 200 < number < 290)
        or (queue == "b" and number > 350)
        or (queue == "orders.c" and number < 70)
    )


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return sorted(lives(), key=lambda row: row.ts)


def append(rows: Iterable[Row], root: Path, after_s: float, until_s: float) -> None:
    write([row for row in rows if at(after_s) <= row.ts < at(until_s)], root)


@pytest.mark.parametrize("ends", [(1.1, 4), pytest.param((1.1, 4, 12.5), marks=pytest.mark.deep)])
def test_what_is_kept_tells_what_all_rows_tell_hour_after_hour(
    tmp_path: Path, rows: list[Row], make: Make, summed: list[int], ends: tuple[float, ...]
) -> None:
    nobody_adds = tmp_path / "summary/aaaaaaaaaaaa-bbbbbbbbbbbb/site=london/hours/day=2026-03-01/part.parquet"
    nobody_adds.parent.mkdir(parents=True)
    nobody_adds.write_bytes(b"")
    os.utime(nobody_adds, (at(-8 * 86_400).timestamp(),) * 2)
    for after, until in zip((0.0, *ends), ends, strict=False):
        append(rows, tmp_path, after * HOUR_S, until * HOUR_S)
        before = both(make, tmp_path)
    late(tmp_path, rows)

    assert both(make, tmp_path) != before
    both(make, tmp_path)

    assert summed[-1] == 0
    assert 1 <= summed[-2] <= 3
    assert sum(summed) <= ends[-1] + 7
    assert not nobody_adds.exists()


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory, rows: list[Row], spark: SparkSession) -> Path:
    """Five hours that are summed up."""
    from dr_ctl.rpo.pipeline.make import made  # noqa: PLC0415 - the fast tests do without Spark

    root = tmp_path_factory.mktemp("settled")
    for hour in range(5):
        append(rows, root, hour * HOUR_S, (hour + 1) * HOUR_S)
    told(partial(made, spark), asked(root, store=True))
    return root


@pytest.fixture
def root(settled: Path, tmp_path: Path) -> Path:
    shutil.copytree(settled, tmp_path / "history")
    return tmp_path / "history"


def late(root: Path, rows: list[Row]) -> None:
    """Looks of the third hour, of which somebody knows only now, and who saw another queue."""
    found = [replace(row, name="orders.late") for row in rows if row.kind == "queue" and row.pair == "outages"]
    append(found, root, 2.3 * HOUR_S, 2.6 * HOUR_S)


def torn(root: Path, rows: list[Row]) -> None:
    (first, *_) = sorted(root.glob("date=*/site=*/*.parquet"))
    first.write_bytes(first.read_bytes()[:-100])


def gone(root: Path, rows: list[Row]) -> None:
    sorted(root.glob("date=*/site=*/*.parquet"))[1].unlink()


def unfinished(root: Path, rows: list[Row]) -> None:
    (some, *_) = root.glob("summary/*/*/hours/*/*.parquet")
    some.write_bytes(some.read_bytes()[:100])


@pytest.mark.deep
@pytest.mark.parametrize(
    ("what", "hours"),
    [
        (late, 3),  # its own hour, and two in which history is cut by its looks
        (torn, 4),
        (gone, 5),
        (unfinished, 5),
    ],
)
def test_hours_whose_files_are_others_now_are_read_again(
    root: Path, rows: list[Row], what: Callable[[Path, list[Row]], None], hours: int, make: Make, summed: list[int]
) -> None:
    before = told(make, asked(root))

    what(root, rows)

    assert (both(make, root) == before) == (what is unfinished)
    both(make, root)
    assert summed == [0, hours, 0]


@pytest.mark.deep
def test_files_that_were_joined_say_the_same(root: Path, rows: list[Row], make: Make) -> None:
    append(rows, root, 5 * HOUR_S, 5.5 * HOUR_S)
    append(rows, root, 5.5 * HOUR_S, 6.5 * HOUR_S)
    before = both(make, root)
    upkeep = Upkeep(root, keep_s=1e9)

    while upkeep.step(at(8 * HOUR_S)):
        pass

    assert both(make, root) == before


@pytest.mark.deep
def test_a_file_that_is_torn_inside_is_named_by_every_estimate_until_it_is_mended(root: Path, make: Make) -> None:
    before = told(make, asked(root))
    second = sorted(root.glob("date=*/site=*/*.parquet"))[1]
    whole, times = second.read_bytes(), second.stat()

    tear(second)
    first, again = told(make, asked(root, store=True)), told(make, asked(root))
    second.write_bytes(whole)
    os.utime(second, ns=(times.st_atime_ns, times.st_mtime_ns + 1_000_000))

    assert first == again
    assert "DR-RPO-002" in first[2]
    assert both(make, root) == before


@pytest.mark.deep
def test_what_is_asked_otherwise_is_told_otherwise(root: Path, make: Make) -> None:
    others: list[dict[str, Any]] = [
        {"exclude": ("orders.#",)},
        {"since": at(1.6 * HOUR_S)},
        {"until": at(3.4 * HOUR_S)},
        {"horizon_s": 900.0},
    ]
    before = told(make, asked(root))

    answers = [both(make, root, **other) for other in others]

    assert before not in answers
    assert answers[-1][0]["total"]["horizon"]["seconds"] == 900.0
    assert told(make, asked(root)) == before


@pytest.mark.deep
@pytest.mark.parametrize("among_others", [False, True])
def test_a_look_from_the_future_changes_no_figure(
    root: Path, rows: list[Row], make: Make, *, among_others: bool
) -> None:
    before = told(make, asked(root))
    ahead = [replace(row, ts=row.ts + timedelta(days=400)) for row in rows[:9]]

    if among_others:
        last = [row for row in rows if at(5 * HOUR_S) <= row.ts < at(5 * HOUR_S + 1)]
        tables = [table for _, table in tables_of([*last, *ahead])]
        there = write(last, root)[0]
        before = told(make, asked(root))
        pq.write_table(pa.concat_tables(tables), there)
    else:
        write(ahead, root)

    for store in (True, False):
        data, curves, found = told(make, asked(root, store=store))
        assert (data, curves) == before[:2]
        assert "DR-RPO-020" in found


@pytest.mark.deep
def test_two_versions_side_by_side_leave_each_others_tables_alone(
    root: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dr_ctl.rpo.pipeline import hours, tables  # noqa: PLC0415 - the fast tests do without Spark

    mine = sorted(root.glob("summary/*/*/*/**/*.parquet"))

    with monkeypatch.context() as other:
        for module in (tables, hours):
            other.setattr(module, "version", lambda: "0.0.9 (code aaaaaaaaaaaa)")
        both(make, root)

    two = sorted(root.glob("summary/*/*/*/**/*.parquet"))
    assert len(two) == 2 * len(mine)
    assert set(mine) < set(two)
    both(make, root)
    assert sorted(root.glob("summary/*/*/*/**/*.parquet")) == two


@pytest.mark.deep
def test_a_run_that_was_cut_off_before_its_ledger_or_comes_twice_changes_nothing(
    root: Path, rows: list[Row], make: Make
) -> None:
    before = told(make, asked(root))
    ledger = [*root.glob("summary/*/*/files/*.parquet")]
    [hours] = root.glob("summary/*/*/hours/*/*.parquet")

    shutil.copy(hours, hours.with_name("part-00000-again.parquet"))
    twice = told(make, asked(root))
    for each in ledger:
        each.unlink()

    assert twice == before == both(make, root)


@pytest.mark.deep
def test_of_two_that_end_at_once_one_keeps_what_it_made(root: Path, rows: list[Row], make: Make) -> None:
    """The other began before a late file came, and ends after the one that has read it."""
    from dr_ctl.rpo.pipeline import make as module  # noqa: PLC0415 - the fast tests do without Spark

    def meanwhile(gold: Any, *given: Any) -> None:
        with pytest.MonkeyPatch.context() as first:
            first.setattr(module.Gold, "keep", keep)
            late(root, rows)
            both(make, root)
        keep(gold, *given)

    keep = module.Gold.keep
    append(rows, root, 5 * HOUR_S, 5.2 * HOUR_S)
    with pytest.MonkeyPatch.context() as second:
        second.setattr(module.Gold, "keep", meanwhile)
        told(make, asked(root, store=True))

    both(make, root)


@pytest.mark.deep
def test_days_that_are_over_are_one_file_each(tmp_path: Path, make: Make) -> None:
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
        append(rows, tmp_path, from_s, until_s)
        both(make, tmp_path)
    both(make, tmp_path)

    days = Counter(path.parent.name for path in tmp_path.glob("summary/*/*/hours/*/*.parquet"))
    assert len(days) > 70
    assert {count for day, count in days.items() if day < "day=2026-04-30"} == {1}
    upkeep = Upkeep(tmp_path, keep_s=40 * 86_400)
    while upkeep.step(at(end_s[-1])):
        pass
    both(make, tmp_path)
    both(make, tmp_path)
    assert min(path.name for path in tmp_path.glob("summary/*/*/hours/*")) >= "day=2026-03-22"
