"""Files that are torn inside are left out by whatever reads a history."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.history import reading
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from dr_ctl.rpo.history.upkeep import Upkeep
from dr_ctl.rpo.spark import session as spark
from tests.rpo.fifo import at
from tests.rpo.torn import tear

if TYPE_CHECKING:
    from pathlib import Path

    from dr_ctl.core.model import Finding


def looks(minute: int) -> list[Row]:
    return [Row(site="london", ts=at(60 * minute), pair="orders-1", kind="site", name="serving")]


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "session", lambda *_, **__: nullcontext())


def asked(folder: Path, torn: Path) -> tuple[list[str], list[Finding]]:
    def work(_: Any, paths: list[str], findings: list[Finding]) -> tuple[list[str], list[Finding]]:
        if str(torn) in paths:
            raise spark.Unfinished("no such page", remedy="")
        return paths, findings

    return reading.over(Request(history=folder), work, lambda _, findings: ([], list(findings)))


def test_a_file_that_is_torn_inside_is_left_out_and_named(tmp_path: Path) -> None:
    (one, *_), (other, *_) = write(looks(1), tmp_path), write(looks(2), tmp_path)
    tear(other)
    one.with_name("no-footer.parquet").write_bytes(b"PAR1")

    paths, findings = asked(tmp_path, other)

    assert paths == [str(one)]
    assert [finding.id for finding in findings] == ["DR-RPO-002", "DR-RPO-002"]
    assert "no-footer" in findings[0].text
    assert other.name in findings[1].text


def test_files_that_are_joined_under_the_reader_lose_it_nothing(tmp_path: Path) -> None:
    for minute in range(60):
        write(looks(minute), tmp_path)
        write(looks(minute + 60), tmp_path)
    later = at(3 * 3600)
    told: list[int] = []

    def work(_: Any, paths: list[str], findings: list[Finding]) -> list[Finding]:
        if not told:
            upkeep = Upkeep(tmp_path, keep_s=1e9)
            while upkeep.step(later):
                pass
        told.append(sum(pq.read_metadata(path).num_rows for path in paths))
        return findings

    assert reading.over(Request(history=tmp_path), work, lambda _, findings: list(findings)) == []
    assert told == [120]


def test_work_that_fails_over_whole_files_has_failed(tmp_path: Path) -> None:
    (one, *_) = write(looks(1), tmp_path)

    with pytest.raises(spark.Unfinished):
        asked(tmp_path, one)


def test_nothing_is_asked_of_a_history_of_which_nothing_is_whole(tmp_path: Path) -> None:
    (one, *_) = write(looks(1), tmp_path)
    tear(one)

    with pytest.raises(spark.Unfinished):
        asked(tmp_path, one)
