"""Joining small files and removing old days: no row lost, none twice, nothing touched that is not ours."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dr_ctl.core.model import Role
from dr_ctl.rpo.history import upkeep
from dr_ctl.rpo.history.files import begun, write
from dr_ctl.rpo.history.newest import recent
from dr_ctl.rpo.history.row import Row
from dr_ctl.rpo.history.upkeep import Upkeep
from tests.rpo.files import full_disk, newest_first, tear, usable_files

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def rows(minute: int, site: str = "london") -> list[Row]:
    ts = NOON + timedelta(minutes=minute)
    one = Row(site=site, ts=ts, pair="p", kind="queue", name="a", depth=minute, added=minute, removed=0, start="1")
    return [one, replace(one, name="b"), Row(site=site, ts=ts, pair="p", kind="site", name="serving")]


def everything(root: Path) -> list[tuple[object, ...]]:
    files, findings = usable_files(root)
    assert findings == []
    return sorted(tuple(row.values()) for file in files for row in pq.ParquetFile(file).read().to_pylist())


def an_hour(root: Path, minutes: int) -> list[Path]:
    """The files of so many minutes of one site, and one of another that is three hours later."""
    write(rows(180, "paris"), root)
    return [path for minute in range(minutes) for path in write(rows(minute), root)]


def done(root: Path, now: datetime, *, keep_s: float = 30 * 86_400) -> int:
    keeping, steps = Upkeep(root, keep_s=keep_s), 0
    while keeping.step(now):
        steps += 1
    return steps


def test_the_files_of_an_hour_that_is_over_become_one(tmp_path: Path) -> None:
    for minute in range(80):
        write(rows(minute), tmp_path)
    write(rows(5, "paris"), tmp_path)
    before = everything(tmp_path)

    steps = done(tmp_path, NOON + timedelta(minutes=81))

    assert steps == 2  # joined, and a step later removed
    assert everything(tmp_path) == before
    london = list(newest_first(tmp_path, "london"))
    assert len(london) == 21  # the twenty of the hour that goes on, and one
    assert begun(london[-1].name) == NOON
    joined = pq.ParquetFile(london[-1])
    assert [set(joined.read_row_group(n)["kind"].to_pylist()) for n in range(2)] == [{"site"}, {"queue"}]
    assert joined.num_row_groups == 2


def test_after_a_crash_between_joining_and_removing_no_row_is_there_twice(tmp_path: Path) -> None:
    paths = an_hour(tmp_path, 3)
    before = everything(tmp_path)
    kept = {path: path.read_bytes() for path in paths}
    done(tmp_path, NOON + timedelta(hours=4))
    for path, told in kept.items():
        path.write_bytes(told)

    done(tmp_path, NOON + timedelta(hours=4))

    assert everything(tmp_path) == before


def test_what_is_torn_or_not_ours_stays_as_it_is(tmp_path: Path) -> None:
    first, *_ = an_hour(tmp_path, 3)
    torn, foreign = (first.with_name(f"20260301T12000{n}-{uuid.uuid4().hex}.parquet") for n in range(2))
    torn.write_bytes(b"PAR1")
    table = pq.ParquetFile(first).read()
    pq.write_table(table.append_column("more", pa.array([1] * table.num_rows)), foreign)
    told = (torn.read_bytes(), foreign.read_bytes())

    done(tmp_path, NOON + timedelta(hours=4))

    assert (torn.read_bytes(), foreign.read_bytes()) == told
    assert len(list(first.parent.iterdir())) == 3


def test_rows_are_joined_so_many_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "GROUP_ROWS", 9)
    an_hour(tmp_path, 10)
    before = everything(tmp_path)

    done(tmp_path, NOON + timedelta(hours=4))

    [path] = newest_first(tmp_path, "london")
    told = pq.read_metadata(path)
    sizes = [told.row_group(number).num_rows for number in range(told.num_row_groups)]
    assert sizes == [9, 1, 10, 10]
    assert everything(tmp_path) == before


def test_whoever_listed_the_files_before_they_were_joined_can_read_them_until_the_next_step(tmp_path: Path) -> None:
    listed = an_hour(tmp_path, 60)

    Upkeep(tmp_path, keep_s=1e9).step(NOON + timedelta(hours=4))

    assert all(path.exists() for path in listed)
    assert len(newest_first(tmp_path, "london")) == len(listed) + 1


def test_an_hour_that_has_only_just_ended_is_left_as_it_is(tmp_path: Path) -> None:
    for minute in range(65):
        write(rows(minute), tmp_path)

    assert done(tmp_path, NOON + timedelta(minutes=66)) == 0


def test_of_two_monitors_one_tidies(tmp_path: Path) -> None:
    for minute in range(75):
        write(rows(minute), tmp_path)
    before, now = everything(tmp_path), NOON + timedelta(minutes=76)
    one, other = Upkeep(tmp_path, keep_s=1e9), Upkeep(tmp_path, keep_s=1e9)

    with upkeep._alone(tmp_path) as is_alone:
        assert is_alone
        assert not one.step(now)
    while any([one.step(now), other.step(now)]):
        pass

    assert (one.trouble, other.trouble) == (None, None)
    assert everything(tmp_path) == before
    assert len(newest_first(tmp_path, "london")) == 16


def test_a_disk_that_is_full_leaves_the_files_and_says_so_and_they_are_joined_once_there_is_room(
    tmp_path: Path,
) -> None:
    for minute in range(75):
        write(rows(minute), tmp_path)
    before, now = everything(tmp_path), NOON + timedelta(minutes=76)
    tidy = Upkeep(tmp_path, keep_s=1e9)

    with full_disk():
        assert not tidy.step(now)
    assert "File too large" in tidy.trouble
    assert everything(tmp_path) == before
    while tidy.step(now):
        pass

    assert (tidy.trouble, everything(tmp_path) == before, len(newest_first(tmp_path, "london"))) == (None, True, 16)


def test_an_hour_with_a_file_that_is_torn_inside_is_given_up_and_the_others_are_joined(tmp_path: Path) -> None:
    paths = an_hour(tmp_path, 3)
    for minute in range(60, 75):
        write(rows(minute), tmp_path)
    tear(paths[1])
    tidy = Upkeep(tmp_path, keep_s=1e9)

    troubles = []
    while tidy.step(NOON + timedelta(hours=4)) or tidy.trouble is not None:
        troubles.append(tidy.trouble)

    assert [told is None for told in troubles] == [False, True, True]
    assert all(path.exists() for path in paths)
    assert len(newest_first(tmp_path, "london")) == 4


def days(root: Path) -> list[str]:
    return sorted(path.parent.name.removeprefix("date=") for path in root.glob("date=*/site=london"))


def written(root: Path, count: int, site: str = "london") -> None:
    for number in range(count):
        write([replace(row, ts=row.ts + timedelta(days=number)) for row in rows(0, site)], root)


def test_days_beyond_those_that_are_to_be_kept_go_and_no_other(tmp_path: Path) -> None:
    written(tmp_path, 5)
    (tmp_path / "date=someday").mkdir()
    (tmp_path / "_estimate-london.json").write_text("{}")
    (tmp_path / "date=2026-03-01/site=london/.x.parquet.part").write_bytes(b"PAR1")

    done(tmp_path, NOON + timedelta(days=5), keep_s=2 * 86_400)

    left = {path.name for path in tmp_path.iterdir()} - {upkeep.LOCK}
    assert left == {"_estimate-london.json", "date=someday", *(f"date=2026-03-0{day}" for day in (3, 4, 5))}


def test_a_clock_that_is_ten_years_ahead_removes_nothing(tmp_path: Path) -> None:
    written(tmp_path, 3)
    ahead = NOON + timedelta(days=3652)
    before = len(everything(tmp_path))
    write([replace(row, ts=ahead) for row in rows(0)], tmp_path)

    done(tmp_path, ahead, keep_s=3 * 86_400)

    assert len(everything(tmp_path)) == before + 3
    assert days(tmp_path) == ["2026-03-01", "2026-03-02", "2026-03-03", "2036-02-29"]


def test_the_last_looks_at_a_site_that_is_watched_no_more_and_what_is_not_ours_stay(tmp_path: Path) -> None:
    written(tmp_path, 1, "paris")
    written(tmp_path, 5)
    foreign = tmp_path / "date=2026-03-01" / "site=london" / "export.parquet"
    pq.write_table(pa.table({"x": [1]}), foreign)

    done(tmp_path, NOON + timedelta(days=5), keep_s=86_400)

    assert days(tmp_path) == ["2026-03-01", "2026-03-04", "2026-03-05"]
    assert len(newest_first(tmp_path, "paris")) == 1
    assert [path.name for path in foreign.parent.iterdir()] == ["export.parquet"]


def test_of_a_joined_hour_a_failover_reads_the_last_minutes_and_every_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "GROUP_ROWS", 4)
    write(rows(180, "paris"), tmp_path)
    for minute in range(60):
        outflow = replace(rows(minute)[0], kind="mixed", name="*")
        write([*rows(minute), outflow], tmp_path)
    before = recent(tmp_path, "london")

    done(tmp_path, NOON + timedelta(hours=4))

    after = recent(tmp_path, "london")
    assert len(newest_first(tmp_path, "london")) == 1
    assert [*after.roles] == ["serving"]
    assert len(after.saw(Role.SERVING)) == 60
    assert after.spans == before.spans
    order = [("kind", "ascending"), ("name", "ascending"), ("ts", "ascending")]
    assert after.table.sort_by(order).equals(before.table.sort_by(order))
    assert 10 <= after.table.filter(pc.equal(after.table["kind"], "mixed")).num_rows < 20
