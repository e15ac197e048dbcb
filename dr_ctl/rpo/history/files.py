"""What was seen, kept: one Parquet row per thing and look, appended and never changed.

A row that could not be read is never made up: its absence says "not known", a zero would say "empty". Files are
written whole under a hidden name and then renamed, so that a reader sees a file complete or not at all.
"""

from __future__ import annotations

import os
import uuid
from collections import defaultdict
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dr_ctl.core.clock import SystemClock
from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.model import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from dr_ctl.core.clock import Clock
    from dr_ctl.rpo.history.row import Row

SCHEMA: Final = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("pair", pa.string()),
        ("kind", pa.string()),
        ("name", pa.string()),
        ("depth", pa.int64()),
        ("delivering", pa.int64()),
        ("added", pa.int64()),
        ("removed", pa.int64()),
        ("acked", pa.int64()),
        ("oldest_ms", pa.int64()),
        ("pending", pa.int64()),
        ("link", pa.bool_()),
        ("start", pa.string()),
    ]
)
"""The columns of a file. `date` and `site` are its directories and not in it."""


MOST_WAITING: Final = 100_000
"""Rows that wait at most, whatever the time: below ten thousand queues a minute's looks are fewer."""
TAIL_EVERY_S: Final = 1.0
TAIL: Final = "_tail.parquet"
"""What waits of the outflows and roles of a site, and its last looks at everything, in the directory of its day:
written anew each second, read by who asks what a site took with it. Readers of the history pass its name over: all of
it comes with the next file."""
TAIL_KINDS: Final = ("mirror", "acks", "mixed", "site")
TAIL_ROWS: Final = 20_000
"""So many rows of looks at everything stand in a tail, and at least the last of these looks."""
Part = tuple[date, str]
"""A day and a site: what a file is of."""


def write(rows: Iterable[Row], root: Path) -> list[Path]:
    """Append the rows, one new file per day and site. Raises EnvironmentFault; what was written until then stays."""
    return [write_table(table, part, root) for part, table in _parts(rows)]


def _parts(rows: Iterable[Row]) -> Iterator[tuple[Part, pa.Table]]:
    parts: dict[Part, list[Row]] = defaultdict(list)
    for row in rows:
        parts[row.day, row.site].append(row)
    for key, part in parts.items():
        columns = {column: [getattr(row, column) for row in part] for column in SCHEMA.names}
        yield key, pa.table(columns, schema=SCHEMA)


def write_table(table: pa.Table, part: Part, root: Path) -> Path:
    """Write one file whole, named by the time of its first look. Raises EnvironmentFault."""
    name = f"{table.column('ts')[0].as_py().astimezone(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex}.parquet"
    return _write_whole(table, _folder(part, root), name)


def _folder(part: Part, root: Path) -> Path:
    day, site = part
    return root / f"date={day.isoformat()}" / f"site={site}"


def _write_whole(table: pa.Table, folder: Path, name: str) -> Path:
    hidden, final = folder / f".{name}.part", folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with hidden.open("xb") as file:
                pq.write_table(table, file)
                file.flush()
                os.fsync(file.fileno())
            hidden.rename(final)
        finally:
            hidden.unlink(missing_ok=True)
        _sync_folder(folder)  # the name must survive a power cut too
    except OSError as error:
        raise EnvironmentFault(f"the history cannot be written: {error}") from error
    return final


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _tail_of(looks: list[pa.Table]) -> pa.Table:
    """All of them as far as they are of outflows and roles, and the last ones whole."""
    kinds, room, parts = pa.array(TAIL_KINDS), TAIL_ROWS, list[pa.Table]()
    for look in reversed(looks):
        short = look.filter(pc.is_in(look["kind"], kinds))
        is_whole = short.num_rows < look.num_rows and (room == TAIL_ROWS or look.num_rows <= room)
        room -= look.num_rows if is_whole else 0
        parts.append(look if is_whole else short)
    return pa.concat_tables(reversed(parts))


