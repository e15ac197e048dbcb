"""A simulated broker that serves while it holds the lock of the store that it shares; until then it has no open port
and no console."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dr_ctl_lab.twin.classic.broker import ClassicBroker
from dr_ctl_lab.twin.classic.sharedstore.lockfile import LockFile
from dr_ctl_lab.twin.classic.sharedstore.process import ProcessFiles
from dr_ctl_lab.twin.classic.sharedstore.store import LOCK, Store


@dataclass(kw_only=True, eq=False)
class SharedStoreBroker(ClassicBroker):
    """`running`: the process runs; `alive` means that it also has the store. `tries_every_s`: interval of tries for the
    lock. `lives_on_s`: how long the process goes on after a request to stop."""

    running: bool = False
    tries_every_s: float = 0.1
    lives_on_s: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.store = Store(None if self.home is None else LockFile(self.home / LOCK))
        self.peer: SharedStoreBroker | None = None
        self._process = ProcessFiles(self.home, self.name)
        self._next_try_s = 0.0
        self._gone_s: float | None = None

    def share(self, peer: SharedStoreBroker) -> None:
        """Give the peer this broker's store."""
        peer.store.close()
        peer.store = self.store
        self.peer, peer.peer = peer, self

    # the way to the peer

    @property
    def attached(self) -> bool:
        """Say whether one of them has the store."""
        return self.alive or (self.peer is not None and self.peer.alive)

    @property
    def even(self) -> bool:
        return True

    @property
    def settable(self) -> Mapping[str, Any]:
        return {"holds": self.store.holder == self.name, "running": self.running}

    def let_clients_in(self) -> None:
        """A person stops the other one, so that this one gets the store."""
        if not self.alive and self.peer is not None:
            self.peer.stop()
            self._try()
        if self.alive:
            super().let_clients_in()

    # its life

    def start(self) -> None:
        """Start the process, which serves once it has the lock."""
        if not self.running:
            self._gone_s = None
            self._run(running=True)
            self.frozen = False
            self._try()

    def kill(self) -> None:
        self._fall()
        self.store.release(self.name)
        self._run(running=False)

    def stop(self) -> None:
        """End in order: the lock is free at once. Nobody is answered who asked for it."""
        self.kill()
        if self.lives_on_s:
            self._gone_s = self.clock.now_s() + self.lives_on_s
            self._process.tell(running=True)

    def ended(self) -> None:
        self.store.close()

    def work(self, now_s: float) -> list[float]:
        """Try for the lock, or start."""
        if now_s >= self._next_try_s:
            self._next_try_s = now_s + self.tries_every_s
            self._started(now_s)
            if self.running and not self.frozen:
                self._try()
        expiring = super().work(now_s) if self.alive else []
        return [self._next_try_s, *expiring]

    def _started(self, now_s: float) -> None:
        """Start where somebody wants it to."""
        if self._gone_s is not None and now_s >= self._gone_s:
            self._gone_s = None
            self._process.tell(running=False)
        if self._process.asked:
            self.start()
            self._process.answer()

    def _run(self, *, running: bool) -> None:
        self.running = running
        self._process.tell(running=running)
        self.changed.notify_all()

    def _try(self) -> None:
        if not self.store.take(self.name) or self.alive:
            return
        self.queues = self.store.queues
        self.next_number = self.store.next_number
        super().start()

    def _fall(self) -> None:
        """Close everything; durable messages stay in the store."""
        has_store = self.alive
        super().kill()
        if has_store:
            self.store.queues = self.queues
        self.queues = {}
