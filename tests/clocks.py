"""Clocks for tests: the process uses the one created last, until the end of the test."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from dr_ctl.core import system
from dr_ctl.core.system import ThisMachine


class SetClock(ThisMachine):
    def __new__(cls, *_args: Any, **_options: Any) -> Self:
        clock = super().__new__(cls)
        system._system = clock
        return clock


def clock_of_this_machine() -> Iterator[None]:
    """A fixture of every test: restore the real clock."""
    yield
    if isinstance(system.system(), SetClock):
        system._system = ThisMachine()


@dataclass
class FixedClock(SetClock):
    moment: datetime = datetime(2026, 11, 24, tzinfo=UTC)
    passed_s: float = 0.0

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return self.passed_s

    def sleep(self, seconds: float) -> None:
        self.passed_s += seconds


class Ticking(FixedClock):
    def now(self) -> datetime:
        return self.moment + timedelta(seconds=self.passed_s)
