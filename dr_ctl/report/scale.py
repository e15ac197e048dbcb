"""Axes: where a value lies on one, in per cent, and which round values are written along it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dr_ctl.report.values import count

_STEPS_S: Final = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    20,
    30,
    60,
    120,
    300,
    600,
    1200,
    1800,
)
_MOST_TICKS: Final = 6
_LEAST_SPAN_S: Final = 0.001


@dataclass(frozen=True, slots=True)
class Tick:
    """A round value, at `at` per cent of its axis."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """From one moment to another; moments outside lie on its ends."""

    began: datetime
    ended: datetime

    @property
    def span_s(self) -> float:
        return max(_LEAST_SPAN_S, (self.ended - self.began).total_seconds())

    def at(self, when: datetime) -> float:
        share = (when - self.began).total_seconds() / self.span_s
        return round(100 * min(1.0, max(0.0, share)), 3)

    def ticks(self) -> tuple[Tick, ...]:
        """Seconds since the beginning, in the unit that suits."""
        step = next((each for each in _STEPS_S if self.span_s / each < _MOST_TICKS), 3600.0)
        while self.span_s / step >= _MOST_TICKS:
            step *= 2
        return _ticks(self.span_s, step, lambda value: _offset(value, step))


def _offset(value_s: float, step_s: float) -> str:
    if step_s < 0.1:  # noqa: PLR2004 - tenths of a second still read well as seconds
        return f"{value_s * 1000:.0f} ms"
    if step_s < 60:  # noqa: PLR2004
        return f"{value_s:g} s" if step_s >= 1 else f"{value_s:.1f} s"
    return f"{value_s / 60:g} min" if step_s < 3600 else f"{value_s / 3600:g} h"  # noqa: PLR2004


def _ticks(top: float, step: float, label: Callable[[float], str]) -> tuple[Tick, ...]:
    values = [place * step for place in range(int(top / step + 1e-9) + 1)]
    return tuple(Tick(round(100 * value / top, 3), label(value)) for value in values)


@dataclass(frozen=True, slots=True)
class CountAxis:
    """From zero to a round value not below the largest."""

    top: float
    step: float

    @classmethod
    def up_to(cls, largest: float) -> CountAxis:
        rough = max(largest, 1.0) / 4
        power = 10.0 ** math.floor(math.log10(rough))
        step = max(1.0, next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough))
        return cls(step * math.ceil(max(largest, 1.0) / step), step)

    def at(self, value: float) -> float:
        """From the top, as a page counts."""
        return round(100 * (1 - min(1.0, max(0.0, value / self.top))), 3)

    def ticks(self) -> tuple[Tick, ...]:
        return tuple(Tick(100 - tick.at, tick.label) for tick in _ticks(self.top, self.step, count))
