"""A site's store of processed ids: what makes its consumers idempotent. An SQLite file that several may have open."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

QUEUE_HEADER = "DR_QUEUE"  # of a notification; the id is its body
SHARED = "shared"  # in place of a broker, where all of them share one
BUSY_S = 10.0
TABLE = """CREATE TABLE IF NOT EXISTS processed (
    queue TEXT NOT NULL, id TEXT NOT NULL, here INTEGER NOT NULL, PRIMARY KEY (queue, id)) WITHOUT ROWID"""


@dataclass(frozen=True, slots=True)
class Ids:
    """Where the sites' consumers find what is processed already, and at which address they tell what they did, or None
    where they share a store."""

    stores: Mapping[str, Path]
    address: str | None


def store_at(directory: Path, broker: str) -> Path:
    """Where the store of a broker's site lies in a lab, and in a twin."""
    return directory / "ids" / f"{broker}.sqlite"


class Where(Enum):
    """Which site's consumer processed a message."""

    HERE = 1
    PEER = 0


class IdStore:
    """For one thread; others, and other processes, open the file for themselves.

    Ids written have outlived this process when the method returns, though not a loss of power.
    """

    def __init__(self, path: Path) -> None:
        self._file = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        ends_s = time.monotonic() + BUSY_S
        while True:
            try:
                self._file.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError:  # SQLite itself waits for nobody where several make the file at once
                if time.monotonic() > ends_s:
                    raise
                time.sleep(0.01)
        self._file.execute("PRAGMA synchronous=NORMAL")
        self._file.execute(TABLE)

    def known(self, queue: str, ident: str) -> Where | None:
        """Say who processed a message, or None where nobody did, as far as this site knows."""
        fetchone = self._file.execute(
            "SELECT here FROM processed WHERE queue = ? AND id = ?", (queue, ident)
        ).fetchone()
        return None if fetchone is None else Where(fetchone[0])

    def add(self, iterable: Iterable[tuple[str, str]], where: Where) -> None:
        """Write (queue, id) down, all or none; known ids stay as they are."""
        self._file.execute("BEGIN IMMEDIATE")
        with self._file:
            rows = ((queue, ident, where.value) for queue, ident in iterable)
            self._file.executemany("INSERT OR IGNORE INTO processed VALUES (?, ?, ?)", rows)

    def every(self) -> set[tuple[str, str]]:
        """Pairs (queue, id) that are known here."""
        return set(self._file.execute("SELECT queue, id FROM processed"))

    def close(self) -> None:
        self._file.close()
