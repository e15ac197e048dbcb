"""Lock coordinators: one lock over brokers, and an acceptor of each that is open while its broker holds the lock.

Whoever contends gets a lock that is free at the next reading; a real one looks each check period. A listener that is
stopped stops its coordinator; starting that listener opens nothing, and no word tells which listeners hang on a lock.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dr_ctl_lab.twin.bean import ILLEGAL
from dr_ctl_lab.twin.parts import BrokerSaysNo

if TYPE_CHECKING:
    from dr_ctl_lab.twin.artemis.broker import ArtemisBroker


@dataclass
class Lock:
    """`leased`: its holder is gone, and its lease has not run out yet."""

    coordinators: list["Coordinator"] = field(default_factory=list)
    leased: bool = False

    def settle(self) -> None:
        for coordinator in self.coordinators:
            coordinator.locked &= coordinator.broker.alive
        if not (self.leased or any(coordinator.locked for coordinator in self.coordinators)):
            contending = (
                coordinator for coordinator in self.coordinators if coordinator.started and coordinator.broker.alive
            )
            if (next_one := next(contending, None)) is not None:
                next_one.locked = True
                next_one.broker.open_listener(next_one.broker.acceptors[next_one.listener])


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


def calling(broker: "ArtemisBroker", act: Callable[[Coordinator], None]) -> Callable[[str], None]:
    def call(name: str) -> None:
        result = next((coordinator for coordinator in broker.coordinators if coordinator.name == name), None)
        if result is None:
            raise BrokerSaysNo(ILLEGAL, f"LockCoordinator not found: {name}", 400)
        act(result)

    return call


def of_listener(broker: "ArtemisBroker", name: str) -> Coordinator | None:
    return next((coordinator for coordinator in broker.coordinators if coordinator.listener == name), None)


def joined(*brokers: "ArtemisBroker", listener: str = "clients") -> Lock:
    """One lock over these brokers, which the first of them holds whose listener is open."""
    lock = Lock()
    for broker in brokers:
        is_open = broker.acceptors[listener].started
        coordinator = Coordinator(broker, lock, listener, locked=is_open)
        broker.coordinators.append(coordinator)
        lock.coordinators.append(coordinator)
    return lock
