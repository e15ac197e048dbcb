"""The verdict of a backtest on a figure: holds, narrow, or unknown where the history is too short."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

Z: Final = 1.959964


def t_value(freedom: int) -> float:
    """Student's t for a two-sided 95 %, by Cornish and Fisher's expansion: 0.2 % off at 5 degrees, less above."""
    first, second = (Z**3 + Z) / 4, (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96
    return Z + first / freedom + second / freedom**2


LEAST_FOLDS: Final = 8
"""From fewer folds nobody can tell whether a coverage is too low."""


class Calibration(Enum):
    """HOLDS: not shown to cover less than it says. NARROW: shown to. UNKNOWN: too little history to tell."""

    HOLDS = "holds"
    NARROW = "narrow"
    UNKNOWN = "unknown"

    @classmethod
    def of(cls, coverages: Sequence[float], weights: Sequence[float], nominal: float) -> Calibration:
        """NARROW where the coverage of the folds is below `nominal`, beyond the chance that so few folds have."""
        count, whole = len(coverages), sum(weights)
        if count < LEAST_FOLDS or not whole:
            return cls.UNKNOWN
        pairs = list(zip(coverages, weights, strict=True))
        mean = sum(coverage * weight for coverage, weight in pairs) / whole
        spread = sum((weight * (coverage - mean)) ** 2 for coverage, weight in pairs)
        error = t_value(count - 1) * math.sqrt(count / (count - 1) * spread) / whole
        return cls.NARROW if mean + error < nominal else cls.HOLDS

    @classmethod
    def worst(cls, verdicts: Iterable[Calibration]) -> Calibration:
        """The first of narrow, holds and unknown that occurs: a known answer outweighs an unknown one."""
        occurring = set(verdicts)
        return next((each for each in (cls.NARROW, cls.HOLDS) if each in occurring), cls.UNKNOWN)
