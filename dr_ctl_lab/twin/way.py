"""The way from one broker to its peer: what ships, a delay, and cuts.

Subclasses define the shipped items and how the source connects.
"""

from abc import ABC, abstractmethod
from enum import Enum
from typing import Final, Generic, TypeVar

from dr_ctl.core.system import BackgroundTask, in_background
from dr_ctl_lab.twin.broker import Broker

REDIAL_S: Final = 0.1
AT_ONCE: Final = 50

B = TypeVar("B", bound=Broker)


class Mode(Enum):
    """The state of the way: `accept` takes a connection for a peer that refuses, as balancers do."""

    OPEN = "open"
    REFUSE = "refuse"
    HANG = "hang"
    ACCEPT = "accept"


class Way(ABC, Generic[B]):
    """A direction of a pair, at work beside the brokers."""

    def __init__(self, source: B, target: B, *, delay_s: float = 0.0) -> None:
        self.source, self.target = source, target
        self.mode = Mode.OPEN
        self.delay_s = delay_s
        self._over = False
        self._work: BackgroundTask[None] | None = None

    def start(self) -> None:
        self._work = in_background(self._run, f"link {self.source.name}-{self.target.name}")

    def end(self) -> None:
        with self.source.lock:
            self._over = True
            self.source.changed.notify_all()
        if self._work is not None:  # a twin that does not come up ends before its ways have begun
            self._work.result()

    def set(self, mode: Mode) -> None:
        """Change what the way does; `open` resets what was held, so that the source dials anew at once."""
        with self.source.lock:
            self._change(mode)
            self.mode = mode
            self.source.changed.notify_all()

    @abstractmethod
    def _change(self, mode: Mode) -> None:
        """Take down what does not outlive the change."""

    @abstractmethod
    def _turn(self) -> float | None:
        """Do what is due; seconds until something else is, None where only a change can bring it."""

    def _run(self) -> None:
        changed = self.source.changed
        with changed:
            while not self._over:
                wait_s = self._turn()
                changed.wait(None if wait_s is None else self.source.clock.outside_s(wait_s))

    def _peer_there(self) -> bool:
        return self.target.lets_peer_in and self.mode is not Mode.REFUSE
