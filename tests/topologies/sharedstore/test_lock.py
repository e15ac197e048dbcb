"""The lock is looked at and never taken: a file that another process has locked, a row as databases give it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.topologies.sharedstore.database import KINDS, Database, Kind, RowLock, counts, lag
from dr_ctl.topologies.sharedstore.lock import FileLock, Lag, LockSeen, LockUnreadable

NOW = datetime(2026, 11, 23, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
HOLDS = (
    "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX); print(flush=True); "
    "sys.stdin.read()"
)


class Clock:
    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError(seconds)


class Rows(Database):
    """Gives these answers in their order, the last of them again and again, and keeps what it was asked."""

    def __init__(self, *answers: Sequence[Sequence[Any]]) -> None:
        super().__init__(lambda: "postgresql://nowhere")
        self._answers, self.queries = [[tuple(row) for row in rows] for rows in answers], list[str]()

    def rows(self, query: Callable[[Kind], str]) -> Sequence[tuple[Any, ...]]:
        self.queries.append(query(KINDS["postgresql"]))
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


@contextmanager
def held(path: Path) -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate()


def test_who_has_locked_a_file_is_seen_and_it_stays_theirs(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    lock = FileLock(path)

    free = lock.read()
    with held(path) as process:
        told = lock.read()
        with path.open("r+") as file, pytest.raises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    again = lock.read()
    with path.open("r+") as file:  # looking has locked nothing
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    assert (free, told, again) == (LockSeen(False), LockSeen(True, process=process), LockSeen(False))
    assert told.text == "the store's lock is held"


def test_a_file_that_is_not_there_tells_nothing(tmp_path: Path) -> None:
    with pytest.raises(LockUnreadable, match="No such file"):
        FileLock(tmp_path / "lock").read()


@pytest.mark.parametrize(
    ("row", "expected", "text"),
    [
        (("london", NOW_MS + 6000, NOW_MS), LockSeen(True, "london", 6.0, 0.0), "london holds the store, its lease"),
        (("london", NOW_MS - 1000, NOW_MS), LockSeen(False, "london", -1.0, 0.0), "the lease of london has run out"),
        ((None, 0, NOW_MS), LockSeen(False, None, None, 0.0), "nobody holds the store"),
        ((None, None, NOW_MS), LockSeen(False, None, None, 0.0, written=False), "nobody holds the store"),
        (("paris", NOW_MS + 9000, NOW_MS + 4000.0), LockSeen(True, "paris", 5.0, 4.0), "paris holds the store"),
    ],
    ids=["held", "run out", "given up", "never leased", "another clock"],
)
def test_a_row_names_its_holder_and_the_end_of_its_lease(row: Sequence[Any], expected: LockSeen, text: str) -> None:
    told = RowLock(Rows([row]), "ACTIVEMQ_LOCK", Clock()).read()
    assert told == expected
    assert text in told.text


def test_a_table_without_its_row_tells_nothing_and_topics_are_not_counted() -> None:
    with pytest.raises(LockUnreadable, match="0 rows"):
        RowLock(Rows([]), "ACTIVEMQ_LOCK", Clock()).read()
    assert counts(Rows([("queue://orders.in", 7), ("topic://news", 3)]), "ACTIVEMQ_MSGS") == {"orders.in": 7}


def test_how_often_a_lease_is_renewed_and_how_long_it_lasts_is_seen_in_the_row() -> None:
    looks = [(5000, 10_000), (5000, 10_000), (15_000, 10_000), (45_000, 39_000)]
    rows = Rows(*([("london", NOW_MS + ends_ms, NOW_MS + now_ms)] for ends_ms, now_ms in looks))
    lock = RowLock(rows, "ACTIVEMQ_LOCK", Clock())
    first, same, renewed, much_later = (lock.read() for _ in looks)
    assert (first.renewed_s, same.renewed_s, same.lasts_s) == (None, None, None)
    assert (renewed.renewed_s, renewed.lasts_s) == (much_later.renewed_s, much_later.lasts_s) == (10.0, 5.0)


def test_a_replica_is_behind_by_what_was_written_before_it_was_asked() -> None:
    store, behind = Rows([(Decimal(5000),)], [(3,)]), Rows([(Decimal(4000), 17)])
    assert lag(store, behind, "ACTIVEMQ_MSGS") == Lag(1000, 3)
    assert store.queries[1].endswith("WHERE id > 17")
    assert lag(Rows([(Decimal(5000),)], [(0,)]), Rows([(Decimal(5200), 20)]), "ACTIVEMQ_MSGS") == Lag(0, 0)
    with pytest.raises(LockUnreadable, match="follows no other"):
        lag(Rows([(Decimal(5000),)]), Rows([(None, 20)]), "ACTIVEMQ_MSGS")


def test_a_database_that_cannot_be_asked_says_why() -> None:
    database = Database(lambda: "postgresql://a:b@127.0.0.1:1/db")
    with pytest.raises(LockUnreadable, match="cannot be reached"):
        database.rows(lambda kind: f"SELECT {kind.now_ms}")


def test_a_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(LockUnreadable) as raised:
        Database(lambda: "mariadb://a:b@db/activemq").rows(lambda kind: kind.now_ms)
    assert raised.value.remedy == "pip install 'dr-ctl[mariadb]'"


def test_no_driver_is_loaded_for_a_lock_file() -> None:
    code = "import sys, dr_ctl.topologies.sharedstore.procedure; print({'psycopg', 'pymysql'} & {*sys.modules})"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ, timeout=60
    )
    assert told.stdout.strip() == "set()"
