"""A history that lies in a store elsewhere: the same figures, nothing lost on the way, and nobody waits for the store.

Fast tests have a second folder as the store, by its `file://` URL; those with S3 ask a server process.
"""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.model import Role
from dr_ctl.rpo.bounds.result import Bounds
from dr_ctl.rpo.estimate.estimate import LoadHistory, estimate
from dr_ctl.rpo.estimate.request import Request, stored
from dr_ctl.rpo.history import files
from dr_ctl.rpo.history import upkeep as keeping
from dr_ctl.rpo.history.files import Source, Store
from dr_ctl.rpo.history.newest import last_reading, role_periods
from dr_ctl.rpo.history.row import Row
from dr_ctl.rpo.history.upkeep import Upkeep
from dr_ctl.settings.model import HistoryLocation
from tests.rpo import by_hand
from tests.rpo.files import bounds_of, full_disk, tear, write
from tests.rpo.object_store import KEYS, s3_server
from tests.rpo.simulator import EPOCH, LOADS, history

HOURS = 2.5
NOW = EPOCH + timedelta(hours=HOURS)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return history(LOADS[3], 5, hours=HOURS, pair="orders-1", every_s=20.0)[0]


@pytest.fixture(autouse=True)
def none_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_silent_until", {})


@pytest.fixture
def place(tmp_path: Path) -> HistoryLocation:
    return HistoryLocation((tmp_path / "store").as_uri(), tmp_path / "near")


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HistoryLocation]:
    for key, value in KEYS.items():
        monkeypatch.setenv(key, value)
    with s3_server() as (url, _):
        yield HistoryLocation(url, tmp_path / "near")


def recorded(rows: Sequence[Row], place: HistoryLocation, whole: Path) -> None:
    """Write it as a monitor would, ten minutes a file, into its folder and, to compare with, into another."""
    for number in range(round(HOURS * 6)):
        part = [row for row in rows if number * 600 <= (row.ts - EPOCH).total_seconds() < (number + 1) * 600]
        write(part, place.near)
        write(part, whole)


def tidied(place: HistoryLocation) -> Upkeep:
    upkeep = Upkeep(place, keep_s=1e9)
    while upkeep.step(NOW):
        pass
    return upkeep


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.parquet") if "summary" not in path.parts)


def all_rows(place: HistoryLocation) -> int:
    store = Store.of(place.where)
    return sum(Source(store, name).read()[0].num_rows for name in store.listed("date=2026-03-01"))


def asked(where: Path | HistoryLocation, now: datetime = NOW) -> Bounds:
    return bounds_of(where, now=now)


def same(one: Any, other: Any) -> bool:
    """Whether two estimates say the same; when each was asked for is not of the history."""
    shown = [({**estimated.data, "stale_s": None}, [of.id for of in estimated.findings]) for estimated in (one, other)]
    return shown[0] == shown[1]


def test_what_is_written_here_is_in_the_store_with_the_hours_joined_and_says_the_same_from_anywhere(
    tmp_path: Path, rows: list[Row], place: HistoryLocation
) -> None:
    recorded(rows, place, tmp_path / "whole")

    upkeep = tidied(place)
    from_store = estimate(Request(history=place.where, near=str(place.near), store=True), by_hand.made)

    assert upkeep.trouble is None
    assert all_rows(place) == len(rows)
    assert len(names(tmp_path / "store")) == 5  # two hours, and the three files of the one that goes on
    near = names(place.near)
    assert near == names(tmp_path / "store")[-len(near) :]
    assert {name[:11] for name in near} == {"20260301T02"}
    whole, elsewhere = tmp_path / "whole", HistoryLocation(place.where, tmp_path / "nothing here")
    for later_s in (20, 3600):
        moment = NOW + timedelta(seconds=later_s)
        assert asked(place, moment) == asked(elsewhere, moment) == asked(whole, moment)
        assert asked(whole, moment).lost.at_most > 0
    for where in (place, elsewhere):
        assert last_reading(where, ["london"], role=Role.SERVING) == (rows[-1].ts, [])
    assert last_reading(elsewhere, ["london", "paris"]) == (rows[-1].ts, [])
    assert role_periods(place, ["london"]) == role_periods(HistoryLocation.at(whole), ["london"])
    assert same(estimate(Request(history=str(whole)), by_hand.made), from_store)
    of_another_machine = stored(elsewhere, "london")[0]
    assert of_another_machine is not None
    assert of_another_machine == stored(place, "london")[0]


def test_a_monitor_with_a_new_file_at_each_step_has_its_hours_joined_too(
    tmp_path: Path, rows: list[Row], place: HistoryLocation
) -> None:
    upkeep, apart = Upkeep(place, keep_s=1e9), timedelta(minutes=4)
    for number in range(21):
        now = EPOCH + (number + 1) * apart
        write([row for row in rows if now - apart <= row.ts < now], place.near)
        upkeep.step(now)
        assert upkeep.trouble is None

    hours = [name[:11] for name in names(tmp_path / "store")]
    assert (hours.count("20260301T00"), hours.count("20260301T01")) == (1, 6)
    assert all_rows(place) == sum(row.ts < now for row in rows)


