"""A store that two brokers share, with its lock."""

from dataclasses import dataclass, field
from typing import Final

from dr_ctl_lab.twin.classic.sharedstore.lockfile import LockFile
from dr_ctl_lab.twin.messages import Queue, numbers

LOCK: Final = "store/lock"


@dataclass
class Store:
    """`file` is locked while a broker holds the store."""

    file: LockFile | None
    holder: str | None = None
    queues: dict[str, Queue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.next_number = numbers(1)

    def take(self, name: str) -> bool:
        """Take or keep the lock; False where the other broker has it."""
        if self.holder not in (None, name):
            return False
        self._set(name)
        return True

    def release(self, name: str) -> None:
        if self.holder == name:
            self._set(None)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()

    def _set(self, holder: str | None) -> None:
        self.holder = holder
        if self.file is not None:
            self.file.lock(on=holder is not None)
