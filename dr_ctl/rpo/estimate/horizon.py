"""The next minutes, given the state now: by how much loss and age had changed one horizon after similar moments.

Similar is a moment with the same magnitude of loss (its power of two) and the same answer to whether the outflow
stalls; with too few of them their neighbours count too. While it stalls and nothing like it is on record, what came in
at its usual rates goes on coming in, and time goes on. No Spark here.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dr_ctl.rpo.estimate.cells import STEP, Cell
from dr_ctl.rpo.estimate.figures import scaled, weighted_quantile
from dr_ctl.rpo.estimate.result import PROBABILITIES, Number, Quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LEAST_MOMENTS: Final = 30
Moves = list[tuple[int, int]]  # change, weight


def level(loss: int) -> int:
    """The magnitude of a loss: 0 for none, else its number of binary digits."""
    return loss.bit_length()


@dataclass(slots=True)
class Changes:
    """What had become of a figure of one scope one horizon later, by (level, stalled)."""

    moves: dict[tuple[int, bool], Moves] = field(default_factory=lambda: defaultdict(list))
    moments: dict[tuple[int, bool], int] = field(default_factory=lambda: defaultdict(int))

    def add(self, cell: Cell) -> None:
        self.moves[cell.level, cell.stalled].append((cell.value, cell.weight_us))
        self.moments[cell.level, cell.stalled] += cell.states

    def similar(self, at: int, *, stalled: bool) -> Moves:
        """The changes after moments like this one; empty where even all levels together are too few."""
        levels = [each for each, is_stalled in self.moments if is_stalled == stalled]
        for reach in range(1 + max((abs(each - at) for each in levels), default=0)):
            near = [(each, stalled) for each in levels if abs(each - at) <= reach]
            if sum(self.moments[key] for key in near) >= LEAST_MOMENTS:
                return [move for key in near for move in self.moves[key]]
        return []


def changes(cells: Iterable[Cell]) -> dict[tuple[str, str], Changes]:
    """By scope and metric."""
    found: dict[tuple[str, str], Changes] = defaultdict(Changes)
    for cell in cells:
        if cell.kind == STEP:
            found[cell.scope, cell.metric].add(cell)
    return found


def ahead(
    here: int | None, since: int | None, moves: Moves, *, fallback: Sequence[int] | None = None, per: float = 1.0
) -> Quantity:
    """The figure one horizon ahead of the interval in which it was at most `since`; `here` is the last look itself.

    `fallback`: the changes at p50, p95, p99 and at most, where nothing similar is on record.

    There is no interval: the moments are too few and too much alike for one.
    """
    if since is None:
        return Quantity(now=scaled(here, per))
    by: dict[str, Number | None] = dict.fromkeys(("p50", "p95", "p99", "max"))
    if moves:
        by = {name: _sum(since, weighted_quantile(moves, p)) for name, p in (*PROBABILITIES.items(), ("max", 1.0))}
    elif fallback is not None:
        by = {name: _sum(since, change) for name, change in zip(by, fallback, strict=True)}
    p50, p95, p99, most = (scaled(value, per) for value in by.values())
    return Quantity(now=scaled(here, per), p50=p50, p95=p95, p99=p99, max=most)


def _sum(since: int, change: int | None) -> Number | None:
    return None if change is None else max(0, since + change)
