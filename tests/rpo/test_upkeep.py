"""The files of a history: written whole, whatever the disk does; joined and removed, no row lost and none twice."""

import gc
import uuid
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dr_ctl.core.model import Role, Severity
from dr_ctl.engine.disk import locked_file
from dr_ctl.rpo.history import upkeep
from dr_ctl.rpo.history import writer as writing
from dr_ctl.rpo.history.files import SCHEMA, TAILS, Source, begun
from dr_ctl.rpo.history.newest import last_reading, only_begun, recent
from dr_ctl.rpo.history.row import Row
from dr_ctl.rpo.history.upkeep import Upkeep
from dr_ctl.rpo.history.writer import AGAIN_S, Writer
from dr_ctl.settings.model import HistoryLocation
from tests.clocks import FixedClock
from tests.rpo.files import full_disk, newest_first, tear, usable_files, write

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUEUE = Row(site="london", ts=NOON, pair="orders-1", kind="queue", name="orders", depth=2, added=5, removed=3)


def rows(minute: int, site: str = "london") -> list[Row]:
    one = replace(QUEUE, site=site, ts=NOON + timedelta(minutes=minute), depth=minute, added=minute, removed=0)
    return [one, replace(one, name="b"), Row(site=site, ts=one.ts, pair="orders-1", kind="site", name="serving")]


def everything(root: Path) -> list[tuple[object, ...]]:
    files, findings = usable_files(root)
    assert findings == []
    return sorted(tuple(row.values()) for file in files for row in pq.ParquetFile(file).read().to_pylist())


def an_hour(root: Path, minutes: int) -> list[Path]:
    """The files of so many minutes of one site, and one of another that is three hours later."""
    write(rows(180, "paris"), root)
    return [path for minute in range(minutes) for path in write(rows(minute), root)]


def done(root: Path, now: datetime, *, keep_s: float = 30 * 86_400) -> int:
    keeping, steps = Upkeep(HistoryLocation.at(root), keep_s=keep_s), 0
    while keeping.step(now):
        steps += 1
    return steps


def test_the_files_of_an_hour_that_is_over_become_one(tmp_path: Path) -> None:
    for minute in range(80):
        write(rows(minute), tmp_path)
    write(rows(5, "paris"), tmp_path)
    before = everything(tmp_path)
    assert done(tmp_path, NOON + timedelta(minutes=66)) == 0, "it has only just ended"

    steps = done(tmp_path, NOON + timedelta(minutes=81))

    assert steps == 2  # joined, and a step later removed
    assert everything(tmp_path) == before
    london = list(newest_first(tmp_path, "london"))
    assert len(london) == 21  # the twenty of the hour that goes on, and one
    assert begun(london[-1].name) == NOON
    joined = pq.ParquetFile(london[-1])
    assert [set(joined.read_row_group(n)["kind"].to_pylist()) for n in range(2)] == [{"site"}, {"queue"}]
    assert joined.num_row_groups == 2


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


def test_parts_can_be_read_until_the_step_after_and_after_a_crash_in_between_no_row_is_there_twice(
    tmp_path: Path,
) -> None:
    listed = an_hour(tmp_path, 60)
    before = everything(tmp_path)

    Upkeep(HistoryLocation.at(tmp_path), keep_s=1e9).step(NOON + timedelta(hours=4))

    assert all(path.exists() for path in listed)
    assert len(newest_first(tmp_path, "london")) == len(listed) + 1
    done(tmp_path, NOON + timedelta(hours=4))
    assert everything(tmp_path) == before


@pytest.mark.parametrize(
    ("hindrance", "trouble"), [(locked_file, "None"), (full_disk, "File too large")], ids=["another tidies", "no room"]
)
def test_what_hinders_leaves_the_files_and_of_two_monitors_one_joins_them_afterwards(
    tmp_path: Path, hindrance: Callable[..., Any], trouble: str
) -> None:
    for minute in range(75):
        write(rows(minute), tmp_path)
    before, now = everything(tmp_path), NOON + timedelta(minutes=76)
    one, other = Upkeep(HistoryLocation.at(tmp_path), keep_s=1e9), Upkeep(HistoryLocation.at(tmp_path), keep_s=1e9)

    with hindrance(*[tmp_path / upkeep.LOCK] * (hindrance is locked_file)) as held:
        assert hindrance is full_disk or held is not None
        assert not one.step(now)
    assert trouble in str(one.trouble)
    assert everything(tmp_path) == before
    while any([one.step(now), other.step(now)]):
        pass

    assert (one.trouble, other.trouble) == (None, None)
    assert everything(tmp_path) == before
    assert len(newest_first(tmp_path, "london")) == 16


