"""A store that two brokers share, with its lock: a file lock, which ends with its process, or a lease in a table, which
must be renewed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from dr_ctl_lab.twin.classic.sharedstore.lockfile import LockFile
from dr_ctl_lab.twin.messages import Queue, numbers

LOCK: Final = "store/lock"


class Locker(Enum):
    """Which of the two a store has."""

    FILE = "file"
    LEASE = "lease"


@dataclass
class Store:
    """`file` is locked while somebody holds the store by a file lock. `holder` and `until_ms` are the row of a
    lease."""

    file: LockFile | None
    locker: Locker = Locker.FILE
    lease_ms: int = 1000
    holder: str | None = None
    until_ms: int = 0
    queues: dict[str, Queue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.next_number = numbers(1)

    def take(self, name: str, now_ms: int) -> bool:
        """Take the lock, or keep it for longer; False where somebody else has it."""
        gone = self.locker is Locker.LEASE and self.until_ms < now_ms
        if self.holder not in (None, name) and not gone:
            return False
        self._set(name, now_ms + self.lease_ms if self.locker is Locker.LEASE else 0)
        return True

    def lease(self, for_ms: int, now_ms: int) -> None:
        """Make its lock a lease."""
        self.locker, self.lease_ms = Locker.LEASE, for_ms
        self._set(self.holder, now_ms + for_ms)

    def release(self, name: str) -> None:
        if self.holder == name:
            self._set(None, 0)

    def died(self, name: str) -> None:
        """Note the holder's sudden end, which unlocks a file but not a lease."""
        if self.locker is Locker.FILE:
            self.release(name)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()

    def _set(self, holder: str | None, until_ms: int) -> None:
        self.holder, self.until_ms = holder, until_ms
        if self.file is not None:
            self.file.lock(on=holder is not None and self.locker is Locker.FILE)
