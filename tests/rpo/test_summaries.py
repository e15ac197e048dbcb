"""What summaries rest on: files that are mended, late, or from the future; other versions beside this one."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dr_ctl.rpo.estimate import kept
from dr_ctl.rpo.estimate.estimate import estimate
from dr_ctl.rpo.estimate.in_hand import made
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.result import EstimateAnswer, LossClass, LossLimit, Objectives
from dr_ctl.rpo.estimate.run import here
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from tests.rpo.fifo import at
from tests.rpo.test_estimate import FixedClock
from tests.rpo.test_what_is_known import look, site
from tests.rpo.torn import tear

HOURS = 4
NOW_S = 3600.0 * HOURS


def traffic(from_s: float, to_s: float, every_s: int = 20) -> list[Row]:
    return [row for s in range(int(from_s), int(to_s), every_s) for row in look(s, put=s, shipped=max(0, s - s % 60))]


def asked(root: Path, now_s: float = NOW_S, **more: Any) -> EstimateAnswer:
    request = Request(history=str(root), site="london", **more)
    return estimate(request, partial(made, do=here), clock=FixedClock(at(now_s)))


def told(root: Path, now_s: float = NOW_S) -> Any:
    """By summaries, which are kept, and by all rows: the same."""
    found = asked(root, now_s, store=True)

    assert found.as_json() == asked(root, now_s, settled=False).as_json()
    return found.as_json()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for hour in range(HOURS):
        write(traffic(3600 * hour, 3600 * hour + 3600), tmp_path)
    return tmp_path


def test_a_file_that_was_torn_inside_and_is_mended_is_read_again(root: Path) -> None:
    before = told(root)
    second = sorted(root.glob("date=*/site=*/*.parquet"))[1]
    whole, times = second.read_bytes(), second.stat()

    tear(second)
    torn = [asked(root, store=True) for _ in range(3)]
    second.write_bytes(whole)
    os.utime(second, ns=(times.st_atime_ns, times.st_mtime_ns + 1_000_000))

    left_out = [[each.text for each in answer.findings if each.id == "DR-RPO-002"] for answer in torn]
    assert left_out == [left_out[0]] * 3
    assert "torn inside" in left_out[0][0]
    assert all(each.as_json() == torn[0].as_json() for each in torn)
    assert torn[0].as_json()["window"]["samples"] == before["window"]["samples"] * (HOURS - 1) / HOURS  # type: ignore[index,call-overload]
    assert told(root) == before


def test_a_late_file_with_looks_soon_after_an_hour_undoes_that_hour(tmp_path: Path) -> None:
    rows = traffic(0, NOW_S)
    late = [row for row in rows if at(3600) <= row.ts < at(4200)]
    write([row for row in rows if row not in late], tmp_path)
    before = told(tmp_path)

    write(late, tmp_path)

    assert told(tmp_path) != before


@pytest.mark.parametrize("ahead_s", [3700.0, 86_400.0 * 365 * 5])
def test_a_look_from_the_future_changes_no_figure(root: Path, ahead_s: float) -> None:
    objectives = Objectives(LossLimit(1000, 600.0))
    before = asked(root, objectives=objectives)

    write(look(NOW_S + ahead_s, put=10**6, shipped=0), root)
    stored, again = (asked(root, objectives=objectives, store=True) for _ in range(2))

    assert stored.as_json() == again.as_json() == before.as_json()
    assert [each.id for each in again.findings] == ["DR-RPO-020"]
    assert "are left out" in again.findings[0].text


def test_a_look_from_the_future_among_others_of_one_file_changes_no_figure(root: Path) -> None:
    before = asked(root)
    last = max(root.glob("date=*/site=*/*.parquet"))
    rows = pq.ParquetFile(last).read()
    stray = write(look(NOW_S + 86_400 * 400, put=10**6, shipped=0), root)
    more = pq.ParquetFile(stray[0]).read()
    for path in stray:
        path.unlink()

    pq.write_table(pa.concat_tables([rows, more]), last)

    assert asked(root).as_json() == before.as_json()


def test_two_versions_side_by_side_leave_each_others_summaries_alone(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(root)
    mine = sorted(root.glob("summary/*/*/*.parquet"))

    with monkeypatch.context() as other:
        other.setattr(kept, "version", lambda: "0.0.9 (code aaaaaaaaaaaa)")
        monkeypatch.setattr("dr_ctl.rpo.estimate.slices.version", lambda: "0.0.9 (code aaaaaaaaaaaa)")
        told(root)
    monkeypatch.undo()

    both = sorted(root.glob("summary/*/*/*.parquet"))
    assert len(both) == 2 * len(mine)
    assert set(mine) < set(both)
    told(root)
    assert sorted(root.glob("summary/*/*/*.parquet")) == both


def test_summaries_that_nobody_adds_to_go(root: Path) -> None:
    told(root)
    old = root / "summary" / "aaaaaaaaaaaa-bbbbbbbbbbbb" / "site=london" / "20260301T12.parquet"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"")
    week_s = 8 * 86_400
    os.utime(old, (at(0).timestamp() - week_s,) * 2)

    told(root)

    assert not old.exists()


def test_more_classes_than_an_integer_has_bits(root: Path) -> None:
    classes = tuple(LossClass(("payments.#", f"other-{n}"), LossLimit(10**6)) for n in range(70))

    answer = asked(root, objectives=Objectives(LossLimit(), classes))

    assert answer.estimate is not None
    total = answer.estimate.total.loss
    assert {each.figures.loss.likely.p99 for each in answer.estimate.classes} == {total.likely.p99}


def test_a_queue_that_is_gone_makes_nothing_of_the_outflow_lost(tmp_path: Path) -> None:
    """A queue of few messages lived for an hour beside a busy one; both counters have the noise of looks between. Later
    the link is down for a while, and consumers keep up."""
    rows: list[Row] = []
    shipped = 0
    for n in range(4 * 9000):
        s = n / 4
        sent = 5 * n + (7 * n) % 5
        small = 3 * int(min(s, 3500))
        put = 2 * (sent + small)
        shipped = shipped if 6000 <= s < 6400 else put
        whole = n % 20 == 0
        rows += [
            site(s),
            Row(site="london", ts=at(s), pair="p", kind="mixed", name="*", depth=put - shipped, added=put,
                removed=shipped, link=True, start="1"),
        ]  # fmt: skip
        for name, count in (("orders", sent), ("small", small)) if whole else ():
            if name == "orders" or s < 3500:
                rows.append(
                    Row(site="london", ts=at(s), pair="p", kind="queue", name=name, depth=0, added=count,
                        removed=count, acked=count, start="1")
                )  # fmt: skip
    write(rows, tmp_path)

    answer = asked(tmp_path, 9000)

    assert answer.estimate is not None
    total = answer.estimate.total
    assert total.unexplained == pytest.approx(0, abs=0.001)
    assert total.loss.likely.p99 is not None
    assert total.loss.likely.p99 <= 5
    assert total.loss.p99 is not None
    assert total.loss.p99 <= 200


def test_an_outage_of_the_link_in_which_consumers_keep_up_ages_nothing_likely(tmp_path: Path) -> None:
    rows = []
    for s in range(0, 8000, 5):
        shipped = 20 * (2000 if 2000 <= s < 2400 else s)
        rows.append(site(s))
        queue = look(s, put=10 * s, shipped=0)[1]
        rows.append(replace(queue, depth=2, removed=10 * s - 2, acked=10 * s - 2))
        rows.append(Row(site="london", ts=at(s), pair="p", kind="mixed", name="*", depth=20 * s - shipped, added=20 * s,
                        removed=shipped, link=True, start="1"))  # fmt: skip
    write(rows, tmp_path)

    answer = asked(tmp_path, 8000, objectives=Objectives(LossLimit(age_s=30)))

    assert answer.estimate is not None
    age_s = answer.estimate.total.age_s
    assert age_s.likely.p99 is not None
    assert age_s.likely.p99 <= 5
    assert age_s.p99 is not None
    assert age_s.p99 > 300
    assert answer.verdict is not None
    assert answer.verdict.value == "unknown"