def test_an_hour_with_a_file_that_is_torn_inside_is_given_up_and_the_others_are_joined(tmp_path: Path) -> None:
    paths = an_hour(tmp_path, 3)
    for minute in range(60, 75):
        write(rows(minute), tmp_path)
    tear(paths[1])
    tidy = Upkeep(HistoryLocation.at(tmp_path), keep_s=1e9)

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
    before = recent(HistoryLocation.at(tmp_path), "london")

    done(tmp_path, NOON + timedelta(hours=4))

    after = recent(HistoryLocation.at(tmp_path), "london")
    assert len(newest_first(tmp_path, "london")) == 1
    assert [*after.roles] == ["serving"]
    assert len(after.saw(Role.SERVING)) == 60
    assert after.spans == before.spans
    order = [("kind", "ascending"), ("name", "ascending"), ("ts", "ascending")]
    assert after.table.sort_by(order).equals(before.table.sort_by(order))
    assert 10 <= after.table.filter(pc.equal(after.table["kind"], "mixed")).num_rows < 20


def test_a_file_holds_exactly_the_columns_and_neither_of_its_directories(tmp_path: Path) -> None:
    (path,) = write([QUEUE], tmp_path)

    assert path.parent == tmp_path / "date=2026-03-01" / "site=london"
    assert {field.name for field in fields(Row)} == {*SCHEMA.names, "site"}
    assert pq.ParquetFile(path).schema_arrow.equals(SCHEMA)
    (found,) = pq.ParquetFile(path).read().to_pylist()
    told = {"ts": NOON, "pair": "orders-1", "kind": "queue", "name": "orders", "depth": 2, "added": 5, "removed": 3}
    assert found == {**dict.fromkeys(SCHEMA.names), **told}


def test_rows_go_to_the_utc_day_and_the_site_of_their_own_and_each_write_is_a_file(tmp_path: Path) -> None:
    midnight = datetime(2026, 3, 2, tzinfo=UTC)
    moments = midnight - timedelta(microseconds=1), midnight.astimezone(timezone(timedelta(hours=9)))
    late = [replace(QUEUE, ts=moment) for moment in moments]

    paths = write([*late, replace(QUEUE, site="01"), replace(QUEUE, site="1")], tmp_path)

    told = [(path.parent.parent.name[-2:], path.parent.name) for path in paths]
    assert told == [("01", "site=london"), ("02", "site=london"), ("01", "site=01"), ("01", "site=1")]
    assert write([QUEUE], tmp_path) != write([QUEUE], tmp_path)
    assert len(usable_files(tmp_path)[0]) == 6


def test_nothing_visible_is_ever_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[Path]] = []
    monkeypatch.setattr("os.fsync", lambda _handle: seen.append(usable_files(tmp_path)[0]))

    (path,) = write([QUEUE], tmp_path)

    # The first is the file's, before it has its name; the second the directory's, after.
    assert seen == [[], [path]]


def test_a_torn_file_and_one_of_another_shape_are_left_out_and_named(tmp_path: Path) -> None:
    (whole,) = write([QUEUE], tmp_path)
    whole.with_name("torn.parquet").write_bytes(whole.read_bytes()[:-20])
    few = pq.read_table(whole, columns=["ts", "depth"], partitioning=None)
    pq.write_table(few, whole.with_name("odd.parquet"))

    files, findings = usable_files(tmp_path)

    assert files == [whole]
    assert {(finding.id, finding.severity) for finding in findings} == {("DR-RPO-002", Severity.WARNING)}
    odd, torn = sorted(finding.text for finding in findings)
    assert "pair, kind, name" in odd
    assert "date=2026-03-01/site=london/torn.parquet" in torn


