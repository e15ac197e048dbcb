"""Compares the id stores of two sites, where the settings say where they are: what one knows as processed and the other
does not."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

WITHIN_S: Final = 10.0


class NotRead(Exception):
    """A store could not be read."""


@dataclass(frozen=True, slots=True)
class Store:
    """One store: a file, and what its table and columns are called. The names were checked with the settings."""

    path: Path
    table: str
    queue: str
    id: str

    @property
    def uri(self) -> str:
        return f"file:{quote(str(self.path))}?mode=ro"

    def rows(self, database: str) -> str:
        return f"SELECT {self.queue} AS q, {self.id} AS i FROM {database}.{self.table}"  # noqa: S608


def lacking(store: Store, other: Store) -> Mapping[str, int]:
    """How many ids `store` has and `other` lacks, by queue. The databases compare them; none is written to. Raises
    `NotRead`."""
    try:
        with closing(sqlite3.connect(store.uri, uri=True, timeout=WITHIN_S)) as here:
            here.execute("ATTACH DATABASE ? AS other", (other.uri,))
            asked = f"SELECT q, count(*) FROM ({store.rows('main')} EXCEPT {other.rows('other')}) GROUP BY q"  # noqa: S608
            return {str(queue): int(count) for queue, count in here.execute(asked)}
    except sqlite3.Error as error:
        raise NotRead(f"{store.path.name} beside {other.path.name}: {error}") from error
