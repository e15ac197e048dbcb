"""Hours and days of the calendar (UTC): which are over, and how finely each is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dr_ctl.rpo.core.cut import AWAY_US

SECOND: Final = 1_000_000
HOUR: Final = 3600 * SECOND
DAY: Final = 24 * HOUR


@dataclass(frozen=True, slots=True)
class Fineness:
    """How long the cells of a time are: those of figures, and those of a curve."""

    figures_us: int
    curve_us: int


LATELY: Final = Fineness(300 * SECOND, 20 * SECOND)
OF_A_DAY: Final = Fineness(HOUR, 600 * SECOND)


@dataclass(frozen=True, slots=True)
class Period:
    """An hour or a day."""

    from_us: int
    to_us: int

    @property
    def is_day(self) -> bool:
        return self.to_us - self.from_us == DAY

    @property
    def hours(self) -> list[Period]:
        return [Period(us, us + HOUR) for us in range(self.from_us, self.to_us, HOUR)]


@dataclass(frozen=True, slots=True)
class Calendar:
    """A history that ends then (exclusive)."""

    end_us: int

    def is_over(self, period: Period) -> bool:
        """Whether a period is over, with the looks after it that say what was in step with it."""
        return period.to_us + AWAY_US <= self.end_us

    def day_of(self, us: int) -> Period:
        return Period(us - us % DAY, us - us % DAY + DAY)

    def fineness(self, us: int) -> Fineness:
        """How finely a moment is told: a day that is over by the hour."""
        return OF_A_DAY if self.is_over(self.day_of(us)) else LATELY

    def periods(self, from_us: int, to_us: int) -> list[Period]:
        """The days, and of the last day the hours, that are over and touch that time."""
        found: list[Period] = []
        for us in range(from_us - from_us % DAY, to_us, DAY):
            day = self.day_of(us)
            parts = [day] if self.is_over(day) else day.hours
            found += [each for each in parts if self.is_over(each) and each.to_us > from_us and each.from_us < to_us]
        return found
