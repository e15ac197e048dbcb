"""Holds looks that are not in the history yet, and writes them whatever the disk does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dr_ctl.core.clock import SystemClock
from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.rpo.history.files import TAIL, Part, folder_of, name_of, tables_of, write_table, write_whole
from dr_ctl.rpo.history.row import GLANCED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from dr_ctl.core.clock import Clock
    from dr_ctl.rpo.history.row import Row

MOST_WAITING: Final = 50_000
"""Rows that wait at most, whatever the time: of up to two thousand queues at two sites a minute's looks are fewer."""
MOST_KEPT: Final = 200_000
"""Rows that wait at most for a disk that takes none."""
AGAIN_S: Final = 10.0
"""How long after a write that failed the next is tried."""
TAIL_EVERY_S: Final = 1.0
TAIL_KINDS: Final = pa.array(GLANCED)
TAIL_ROWS: Final = 20_000
"""So many rows of looks at everything stand in a tail, and at least the last of these looks."""


class Writer:
    """Gathers looks and writes them every `every_s` seconds and at the end: few files instead of one per look.

    Looks wait as columns: ten thousand queues at two sites are some megabytes a look as objects. A fault of the disk is
    not raised; `trouble` names the fault until everything is written. Unwritten rows wait. Above `MOST_KEPT` rows the
    oldest looks at queues are dropped first, then the oldest of all; `dropped` counts them.
    """

    def __init__(self, root: Path, *, every_s: float = 60.0, clock: Clock | None = None) -> None:
        self._root = root
        self._every_s = every_s
        self._clock = clock or SystemClock()
        self._waiting: dict[Part, list[pa.Table]] = {}
        self.files = 0
        self.dropped = 0
        self.trouble: str | None = None
        self._tail_at = self._clock.monotonic()
        self._tried_at = self._clock.monotonic()
        self._adopt()

    @property
    def waiting(self) -> int:
        """The rows that no file holds yet."""
        return sum(table.num_rows for tables in self._waiting.values() for table in tables)

    def add(self, rows: Iterable[Row]) -> list[Path]:
        """Take the rows of a look; returns the files written because it was time."""
        for part, table in tables_of(rows):
            self._waiting.setdefault(part, []).append(table)
        if self._is_due():
            return self.flush()
        if self._clock.monotonic() - self._tail_at >= TAIL_EVERY_S:
            self._write_tails()
        return []

    def _is_due(self) -> bool:
        passed_s = self._clock.monotonic() - self._tried_at
        if self.trouble is not None:
            return passed_s >= AGAIN_S
        return passed_s >= self._every_s or self.waiting >= MOST_WAITING

    def flush(self) -> list[Path]:
        """Write all waiting rows now; rows that the disk refuses keep waiting."""
        self.trouble, self._tried_at = None, self._clock.monotonic()
        written = []
        for part, tables in list(self._waiting.items()):
            whole = pa.concat_tables(tables)
            try:
                written.append(write_table(whole, part, self._root))
            except EnvironmentFault as error:
                self.trouble = str(error)
                self._waiting[part] = [whole.combine_chunks()]  # a table a look takes more room than its rows
            else:
                del self._waiting[part]
                self._remove_tail(part)
        self.files += len(written)
        if self.trouble is not None:
            self._drop()
        return written

    def _drop(self) -> None:
        before = self.waiting
        kept = without_oldest({part: tables[0] for part, tables in self._waiting.items()}, MOST_KEPT)
        self._waiting = {part: [table] for part, table in kept.items()}
        self.dropped += before - self.waiting

    def _write_tails(self) -> None:
        self._tail_at = self._clock.monotonic()
        for part, tables in self._waiting.items():
            rows = tail_of(tables)
            newest = rows.slice(max(0, rows.num_rows - MOST_WAITING))
            try:
                write_whole(newest, folder_of(part, self._root), TAIL)
            except EnvironmentFault as error:
                self.trouble = self.trouble or str(error)

    def _remove_tail(self, part: Part) -> None:
        try:
            (folder_of(part, self._root) / TAIL).unlink(missing_ok=True)
        except OSError as error:
            self.trouble = f"{TAIL} cannot be removed: {error}"

    def _adopt(self) -> None:
        """Turn the tails of a killed monitor into ordinary files. If that monitor still lives, its rows are there
        twice, and readers count a row once."""
        for tail in self._root.glob(f"date=*/site=*/{TAIL}"):
            try:
                first = pc.min(pq.ParquetFile(tail).read(columns=["ts"])["ts"]).as_py()
                if first is not None:
                    tail.rename(tail.with_name(name_of(first)))
            except (pa.ArrowException, OSError) as error:
                self.trouble = f"{tail} cannot be taken over: {error}"


def tail_of(looks: list[pa.Table]) -> pa.Table:
    """The last looks whole, and of all earlier looks the rows of outflows and roles."""
    room, parts = TAIL_ROWS, list[pa.Table]()
    for look in reversed(looks):
        short = look.filter(pc.is_in(look["kind"], TAIL_KINDS))
        is_whole = short.num_rows < look.num_rows and (room == TAIL_ROWS or look.num_rows <= room)
        room -= look.num_rows if is_whole else 0
        parts.append(look if is_whole else short)
    return pa.concat_tables(reversed(parts))


def without_oldest(tables: Mapping[Part, pa.Table], most: int) -> dict[Part, pa.Table]:
    """At most so many rows: the oldest looks at queues go first, and what is left of their looks last."""
    kept = dict(tables)
    for spared in (TAIL_KINDS, TAIL_KINDS.slice(0, 0)):
        over = sum(table.num_rows for table in kept.values()) - most
        if over <= 0:
            break
        is_spared = {part: pc.is_in(table["kind"], spared) for part, table in kept.items()}
        moments = [table["ts"].filter(pc.invert(is_spared[part])).combine_chunks() for part, table in kept.items()]
        oldest = pa.concat_arrays(moments).sort()
        if not len(oldest):
            continue
        last = oldest[min(over, len(oldest)) - 1]
        kept = {p: table.filter(pc.or_(is_spared[p], pc.greater(table["ts"], last))) for p, table in kept.items()}
    return {part: table for part, table in kept.items() if table.num_rows}
