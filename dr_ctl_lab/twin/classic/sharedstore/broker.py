"""A simulated broker that serves while it holds the lock of a shared store; without it no port is open."""

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
    """`running`: the process runs; `alive`: it also has the store. `tries_every_s`: interval of tries for the lock.
    `lives_on_s`: how long the process lives after a request to stop."""

    running: bool = False
    tries_every_s: float = 0.1
    lives_on_s: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.store = Store(None if self.home is None else LockFile(self.home / LOCK))
        self.peer: SharedStoreBroker | None = None
        self._process = ProcessFiles(self.home, self.name)
        self._next_try_s = 0.0
        self._ends_s: float | None = None

    def share(self, peer: SharedStoreBroker) -> None:
        """Use this broker's store for both."""
        peer.store.close()
        peer.store = self.store
        self.peer, peer.peer = peer, self

    # the peer

    @property
    def attached(self) -> bool:
        """Say whether one of the brokers has the store."""
        return self.alive or (self.peer is not None and self.peer.alive)

    @property
    def is_settled(self) -> bool:
        return True

    @property
    def settable(self) -> Mapping[str, Any]:
        return {"holds": self.store.holder == self.name, "running": self.running}

    def let_clients_in(self) -> None:
        """Stop the peer, as a person would, so that this broker gets the store."""
        if not self.alive and self.peer is not None:
            self.peer.stop()
            self._try_lock()
        if self.alive:
            super().let_clients_in()

    # start and end

    def start(self) -> None:
        """Start the process; it serves once it has the lock."""
        if not self.running:
            self._ends_s = None
            self._run(running=True)
            self.frozen = False
            self._try_lock()

    def kill(self) -> None:
        self._release_store()
        self.store.release(self.name)
        self._run(running=False)

    def stop(self) -> None:
        """End the process and free the lock; the request gets no answer."""
        self.kill()
        if self.lives_on_s:
            self._ends_s = self.clock.now_s() + self.lives_on_s
            self._process.set_running(running=True)

    def release(self) -> None:
        self.store.close()

    def work(self, now_s: float) -> list[float]:
        """Try to take the lock; start where a start was requested."""
        if now_s >= self._next_try_s:
            self._next_try_s = now_s + self.tries_every_s
            self._start_on_request(now_s)
            if self.running and not self.frozen:
                self._try_lock()
        expiring = super().work(now_s) if self.alive else []
        return [self._next_try_s, *expiring]

    def _start_on_request(self, now_s: float) -> None:
        """Start the process where a start was requested."""
        if self._ends_s is not None and now_s >= self._ends_s:
            self._ends_s = None
            self._process.set_running(running=False)
        if self._process.start_requested:
            self.start()
            self._process.confirm_start()

    def _run(self, *, running: bool) -> None:
        self.running = running
        self._process.set_running(running=running)
        self.changed.notify_all()

    def _try_lock(self) -> None:
        if not self.store.take(self.name) or self.alive:
            return
        self.queues = self.store.queues
        self.next_number = self.store.next_number
        super().start()

    def _release_store(self) -> None:
        """Close everything; durable messages stay in the store."""
        has_store = self.alive
        super().kill()
        if has_store:
            self.store.queues = self.queues
        self.queues = {}
