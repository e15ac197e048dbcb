"""A life whose truth between two looks is exactly what counters can tell, so that a bound is right or wrong to the one.

Right after each look messages are sent. Right before the next they are consumed and everything is shipped, or, while
the link stalls, neither. Within an interval the most that is lost, its age and the most that comes twice are then what
the counters at both ends say, and `FifoSite` knows them message by message.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dr_ctl.rpo.history.row import Row
from tests.rpo.fifo import FifoSite, Truth

EVERY_S = 10
QUEUE, OUTFLOW = "orders", ("mixed", "*")
NORMAL = (3, 7, 1, 0, 5, 9, 2, 4)
"""Messages an interval, over and over."""


class Interval(NamedTuple):
    """Between which moments it lay, and what was true in it at most."""

    from_s: float
    to_s: float
    loss: int
    age_s: float
    duplicates: int


class Life:
    """A pair at a site, from look to look. `looks` are the rows of each; `intervals` what was true in between."""

    def __init__(self, pair: str, *, site: str = "london", role: str = "serving", begin_s: float = 0) -> None:
        self.site, self.pair, self.role = site, pair, role
        self.machine = FifoSite(pair, "mixed", (QUEUE,))
        self.now_s = begin_s
        self.looks: list[list[Row]] = []
        self.intervals: list[Interval] = []
        self._look()

    def _look(self) -> None:
        rows = self.machine.look(self.now_s)
        role = replace(rows[0], kind="site", name=self.role, depth=None, delivering=None, added=None, removed=None)
        self.looks.append([replace(row, site=self.site) for row in (role, *rows)])

    def live(self, count: int, *, stalled: bool = False, idle: bool = False) -> None:
        """Live through so many intervals."""
        for _ in range(count):
            begin_s, end_s = self.now_s, self.now_s + EVERY_S
            for _ in range(0 if idle else NORMAL[len(self.intervals) % len(NORMAL)]):
                self.machine.send(QUEUE, begin_s)
            seen = [self.machine.truth(begin_s), self.machine.truth(end_s)]
            if not stalled:
                self._finish(end_s, seen)
            most = (max(getattr(truth, each) for truth in seen) for each in ("loss", "age_s", "duplicates"))
            self.intervals.append(Interval(begin_s, end_s, *most))
            self.now_s = end_s
            self._look()

    def _finish(self, end_s: float, seen: list[Truth]) -> None:
        while self.machine.waiting[QUEUE]:
            self.machine.consume(QUEUE)
        while self.machine.outflows[OUTFLOW]:
            self.machine.ship(OUTFLOW)
            seen.append(self.machine.truth(end_s))

    def restart(self) -> None:
        """The broker begins anew right after the last look: the next interval has no counters in common with it."""
        self.machine.restart()

    def rows(self, keep: Callable[[int], bool] = lambda _: True) -> list[Row]:
        """The rows of all looks, or of those whose numbers are to be kept."""
        return [row for number, look in enumerate(self.looks) if keep(number) for row in look]


def ordinary(pair: str, **more: object) -> Life:
    """Traffic, a stall of four intervals, catching up, silence, traffic."""
    life = Life(pair, **more)
    life.live(6)
    life.live(4, stalled=True)
    life.live(8)
    life.live(2, idle=True)
    life.live(4)
    return life


def within(intervals: Sequence[Interval], *, leave_out: Sequence[int] = ()) -> dict[tuple[float, float], Interval]:
    """What is expected of each interval, without those left out."""
    return {(each.from_s, each.to_s): each for n, each in enumerate(intervals) if n not in leave_out}


def shifted(interval: Interval, by_s: float) -> Interval:
    return interval._replace(from_s=interval.from_s + by_s, to_s=interval.to_s + by_s)


def weighted(intervals: Mapping[tuple[float, float], Interval], metric: str, probability: float) -> float:
    """The quantile over the time of the intervals, counted out: second by second."""
    seconds = sorted(
        getattr(each, metric) for each in intervals.values() for _ in range(round(each.to_s - each.from_s))
    )
    rank = -(-int(probability * 100 * len(seconds)) // 100)
    return float(seconds[max(0, rank - 1)])
