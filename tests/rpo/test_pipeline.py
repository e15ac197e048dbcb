"""The rows and the figures that Spark makes are those made by hand, row for row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dr_ctl.core.model import Finding
from dr_ctl.rpo.core.calendar import HOUR
from dr_ctl.rpo.core.hour import Orders, hour, part
from dr_ctl.rpo.core.rows import SCHEMA
from dr_ctl.rpo.estimate.backtest import backtest
from dr_ctl.rpo.estimate.estimate import Make, estimate
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.result import LossClass, LossLimit, Objectives
from dr_ctl.rpo.history.files import tables_of, write
from dr_ctl.rpo.history.row import Row, micros
from tests.rpo import by_hand
from tests.rpo.fifo import FifoSite, at
from tests.rpo.simulator import EPOCH, LOADS, history
from tests.rpo.test_estimate import FixedClock

OBJECTIVES = Objectives(
    LossLimit(1000, 60.0), (LossClass(("orders.#",), LossLimit(500)), LossClass(("a",), LossLimit(5)))
)
HOUR_S = 3600


def loads() -> Iterator[Row]:
    """Every load of the simulator, each a pair of its own: as the mirror and Classic's outflows are."""
    for load in LOADS:
        yield from history(load, 3, hours=1.4, pair=load.name, every_s=10.0)[0]


def outflows() -> Iterator[Row]:
    """A pair for each way in which outflows carry queues: one for all, two for each, one for each and one for all
    acknowledgements; for hours each stalls, and one is not looked at any more."""
    for style in ("mixed", "split", "bridges"):
        machine = FifoSite(style, style, ("a", "b", "orders.c"))  # type: ignore[arg-type]
        for number in range(300):
            now = 60.0 * number
            for queue in machine.queues:
                machine.send(queue, now)
            machine.consume("b")
            for outflow in list(machine.outflows):
                for _ in range(0 if 60 < number < 220 else 5):
                    machine.ship(outflow)
            if number == 250:
                machine.restart()
            site = Row(site="london", ts=at(now), pair=style, kind="site", name="serving")
            yield from [] if style == "split" and number > 280 else [site, *machine.look(now)]


def in_rows(table: Any) -> list[tuple[Any, ...]]:
    whole = table if isinstance(table, pa.Table) else table.select(*SCHEMA.names).toArrow()
    return sorted(map(str, by_hand.together([whole.select(SCHEMA.names).cast(SCHEMA)]).to_pylist()))  # type: ignore[arg-type]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("life", "end"),
    [(loads, EPOCH + timedelta(hours=1.5)), pytest.param(outflows, at(300 * 60), marks=pytest.mark.deep)],
)
def test_every_row_and_every_figure_is_the_one_made_by_hand(tmp_path: Path, make: Make, life: Any, end: Any) -> None:
    rows = sorted(life(), key=lambda row: row.ts)
    for number in range(0, len(rows), len(rows) // 7):
        write(rows[number : number + len(rows) // 7], tmp_path)
    asked = Request(history=str(tmp_path), site="london", objectives=OBJECTIVES)

    by_spark, in_hand = (each(asked, micros(end)) for each in (make, by_hand.made))

    assert not isinstance(by_spark, Finding)
    assert not isinstance(in_hand, Finding)
    assert in_rows(by_spark.figures.args[0]) == in_rows(in_hand.figures.args[0])  # type: ignore[attr-defined]
    assert by_spark.facts == in_hand.facts
    clock = FixedClock(end)
    for more in ({}, {"since": rows[0].ts + timedelta(minutes=50), "horizon_s": 900.0}):
        answers = [estimate(replace(asked, **more), each, charted=True, clock=clock) for each in (make, by_hand.made)]  # type: ignore[arg-type]
        assert answers[0] == answers[1]
    tests = [backtest(asked, each, clock=clock) for each in (make, by_hand.made)]
    assert tests[0].as_json() == tests[1].as_json()
    assert tests[0].backtest is not None


@pytest.mark.parametrize("cell_us", [0, 60_000_000])
def test_an_hour_of_too_many_looks_is_the_same_in_parts(cell_us: int) -> None:
    """Each part has all looks at outflows, and those at some of the queues."""
    rows = [row for each in tables_of(sorted(outflows(), key=lambda row: row.ts)) for row in [each[1]]]
    looks = pa.concat_tables(rows).sort_by("ts")
    begin_us, end_us = (micros(pc_(looks["ts"]).as_py()) for pc_ in (pc.min, pc.max))
    orders = Orders(begin_us, end_us + 1, begin_us, end_us + 1, classes=(("a",),), cell_us=cell_us)
    hour_us = begin_us - begin_us % HOUR
    is_queue = pc.equal(looks["kind"], "queue")
    outer = looks.filter(pc.invert(is_queue))
    queues = looks.filter(is_queue)
    own = [pa.concat_tables([outer, queues.filter(pc.equal(queues["name"], name))]) for name in ("a", "b", "orders.c")]

    parts = pa.concat_tables(part(each, hour_us, orders) for each in own)

    assert in_rows(hour(outer, hour_us, orders, begin_us, parts)) == in_rows(hour(looks, hour_us, orders, begin_us))


@pytest.mark.spark
@pytest.mark.deep
def test_hours_of_too_many_looks_are_done_some_queues_at_a_time(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dr_ctl.rpo.pipeline import hours  # noqa: PLC0415 - the fast tests do without Spark

    rows = sorted(outflows(), key=lambda row: row.ts)
    write(rows, tmp_path)
    monkeypatch.setattr(hours, "AT_ONCE", len(rows) // 12)
    asked, end = Request(history=str(tmp_path), site="london", objectives=OBJECTIVES), at(300 * 60)

    by_spark, in_hand = (each(asked, micros(end)) for each in (make, by_hand.made))

    assert in_rows(by_spark.figures.args[0]) == in_rows(in_hand.figures.args[0])  # type: ignore[union-attr]
    tests = [backtest(asked, each, clock=FixedClock(end)) for each in (make, by_hand.made)]
    assert tests[0].as_json() == tests[1].as_json()
