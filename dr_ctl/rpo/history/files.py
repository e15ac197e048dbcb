"""The files of the history: where they lie (a folder, or a URL that PyArrow has a file system for), and how they are
read. A file has a Parquet row per thing and reading, and is never changed.

A value that could not be read has no row: absence says "not known", a zero would say "empty". Files are written whole
under a hidden name and then renamed, so that a reader sees a file complete or not at all. The folder on this machine
has the last hours of a store elsewhere too: a command that must not wait reads them once the store has not answered in
time."""

from __future__ import annotations

import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from dr_ctl.core.errors import DrCtlError, EnvironmentFault
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, by_key
from dr_ctl.core.system import boottime_s, in_background
from dr_ctl.engine.disk import written_whole
from dr_ctl.rpo.history.row import Row, micros
from dr_ctl.settings.model import HistoryLocation

Answer = TypeVar("Answer")
ATTEMPTS: Final = 3
OPTIONAL: Final = ("took_ms", "queues_added", "queues_acked")
"""Columns that a file may lack: nothing is known there."""
SCHEMA: Final = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        *((name, pa.string()) for name in ("pair", "kind", "name")),
        *((name, pa.int64()) for name in ("depth", "delivering", "added", "removed", "acked", "oldest_ms", "pending")),
        ("link", pa.bool_()),
        ("start", pa.string()),
        *((name, pa.int64()) for name in OPTIONAL),
    ]
)
"""The columns of a file. `date` and `site` are its directories and not in it."""

NAMED: Final = re.compile(r"date=(?P<day>[^/]*)/site=(?P<site>[^/]*)/(?![._])[^/]*\.parquet")
"""The name, below the root, of a file that readers of the history read."""
OWN: Final = re.compile(r"(?P<begin>\d{8}T\d{6})-[0-9a-f]{32}\.parquet")
"""The name of a file that the monitor wrote: the time of its first reading, and a random id."""
TAILS: Final = "_tail-*.arrows"
"""A tail holds all readings of a site in the last minute, in the directory of their day. The monitor appends to it each
second, and a failover's bound reads it. Other readers ignore the name, because the next file will have its rows."""
KEPT: Final = ".command-{}.parquet"
"""A command's own reading of a site, beside the days. Only a failover's bound reads it, until a monitor reads again."""
_WORDS: Final = ("pair", "kind", "name", "start")
WRITTEN: Final[Mapping[str, Any]] = {
    "compression": "zstd",
    "use_dictionary": [*_WORDS],
    "column_encoding": {field.name: "DELTA_BINARY_PACKED" for field in SCHEMA if field.name not in (*_WORDS, "link")},
}
"""How Parquet holds the rows: counters as their differences, in half the room of the defaults and no more time."""
CODED: Final = pa.schema(
    [field.with_type(pa.dictionary(pa.int32(), pa.string())) if field.name in _WORDS else field for field in SCHEMA]
)
"""The schema with text columns as dictionaries, as Parquet stores them."""
Partition = tuple[date, str]


def tables_of(rows: Iterable[Row]) -> Iterator[tuple[Partition, pa.Table]]:
    for key, partition in by_key(((row.ts.astimezone(UTC).date(), row.site), row) for row in rows).items():
        columns = {column: [getattr(row, column) for row in partition] for column in SCHEMA.names}
        yield key, pa.table(columns, schema=SCHEMA)


def write_table(table: pa.Table, partition: Partition, root: Path) -> Path:
    """Write one file so that it is there whole or not at all, named by the time of its first reading. Raises
    EnvironmentFault."""
    path = folder_of(partition, root) / name_of(pc.min(table.column("ts")).as_py())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as file:
            pq.write_table(table, file, **WRITTEN)
    except OSError as error:
        raise not_written(path, error) from error
    return path


def not_written(path: Path, error: Exception) -> EnvironmentFault:
    why = getattr(error, "strerror", None) or error
    return EnvironmentFault(f"the history cannot be written to {path.parent}: {why}")


def name_of(first: datetime) -> str:
    return f"{first.astimezone(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex}.parquet"


def folder_of(partition: Partition, root: Path) -> Path:
    day, site = partition
    return root / f"date={day.isoformat()}" / f"site={site}"


def with_retries(read: Callable[[], Answer]) -> Answer:
    """Call `read` again if a file was removed meanwhile (joined with others, or too old). Raises EnvironmentFault after
    `ATTEMPTS`."""
    for _ in range(ATTEMPTS):
        with suppress(FileNotFoundError):
            return read()
    raise EnvironmentFault("the history changed each time that it was read", remedy="Ask again.")


