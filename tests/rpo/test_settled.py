"""What is told from summaries is what is told from all rows, whenever they were made and whatever came in between."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.rpo.estimate.estimate import estimate
from dr_ctl.rpo.estimate.in_hand import made
from dr_ctl.rpo.estimate.plan import Plan
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.result import LossClass, LossLimit, Objectives
from dr_ctl.rpo.estimate.run import here
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row, micros
from dr_ctl.rpo.history.upkeep import Upkeep
from tests.rpo.fifo import FifoSite, at
from tests.rpo.simulator import LOADS, history
from tests.rpo.test_estimate import FixedClock

HOUR_S = 3600
OBJECTIVES = Objectives(
    LossLimit(1000, 60.0), (LossClass(("orders.#",), LossLimit(500)), LossClass(("a",), LossLimit(5)))
)


def asked(root: Path, **more: object) -> Request:
    return Request(history=root, site="london", objectives=OBJECTIVES, **more)  # type: ignore[arg-type]


def told(request: Request) -> tuple[Any, ...]:
    answer = estimate(request, partial(made, do=here), clock=FixedClock(at(90 * 86_400)), charted=True)
    return answer.as_json(), answer.curves, [each.id for each in answer.findings]


def both(root: Path, **more: object) -> tuple[Any, ...]:
    """By summaries, which are kept, and by all rows: the same."""
    by_summaries = told(asked(root, store=True, **more))

    assert by_summaries == told(asked(root, settled=False, **more))
    return by_summaries


def unread_s(root: Path) -> float:
    """Of how much time rows are read."""
    plan = Plan.of(asked(root), micros(at(90 * 86_400)))
    assert isinstance(plan, Plan)
    return sum(each.to_us - max(each.from_us, each.begin_us) for each in plan.slices) / 1e6


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


def test_what_summaries_tell_is_what_all_rows_tell_hour_after_hour(tmp_path: Path, rows: list[Row]) -> None:
    before_s = 0.0
    for until_s in (1.1 * HOUR_S, 4 * HOUR_S, 6.05 * HOUR_S, 12.5 * HOUR_S):
        append(rows, tmp_path, before_s, until_s)
        both(tmp_path)
        before_s = until_s

    assert unread_s(tmp_path) <= 2 * HOUR_S


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> Path:
    """Five hours, and the summaries of those that are over."""
    root = tmp_path_factory.mktemp("settled")
    for hour in range(5):
        append(rows, root, hour * HOUR_S, (hour + 1) * HOUR_S)
    told(asked(root, store=True))
    return root


@pytest.fixture
def root(settled: Path, tmp_path: Path) -> Path:
    shutil.copytree(settled, tmp_path / "history")
    return tmp_path / "history"


def test_an_hour_that_is_over_is_not_read_again(root: Path) -> None:
    assert unread_s(root) == pytest.approx(HOUR_S, abs=60)


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
    (some, *_) = root.glob("summary/*/*/*.parquet")
    some.write_bytes(some.read_bytes()[:100])


@pytest.mark.parametrize(
    ("what", "hours"),
    [
        (late, 3),  # its own hour, and two in which history is cut by its looks
        pytest.param(torn, 4, marks=pytest.mark.deep),
        pytest.param(gone, 5, marks=pytest.mark.deep),
        (unfinished, 2),
    ],
)
def test_hours_whose_files_are_others_now_are_read_again(
    root: Path, rows: list[Row], what: Callable[[Path, list[Row]], None], hours: int
) -> None:
    before = told(asked(root))

    what(root, rows)

    assert unread_s(root) == pytest.approx(hours * HOUR_S, abs=60)
    assert (both(root) == before) == (what is unfinished)
    assert unread_s(root) == pytest.approx(HOUR_S, abs=60)


def test_files_that_were_joined_say_the_same(root: Path, rows: list[Row]) -> None:
    append(rows, root, 5 * HOUR_S, 5.5 * HOUR_S)
    append(rows, root, 5.5 * HOUR_S, 6.5 * HOUR_S)
    before = both(root)
    upkeep = Upkeep(root, keep_s=1e9)

    while upkeep.step(at(8 * HOUR_S)):
        pass

    assert both(root) == before


def test_a_file_that_cannot_be_read_is_named_by_every_estimate(root: Path, rows: list[Row]) -> None:
    torn(root, rows)

    first, again = told(asked(root, store=True)), told(asked(root))

    assert "DR-RPO-002" in first[2]
    assert first == again


@pytest.mark.parametrize(
    "other", [{"exclude": ("orders.#",)}, {"since": at(1.6 * HOUR_S)}, {"until": at(3.4 * HOUR_S)}]
)
def test_what_is_asked_otherwise_is_told_otherwise(root: Path, other: dict[str, Any]) -> None:
    before = told(asked(root))

    assert both(root, **other) != before
    assert told(asked(root)) == before


def test_a_horizon_of_its_own_needs_the_rows_of_the_last_day(root: Path) -> None:
    far = both(root, horizon_s=900.0)

    assert far[0]["total"]["horizon"]["seconds"] == 900.0


@pytest.mark.deep
def test_days_that_are_over_are_one_summary_each(tmp_path: Path) -> None:
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
        both(tmp_path)

    names = sorted(path.stem for path in tmp_path.glob("summary/*/*/*.parquet"))
    assert {len(name) for name in names if name < "20260409"} == {len("20260408")}
    upkeep = Upkeep(tmp_path, keep_s=40 * 86_400)
    while upkeep.step(at(end_s[-1])):
        pass
    both(tmp_path)
    assert min(path.stem for path in tmp_path.glob("summary/*/*/*.parquet")) >= "20260322"
