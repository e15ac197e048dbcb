"""Curves that a page draws of an estimate: figures over time, and how they are distributed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from dr_ctl.rpo.core.scope import Drawn
from dr_ctl.rpo.history.row import moment

BINS: Final = 200
Points = tuple[tuple[float, float], ...]
Line = tuple[tuple[datetime, float | None], ...]


@dataclass(frozen=True, slots=True)
class Curves:
    """In total, by metric: the most at each moment (None: not covered), up to which figure which share of time, and
    what was likely the most at each moment."""

    began: datetime
    ended: datetime
    over_time: Mapping[str, Line]
    shares: Mapping[str, Points]
    likely: Mapping[str, Line] = field(default_factory=dict)


def curves_of(drawn: Drawn, span_us: tuple[int, int]) -> Curves:
    """Give the points of equal bins of the span their moments."""
    first, last = span_us
    step = max(1, last - first + 1) / BINS

    def line(values: Sequence[float | None]) -> Line:
        return tuple((moment(int(first + (number + 0.5) * step)), value) for number, value in enumerate(values))

    over_time, likely = ({name: line(each) for name, each in told.items()} for told in (drawn.most, drawn.likely))
    shares = {name: tuple((share, top) for share, top in each) for name, each in drawn.shares.items()}
    return Curves(moment(first), moment(last), over_time, shares, likely)
