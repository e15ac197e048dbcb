"""The lock of a shared store, looked at and never taken: a file that a broker locks, or a row that names its holder."""

import fcntl
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from dr_ctl.core.errors import BrokerError, Unreachable

# struct flock of Linux: type, whence, start, length, pid.
_FLOCK: Final = "hhqqi"


class LockUnreadable(BrokerError):
    """The holder of the store is not known."""

    remedy = "See that this machine reaches what `store:` names, with a login that may read it."


class SilentAndUnread(Unreachable):
    """A broker whose ports refuse, and the lock could not be read: whether that broker waits cannot be told."""

    remedy = LockUnreadable.remedy

    def __init__(self, text: str, unread: str) -> None:
        super().__init__(f"{text}; and {unread}", refused=False)
        self.unread = unread


@dataclass(frozen=True, slots=True)
class LockSeen:
    """A look at the lock. `holder` is the name in the lock, also after its lease has run out, None if the lock has no
    name. `left_s` is how long the lease lasts by the database's clock, `ahead_s` how far that clock is ahead of this
    machine's; a file has neither. `process` is the process that holds a file, if on this machine. `written` is False
    where no broker ever wrote a lease into the row. `renewed_s` is the time between two renewals, and `lasts_s` the
    longest lease, where looks of this command have shown them."""

    held: bool
    holder: str | None = None
    left_s: float | None = None
    ahead_s: float | None = None
    process: int | None = None
    written: bool = True
    renewed_s: float | None = None
    lasts_s: float | None = None

    @property
    def text(self) -> str:
        """In words."""
        if not self.held:
            ran_out = f", the lease of {self.holder} has run out" if self.holder is not None else ""
            return f"nobody holds the store{ran_out}"
        lease = f", its lease lasts {self.left_s:.1f} s more" if self.left_s is not None else ""
        return f"{self.holder} holds the store{lease}" if self.holder is not None else "the store's lock is held"


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a store's replica: `size` bytes of its journal, and so many new messages among them."""

    size: int
    messages: int


class Lock(Protocol):
    """One lock. Looking at it changes nothing."""

    def read(self) -> LockSeen:
        """Look once. Raises `LockUnreadable`."""

    def close(self) -> None: ...


class FileLock:
    """Implements `Lock`: Java locks a file as POSIX has it, and the system says whether somebody does."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> LockSeen:
        try:
            at = os.open(self._path, os.O_RDONLY)
            try:
                asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                lock_type, _, _, _, process = struct.unpack(_FLOCK, fcntl.fcntl(at, fcntl.F_GETLK, asked))
            finally:
                os.close(at)
        except OSError as error:
            raise LockUnreadable(f"the lock {self._path} cannot be read: {error.strerror or error}") from error
        held = lock_type != fcntl.F_UNLCK
        return LockSeen(held, process=process if held and process > 0 else None)

    def close(self) -> None: ...
