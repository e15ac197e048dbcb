"""Time as a port, so that tests never sleep."""

from datetime import datetime
from typing import Protocol

from dr_ctl.core.document import stamp
from dr_ctl.core.system import system

__all__ = ("Clock", "SystemClock", "growing_s", "stamp")


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> datetime:
        """Say the wall-clock time, in UTC: for people and file names, never for order."""

    def monotonic(self) -> float:
        """Seconds that only grow, while the machine sleeps too: for every duration and deadline."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""


def growing_s() -> float:
    """Seconds that only grow, while the machine sleeps too: for the age of a look, beside which a lock runs out."""
    return system().monotonic()


class SystemClock:
    """The clock of the system that this process runs on."""

    def now(self) -> datetime:
        return system().now()

    def monotonic(self) -> float:
        return system().monotonic()

    def sleep(self, seconds: float) -> None:
        system().sleep(seconds)