class Writer:
    """Gathers looks and writes them every `every_s` seconds and at the end: few files instead of one per look.

    What a failed write did not get onto the disk is kept, and tried again with the next. Looks wait as columns: ten
    thousand queues at two sites are some megabytes a look as objects.
    """

    def __init__(self, root: Path, *, every_s: float = 60.0, clock: Clock | None = None) -> None:
        self._root = root
        self._every_s = every_s
        self._clock = clock or SystemClock()
        self._waiting: dict[Part, list[pa.Table]] = {}
        self.files = 0
        self._tail_at = self._clock.monotonic()
        self._written_at = self._clock.monotonic()

    def add(self, rows: Iterable[Row]) -> list[Path]:
        """Take the rows of a look; returns the files written because it was time."""
        for part, table in _parts(rows):
            self._waiting.setdefault(part, []).append(table)
        waiting = sum(table.num_rows for tables in self._waiting.values() for table in tables)
        is_due = waiting >= MOST_WAITING or self._clock.monotonic() - self._written_at >= self._every_s
        if is_due:
            return self.flush()
        if self._clock.monotonic() - self._tail_at >= TAIL_EVERY_S:
            self._write_tails()
        return []

    def _write_tails(self) -> None:
        self._tail_at = self._clock.monotonic()
        for part, tables in self._waiting.items():
            _write_whole(_tail_of(tables), _folder(part, self._root), TAIL)

    def flush(self) -> list[Path]:
        """Write everything that waits, now."""
        written = []
        for part in list(self._waiting):
            written.append(write_table(pa.concat_tables(self._waiting[part]), part, self._root))
            del self._waiting[part]
            (_folder(part, self._root) / TAIL).unlink(missing_ok=True)
            self.files += 1
        self._written_at = self._clock.monotonic()
        return written


def usable_files(
    root: Path, *, since: datetime | None = None, until: datetime | None = None
) -> tuple[list[Path], list[Finding]]:
    """List the files that can be read, oldest day first; those that cannot are left out and named.

    `since` and `until` leave out whole days only. No directory is the same as no files.
    """
    files: list[Path] = []
    findings: list[Finding] = []
    for path in sorted(root.glob("date=*/site=*/*.parquet")):
        if path.name.startswith((".", "_")) or not _day_within(path, since, until):
            continue
        finding = left_out(path, root)
        if finding is None:
            files.append(path)
        else:
            findings.append(finding)
    return files, findings


def read_through(files: Iterable[Path], root: Path) -> tuple[list[Path], list[Finding]]:
    """Read files to their ends: those that can be, and those named that are torn inside, which no footer tells."""
    whole: list[Path] = []
    torn: list[Finding] = []
    for path in files:
        try:
            pq.ParquetFile(path).read()
        except FileNotFoundError:
            continue  # it was joined to others meanwhile
        except (pa.ArrowException, OSError) as error:
            torn.append(_left_out(path, root, f"it is torn inside ({str(error).splitlines()[0]})"))
        else:
            whole.append(path)
    return whole, torn


def newest_first(root: Path, site: str) -> Iterator[Path]:
    """The files of one site, the newest first by their names, which begin with the time of their first look.

    Lists a day's directory only when it is asked for: the last minutes of a long history are found at once.
    """
    for day in sorted(root.glob("date=*"), reverse=True):
        for path in sorted((day / f"site={site}").glob("*.parquet"), reverse=True):
            if not path.name.startswith((".", "_")):
                yield path


def left_out(path: Path, root: Path) -> Finding | None:
    """The finding that names a file which cannot be read; None where it can."""
    why_not = _why_not_readable(path)
    return None if why_not is None else _left_out(path, root, why_not)


def _left_out(path: Path, root: Path, why_not: str) -> Finding:
    return without(f"{path.relative_to(root)} is left out: {why_not}")


def without(text: str) -> Finding:
    """The finding about a file that is left out."""
    remedy = "Its looks are missing from the figures. Move the file away when it is of no more use."
    return Finding("DR-RPO-002", Severity.WARNING, text, remedy)


def _day_within(path: Path, since: datetime | None, until: datetime | None) -> bool:
    day = path.parent.parent.name.removeprefix("date=")
    after = since is None or day >= since.astimezone(UTC).date().isoformat()
    before = until is None or day <= until.astimezone(UTC).date().isoformat()
    return after and before


def _why_not_readable(path: Path) -> str | None:
    try:
        found = pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        return f"it cannot be opened ({str(error).splitlines()[0]})"
    wrong = [
        field.name for field in SCHEMA if field.name not in found.names or found.field(field.name).type != field.type
    ]
    return f"columns missing or of another type: {', '.join(wrong)}" if wrong else None
