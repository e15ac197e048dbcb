"""How much a task is told, holds and gives back: that follows the looks of an hour, and neither the length of a history
nor that of a stall."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from dr_ctl.rpo.core.columns import Columns
from dr_ctl.rpo.estimate import looks, plan
from dr_ctl.rpo.estimate.estimate import estimate
from dr_ctl.rpo.estimate.in_hand import made
from dr_ctl.rpo.estimate.plan import Plan
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.run import here
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row, micros
from tests.rpo.fifo import at
from tests.rpo.test_estimate import FixedClock

HOUR_S = 3600


def life(
    end_s: int, *, begin_s: int = 0, every_s: int = 60, queues: int = 1, stalls: tuple[int, int] = (0, 0)
) -> Iterator[list[Row]]:
    """By look: one message a look and queue, consumed at once and shipped with the next look; while it stalls neither
    the link nor the consumers do anything."""
    for s in range(begin_s, end_s, every_s):
        count = s // every_s
        done = (stalls[0] if stalls[0] <= s < stalls[1] else s) // every_s
        shipped = max(0, done - 1)
        common: dict[str, Any] = {"site": "london", "ts": at(s), "pair": "p", "start": "1"}
        put, gone = queues * (count + done), 2 * queues * shipped
        yield [
            Row(kind="site", name="serving", **common),
            Row(kind="mixed", name="*", depth=put - gone, added=put, removed=gone, link=True, **common),
            *(
                Row(kind="queue", name=f"q{n}", depth=count - done, added=count, removed=done, acked=done, **common)
                for n in range(queues)
            ),
        ]


def written(folder: Path, end_s: int, **more: Any) -> Path:
    """A file an hour."""
    for begin_s in range(0, end_s, HOUR_S):
        until_s = min(end_s, begin_s + HOUR_S)
        write([row for look in life(until_s, begin_s=begin_s, **more) for row in look], folder)
    return folder


def planned(asked: Request, now_s: int) -> Plan:
    found = Plan.of(asked, micros(at(now_s)))
    assert isinstance(found, Plan)
    return found


def test_a_slice_carries_the_files_of_its_own_time_however_long_the_history_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "ROWS_OF_A_SLICE", 4 * 12 * 3)  # four hours
    hours = 40

    slices = planned(Request(history=str(written(tmp_path, hours * HOUR_S, every_s=300))), hours * HOUR_S).slices

    assert len(slices) == hours // 4
    # Its own four, two hours before, and the ten minutes around.
    assert max(len(each.files) for each in slices) <= 4 + 2 + 2
    assert max(len(each.to_json()) for each in slices) < 3000


def test_a_long_stall_holds_no_more_rows_than_an_hour_and_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours, queues, clock = 6, 20, FixedClock(at(6 * HOUR_S))
    written(tmp_path, hours * HOUR_S, queues=queues, stalls=(HOUR_S, 5 * HOUR_S))
    asked = Request(history=str(tmp_path))
    at_once = estimate(asked, partial(made, do=here), clock=clock)
    of_an_hour = 60 * (queues + 2)
    held: list[int] = []
    whole = Columns.of

    def counted(table: Any) -> Columns:
        held.append(table.num_rows)
        return whole(table)

    monkeypatch.setattr(Columns, "of", counted)
    monkeypatch.setattr(looks, "AT_ONCE", of_an_hour)
    in_parts = estimate(asked, partial(made, do=here), clock=clock)

    assert in_parts.as_json() == at_once.as_json()
    assert max(held) < 1.5 * of_an_hour  # the stall has four of them
    assert in_parts.estimate is not None
    age_s = in_parts.estimate.total.age_s
    assert age_s.p95 is not None
    assert age_s.p95 > 3 * HOUR_S


@pytest.mark.parametrize("tested", [False, True], ids=["estimate", "backtest"])
def test_what_a_task_gives_back_does_not_grow_with_the_number_of_looks(tmp_path: Path, tested: bool) -> None:
    hours = 6
    rows = []
    for every_s in (20, 5):
        folder = written(tmp_path / str(every_s), hours * HOUR_S, every_s=every_s, stalls=(HOUR_S, 2 * HOUR_S))
        asked = Request(history=str(folder), tested=tested, horizons_s=(60, 300))
        rows.append(here(planned(asked, hours * HOUR_S).slices).num_rows)

    few, many = rows
    assert many < 1.5 * few, rows  # of four times as many looks


def test_a_slice_whose_cut_lies_further_back_is_done_again_with_more(tmp_path: Path) -> None:
    hours = 8
    written(tmp_path, hours * HOUR_S, stalls=(HOUR_S, 7 * HOUR_S))
    found = planned(Request(history=str(tmp_path)), hours * HOUR_S)
    [one] = found.slices
    late = replace(one, from_us=micros(at(6 * HOUR_S))).with_files(found.files, micros(at(4 * HOUR_S)))

    [short] = here([late]).filter(pc.field("kind") == "fault").to_pylist()

    assert short["metric"] == "short"
    further = found.further(late, short["cell"], short["most"])
    assert len(further.files) > len(late.files)
