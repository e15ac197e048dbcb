"""What waits for the disk: when it is written, what becomes of it where the disk takes nothing."""

import gc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dr_ctl.rpo.history import writer as writing
from dr_ctl.rpo.history.files import TAILS
from dr_ctl.rpo.history.row import Row
from dr_ctl.rpo.history.writer import AGAIN_S, Writer
from tests.rpo.clock import FixedClock
from tests.rpo.files import full_disk, usable_files

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUEUE = Row(site="london", ts=NOON, pair="orders-1", kind="queue", name="orders", depth=2, added=5, removed=3)


def look(second: float) -> list[Row]:
    """A queue, the outflow and the role."""
    queue = replace(QUEUE, ts=NOON + timedelta(seconds=second))
    return [queue, replace(queue, kind="mixed", name="*"), replace(queue, kind="site", name="serving")]


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(NOON)


def kept(root: Path) -> list[tuple[float, str]]:
    """The rows of all files, by second and kind."""
    files, findings = usable_files(root)
    assert findings == []
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    return sorted(((row["ts"] - NOON).total_seconds(), row["kind"]) for row in rows)


def test_looks_are_gathered_and_written_when_it_is_time_and_at_the_end(tmp_path: Path, clock: FixedClock) -> None:
    writer = Writer(tmp_path, every_s=60, whole_every_s=0.1, clock=clock)

    for second, rows in ((0, []), (59, []), (60, [9])):
        clock.passed_s = float(second)
        assert [pq.read_metadata(path).num_rows for path in writer.add(look(second))] == rows
    writer.add(look(61))
    writer.flush()

    assert len(kept(tmp_path)) == 12


def test_where_the_history_should_be_lies_a_file_until_somebody_moves_it(tmp_path: Path, clock: FixedClock) -> None:
    blocked = tmp_path / "history"
    blocked.write_text("a file where a directory should be")
    writer = Writer(blocked, clock=clock)
    writer.add(look(0))
    assert writer.flush() == []
    assert writer.trouble is not None
    blocked.unlink()

    (path,) = writer.flush()

    assert pq.read_metadata(path).num_rows == 3
    assert (writer.trouble, writer.flush()) == (None, [])


def test_a_full_disk_is_told_and_tried_again_and_nothing_is_lost(tmp_path: Path, clock: FixedClock) -> None:
    writer = Writer(tmp_path, every_s=60, whole_every_s=0.1, clock=clock)
    with full_disk():
        for second in range(100):
            clock.passed_s = second
            assert writer.add(look(second)) == []
    assert "File too large" in writer.trouble
    assert (writer.waiting, writer.dropped, writer.files) == (300, 0, 0)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []

    clock.passed_s += AGAIN_S
    writer.add(look(100))

    assert (writer.trouble, writer.waiting) == (None, 0)
    assert len(kept(tmp_path)) == 303


@pytest.mark.parametrize(
    ("most", "sites", "queues", "flows"),
    [(24, ["london"], [6, 7, 8, 9], [*range(10)]), (7, ["london", "paris"], [], [9, 9])],
)
def test_a_disk_that_stays_full_costs_the_oldest_looks_at_queues_first_and_for_longer_those_at_outflows_too(
    tmp_path: Path,
    clock: FixedClock,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    sites: list[str],
    queues: list[int],
    flows: list[int],
) -> None:
    monkeypatch.setattr(writing, "MOST_KEPT", most)
    writer = Writer(tmp_path, clock=clock)
    with full_disk():
        for second in range(10):
            writer.add([replace(row, site=site) for site in sites for row in look(second)])
        writer.flush()

    writer.flush()

    seconds = [[second for second, kind in kept(tmp_path) if kind == of] for of in ("queue", "mixed", "site")]
    assert seconds == [queues, flows, flows]
    assert writer.dropped == 30 * len(sites) - len(queues) - 2 * len(flows)


def test_what_a_monitor_that_was_killed_had_in_its_tail_is_in_the_history_of_the_next(
    tmp_path: Path, clock: FixedClock
) -> None:
    killed = Writer(tmp_path, clock=clock)
    for second in range(3):
        clock.passed_s = second
        killed.add(look(second))
    (tail,) = tmp_path.glob(f"date=*/site=*/{TAILS}")
    raw = tail.read_bytes()
    del killed
    gc.collect()  # its lock ends with it
    tail.write_bytes(raw + raw[-40:-20])  # it was killed within a look

    after = Writer(tmp_path, clock=clock)
    clock.passed_s = 5
    after.add(look(5))
    after.flush()

    assert after.trouble is None
    assert [second for second, kind in kept(tmp_path) if kind == "mixed"] == [0, 1, 2, 5]
    assert [*tmp_path.rglob(TAILS)] == []


def test_the_files_keep_one_look_at_everything_each_so_often(tmp_path: Path, clock: FixedClock) -> None:
    writer = Writer(tmp_path, every_s=60, whole_every_s=5, clock=clock)

    for number in range(241):
        clock.passed_s = number / 4
        writer.add(look(clock.passed_s))

    seconds = [second for second, kind in kept(tmp_path) if kind == "queue"]
    assert seconds == [5.0 * number for number in range(13)]
    assert sum(kind == "mixed" for _, kind in kept(tmp_path)) == 241

    writer.flush()

    assert {second for second, kind in kept(tmp_path) if kind == "queue"} == {n / 4 for n in range(241)}
    assert sum(kind == "mixed" for _, kind in kept(tmp_path)) == 241


def test_a_tail_of_the_day_before_is_let_go_of(tmp_path: Path, clock: FixedClock) -> None:
    writer = Writer(tmp_path, every_s=60, clock=clock)
    for number in range(200):
        clock.passed_s = float(number)
        writer.add(look(43_200 - 30 + number))

    assert len([*tmp_path.glob(f"date=2026-03-01/site=*/{TAILS}")]) == 0
    assert 1 <= len([*tmp_path.glob(f"date=2026-03-02/site=*/{TAILS}")]) <= 2


def test_two_monitors_on_one_history_do_not_hinder_each_other(tmp_path: Path, clock: FixedClock) -> None:
    one, other = Writer(tmp_path, clock=clock), Writer(tmp_path, clock=clock)
    for second in range(4):
        clock.passed_s = second
        one.add(look(second))
        other.add(look(second + 0.5))
        one.flush()

    other.flush()

    assert (one.trouble, other.trouble) == (None, None)
    assert {second for second, _ in kept(tmp_path)} == {n / 2 for n in range(8)}
