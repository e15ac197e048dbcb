"""The last minute's looks at a site on disk within a second, each as it was made: they must survive a monitor that is
killed, and no file of the history is written so often.

A tail only grows. While its monitor lives it is locked, so that nobody takes it for what a killed one left, and a
second monitor sees that it is not the first."""

import fcntl
import json
import os
import socket
import uuid
import weakref
from collections.abc import Iterable
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path
from typing import IO, Final

import pyarrow as pa

from dr_ctl.core.clock import stamp
from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.rpo.history.files import SCHEMA, TAILS, Part, folder_of, rows_of_tail, write_table

_OWNER: Final = b"dr-ctl.monitor"
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


class Tail:
    """One file of looks at one site. Raises EnvironmentFault where the disk takes nothing; what it held before may be
    torn then."""

    def __init__(self, part: Part, root: Path, since: datetime) -> None:
        folder = folder_of(part, root)
        self._path = folder / TAILS.replace("*", uuid.uuid4().hex)
        hidden = self._path.with_name(f".{self._path.name}.part")
        owner = {"process": os.getpid(), "host": socket.gethostname(), "since": stamp(since)}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(hidden, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
            self._unlock = weakref.finalize(self, os.close, self._handle)
            with suppress(OSError):  # a file system without locks: then every tail looks like a killed monitor's
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            schema = SCHEMA.with_metadata({_OWNER: json.dumps(owner)})
            self._stream = pa.ipc.new_stream(pa.OSFile(str(hidden), "wb"), schema, options=_OPTIONS)
            hidden.rename(self._path)
        except OSError as error:
            hidden.unlink(missing_ok=True)
            raise _fault(self._path, error) from error

    def add(self, tables: Iterable[pa.Table]) -> None:
        """Have the rows on disk."""
        try:
            for table in tables:
                self._stream.write_table(table)
            os.fsync(self._handle)
        except (OSError, pa.ArrowException) as error:
            raise _fault(self._path, error) from error

    def remove(self) -> None:
        """Let it go, and all that it held. Raises EnvironmentFault."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise _fault(self._path, error) from error
        finally:
            self._unlock()


def _fault(path: Path, error: Exception) -> EnvironmentFault:
    return EnvironmentFault(
        f"the history cannot be written to {path.parent}: {getattr(error, 'strerror', None) or error}"
    )


def another_monitor(root: Path) -> str | None:
    """Who else records into this history just now, in words; None where nobody does on this machine, or on a file
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
                write_table(rows, _part(path), root)
            path.unlink(missing_ok=True)


def _is_left(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _part(path: Path) -> Part:
    return date.fromisoformat(path.parent.parent.name.removeprefix("date=")), path.parent.name.removeprefix("site=")


def _owner(path: Path) -> str:
    try:
        with pa.ipc.open_stream(path) as stream:
            told = json.loads((stream.schema.metadata or {}).get(_OWNER, b"{}"))
    except (pa.ArrowException, OSError, ValueError):
        told = {}
    if not told:
        return "another monitor"
    return f"process {told['process']} on {told['host']}, since {told['since']}"
