"""The id stores of both sites are compared where they lie, and none of them is written to."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dr_ctl.topologies.bridges.stores import lacking
from dr_ctl.topologies.common.idstore import NotRead, Store


def store(path: Path, *rows: tuple[str, str], table: str = "processed") -> Store:
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(f"CREATE TABLE {table} (queue TEXT, id TEXT)")
        file.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
    return Store(path, table, "queue", "id")


def test_what_one_knows_and_the_other_does_not_is_counted_by_queue(tmp_path: Path) -> None:
    here = store(tmp_path / "here it is.sqlite", ("FOO", "1"), ("FOO", "2"), ("FOO", "3"), ("BAR", "1"))
    there = store(tmp_path / "there.sqlite", ("FOO", "1"), ("BAR", "1"), ("BAR", "9"), table="done")
    assert lacking(here, there) == {"FOO": 2}
    assert lacking(there, here) == {"BAR": 1}


def test_stores_that_are_the_same_lack_nothing(tmp_path: Path) -> None:
    assert lacking(store(tmp_path / "one", ("FOO", "1")), store(tmp_path / "other", ("FOO", "1"))) == {}


@pytest.mark.parametrize("wrong", ["nothing is there", "no such table", "no database"])
def test_one_that_cannot_be_read_is_never_empty(tmp_path: Path, wrong: str) -> None:
    here, path = store(tmp_path / "here", ("FOO", "1")), tmp_path / "there"
    there = Store(path, "processed", "queue", "id")
    if wrong == "no such table":
        store(path, table="other")
    elif wrong == "no database":
        path.write_text("this is a text\n" * 100)

    for pair in ((here, there), (there, here)):
        with pytest.raises(NotRead):
            lacking(*pair)
    assert path.exists() is (wrong != "nothing is there")
