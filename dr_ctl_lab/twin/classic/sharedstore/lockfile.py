"""A file that is locked as the system has it, so that whoever asks the system sees it: also the twin's own process,
which would see nothing of a lock that belongs to processes. This one belongs to the open file."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

# struct flock of Linux: type, whence, start, length, pid.
_FLOCK: Final = "hhqqi"


class LockFile:
    """The lock file of a store; there from the start, as brokers that have run once leave it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._open = True

    def lock(self, *, on: bool) -> None:
        if self._open:
            kind = fcntl.F_WRLCK if on else fcntl.F_UNLCK
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0))

    def close(self) -> None:
        """Unlock it too. Twice is once."""
        if self._open:
            self._open = False
            os.close(self._file)
