"""A clock that tests set."""

from dataclasses import dataclass
from datetime import datetime


@dataclass
class FixedClock:
    """The date stands still; what passes is what was slept."""

    moment: datetime
    passed_s: float = 0.0

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return self.passed_s

    def sleep(self, seconds: float) -> None:
        self.passed_s += seconds
