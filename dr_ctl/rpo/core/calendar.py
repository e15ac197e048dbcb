"""Hours and days of the calendar (UTC): which are over, and how finely each is told."""

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


def over_us(end_us: int) -> int:
    """Days that begin before are over in a history that ends then (exclusive), with the looks after them that say what
    was in step with them."""
    return (end_us - AWAY_US) // DAY * DAY


def fineness(us: int, end_us: int) -> Fineness:
    """How finely a moment is told: a day that is over by the hour."""
    return OF_A_DAY if us < over_us(end_us) else LATELY