def test_days_outside_the_window_are_not_opened(tmp_path: Path) -> None:
    (_, today, _) = write([replace(QUEUE, ts=NOON + timedelta(days=day)) for day in (-1, 0, 1)], tmp_path)

    assert usable_files(tmp_path, since=NOON, until=NOON) == ([today], [])
    assert usable_files(tmp_path / "absent") == ([], [])


def test_a_file_that_goes_while_the_others_are_read_makes_the_list_be_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, (other,) = (write([replace(QUEUE, ts=NOON + timedelta(minutes=n))], tmp_path) for n in (0, 1))
    read = Source._rows

    def gone(source: Source, *given: Any) -> pa.Table:
        other.unlink(missing_ok=True)
        return read(source, *given)

    monkeypatch.setattr(Source, "_rows", gone)

    assert last_reading(HistoryLocation.at(tmp_path), ["london"]) == (NOON, [])


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
    writer = Writer(tmp_path, every_s=60, whole_every_s=0.1)

    for second, rows in ((0, []), (59, []), (60, [9])):
        clock.passed_s = float(second)
        assert [pq.read_metadata(path).num_rows for path in writer.add(look(second))] == rows
    writer.add(look(61))
    writer.flush()

    assert len(kept(tmp_path)) == 12


def test_where_the_history_should_be_lies_a_file_until_somebody_moves_it(tmp_path: Path, clock: FixedClock) -> None:
    blocked = tmp_path / "history"
    blocked.write_text("a file where a directory should be")
    writer = Writer(blocked)
    writer.add(look(0))
    assert writer.flush() == []
    assert writer.trouble is not None
    blocked.unlink()

    (path,) = writer.flush()

    assert pq.read_metadata(path).num_rows == 3
    assert (writer.trouble, writer.flush()) == (None, [])


def test_a_full_disk_is_told_and_tried_again_and_nothing_is_lost(tmp_path: Path, clock: FixedClock) -> None:
    writer = Writer(tmp_path, every_s=60, whole_every_s=0.1)
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
    monkeypatch.setattr(writing, "MAX_KEPT", most)
    writer = Writer(tmp_path)
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
    killed = Writer(tmp_path)
    for second in range(3):
        clock.passed_s = second
        killed.add(look(second))
    (tail,) = tmp_path.glob(f"date=*/site=*/{TAILS}")
    assert "for only 2 s" in str(only_begun(HistoryLocation.at(tmp_path)))
    raw = tail.read_bytes()
    del killed
    gc.collect()  # its lock ends with it
    tail.write_bytes(raw + raw[-40:-20])  # it was killed within a reading

    after = Writer(tmp_path)
    clock.passed_s = 5
    after.add(look(5))
    after.flush()

    assert after.trouble is None
    assert [second for second, kind in kept(tmp_path) if kind == "mixed"] == [0, 1, 2, 5]
    assert [*tmp_path.rglob(TAILS)] == []


def test_the_files_keep_one_look_at_everything_each_so_often_and_every_comparison_of_ids(
    tmp_path: Path, clock: FixedClock
) -> None:
    writer = Writer(tmp_path, every_s=60, whole_every_s=5)

    for number in range(241):
        clock.passed_s = number / 4
        taken = look(clock.passed_s)
        writer.add([*taken, *(replace(row, kind="uncopied") for row in taken if row.kind == "queue" and number == 168)])

    seconds = [second for second, kind in kept(tmp_path) if kind == "queue"]
    assert seconds == [*range(0, 45, 5), *range(42, 61, 5)]
    assert sum(kind == "mixed" for _, kind in kept(tmp_path)) == 241

    writer.flush()

    assert {second for second, kind in kept(tmp_path) if kind == "queue"} == {n / 4 for n in range(241)}
    assert sum(kind == "mixed" for _, kind in kept(tmp_path)) == 241


def test_a_tail_of_the_day_before_is_let_go_of(tmp_path: Path, clock: FixedClock) -> None:
    writer = Writer(tmp_path, every_s=60)
    for number in range(200):
        clock.passed_s = float(number)
        writer.add(look(43_200 - 30 + number))

    assert len([*tmp_path.glob(f"date=2026-03-01/site=*/{TAILS}")]) == 0
    assert 1 <= len([*tmp_path.glob(f"date=2026-03-02/site=*/{TAILS}")]) <= 2
