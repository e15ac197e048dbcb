"""What `monitor` writes and the pipeline reads: the columns, whole files, what cannot be read."""

from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.model import Finding, Severity
from dr_ctl.rpo.history import files as history
from dr_ctl.rpo.history.files import SCHEMA, write
from dr_ctl.rpo.history.row import Row
from dr_ctl.rpo.history.sources import Source
from tests.rpo.files import usable_files

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def row(ts: datetime = NOON, site: str = "london", name: str = "orders") -> Row:
    return Row(site=site, ts=ts, pair="orders-1", kind="queue", name=name, depth=2, added=5, removed=3)


def test_a_row_is_the_columns_of_a_file_and_the_site() -> None:
    assert {field.name for field in fields(Row)} == {*SCHEMA.names, "site"}


def test_a_file_holds_exactly_the_columns_and_neither_of_its_directories(tmp_path: Path) -> None:
    (path,) = write([row()], tmp_path)

    assert path.parent == tmp_path / "date=2026-03-01" / "site=london"
    assert pq.ParquetFile(path).schema_arrow.equals(SCHEMA)
    (found,) = pq.ParquetFile(path).read().to_pylist()
    told = {"ts": NOON, "pair": "orders-1", "kind": "queue", "name": "orders", "depth": 2, "added": 5, "removed": 3}
    assert found == {**dict.fromkeys(SCHEMA.names), **told}


def test_rows_go_to_the_utc_day_and_the_site_of_their_own_and_each_write_is_a_file(tmp_path: Path) -> None:
    midnight = datetime(2026, 3, 2, tzinfo=UTC)
    late = [row(midnight - timedelta(microseconds=1)), row(midnight.astimezone(timezone(timedelta(hours=9))))]

    paths = write([*late, row(site="01"), row(site="1")], tmp_path)

    told = [(path.parent.parent.name[-2:], path.parent.name) for path in paths]
    assert told == [("01", "site=london"), ("02", "site=london"), ("01", "site=01"), ("01", "site=1")]
    assert write([row()], tmp_path) != write([row()], tmp_path)
    assert len(usable_files(tmp_path)[0]) == 6


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def disk_full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(history.os, "fsync", disk_full)

    with pytest.raises(EnvironmentFault, match="No space left"):
        write([row()], tmp_path)

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_nothing_visible_is_ever_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[Path]] = []
    monkeypatch.setattr(history.os, "fsync", lambda _handle: seen.append(usable_files(tmp_path)[0]))

    (path,) = write([row()], tmp_path)

    # The first is the file's, before it has its name; the second the directory's, after.
    assert seen == [[], [path]]


def test_a_torn_file_and_one_of_another_shape_are_left_out_and_named(tmp_path: Path) -> None:
    (whole,) = write([row()], tmp_path)
    whole.with_name("torn.parquet").write_bytes(whole.read_bytes()[:-20])
    few = pq.read_table(whole, columns=["ts", "depth"], partitioning=None)
    pq.write_table(few, whole.with_name("odd.parquet"))

    files, findings = usable_files(tmp_path)

    assert files == [whole]
    assert {(each.id, each.severity) for each in findings} == {("DR-RPO-002", Severity.WARNING)}
    odd, torn = sorted(each.text for each in findings)
    assert "pair, kind, name" in odd
    assert "date=2026-03-01/site=london/torn.parquet" in torn


def test_days_outside_the_window_are_not_opened(tmp_path: Path) -> None:
    (_, today, _) = write([row(NOON + timedelta(days=day)) for day in (-1, 0, 1)], tmp_path)

    assert usable_files(tmp_path, since=NOON, until=NOON) == ([today], [])
    assert usable_files(tmp_path / "absent") == ([], [])


def test_a_file_that_goes_while_the_others_are_read_makes_the_list_be_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,), (other,) = write([row()], tmp_path), write([row(NOON + timedelta(minutes=1))], tmp_path)
    read = Source.left_out

    def gone(source: Source) -> Finding | None:
        other.unlink(missing_ok=True)
        return read(source)

    monkeypatch.setattr(Source, "left_out", gone)

    assert usable_files(tmp_path) == ([one], [])
