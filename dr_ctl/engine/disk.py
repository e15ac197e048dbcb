"""The disk of a run: reserved room, so that a full disk refuses the run before its first call instead of ending it in
the middle; file names that survive a power cut; and private folders."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, ClassVar, Final

from dr_ctl.core.errors import NO_ROOM, DrCtlError
from dr_ctl.core.model import ExitCode

RESERVE: Final = "journal.reserve"
RESERVED_BYTES: Final = 4 * 1024 * 1024
"""Steps, calls and result of a large run need a fraction of this; samples may not use it."""
PIECE_BYTES: Final = 64 * 1024


class CannotWrite(DrCtlError):
    """The disk has no room for the journal, or cannot be written."""

    exit_code: ClassVar[ExitCode] = ExitCode.PRECHECK_FAILED
    remedy = "Make the state directory writable, or name another with --state-dir; then run it again."

    def __init__(self, where: Path, error: OSError) -> None:
        if error.errno in NO_ROOM:
            text = f"no room on disk for the run's journal in {where}"
            remedy = (
                "Free some space where the state directory is, or name another with --state-dir; then run it again."
            )
        else:
            text, remedy = f"{error.filename or where} cannot be written: {error.strerror or error}", self.remedy
        super().__init__(f"{text}; nothing was changed", remedy=remedy)


@contextmanager
def refusing(where: Path) -> Iterator[None]:
    """Raise `CannotWrite` for a disk that cannot be written. Use this only before the first call of a run."""
    try:
        yield
    except OSError as error:
        raise CannotWrite(where, error) from error


def sync_folder(folder: Path) -> None:
    """Sync a folder: after a power cut a new file exists only if its name is on disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def written_whole(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Write a file under a hidden name, and rename it once all of it is on disk."""
    hidden = path.with_name(f".{path.name}.{os.urandom(16).hex()}.part")
    try:
        with os.fdopen(os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(path)
    finally:
        hidden.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextmanager
def locked_file(path: Path, mode: int = 0o600) -> Iterator[int | None]:
    """Lock a file for this block, and make a missing one; yields None while another process holds the lock."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
    try:
        held: int | None = file
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held = None
        yield held
    finally:
        os.close(file)


class Reserve:
    """A file that reserves room, and gives it back in pieces when the journal beside it has none."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def take(self) -> None:
        """Reserve the missing room; raises `CannotWrite`."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, RESERVED_BYTES)
        except AttributeError:
            pass  # a system that cannot reserve is no reason to refuse a run
        except OSError as error:  # a file system that cannot reserve is no reason either
            if error.errno in NO_ROOM:
                self.release()
                raise CannotWrite(self._path.parent, error) from error
        finally:
            os.close(file)

    def give_back(self) -> bool:
        """Give back a piece; returns whether one was left."""
        try:
            size = self._path.stat().st_size
            if size > 0:
                os.truncate(self._path, max(0, size - PIECE_BYTES))
        except OSError:
            return False
        return size > 0

    def release(self) -> None:
        self._path.unlink(missing_ok=True)


def private(folder: Path) -> None:
    """Make a folder, and the missing ones above it, for this user only."""
    missing = [directory for directory in (folder, *folder.parents) if not directory.exists()]
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)