def test_nobody_waits_for_a_store_that_does_not_answer(
    tmp_path: Path, rows: list[Row], place: HistoryLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(rows, place.near)
    whole, never = asked(place.near), threading.Event()
    monkeypatch.setattr(files, "REMOTE_S", 0.05)
    asks = []

    def silent(where: str | Path, **more: object) -> Store:
        asks.append(where)
        if str(where) == place.where:
            never.wait(10)
            raise OSError
        return files._store(str(where), hurried=False)

    monkeypatch.setattr(Store, "of", silent)
    try:
        first, again = asked(place), asked(place)
    finally:
        never.set()

    assert asks.count(place.where) == 1  # it is not asked again at once
    assert (first.lost, first.duplicates) == (again.lost, again.duplicates) == (whole.lost, whole.duplicates)
    assert [finding.id for finding in first.findings] == ["DR-RPO-032", *(finding.id for finding in whole.findings)]
    assert "no answer within 0.05 s" in first.findings[0].text
    last, findings = last_reading(place, ["london"])
    assert (last, [finding.id for finding in findings]) == (rows[-1].ts, ["DR-RPO-032"])


def test_where_nothing_lies_here_a_slow_store_is_waited_for(
    tmp_path: Path, rows: list[Row], place: HistoryLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(rows, tmp_path / "store")
    monkeypatch.setattr(files, "REMOTE_S", 0.01)
    listed = Store.listed

    def slow(store: Store, under: str = "", **more: bool) -> dict[str, Any]:
        time.sleep(0.05 if store.where == place.where else 0)
        return listed(store, under, **more)

    monkeypatch.setattr(Store, "listed", slow)

    assert asked(place) == asked(tmp_path / "store")
    write(rows[-30:], place.near)
    assert [finding.id for finding in asked(place).findings][:1] == ["DR-RPO-032"]


def test_a_store_that_breaks_off_makes_no_file_a_torn_one(
    tmp_path: Path, rows: list[Row], place: HistoryLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(rows, place, tmp_path / "whole")
    tidied(place)
    is_elsewhere = property(lambda store: None if store.where == place.where else Path(store.root))
    monkeypatch.setattr(Store, "folder", is_elsewhere)

    def broken(_store: Store, name: str) -> Any:
        raise OSError(f"connection reset: {name}")

    monkeypatch.setattr(Store, "opened", broken)
    bounded = asked(HistoryLocation(place.where, tmp_path / "nothing"))

    assert [finding.id for finding in bounded.findings][:1] == ["DR-RPO-032"]


@pytest.mark.spark
@pytest.mark.deep
def test_of_a_file_that_a_task_cannot_read_and_others_can_nothing_is_told(
    tmp_path: Path, rows: list[Row], place: HistoryLocation, make: LoadHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as below

    from dr_ctl.rpo.pipeline import make as module  # noqa: PLC0415 - the fast tests do without Spark
    from dr_ctl.rpo.pipeline.hours import UNREADABLE  # noqa: PLC0415 - as above

    recorded(rows, place, tmp_path / "whole")
    tidied(place)
    request = Request(history=place.where, near=str(place.near), store=True)

    def broken(hours: Any) -> Any:
        raise PySparkException(f"RuntimeError: {UNREADABLE} {hours.readings.files[0][0]}\n")

    with monkeypatch.context() as breaks:
        breaks.setattr(module.Hours, "rows", broken)
        with pytest.raises(EnvironmentFault, match="the history changed each time"):
            estimate(request, make)

    assert not (tmp_path / "store" / "summary").exists()
    assert same(estimate(Request(history=str(tmp_path / "whole")), by_hand.made), estimate(request, make))


@pytest.mark.spark
@pytest.mark.deep
def test_a_history_that_a_task_does_not_see_is_none_that_changed(
    tmp_path: Path, rows: list[Row], make: LoadHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dr_ctl.rpo.pipeline import make as module  # noqa: PLC0415 - the fast tests do without Spark

    write(rows[:9], tmp_path / "here")
    whole = module.Hours
    monkeypatch.setattr(module, "Hours", lambda spark, _, *more: whole(spark, str(tmp_path / "there"), *more))

    with pytest.raises(EnvironmentFault, match="does not see date="):
        estimate(Request(history=str(tmp_path / "here")), make)


@pytest.mark.spark
@pytest.mark.deep
def test_a_file_that_is_torn_in_a_store_is_named_as_one_here_is(
    tmp_path: Path, rows: list[Row], place: HistoryLocation, make: LoadHistory
) -> None:
    recorded(rows, place, tmp_path / "whole")
    tidied(place)
    whole, there = (sorted((tmp_path / name).rglob("date=*/**/*.parquet")) for name in ("whole", "store"))
    tear(there[-1])
    tear(whole[-1])
    (place.near / there[-1].relative_to(tmp_path / "store")).unlink()

    found = estimate(Request(history=place.where, near=str(place.near)), make)

    assert same(estimate(Request(history=str(tmp_path / "whole")), by_hand.made), found)
    assert "cannot be read" in " ".join(finding.text for finding in found.findings)
    assert "DR-RPO-002" in {finding.id for finding in asked(place).findings}


def test_a_store_that_cannot_be_written_loses_nothing_and_is_told(
    tmp_path: Path, rows: list[Row], place: HistoryLocation
) -> None:
    recorded(rows, place, tmp_path / "whole")
    (tmp_path / "store").write_text("no folder")
    upkeep = Upkeep(place, keep_s=1e9)

    assert not upkeep.step(NOW)
    assert f"cannot be brought to {place.where}" in upkeep.trouble
    (tmp_path / "store").unlink()
    with full_disk():
        assert not upkeep.step(NOW)
    while upkeep.step(NOW):
        pass

    assert upkeep.trouble is None
    assert all_rows(place) == len(rows)


def test_a_file_that_came_in_part_is_brought_again(tmp_path: Path, rows: list[Row], place: HistoryLocation) -> None:
    [path] = write(rows[:30], place.near)
    there = tmp_path / "store" / path.relative_to(place.near)
    there.parent.mkdir(parents=True)
    there.write_bytes(path.read_bytes()[:100])

    Upkeep(place, keep_s=1e9).step(EPOCH)

    assert there.read_bytes() == path.read_bytes()


def test_a_file_may_lack_the_columns_that_the_contract_does_not_have(tmp_path: Path, rows: list[Row]) -> None:
    path = write(rows[:9], tmp_path)[0]
    pq.write_table(pq.ParquetFile(path).read().drop_columns([*files.OPTIONAL]), path)

    read = Source(Store.of(HistoryLocation.at(tmp_path).where), str(path.relative_to(tmp_path))).read()[0]

    assert [read[name].null_count for name in files.OPTIONAL] == [read.num_rows] * 3 != [0] * 3


@pytest.mark.parametrize("where", ["a tree", pytest.param("s3", marks=pytest.mark.deep)])
def test_a_file_has_its_name_once_it_is_whole_and_one_that_breaks_off_leaves_the_one_of_before(
    tmp_path: Path, where: str, request: pytest.FixtureRequest
) -> None:
    """In a tree with folders, as HDFS has, files are seen while they are written."""
    if where == "s3":
        store = Store.of(request.getfixturevalue("s3").where)
    else:
        store = Store("hdfs://name/h", fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "h")

    def put(sink: Any) -> None:
        sink.write(b"whole")
        assert not list(tmp_path.rglob("a"))

    store.write("date=2026-03-01/a", put)
    for name in ("a", "b"):
        with pytest.raises(OSError, match="torn"):
            store._send(f"date=2026-03-01/{name}", Torn())

    assert [*store.listed()] == ["date=2026-03-01/a"]
    with store.opened("date=2026-03-01/a") as file:
        assert file.read() == b"whole"


class Torn:
    """A file that cannot be read to its end."""

    def __init__(self) -> None:
        self._parts = iter([b"begin"])

    def read(self, _size: int) -> bytes:
        for part in self._parts:
            return part
        raise OSError("torn")


def on(host: str, place: HistoryLocation, monkeypatch: pytest.MonkeyPatch) -> Upkeep:
    """The monitor's part of another machine."""
    with monkeypatch.context() as there:
        there.setattr(keeping.socket, "gethostname", lambda: host)
        return Upkeep(HistoryLocation(place.where, place.near.with_name(host)), keep_s=1e9)


def test_a_second_monitor_on_another_machine_is_told_at_once_while_the_first_lives(
    tmp_path: Path, place: HistoryLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (on(host, place, monkeypatch) for host in ("one.example", "two-example"))

    assert first.another() is None
    assert second.another() == "one.example"
    assert first.another() is None  # who was refused leaves no mark
    [mark] = (tmp_path / "store").glob("_monitor-*")
    os.utime(mark, (time.time() - 160,) * 2)  # its machine is lost
    assert second.another() is None
    second.close()
    first.close()

    assert not list((tmp_path / "store").glob("_monitor-*"))


def test_of_two_monitors_that_begin_at_once_one_brings_its_looks(
    tmp_path: Path, rows: list[Row], place: HistoryLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [on(host, place, monkeypatch) for host in ("one", "two")]
    for host, each in zip(("one", "two"), both, strict=True):
        write(rows[:30], place.near.with_name(host))
        keeping.renew(Store.of(place.where), each._heartbeat)

    brought = [keeper.step(NOW) for keeper in both]

    assert brought == [True, False]
    assert "another monitor, on one, records into it" in both[1].trouble
    assert all_rows(place) == 30
