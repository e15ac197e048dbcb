"""A site's store of processed ids, for idempotent consumers; it outlives the broker, and clients may open it too."""

import sqlite3
from pathlib import Path
from typing import Final

BUSY_S: Final = 10.0
_TABLE: Final = """CREATE TABLE IF NOT EXISTS processed (
    queue TEXT NOT NULL, id TEXT NOT NULL, here INTEGER NOT NULL, PRIMARY KEY (queue, id)) WITHOUT ROWID"""


class IdStore:
    """Used under the twin's lock. `here` says of an id whether a consumer of this site or of the peer processed it."""

    def __init__(self, path: Path | None) -> None:
        """Without a path it is in memory."""
        if path is not None:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.touch(mode=0o600)
        self._file = sqlite3.connect(path or ":memory:", timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        self._file.execute("PRAGMA journal_mode=WAL")
        self._file.execute("PRAGMA synchronous=OFF")
        self._file.execute(_TABLE)

    def knows(self, queue: str, ident: str) -> bool:
        rows = self._file.execute("SELECT 1 FROM processed WHERE queue = ? AND id = ?", (queue, ident))
        return rows.fetchone() is not None

    def add(self, queue: str, ident: str, *, local: bool) -> None:
        """Write an id down; a known id stays unchanged."""
        self._file.execute("INSERT OR IGNORE INTO processed VALUES (?, ?, ?)", (queue, ident, int(local)))

    def forget(self, queue: str, ident: str) -> None:
        """Delete an id, as if it was lost."""
        self._file.execute("DELETE FROM processed WHERE queue = ? AND id = ?", (queue, ident))

    def every(self) -> set[tuple[str, str]]:
        """The known ids, as pairs of queue and id."""
        return set(self._file.execute("SELECT queue, id FROM processed"))

    def close(self) -> None:
        self._file.close()
