"""One row of the histograms that Spark gives back. No Spark here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HELD, BOTH, HERE, LAST, STEP = "held", "both", "here", "last", "step"
PUT, TOLD, TIME = "put", "told", "time"
"""Time by value; steps by the smaller of their ends; the last look; the last interval
between looks; changes within a horizon; what a mixed outflow was
given, and what of it queues account for; the most by time, for a chart."""
COVERED: Final = "covered"
AGE_FLOOR: Final = "age_floor"


@dataclass(frozen=True, slots=True)
class Cell:
    kind: str
    scope: str
    metric: str
    block: int
    level: int
    stalled: bool
    bucket: int
    weight_us: int
    value: int
    states: int
