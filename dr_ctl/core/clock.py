"""Time as a port, so that tests never sleep."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Final, Protocol


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> datetime:
        """Say the wall-clock time, in UTC: for people and file names, never for order."""

    def monotonic(self) -> float:
        """Seconds that only grow, while the machine sleeps too: for every duration and deadline."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""


# The clock that goes on while the machine sleeps, if the system has one: a lock runs out meanwhile.
_GROWING: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def growing_s() -> float:
    """Seconds that only grow, while the machine sleeps too: for the age of a look, beside which a lock runs out."""
    return time.clock_gettime(_GROWING)


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return growing_s()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def stamp(at: datetime) -> str:
    """Write a moment as every file and document of dr-ctl does: ISO 8601, UTC, milliseconds."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
