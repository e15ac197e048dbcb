"""What a run needs of the disk: room reserved before its first call, so that a full disk refuses it there instead of
ending it in its middle, names that survive a power cut, and folders that nobody else may look into."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Final

from dr_ctl.core.errors import NO_ROOM, DrCtlError
from dr_ctl.core.model import ExitCode

RESERVE: Final = "journal.reserve"
RESERVED_BYTES: Final = 4 * 1024 * 1024
"""Several times what the steps, calls and result of a large run take; samples are given up rather than draw on it."""
PIECE_BYTES: Final = 64 * 1024


class CannotWrite(DrCtlError):
    """The disk has no room for what the run must write, or does not take it."""

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
    """Turn a disk that takes nothing into `CannotWrite`. Only for what is written before the first call."""
    try:
        yield
    except OSError as error:
        raise CannotWrite(where, error) from error


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on disk: a new file is there after a power cut only when its name is."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def alone(path: Path) -> Iterator[int | None]:
    """A file that is locked for this block, made where it is missing; None where another process holds it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
    """A file that only takes up room, and gives it back in pieces when the journal beside it finds none."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def take(self) -> None:
        """Take up the room, or what is missing of it; raises `CannotWrite`."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, RESERVED_BYTES)
        except AttributeError:
            pass  # a system that cannot reserve is no reason to refuse: the run then has what every program has
        except OSError as error:  # and so is a file system that cannot
            if error.errno in NO_ROOM:
                self.release()
                raise CannotWrite(self._path.parent, error) from error
        finally:
            os.close(file)

    def give_back(self) -> bool:
        """Give back a piece; says whether there was one left."""
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
    """Make a folder, and each that is missing above it, for this user alone."""
    missing = [directory for directory in (folder, *folder.parents) if not directory.exists()]
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)