def rows_of_tail(path: Path) -> pa.Table:
    """Return the rows of a tail, of which the last reading may be incomplete. Raises FileNotFoundError."""
    batches: list[pa.RecordBatch] = []
    with path.open("rb") as file, suppress(pa.ArrowException, OSError):
        for batch in pa.ipc.open_stream(file):
            batches.append(batch)  # noqa: PERF402 - what came before an error counts
    return pa.Table.from_batches(batches, SCHEMA)


def keep(root: Path, rows: Iterable[Row]) -> None:
    """Keep a reading that a command made of both sites, because a later failover cannot ask the lost one. Who may not
    write there has the bounds by the monitor's readings alone."""
    for (_, site), table in tables_of(rows):
        with suppress(OSError), written_whole(root / KEPT.format(site)) as file:
            pq.write_table(table, file, **WRITTEN)


def kept(root: Path, site: str) -> pa.Table:
    """Return the rows of a site in the last reading that a command kept, if there is one."""
    with suppress(OSError, pa.ArrowException):
        return pq.read_table(root / KEPT.format(site), schema=SCHEMA)
    return SCHEMA.empty_table()


def begun(base: str) -> datetime | None:
    """Return when the first reading of a file was, by its name, or None if the monitor did not choose the name."""
    try:
        return datetime.strptime(base.partition("-")[0], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def day_us(name: str) -> int:
    """Return when the day of a file begins, by its folder; 0 if that is no day."""
    try:
        return micros(datetime.fromisoformat(name.partition("/")[0].removeprefix("date=")))
    except ValueError:
        return 0


def wrong_columns(schema: pa.Schema, wanted: pa.Schema = SCHEMA) -> str:
    """Say why a file does not belong to the history; empty if it does."""
    types = dict.fromkeys(OPTIONAL, pa.int64()) | dict(zip(schema.names, schema.types, strict=True))
    wrong = [field.name for field in wanted if types.get(field.name) != field.type]
    return f"columns missing or of another type: {', '.join(wrong)}" if wrong else ""


@dataclass(frozen=True, slots=True)
class Store:
    """A file system of PyArrow, and the folder in it."""

    where: str
    files: fs.FileSystem
    root: str

    @classmethod
    def of(cls, where: str | Path, *, hurried: bool = False) -> Store:
        """Raise EnvironmentFault if PyArrow has no such file system. A `hurried` store has no retries,
        because a late answer is of no use."""
        return _store(str(where), hurried)

    @property
    def folder(self) -> Path | None:
        """The folder where the history lies on this machine, else None."""
        return Path(self.root) if isinstance(self.files, fs.LocalFileSystem) else None

    def url(self, name: str) -> str:
        return f"{self.root}/{name}"

    def listed(self, under: str = "", *, recursive: bool = True, folders: bool = False) -> dict[str, fs.FileInfo]:
        """List the files below a folder, or in the folder itself, by name; with `folders` its folders too."""
        folder = fs.FileSelector(self.url(under).rstrip("/"), recursive=recursive, allow_not_found=True)
        infos = sorted(self.files.get_file_info(folder), key=lambda info: str(info.path))
        some = (info for info in infos if folders or info.type is fs.FileType.File)
        return {str(info.path)[len(self.root) + 1 :]: info for info in some}

    def opened(self, name: str) -> pa.NativeFile:
        """Raises FileNotFoundError."""
        return self.files.open_input_file(self.url(name))

    def must_answer(self, name: str) -> None:
        """After a failed read, find out whether the file or the remote store is at fault. Raises EnvironmentFault for
        the store, and FileNotFoundError if the file was removed meanwhile."""
        if self.folder is not None:
            return
        try:
            with self.opened(name) as file:
                while file.read(1 << 20):
                    pass
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self.fault(error) from error

    def fault(self, error: Exception) -> EnvironmentFault:
        where = self.where.partition("?")[0]
        return EnvironmentFault(
            f"the history at {where} cannot be read: {str(error).splitlines()[0]}",
            remedy="See that this machine, and each worker, reaches it with credentials that may read it.",
        )

    def write(self, name: str, put: Callable[[BinaryIO], object]) -> None:
        """Write a file so that it is there whole or not at all. Raises OSError."""
        if self.folder is not None:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(path) as file:
                put(file)
            return
        with tempfile.TemporaryFile() as whole:
            put(whole)
            whole.seek(0)
            self._send(name, whole)

    def _send(self, name: str, whole: BinaryIO) -> None:
        """Write a file under another name and rename it last: an interrupted upload may leave a partial file."""
        folder, _, base = self.url(name).rpartition("/")
        begun = f"{folder}/.{base}.{uuid.uuid4().hex}.part"
        try:
            if self.files.type_name not in ("s3", "gcs"):  # which have no folders
                self.files.create_dir(folder, recursive=True)
            with self.files.open_output_stream(begun) as sink:
                shutil.copyfileobj(whole, sink, 1 << 20)
            self.files.move(begun, self.url(name))
        except BaseException:
            with suppress(OSError):
                self.files.delete_file(begun)
            raise

    def remove(self, name: str) -> None:
        """Remove a file, and of folders on this machine those that are empty then. Raises OSError."""
        with suppress(FileNotFoundError):
            self.files.delete_file(self.url(name))
        if self.folder is not None:
            path = (self.folder / name).parent
            with suppress(OSError):  # something lies there
                while path != self.folder:
                    path.rmdir()
                    path = path.parent


@lru_cache(maxsize=8)
def _store(where: str, hurried: bool) -> Store:
    if "://" not in where and not where.startswith("file:"):
        return Store(where, fs.LocalFileSystem(), str(Path(where).absolute()))
    try:
        files, root = _s3(where, hurried) if where.startswith("s3:") else fs.FileSystem.from_uri(where)
    except (pa.ArrowException, TypeError, ValueError, OSError, NotImplementedError) as error:
        text = f"the history at {where.partition('?')[0]} cannot be opened: {str(error).splitlines()[0]}"
        raise EnvironmentFault(text, remedy="Name a folder, or a URL as file:, s3://, gs:// or hdfs://.") from error
    return Store(where, files, root.rstrip("/"))


def _s3(where: str, hurried: bool) -> tuple[fs.FileSystem, str]:
    """Open an S3 store with time limits: PyArrow sets none for a URL, and a process that ends waits for each
    request."""
    url = urlsplit(where)
    options: dict[str, Any] = dict(parse_qsl(url.query))
    connect_s, request_s, attempts = (1, 2, 1) if hurried else (3, 10, 3)
    again = fs.AwsStandardS3RetryStrategy(attempts)
    store = fs.S3FileSystem(**options, connect_timeout=connect_s, request_timeout=request_s, retry_strategy=again)
    return store, f"{url.netloc}{url.path}"


REMOTE_S: Final = 3.0
"""The time limit for a remote store, if the files on this machine can answer instead."""
REMOTE_ONLY_S: Final = 30.0
"""The time limit for a remote store, if this machine has no files."""
MAX_FILES: Final = 250
"""At most so many files are searched for an earlier reading: an hour of files of a minute, and a week of joined
hours."""
AGAIN_S: Final = 60.0
"""After so long, a store that did not answer is asked again."""
_silent_until: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class Source:
    """A file of the history, or a tail, and where it is read."""

    store: Store
    name: str

    @property
    def base(self) -> str:
        return self.name.rpartition("/")[2]

    @property
    def path(self) -> Path:
        """The name for a person; on this machine the path."""
        return Path(self.store.url(self.name))

    def _rows(self, columns: Sequence[str], where: pc.Expression | None, schema: pa.Schema) -> pa.Table:
        if fnmatch(self.base, TAILS):
            rows = rows_of_tail(self.path)
            return (rows if where is None else rows.filter(where)).select([*columns])
        with self.store.opened(self.name) as file:
            coded = [*_WORDS] if schema is CODED else None
            fragment = ds.ParquetFileFormat(dictionary_columns=coded).make_fragment(file)
            if wrong := wrong_columns(fragment.physical_schema, schema):
                raise pa.ArrowInvalid(wrong)
            return fragment.to_table(schema, columns=[*columns], filter=where, use_threads=False)

    def read(
        self, columns: Sequence[str] = SCHEMA.names, where: pc.Expression | None = None, schema: pa.Schema = SCHEMA
    ) -> tuple[pa.Table, str | None]:
        """Return the rows that match `where`, and the reason if these columns (without one, the footer) cannot be read
        to their ends. Columns that the file may lack are null. Groups of rows without a match are not read. `schema` is
        SCHEMA or CODED. Raises FileNotFoundError."""
        return self._tried(lambda: self._rows(columns, where, schema), schema.empty_table().select([*columns]))

    def span(self) -> tuple[tuple[int, int, int], str | None]:
        """Return the first reading, the last one, and the number of rows, by the footer if that says so; and the reason
        if the file cannot be read. Raises FileNotFoundError."""
        return self._tried(self._span, (0, -1, 0))

    def _span(self) -> tuple[int, int, int]:
        with self.store.opened(self.name) as file:
            footer = pq.read_metadata(file)
        if wrong := wrong_columns(footer.schema.to_arrow_schema()):
            raise pa.ArrowInvalid(wrong)
        at = footer.schema.names.index("ts")
        ends = [footer.row_group(number).column(at).statistics for number in range(footer.num_row_groups)]
        if all(end is not None and end.has_min_max for end in ends):
            times = [micros(moment) for end in ends for moment in (end.min, end.max)]
        else:
            times = self._rows(["ts"], None, SCHEMA)["ts"].cast(pa.int64()).to_pylist()
        return min(times, default=0), max(times, default=-1), footer.num_rows

    def _tried(self, ask: Callable[[], Answer], nothing: Answer) -> tuple[Answer, str | None]:
        try:
            return ask(), None
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            self.store.must_answer(self.name)
            return nothing, f"it cannot be read ({str(error).splitlines()[0]})"


def rows_of(
    files: Iterable[Source],
    findings: list[Finding],
    columns: Sequence[str] = SCHEMA.names,
    where: pc.Expression | None = None,
) -> pa.Table:
    """Join the rows of files. A file that cannot be read has none, which a finding then says. Raises
    FileNotFoundError."""
    tables = [SCHEMA.empty_table().select([*columns])]
    for file in files:
        rows, why = file.read(columns, where)
        tables.append(rows)
        if why is not None and (finding := found("DR-RPO-002", name=file.name, why=why)) not in findings:
            findings.append(finding)
    return pa.concat_tables(tables)


class Sources:
    """Files in several stores as one history: the first of two files of the same name counts."""

    def __init__(self, near: Path, *others: Store) -> None:
        """`near`: the folder with the last minute of readings, which is always on this machine."""
        self.near, self._stores = near, (Store.of(near), *others)

    def newest_first(self, site: str, since: datetime | None = None, until: datetime | None = None) -> Iterator[Source]:
        """The files of one site, the newest first by their names, which begin with the time of their first reading.
        `since` and `until` leave out whole days only.

        Lists a day's directory only when it is asked for: the last minutes of a long history are found at once.
        """
        first, last = ("" if at is None else f"date={at.astimezone(UTC):%Y-%m-%d}" for at in (since, until))
        names = {name for store in self._stores for name in store.listed(recursive=False, folders=True)}
        days = {name for name in names if name.startswith("date=")}
        for day in sorted(days, reverse=True):
            if first <= day and (not last or day <= last):
                named: dict[str, Source] = {}
                for store in reversed(self._stores):
                    own = filter(NAMED.fullmatch, store.listed(f"{day}/site={site}", recursive=False))
                    named |= {name: Source(store, name) for name in own}
                yield from sorted(named.values(), key=lambda source: source.base, reverse=True)

    def tails(self, site: str) -> Iterator[Source]:
        """The files with a monitor's last minute, which may not be in the history yet."""
        for day in sorted(self.near.glob("date=*"), reverse=True)[:2]:
            for path in sorted((day / f"site={site}").glob(TAILS), reverse=True):
                yield Source(self._stores[0], path.relative_to(self.near).as_posix())

    def text(self, name: str) -> str | None:
        """Return the text of a file beside the history, in the store elsewhere, or None if there is none."""
        for store in self._stores[1:]:
            with suppress(FileNotFoundError), store.opened(name) as file:
                return str(file.read().decode())
        return None


def read(
    history: HistoryLocation, ask: Callable[[Sources], Answer], *, within_s: float | None = None
) -> tuple[Answer, list[Finding]]:
    """Have the files of a history read, again if one is removed meanwhile. If a remote store does not answer in time,
    only the files on this machine are read, and the finding says so."""

    def local() -> Answer:
        return with_retries(lambda: ask(Sources(history.near)))

    def remote() -> Answer:
        store = Store.of(history.where, hurried=within_s is None)
        return with_retries(lambda: ask(Sources(history.near, store)))

    if history.folder is not None:
        return local(), []
    why = "it did not answer a moment ago"
    if boottime_s() >= _silent_until.get(history.where, 0.0):
        is_here = any(history.near.glob("date=*/site=*/*"))
        limit_s = within_s or (REMOTE_S if is_here else REMOTE_ONLY_S)
        answers, errors = in_time(remote, limit_s)
        if answers:
            return answers[0], []
        _silent_until[history.where] = boottime_s() + AGAIN_S
        why = str(errors[0]).splitlines()[0] if errors else f"no answer within {limit_s:g} s"
    return local(), [found("DR-RPO-032", shown=history.shown, why=why, near=history.near)]


def in_time(ask: Callable[[], Answer], within_s: float) -> tuple[list[Answer], list[Exception]]:
    """Return the answer, or the error; neither if it comes too late."""
    asking = in_background(ask, "history")
    if not asking.wait(within_s):
        return [], []
    try:
        return [asking.result()], []
    except (OSError, pa.ArrowException, DrCtlError) as error:
        return [], [error]
