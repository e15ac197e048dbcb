"""Lock coordinators: one lock over brokers, and an acceptor of each that is open while its broker holds the lock.

A free lock goes to the first started coordinator at the next reading; a real one checks each period. Stopping a
listener stops its coordinator; starting it opens nothing. No attribute names the listeners that depend on a lock.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dr_ctl_lab.twin.bean import ILLEGAL
from dr_ctl_lab.twin.parts import BrokerError

if TYPE_CHECKING:
    from dr_ctl_lab.twin.artemis.broker import ArtemisBroker


@dataclass
class Lock:
    """`leased`: its holder is gone, and the lease has not expired."""

    coordinators: list["Coordinator"] = field(default_factory=list)
    leased: bool = False

    def settle(self) -> None:
        for coordinator in self.coordinators:
            coordinator.locked &= coordinator.broker.alive
        if not (self.leased or any(coordinator.locked for coordinator in self.coordinators)):
            waiting = (
                coordinator for coordinator in self.coordinators if coordinator.started and coordinator.broker.alive
            )
            if (holder := next(waiting, None)) is not None:
                holder.locked = True
                holder.broker.open_listener(holder.broker.acceptors[holder.listener])


@dataclass
class Coordinator:
    broker: "ArtemisBroker"
    lock: Lock
    listener: str
    name: str = "site-lock"
    started: bool = True
    locked: bool = False

    def start(self) -> None:
        self.started = True
        self.lock.settle()

    def stop(self) -> None:
        self.started = self.locked = False
        self.broker.close_listener(self.broker.acceptors[self.listener])
        self.lock.settle()

    @property
    def status(self) -> str:
        return "Locked" if self.locked else "Unlocked" if self.started else "Stopped"


def listing(broker: "ArtemisBroker") -> str:
    for coordinator in broker.coordinators:
        coordinator.lock.settle()
    kind = "org.apache.activemq.artemis.lockmanager.file.FileBasedLockManager"
    return json.dumps(
        [
            {"name": coordinator.name, "lockId": "the-service", "className": kind, "locked": coordinator.locked,
             "started": coordinator.started, "status": coordinator.status}
            for coordinator in broker.coordinators
        ]
    )  # fmt: skip


def operation_by_name(broker: "ArtemisBroker", action: Callable[[Coordinator], None]) -> Callable[[str], None]:
    def call(name: str) -> None:
        result = next((coordinator for coordinator in broker.coordinators if coordinator.name == name), None)
        if result is None:
            raise BrokerError(ILLEGAL, f"LockCoordinator not found: {name}", 400)
        action(result)

    return call


def coordinator_of(broker: "ArtemisBroker", name: str) -> Coordinator | None:
    return next((coordinator for coordinator in broker.coordinators if coordinator.listener == name), None)


def join(*brokers: "ArtemisBroker", listener: str = "clients") -> Lock:
    """One lock over these brokers; the first one whose listener is open holds it."""
    lock = Lock()
    for broker in brokers:
        is_open = broker.acceptors[listener].started
        coordinator = Coordinator(broker, lock, listener, locked=is_open)
        broker.coordinators.append(coordinator)
        lock.coordinators.append(coordinator)
    return lock
