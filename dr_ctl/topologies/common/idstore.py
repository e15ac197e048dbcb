"""A store of processed ids that consumers keep, as the settings name it. dr-ctl asks which of some ids it knows."""

import sqlite3
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from dr_ctl.core.errors import BrokerError
from dr_ctl.topologies.common.calls import batches

WITHIN_S: Final = 10.0
AT_ONCE: Final = 500


class NotRead(BrokerError):
    remedy = "Is it there, and may dr-ctl read it? The settings name it under `ids:`."


@dataclass(frozen=True, slots=True)
class Store:
    """One store: a file, its table and its columns. The names were checked with the settings."""

    path: Path
    table: str
    queue: str
    id: str

    @property
    def uri(self) -> str:
        return f"file:{quote(str(self.path))}?mode=ro"

    def rows(self, database: str) -> str:
        return f"SELECT {self.queue} AS q, {self.id} AS i FROM {database}.{self.table}"  # noqa: S608

    def unread(self) -> str | None:
        """Say why the store cannot be read now; return None where it can."""
        try:
            with closing(self._opened()) as store:
                store.execute(f"{self.rows('main')} LIMIT 1").fetchall()
        except sqlite3.Error as error:
            return self._why(error)
        return None

    def known(self, queue: str, ids: Collection[str]) -> frozenset[str]:
        """Return the ids among these that were processed. Raises `NotRead`."""
        known_ids: set[str] = set()
        try:
            with closing(self._opened()) as store:
                for batch in batches(ids, AT_ONCE):
                    placeholders = ",".join("?" * len(batch))
                    statement = f"SELECT i FROM ({self.rows('main')}) WHERE q = ? AND i IN ({placeholders})"  # noqa: S608
                    known_ids.update(str(id_) for (id_,) in store.execute(statement, (queue, *batch)))
        except sqlite3.Error as error:
            raise NotRead(self._why(error)) from error
        return frozenset(known_ids)

    def _opened(self) -> sqlite3.Connection:
        return sqlite3.connect(self.uri, uri=True, timeout=WITHIN_S)

    def _why(self, error: sqlite3.Error) -> str:
        return f"the store of processed ids {self.path.name} cannot be read: {error}"
