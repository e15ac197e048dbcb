"""Figures as plain values: a quantity with its interval, and all quantities of one scope. Imports no NumPy."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from dr_ctl.core.model import Json

Number = int | float
Interval = tuple[Number, Number | None]
"""From, to; None: open, nobody can say how much above."""
PROBABILITIES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
UNITS: Final = {"loss": 1, "age_ms": 1000, "duplicates": 1, "drain": 1000}
"""How many of a metric's own unit make one of the unit that people read: messages, seconds."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A figure at the last look and over the history; null where it is not known, never zero."""

    now: Number | None = None
    p50: Number | None = None
    p95: Number | None = None
    p99: Number | None = None
    max: Number | None = None


@dataclass(frozen=True, slots=True)
class Quantity:
    """Quantiles of a bound, with what is likely beside it."""

    now: Number | None = None
    p50: Number | None = None
    p95: Number | None = None
    p99: Number | None = None
    max: Number | None = None
    ci95: Mapping[str, Interval | None] = field(default_factory=lambda: dict.fromkeys(PROBABILITIES))
    likely: Quantiles = field(default_factory=Quantiles)


@dataclass(frozen=True, slots=True)
class Horizon:
    """Quantities within the next minutes, given the state now."""

    seconds: Number
    loss: Quantity = field(default_factory=Quantity)
    age_s: Quantity = field(default_factory=Quantity)


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything estimated of one scope: the total, a flow or a class."""

    loss: Quantity
    age_s: Quantity
    duplicates: Quantity
    drain_s: Quantity
    horizon: Horizon
    unexplained: float | None = None

    def as_json(self) -> dict[str, Json]:
        """The last four are those that `status` shows of each link, under the same names."""
        return {
            **asdict(self),
            "loss_risk": self.loss.now,
            "duplicate_risk": self.duplicates.now,
            "recovery_point_s": self.age_s.now,
            "recovery_time_s": self.drain_s.now,
        }
