"""A site's store of processed ids, for idempotent consumers: an SQLite file that several processes may open."""

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
    """The stores of processed ids by site, and the address for ids to the peer; None where the sites share a store."""

    stores: Mapping[str, Path]
    address: str | None


def store_at(directory: Path, broker: str) -> Path:
    """The path of a store, in a lab and in a twin."""
    return directory / "ids" / f"{broker}.sqlite"


class ProcessedAt(Enum):
    """The site whose consumer processed a message."""

    HERE = 1
    PEER = 0


class IdStore:
    """For one thread: other threads and processes open the file themselves. Written ids survive the end of the process,
    not a loss of power."""

    def __init__(self, path: Path) -> None:
        self._file = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        until_s = time.monotonic() + BUSY_S
        while True:
            try:
                self._file.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError:  # SQLite does not wait where several create the file at once
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.01)
        self._file.execute("PRAGMA synchronous=NORMAL")
        self._file.execute(TABLE)

    def known(self, queue: str, ident: str) -> ProcessedAt | None:
        """Say which site processed a message; None where this site knows of none."""
        row = self._file.execute("SELECT here FROM processed WHERE queue = ? AND id = ?", (queue, ident)).fetchone()
        return None if row is None else ProcessedAt(row[0])

    def add(self, ids: Iterable[tuple[str, str]], site: ProcessedAt) -> None:
        """Store pairs (queue, id), all or none; known ids stay unchanged."""
        self._file.execute("BEGIN IMMEDIATE")
        with self._file:
            rows = ((queue, ident, site.value) for queue, ident in ids)
            self._file.executemany("INSERT OR IGNORE INTO processed VALUES (?, ?, ?)", rows)

    def every(self) -> set[tuple[str, str]]:
        """All pairs (queue, id)."""
        return set(self._file.execute("SELECT queue, id FROM processed"))

    def close(self) -> None:
        self._file.close()
