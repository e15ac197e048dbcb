"""What would shorten a loss, by what the history shows: where most of it lay, when, and what limited its way across.

A sentence stands only where the rows show its reason; where they show none there is no advice.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from dr_ctl.core.clock import stamp
from dr_ctl.core.printable import if_known
from dr_ctl.rpo.core.calendar import SECOND
from dr_ctl.rpo.core.facts import Facts, pair_of
from dr_ctl.rpo.core.quantities import Figures
from dr_ctl.rpo.core.rows import TOTAL
from dr_ctl.rpo.core.scope import OfScope, Peak
from dr_ctl.rpo.estimate.result import Objectives, QueueShare
from dr_ctl.rpo.history.row import moment
from dr_ctl.settings.durations import duration

TOP: Final = 5
"""So many queues are named."""
MOST: Final = 0.5
"""A queue with this share of what was likely lost is where most comes from."""
WIDE: Final = 3
"""A bound so many times what is likely is wide because looks are far apart."""
NEAR_US: Final = SECOND


def shares(facts: Facts) -> tuple[QueueShare, ...]:
    """The queues in which most was likely to be lost, by how much for how long."""
    weights: dict[tuple[str, str], tuple[int, int]] = {}
    for flow, name, weight, most in facts.shares:
        before = weights.get((pair_of(flow), name), (0, 0))
        weights[pair_of(flow), name] = before[0] + weight, max(before[1], most)
    whole = sum(weight for weight, _ in weights.values())
    order = sorted((key for key in weights if key[1]), key=lambda key: (-weights[key][0], key))
    return tuple(
        QueueShare(pair, name, round(weights[pair, name][0] / whole, 4), weights[pair, name][1])
        for pair, name in order[:TOP]
    )


def advice(
    scopes: Mapping[str, OfScope], facts: Facts, queues: Sequence[QueueShare], objectives: Objectives | None
) -> tuple[str, ...]:
    """In the order in which to look."""
    total = scopes[TOTAL]
    if not queues and not _is_wide(total.figures):
        return ()
    limit = objectives.loss.messages if objectives is not None else None
    when = [] if total.peak is None else [_when(total.peak, limit)]
    return (*when, *_link(scopes, facts), *_queue(queues), *_looks(total.figures, facts))


def _when(peak: Peak, limit: int | None) -> str:
    """When it was above the limit, by what was likely; without one, when it was most."""
    if not peak.times:
        return f"Most was likely lost by a death at about {stamp(moment(peak.at_us))}: {peak.most} message(s)."
    times = "once" if peak.times == 1 else f"{peak.times} times"
    return (
        f"More than {if_known(limit)} were likely lost by a death {times} in the history, the longest for about "
        f"{duration(float(peak.longest_us) / SECOND)} from {stamp(moment(peak.from_us))} on: look "
        "what the link and the consumers did then."
    )


def _link(scopes: Mapping[str, OfScope], facts: Facts) -> Iterator[str]:
    """Links that carried less than came while something waited."""
    for flow in facts.flows:
        told = scopes[flow]
        if told.shipped is not None and told.came is not None and told.shipped < told.came:
            yield (
                f"While something waited, the outflow of pair {pair_of(flow)} shipped at {told.shipped:.0f} a second "
                f"and less for a tenth of it, where up to {told.came:.0f} a second came: a quicker link shortens it."
            )


def _queue(queues: Sequence[QueueShare]) -> Iterator[str]:
    if queues and queues[0].share >= MOST:
        first = queues[0]
        yield (
            f"{first.share:.0%} of what was likely lost lay in {first.name} of pair {first.pair}, at most {first.most} "
            "at a look: consumers that keep up there shorten it, for what is consumed is not lost."
        )


def _is_wide(figures: Figures) -> bool:
    bound, likely = figures.loss.p99, figures.loss.likely.p99
    return bound is not None and likely is not None and bound > WIDE * max(likely, 1)


def _looks(figures: Figures, facts: Facts) -> Iterator[str]:
    """What narrows the bound and not the loss."""
    if _is_wide(figures) and facts.spacing_us >= NEAR_US:
        yield (
            f"The bound is far above what is likely because looks are {duration(facts.spacing_us / SECOND)} apart: a "
            "shorter `history.every` narrows what is said, and loses nothing less."
        )
