"""One row of the histograms that Spark gives back, and what its series are called. No Spark here."""

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
TOTAL: Final = "total"
CLASS: Final = "class:"
FLOW: Final = "flow:"
METRICS: Final = ("loss", "age_ms", "duplicates", "drain_ms")
"""The series of an estimate: the total, each class, each flow; and what is told of each."""


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


def flow_scope(pair: str, flow: str) -> str:
    """Name the scope of one flow; its parts are separated by what no name of a pair holds."""
    return f"{FLOW}{pair}\n{flow}"
