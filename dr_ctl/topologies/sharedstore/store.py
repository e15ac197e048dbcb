"""The shared store of an installation: the lock, the messages in the store, and the lag of a replica."""

from __future__ import annotations

from dr_ctl.core.clock import Clock
from dr_ctl.processes.secrets import resolve
from dr_ctl.settings.model import Installation
from dr_ctl.settings.parts import Secret
from dr_ctl.settings.topologies.classic_shared_store import ClassicSharedStore, Store
from dr_ctl.topologies.sharedstore import database
from dr_ctl.topologies.sharedstore.database import Database, RowLock
from dr_ctl.topologies.sharedstore.lock import FileLock, Lag, Lock, LockUnreadable


class SharedStore:
    """For one command. Connections open at the first question."""

    def __init__(self, settings: Store, lock: Lock, messages: Database | None, replica: Database | None) -> None:
        self.settings, self.lock = settings, lock
        self._messages, self._replica = messages, replica

    @classmethod
    def of(cls, installation: Installation, clock: Clock) -> SharedStore:
        store = installation.of(ClassicSharedStore).store

        def opened(secret: Secret) -> Database:
            return Database(lambda: resolve(secret, installation.file.parent))

        if store.dsn is None:
            return cls(store, FileLock(installation.path(str(store.lock))), None, None)
        messages = opened(store.dsn)
        replica = opened(store.replica.dsn) if store.replica is not None else None
        return cls(store, RowLock(messages, store.table, clock), messages, replica)

    def counts(self) -> dict[str, int] | None:
        """How many messages of each queue lie in the store; returns None where the store is a file. Raises
        `LockUnreadable`."""
        return database.counts(self._messages, self.settings.messages) if self._messages is not None else None

    def lag(self) -> Lag | None:
        """Returns None where there is no replica, or it was not read."""
        if self._messages is None or self._replica is None:
            return None
        try:
            return database.lag(self._messages, self._replica, self.settings.messages)
        except LockUnreadable:
            return None

    def close(self) -> None:
        self.lock.close()
        if self._replica is not None:
            self._replica.close()
