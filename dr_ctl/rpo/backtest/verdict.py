"""The verdict of a backtest on a figure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Calibration(Enum):
    """HOLDS: not shown to cover less than it says. NARROW: shown to. UNKNOWN: too little history to tell."""

    HOLDS = "holds"
    NARROW = "narrow"
    UNKNOWN = "unknown"

    @classmethod
    def worst(cls, verdicts: Iterable[Calibration]) -> Calibration:
        """The first of narrow, holds and unknown that occurs: a known answer outweighs an unknown one."""
        occurring = set(verdicts)
        return next((each for each in (cls.NARROW, cls.HOLDS) if each in occurring), cls.UNKNOWN)
