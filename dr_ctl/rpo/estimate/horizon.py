"""The next minutes, given the state now: by how much loss and age had changed one horizon after similar moments.

While it stalls and nothing like it is on record, what came in at its usual rates goes on coming in, and time goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

from dr_ctl.rpo.core.changes import Changes
from dr_ctl.rpo.core.histogram import weighted_quantile
from dr_ctl.rpo.estimate.figures import scaled
from dr_ctl.rpo.estimate.result import PROBABILITIES, Number, Quantity


def ahead(
    here: int | None,
    since: int | None,
    moves: Changes | None,
    *,
    fallback: Sequence[int] | None = None,
    per: float = 1.0,
) -> Quantity:
    """The figure one horizon ahead of the interval in which it was at most `since`; `here` is the last look itself.

    `fallback`: the changes at p50, p95, p99 and at most, where nothing similar is on record.

    The answer has no interval: the moments are too few and too much alike for one.
    """
    if since is None:
        return Quantity(now=scaled(here, per))
    asked = (*PROBABILITIES.items(), ("max", 1.0))
    by: dict[str, Number | None] = dict.fromkeys(name for name, _ in asked)
    if moves is not None:
        by = {name: _sum(since, weighted_quantile(moves.change, moves.weight, p)) for name, p in asked}
    elif fallback is not None:
        by = {name: _sum(since, change) for name, change in zip(by, fallback, strict=True)}
    p50, p95, p99, most = (scaled(value, per) for value in by.values())
    return Quantity(now=scaled(here, per), p50=p50, p95=p95, p99=p99, max=most)


def _sum(since: int, change: int | None) -> Number | None:
    return None if change is None else max(0, since + change)
