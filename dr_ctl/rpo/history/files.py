"""The files of the history: one Parquet row per thing and look, appended and never changed.

A value that could not be read has no row: absence says "not known", a zero would say "empty". Files are written whole
under a hidden name and then renamed, so that a reader sees a file complete or not at all.
"""

import os
import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.model import Finding
from dr_ctl.rpo.findings import FILES_LEFT_OUT
from dr_ctl.rpo.history.row import Row

Answer = TypeVar("Answer")
AGAIN: Final = 3
"""Times that a history which changes under the reader is read."""
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
        ("took_ms", pa.int64()),
        ("queues_added", pa.int64()),
        ("queues_acked", pa.int64()),
    ]
)
"""The columns of a file. `date` and `site` are its directories and not in it."""
ADDED: Final = ("took_ms", "queues_added", "queues_acked")
"""Columns that a file may lack: nothing is known there."""

NAMED: Final = re.compile(r"date=(?P<day>[^/]*)/site=(?P<site>[^/]*)/(?![._])[^/]*\.parquet")
"""A file that readers of the history read, named from its root."""
OWN: Final = re.compile(r"(?P<begin>\d{8}T\d{6})-[0-9a-f]{32}\.parquet")
"""What a file of the history is called: the time of its first look, and what makes it the only one."""
TAILS: Final = "_tail-*.arrows"
"""The last minute's looks at a site, whole, in the directory of their day: grown each second, read by who asks what a
site took with it. Readers of the history pass the name over: what belongs there comes with the next file."""
_WORDS: Final = ("pair", "kind", "name", "start")
WRITTEN: Final[Mapping[str, Any]] = {
    "compression": "zstd",
    "use_dictionary": [*_WORDS],
    "column_encoding": {field.name: "DELTA_BINARY_PACKED" for field in SCHEMA if field.name not in (*_WORDS, "link")},
}
"""How Parquet holds the rows: counters as their differences, in half the room of the defaults and no more time."""
Part = tuple[date, str]
"""A day and a site: what a file is of."""


def write(rows: Iterable[Row], root: Path) -> list[Path]:
    """Append the rows, one new file per day and site. Raises EnvironmentFault; files written until then stay."""
    return [write_table(table, part, root) for part, table in tables_of(rows)]


def tables_of(rows: Iterable[Row]) -> Iterator[tuple[Part, pa.Table]]:
    """The rows as columns, apart by day and site."""
    parts: dict[Part, list[Row]] = defaultdict(list)
    for row in rows:
        parts[row.day, row.site].append(row)
    for key, part in parts.items():
        columns = {column: [getattr(row, column) for row in part] for column in SCHEMA.names}
        yield key, pa.table(columns, schema=SCHEMA)


def write_table(table: pa.Table, part: Part, root: Path) -> Path:
    """Write one file whole, named by the time of its first look. Raises EnvironmentFault."""
    return write_whole(table, folder_of(part, root), name_of(pc.min(table.column("ts")).as_py()))


def name_of(first: datetime) -> str:
    """A new name for a file whose first look was then."""
    return f"{first.astimezone(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex}.parquet"


def folder_of(part: Part, root: Path) -> Path:
    day, site = part
    return root / f"date={day.isoformat()}" / f"site={site}"


def write_whole(table: pa.Table, folder: Path, name: str) -> Path:
    """Write a file so that it is there whole or not at all. Raises EnvironmentFault."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with hidden_until_whole(folder / name) as file:
            pq.write_table(table, file, **WRITTEN)
    except OSError as error:
        raise EnvironmentFault(f"the history cannot be written to {folder}: {error.strerror or error}") from error
    return folder / name


@contextmanager
def hidden_until_whole(final: Path) -> Iterator[BinaryIO]:
    """A file under a hidden name of its own, which it loses once the block is over and all of it is on disk."""
    hidden = final.with_name(f".{final.name}.{uuid.uuid4().hex}.part")
    try:
        with hidden.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        hidden.rename(final)
    finally:
        hidden.unlink(missing_ok=True)
    _sync_folder(final.parent)  # the name must survive a power cut too


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def listed_anew(read: Callable[[], Answer]) -> Answer:
    """Call `read` again where a file has gone meanwhile: joined with others, or too old. Raises EnvironmentFault after
    `AGAIN` attempts."""
    for _ in range(AGAIN):
        with suppress(FileNotFoundError):
            return read()
    raise EnvironmentFault("the history changed each time that it was read", remedy="Ask again.")


def rows_of_tail(path: Path) -> pa.Table:
    """The rows of a tail as far as it was written: it may end within a look. Raises FileNotFoundError."""
    batches: list[pa.RecordBatch] = []
    with path.open("rb") as file, suppress(pa.ArrowException, OSError):
        for batch in pa.ipc.open_stream(file):
            batches.append(batch)  # noqa: PERF402 - what came before an error counts
    return pa.Table.from_batches(batches, SCHEMA)


def begun(base: str) -> datetime | None:
    """When the first look of a file was, by its name; None where the monitor did not choose the name."""
    try:
        return datetime.strptime(base.partition("-")[0], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def without(name: str, why: str) -> Finding:
    """The finding about a file that is left out."""
    remedy = "Its looks are missing from the figures. Move the file away when it is of no more use."
    return FILES_LEFT_OUT(f"{name} is left out: {why}", remedy)


def day_us(name: str) -> int:
    """When the day of a file begins, by its folder; 0 where that is no day."""
    try:
        begin = datetime.combine(
            date.fromisoformat(name.partition("/")[0].removeprefix("date=")), datetime.min.time(), UTC
        )
    except ValueError:
        return 0
    return int(begin.timestamp()) * 1_000_000


def wrong_columns(schema: pa.Schema) -> str:
    """Why a file is none of the history; empty where the file is one."""
    lacks = [field.name for field in SCHEMA if field.name not in schema.names and field.name not in ADDED]
    wrong = [
        *lacks,
        *(field.name for field in SCHEMA if field.name in schema.names and schema.field(field.name).type != field.type),
    ]
    return f"columns missing or of another type: {', '.join(wrong)}" if wrong else ""
