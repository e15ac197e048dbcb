"""The writer holds readings that are not in the history yet, and writes them whatever the disk does.

The files keep a reading of everything each so often, and every reading of outflows and roles, so that a history does
not grow with the speed of a monitor. The last minute is kept whole beside them, on disk within a second, because no
file of the history is written so often and a monitor may be killed. When a site changes its state, and at the end, all
readings go into the files too, because those just before tell what a site took with it.

A tail only grows. While its monitor lives it is locked, so that nobody takes it for what a killed one left, and a
second monitor sees that it is not the first."""

import fcntl
import json
import os
import socket
import uuid
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import IO, Final

import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.system import stamp, system
from dr_ctl.rpo.history.files import (
    SCHEMA,
    TAILS,
    Partition,
    folder_of,
    not_written,
    rows_of_tail,
    tables_of,
    write_table,
)
from dr_ctl.rpo.history.row import OUTFLOW_READING_KINDS, Row

_OWNER: Final = b"dr-ctl.monitor"
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


class Tail:
    """A tail is a file of readings of one site. Raises EnvironmentFault if the disk takes nothing; earlier content may
    be torn then."""

    def __init__(self, partition: Partition, root: Path, since: datetime) -> None:
        folder = folder_of(partition, root)
        self.last: datetime | None = None  # the moment of its last reading
        self._path = folder / TAILS.replace("*", uuid.uuid4().hex)
        hidden = self._path.with_name(f".{self._path.name}.part")
        owner = {"process": os.getpid(), "host": socket.gethostname(), "since": stamp(since)}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(hidden, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
            self._unlock = weakref.finalize(self, os.close, self._handle)
            with suppress(OSError):  # on a file system without locks a tail looks like that of a killed monitor
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            schema = SCHEMA.with_metadata({_OWNER: json.dumps(owner)})
            self._stream = pa.ipc.new_stream(pa.OSFile(str(hidden), "wb"), schema, options=_OPTIONS)
            hidden.rename(self._path)
        except OSError as error:
            hidden.unlink(missing_ok=True)
            raise not_written(self._path, error) from error

    def add(self, tables: Sequence[pa.Table]) -> None:
        try:
            for table in tables:
                self._stream.write_table(table)
            os.fsync(self._handle)
            self.last = _newest(tables)
        except (OSError, pa.ArrowException) as error:
            raise not_written(self._path, error) from error

    def remove(self) -> None:
        """Remove the file and all that it held. Raises EnvironmentFault."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise not_written(self._path, error) from error
        finally:
            self._unlock()


def another_monitor(root: Path) -> str | None:
    """Say in words who else records into this history just now; None if nobody does on this machine, or on a file
    system that knows locks."""
    for path in root.glob(f"date=*/site=*/{TAILS}"):
        with suppress(FileNotFoundError), path.open("rb") as file:
            if not _is_left(file):
                return _owner(path)
    return None


def take_over(root: Path) -> None:
    """Turn the tails that killed monitors left into files of the history. Raises EnvironmentFault or OSError."""
    for path in sorted(root.glob(f"date=*/site=*/{TAILS}")):
        with suppress(FileNotFoundError), path.open("rb") as file:
            if not _is_left(file):
                continue
            if (rows := rows_of_tail(path)).num_rows:
                day, site = (folder.name.partition("=")[2] for folder in (path.parent.parent, path.parent))
                write_table(rows, (date.fromisoformat(day), site), root)
            path.unlink(missing_ok=True)


def _is_left(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True


def _owner(path: Path) -> str:
    try:
        with pa.ipc.open_stream(path) as stream:
            owner = json.loads((stream.schema.metadata or {}).get(_OWNER, b"{}"))
    except (pa.ArrowException, OSError, ValueError):
        owner = {}
    if not owner:
        return "another monitor"
    return f"process {owner['process']} on {owner['host']}, since {owner['since']}"


MAX_WAITING: Final = 50_000
"""At most so many rows wait, whatever the time: a minute's readings are fewer where they take a twentieth of it."""
MAX_KEPT: Final = 200_000
AGAIN_S: Final = 10.0
TAIL_EVERY_S: Final = 1.0
OF_OUTFLOWS: Final = pa.array(OUTFLOW_READING_KINDS)
EARLY_S: Final = 0.1
"""Readings come a little early and late."""
MINUTE: Final = timedelta(minutes=1)


@dataclass(slots=True)
class _Held:
    """The readings of one site's day. No file holds those `waiting`; files hold those `left_out` without their queues;
    no tail holds those `unsaved`. The last of `tails` grows."""

    waiting: list[pa.Table] = field(default_factory=list)
    left_out: list[pa.Table] = field(default_factory=list)
    unsaved: list[pa.Table] = field(default_factory=list)
    tails: list[Tail] = field(default_factory=list)
    grows: bool = False

    def save(self, partition: Partition, root: Path, now: datetime) -> None:
        """Have all readings in a tail. Raises EnvironmentFault; the next tail begins with all that waits."""
        if not self.unsaved:
            return
        try:
            if not self.grows:
                self.tails.append(Tail(partition, root, now))
                self.grows = True
            self.tails[-1].add(self.unsaved)
        except EnvironmentFault:
            self.unsaved = [*self.left_out, *self.waiting]
            if self.grows:
                self.grows = False
                self.tails.pop().remove()
            raise
        self.unsaved = []

    def let_go_before(self, moment: datetime | None) -> None:
        """Keep later readings, in tails and in memory; without a moment keep none. Raises EnvironmentFault."""
        self.grows = False
        self.left_out = [reading for reading in self.left_out if moment is not None and _newest([reading]) > moment]
        for tail in list(self.tails):
            if moment is None or tail.last is None or tail.last <= moment:
                tail.remove()
                self.tails.remove(tail)


def _newest(readings: Sequence[pa.Table]) -> datetime:
    return max(pc.max(reading["ts"]).as_py() for reading in readings)


class Writer:
    """The writer gathers readings and writes them every `every_s` seconds and at the end: few files instead of one per
    reading.

    Readings wait as columns: ten thousand queues at two sites are some megabytes a reading as objects. A fault of the
    disk is not raised; `trouble` names the fault until everything is written. Unwritten rows wait. Above `MAX_KEPT`
    rows the oldest readings of queues are dropped first, then the oldest of all; `dropped` counts them."""

    def __init__(self, root: Path, *, every_s: float = 60.0, whole_every_s: float = 5.0) -> None:
        """The files keep a reading of everything each `whole_every_s`. Takes over the files of a killed monitor."""
        self._root = root
        self._every_s, self._whole_every = every_s, timedelta(seconds=whole_every_s - EARLY_S)
        self._parts: dict[Partition, _Held] = {}
        self._kept_whole: dict[str, datetime] = {}  # by site
        self.files = 0
        self.dropped = 0
        self.trouble: str | None = None
        self._tail_at = self._tried_at = system().monotonic()
        try:
            take_over(root)
        except (EnvironmentFault, pa.ArrowException, OSError) as error:
            self.trouble = f"what another monitor left cannot be taken over: {error}"

    @property
    def waiting(self) -> int:
        return sum(reading.num_rows for held in self._parts.values() for reading in held.waiting)

    def add(self, rows: Iterable[Row]) -> list[Path]:
        """Take the rows of a reading; returns the files written because it was time."""
        for partition, reading in tables_of(rows):
            held = self._parts.setdefault(partition, _Held())
            held.waiting.append(reading)
            held.unsaved.append(reading)
        if system().monotonic() - self._tail_at >= TAIL_EVERY_S:
            self._save()
        passed_s = system().monotonic() - self._tried_at
        is_due = passed_s >= self._every_s or self.waiting >= MAX_WAITING
        if self.trouble is not None:
            is_due = passed_s >= AGAIN_S
        return self._write(whole_minute=False) if is_due else []

    def flush(self) -> list[Path]:
        return self._write(whole_minute=True)

    def _save(self) -> None:
        self._tail_at = system().monotonic()
        for partition, held in self._parts.items():
            try:
                held.save(partition, self._root, system().now())
            except EnvironmentFault as error:
                self.trouble = self.trouble or str(error)

    def _write(self, *, whole_minute: bool) -> list[Path]:
        self.trouble, self._tried_at = None, system().monotonic()
        written = []
        for partition, held in list(self._parts.items()):
            before = self._kept_whole.get(partition[1])
            kept, left_out, last = _thinned(held.waiting, self._whole_every, before)
            readings = [*held.left_out, *held.waiting] if whole_minute else kept
            try:
                if readings:
                    written.append(write_table(pa.concat_tables(readings), partition, self._root))
            except EnvironmentFault as error:
                self.trouble = str(error)
                held.waiting = [pa.concat_tables(held.waiting).combine_chunks()] if held.waiting else []
                continue
            if last is not None:
                self._kept_whole[partition[1]] = last
            self._keep_minute(partition, held, None if whole_minute else left_out)
        self.files += len(written)
        if self.trouble is not None:
            self._drop()
        return written

    def _keep_minute(self, partition: Partition, held: _Held, left_out: Sequence[pa.Table] | None) -> None:
        """Let go of readings that the files hold; of the last minute those that they lack stay, in memory and on
        disk."""
        newest = _newest(held.waiting) if held.waiting and left_out is not None else None
        try:
            if newest is not None:
                held.save(partition, self._root, system().now())
            held.left_out += left_out or ()
            held.waiting, held.unsaved = [], []
            held.let_go_before(newest - MINUTE if newest is not None else None)
        except EnvironmentFault as error:
            self.trouble = str(error)
        if newest is None and not held.tails:
            del self._parts[partition]

    def _drop(self) -> None:
        """Let as few rows wait as may: the oldest readings of queues go first, and the rest of their readings last."""
        before = self.waiting
        for spared in (pc.field("kind").isin(OF_OUTFLOWS), pc.scalar(False)):
            if (over := self.waiting - MAX_KEPT) <= 0:
                break
            every = pa.concat_tables([rows for held in self._parts.values() for rows in held.waiting])
            oldest = every.select(["ts", "kind"]).filter(~spared)["ts"].combine_chunks().sort()
            if not len(oldest):
                continue
            is_kept = spared | (pc.field("ts") > oldest[min(over, len(oldest)) - 1])
            for held in self._parts.values():
                kept = (rows.filter(is_kept) for rows in held.waiting)
                held.waiting = [rows for rows in kept if rows.num_rows]
        self.dropped += before - self.waiting


def _thinned(
    readings: Sequence[pa.Table], apart: timedelta, kept_at: datetime | None
) -> tuple[list[pa.Table], list[pa.Table], datetime | None]:
    """Return the readings for the files, the rest, and the last reading of everything for the files. A reading with a
    comparison of ids stays whole, because few have one, and without it nobody knows which messages have no copy."""
    kept: list[pa.Table] = []
    left_out: list[pa.Table] = []
    for reading in readings:
        is_short = pc.is_in(reading["kind"], OF_OUTFLOWS)
        at, of_ids = _newest([reading]), pc.and_(pc.equal(reading["kind"], "uncopied"), pc.is_valid(reading["depth"]))
        if pc.all(is_short).as_py():
            kept.append(reading)
        elif kept_at is None or abs(at - kept_at) >= apart or pc.any(of_ids).as_py() is True:
            kept.append(reading)
            kept_at = at
        else:
            kept.append(reading.filter(is_short))
            left_out.append(reading.filter(pc.invert(is_short)))
    return kept, left_out, kept_at
