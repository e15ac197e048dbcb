"""Hours, days and months of the calendar (UTC): how finely each is told, by how long it is over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from dr_ctl.rpo.history.row import micros, moment
from dr_ctl.rpo.series.cut import AWAY_US

SECOND: Final = 1_000_000
HOUR: Final = 3600 * SECOND
DAY: Final = 24 * HOUR
READ: Final = ("looks", "queue", "put", "excess")
"""What tells whether queues and outflows were read: of longer time."""


@dataclass(frozen=True, slots=True)
class Fineness:
    """How long the cells of a time are: cells of figures, of a curve, and of looks at all."""

    figures_us: int
    curve_us: int
    read_us: int

    def of(self, scope: str, what: str) -> int:
        if what.startswith("curve"):
            return self.curve_us
        if what in READ:
            return self.read_us
        # Flows may be hundreds.
        return self.figures_us if scope == "total" or scope.startswith("class") else max(HOUR, self.figures_us)


LATELY: Final = Fineness(300 * SECOND, 20 * SECOND, HOUR)
OF_A_DAY: Final = Fineness(HOUR, 600 * SECOND, HOUR)
OF_A_MONTH: Final = Fineness(DAY, HOUR, DAY)


@dataclass(frozen=True, slots=True)
class Period:
    """An hour, a day or a month."""

    label: str
    from_us: int
    to_us: int
    fineness: Fineness

    @property
    def parts(self) -> list[Period]:
        """The shorter periods that it is made of."""
        if self.fineness is LATELY:
            return []
        of, step = (day_of, DAY) if self.fineness is OF_A_MONTH else (hour_of, HOUR)
        return [of(us) for us in range(self.from_us, self.to_us, step)]


def hour_of(us: int) -> Period:
    begin = us - us % HOUR
    return Period(f"{moment(begin):%Y%m%dT%H}", begin, begin + HOUR, LATELY)


def day_of(us: int) -> Period:
    begin = us - us % DAY
    return Period(f"{moment(begin):%Y%m%d}", begin, begin + DAY, OF_A_DAY)


def month_of(us: int) -> Period:
    first = moment(us).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    after = datetime(first.year + first.month // 12, first.month % 12 + 1, 1, tzinfo=UTC)
    return Period(f"{first:%Y%m}", micros(first), micros(after), OF_A_MONTH)


@dataclass(frozen=True, slots=True)
class Calendar:
    """A history from the day of its first look to its end."""

    begin_us: int
    end_us: int

    @classmethod
    def of(cls, first_us: int, end_us: int) -> Calendar:
        return cls(first_us - first_us % DAY, end_us)

    def period_of(self, us: int) -> Period | None:
        """The longest period around a moment that is over, or None where not even the hour is. Looks after it are there
        too, for they say what was in step with it. Of the last days hours are needed, and of the first month days:
        periods are removed one by one."""
        month, day, hour = month_of(us), day_of(us), hour_of(us)
        if month.from_us >= self.begin_us and month.to_us + 2 * DAY <= self.end_us:
            return month
        return next((each for each in (day, hour) if each.to_us + AWAY_US <= self.end_us), None)

    def fineness(self, us: int) -> Fineness:
        """How finely a moment is told."""
        found = self.period_of(us)
        return LATELY if found is None else found.fineness

    def periods(self, from_us: int, to_us: int) -> list[Period]:
        """Periods of that time that are over."""
        found: list[Period] = []
        while from_us < to_us and (each := self.period_of(from_us)) is not None:
            found.append(each)
            from_us = each.to_us
        return found
