"""Joining small files and removing old days: no row lost, none twice, nothing touched that is not ours."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dr_ctl.rpo.history import upkeep
from dr_ctl.rpo.history.files import SCHEMA, newest_first, usable_files, write
from dr_ctl.rpo.history.newest import _begin_us
from dr_ctl.rpo.history.row import Row
from dr_ctl.rpo.history.upkeep import Upkeep

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def rows(minute: int, site: str = "london") -> list[Row]:
    ts = NOON + timedelta(minutes=minute)
    one = Row(site=site, ts=ts, pair="p", kind="queue", name="a", depth=minute, added=minute, removed=0, start="1")
    return [one, replace(one, name="b"), Row(site=site, ts=ts, pair="p", kind="site", name="serving")]


def everything(root: Path) -> list[tuple[object, ...]]:
    files, findings = usable_files(root)
    assert findings == []
    return sorted(tuple(row.values()) for file in files for row in pq.ParquetFile(file).read().to_pylist())  # type: ignore[type-var]


def done(root: Path, now: datetime, *, keep_s: float = 30 * 86_400) -> int:
    keeping, steps = Upkeep(root, keep_s=keep_s), 0
    while keeping.step(now):
        steps += 1
    return steps


def test_the_files_of_an_hour_that_is_over_become_one(tmp_path: Path) -> None:
    for minute in range(70):
        write(rows(minute), tmp_path)
    write(rows(5, "paris"), tmp_path)
    before = everything(tmp_path)

    steps = done(tmp_path, NOON + timedelta(minutes=71))

    assert steps == 1
    assert everything(tmp_path) == before
    london = list(newest_first(tmp_path, "london"))
    assert len(london) == 11  # the ten of the hour that goes on, and one
    assert _begin_us(london[-1]) == NOON.timestamp() * 1_000_000
    moments = pq.ParquetFile(london[-1]).read().column("ts").to_pylist()
    assert moments == sorted(moments)


def test_after_a_crash_between_joining_and_removing_no_row_is_there_twice(tmp_path: Path) -> None:
    paths = [path for minute in range(3) for path in write(rows(minute), tmp_path)]
    before = everything(tmp_path)
    kept = {path: path.read_bytes() for path in paths}
    done(tmp_path, NOON + timedelta(hours=2))
    for path, told in kept.items():
        path.write_bytes(told)

    done(tmp_path, NOON + timedelta(hours=2))

    assert everything(tmp_path) == before


def test_what_is_torn_or_not_ours_stays_as_it_is(tmp_path: Path) -> None:
    first, *_ = [path for minute in range(3) for path in write(rows(minute), tmp_path)]
    torn, foreign = first.with_name("20260301T120000-torn.parquet"), first.with_name("20260301T120001-more.parquet")
    torn.write_bytes(b"PAR1")
    table = pq.ParquetFile(first).read()
    pq.write_table(table.append_column("more", pa.array([1] * table.num_rows)), foreign)
    told = (torn.read_bytes(), foreign.read_bytes())

    done(tmp_path, NOON + timedelta(hours=2))

    assert (torn.read_bytes(), foreign.read_bytes()) == told
    assert len(list(first.parent.iterdir())) == 3


def test_no_file_grows_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "MOST_ROWS", 9)
    for minute in range(10):
        write(rows(minute), tmp_path)
    before = everything(tmp_path)

    done(tmp_path, NOON + timedelta(hours=2))

    sizes = [pq.read_metadata(path).num_rows for path in newest_first(tmp_path, "london")]
    assert sorted(sizes) == [3, 9, 9, 9]
    assert everything(tmp_path) == before


def test_days_that_are_too_old_go_and_no_other(tmp_path: Path) -> None:
    write(rows(0), tmp_path)
    write([replace(row, ts=row.ts + timedelta(days=9)) for row in rows(0)], tmp_path)
    (tmp_path / "date=someday").mkdir()
    (tmp_path / "_estimate-london.json").write_text("{}")

    done(tmp_path, NOON + timedelta(days=10), keep_s=2 * 86_400)

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "_estimate-london.json",
        "date=2026-03-10",
        "date=someday",
    ]
    assert SCHEMA.names[0] == "ts"
