"""A lock file; its lock belongs to the open file, not to the process, so that the twin's own process sees it too."""

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

# struct flock of Linux: type, whence, start, length, pid.
_FLOCK: Final = "hhqqi"


class LockFile:
    """The lock file of a store; it exists from the start, as after a broker's first run."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._open = True

    def lock(self, *, on: bool) -> None:
        if self._open:
            kind = fcntl.F_WRLCK if on else fcntl.F_UNLCK
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0))

    def close(self) -> None:
        """Unlock and close; does nothing when called again."""
        if self._open:
            self._open = False
            os.close(self._file)
