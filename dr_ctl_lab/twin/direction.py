"""One direction of a link: from a broker to its peer, with a delay and cuts.

Subclasses define what is shipped and how the source connects.
"""

from abc import ABC, abstractmethod
from enum import Enum
from typing import Final, Generic, TypeVar

from dr_ctl.core.system import BackgroundTask, in_background
from dr_ctl_lab.twin.broker import Broker

REDIAL_S: Final = 0.1
BATCH: Final = 50

B = TypeVar("B", bound=Broker)


class Mode(Enum):
    """The state of the network: `accept` accepts connections that the peer would refuse, as load balancers do."""

    OPEN = "open"
    REFUSE = "refuse"
    HANG = "hang"
    ACCEPT = "accept"


class Direction(ABC, Generic[B]):
    """One direction of a pair, in a thread of its own."""

    def __init__(self, source: B, target: B, *, delay_s: float = 0.0) -> None:
        self.source, self.target = source, target
        self.mode = Mode.OPEN
        self.delay_s = delay_s
        self._has_ended = False
        self._work: BackgroundTask[None] | None = None

    def start(self) -> None:
        self._work = in_background(self._run, f"link {self.source.name}-{self.target.name}")

    def end(self) -> None:
        with self.source.lock:
            self._has_ended = True
            self.source.changed.notify_all()
        if self._work is not None:  # None where the twin failed to start
            self._work.result()

    def set(self, mode: Mode) -> None:
        """Change the state of the network; `open` resets held connections, so that the source redials at once."""
        with self.source.lock:
            self._change(mode)
            self.mode = mode
            self.source.changed.notify_all()

    @abstractmethod
    def _change(self, mode: Mode) -> None:
        """Drop connections that the new mode ends."""

    @abstractmethod
    def _step(self) -> float | None:
        """Do what is due; return the seconds until the next step, None to wait for a change."""

    def _run(self) -> None:
        changed = self.source.changed
        with changed:
            while not self._has_ended:
                wait_s = self._step()
                changed.wait(None if wait_s is None else self.source.clock.outside_s(wait_s))

    def _peer_reachable(self) -> bool:
        return self.target.accepts_peer and self.mode is not Mode.REFUSE
