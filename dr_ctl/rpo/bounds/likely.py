"""The likely loss of a failover, beside its upper bound: what likely lay there at the last look that read the queues,
and what has come since if it went on growing as it grew.

The moment up to which all is shipped is drawn between two looks; of each queue what was sent after it and lies in it is
likely lost, and what was acknowledged after it comes twice where the message itself was shipped. Where looks at the
outflow alone are newer, what was put in since is shared out as between the last two looks at the queues."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dr_ctl.rpo.bounds.looks import Looks
from dr_ctl.rpo.bounds.pair import Pair
from dr_ctl.rpo.core.columns import NA, Floats, Ints
from dr_ctl.rpo.history.newest import US

BACK_US: Final = tuple(round(each * US) for each in (0, 1, 2, 5, 10, 20, 40, 60))
"""So long before the last look it is seen whether what is under way grows."""


@dataclass(frozen=True, slots=True)
class Likely:
    """`unshipped` messages, of which the lost ones lie in the queues, beside all that do (`lying`)."""

    lost: float
    duplicates: float
    unshipped: float
    lying: float


def likely(pairs: Sequence[Pair], end_us: int) -> tuple[int | None, int | None]:
    """How many messages are likely lost, and how many likely come twice, if the site died then; None: not known."""
    if not pairs or not all(pair.messages.rows for pair in pairs):
        return None, None
    lost, duplicates = (round(sum(each)) for each in zip(*(_of_pair(pair, end_us) for pair in pairs), strict=True))
    # What lay at one site alone beside what was on its way.
    alone = [(pair.apart.lost() or (0, 0), pair.apart.duplicates() or (0, 0)) for pair in pairs]
    return lost + sum(here for (here, _), _ in alone), duplicates + sum(there for _, (there, _) in alone)


def _of_pair(pair: Pair, end_us: int) -> tuple[float, float]:
    looks, places = pair.looks, [*_places(pair.looks)]
    seen, last = [_at(pair, place) for place in places], len(pair.looks.us) - 1
    if places[0] != last:
        seen.insert(0, _nearer(pair, seen[0], places[0], last))
        places.insert(0, last)
    us = looks.us[places]
    return _ahead(us, [each.lost for each in seen], end_us), _ahead(us, [each.duplicates for each in seen], end_us)


def _places(looks: Looks) -> Iterator[int]:
    """The newest looks at everything, some time apart, the last one first; without any, the newest at the outflows."""
    own = looks.whole if len(looks.whole) else np.arange(len(looks.us))
    own = own[looks.era[own] == looks.era[own[-1]]]
    moments = (int(looks.us[own[-1]]) - back for back in BACK_US)
    at = (np.searchsorted(looks.us[own], us, "right") - 1 for us in moments)
    yield from dict.fromkeys(int(own[place]) for place in at if place >= 0)


def _at(pair: Pair, place: int) -> Likely:
    """At a look, which read the queues too where any did."""
    looks, counts, now = pair.looks, pair.looks.outflows, int(np.searchsorted(pair.looks.whole, place))
    is_whole, queues = len(looks.whole) > 0, looks.queues
    held = np.maximum(0, queues.depth[:, now]) if is_whole else np.zeros(len(queues.names))
    lost = sent = acked = 0.0
    for row, own in pair.messages.queues.items():
        if (depth := int(counts.depth[row, place])) == NA:
            continue
        at_us, is_mixed = int(looks.cuts[1][row, place]), counts.names[row][0] == "mixed"
        if not own or at_us == NA or not is_whole:
            there = min(depth, int(held[own].sum())) if own and is_whole else depth
            lost, sent, acked = lost + there, sent + there, acked + (depth - there * bool(own)) * is_mixed
            continue
        since = _since(looks, queues.added[own], at_us, now)
        row_lost = min(float(np.minimum(since, held[own]).sum()), depth)
        lost, sent = lost + row_lost, sent + min(float(since.sum()), depth)
        if is_mixed:
            acked += min(float(_since(looks, queues.acked[own], at_us, now).sum()), depth - row_lost)
    for row in pair.acknowledgements.rows:
        if counts.names[row][0] == "acks" and counts.depth[row, place] != NA:
            acked += max(int(counts.depth[row, place]), pair.acknowledgements.left.get(counts.names[row][1], 0))
    return Likely(lost, max(0.0, acked - (sent - lost)), sent, float(held.sum()))


def _since(looks: Looks, counters: Ints, at_us: int, now: int) -> Floats:
    """How much counters of queues grew since a moment, drawn between looks at them."""
    us = looks.us[looks.whole[: now + 1]]
    after = min(int(np.searchsorted(us, at_us)), now)
    before = max(0, after - 1)
    then, later, last = counters[:, before], counters[:, after], counters[:, now]
    share = 1.0 if us[after] == us[before] else min(1.0, max(0.0, (at_us - us[before]) / (us[after] - us[before])))
    known = (then != NA) & (later != NA) & (later >= then)
    at = np.where(known, then + (later - then) * share, np.where(later == NA, last, later))
    grown: Floats = np.maximum(0.0, np.where(last == NA, 0, last - at))
    return grown


def _nearer(pair: Pair, then: Likely, place: int, last: int) -> Likely:
    """At a newer look at the outflows alone: clients went on to send as before, and the rest are acknowledgements, of
    the oldest messages first."""
    looks, counts = pair.looks, pair.looks.outflows
    if looks.era[place] != looks.era[last]:
        return then
    put, depth = counts.added[:, last] - counts.added[:, place], counts.depth[:, last]
    sent = acked = unshipped = waiting = 0.0
    for row in {*pair.messages.rows, *pair.acknowledgements.rows}:
        if NA in counts.added[row, [place, last]]:
            continue
        kind, steady, there = counts.names[row][0], 0.0, 0.0
        if kind == "mirror":
            steady, there = put[row], depth[row]
        elif kind == "mixed":
            steady = min(
                float(put[row]), _per_us(looks, pair.messages.queues[row]) * int(looks.us[last] - looks.us[place])
            )
            there = (then.unshipped + steady) * depth[row] / max(1, counts.depth[row, place] + put[row])
        sent, acked = sent + steady, acked + put[row] - steady
        unshipped, waiting = unshipped + there, waiting + depth[row] - there
    lost = min(unshipped, max(0.0, then.lying + sent - acked))
    return Likely(lost, max(0.0, waiting - (unshipped - lost)), unshipped, then.lying)


def _per_us(looks: Looks, queues: Sequence[int]) -> float:
    """How fast clients sent between the last two looks at the queues."""
    if len(looks.whole) < 2 or not queues:  # noqa: PLR2004
        return 0.0
    then, now = looks.queues.added[queues, -2], looks.queues.added[queues, -1]
    known = (then != NA) & (now != NA)
    grown = int(np.maximum(0, now[known] - then[known]).sum())
    return grown / int(looks.us[looks.whole[-1]] - looks.us[looks.whole[-2]])


def _ahead(us: Ints, figures: Sequence[float], end_us: int) -> float:
    """What grew with every look goes on growing at that rate. The newest look is the first."""
    rising = 0
    while rising + 1 < len(figures) and figures[rising] > figures[rising + 1]:
        rising += 1
    rate = (figures[0] - figures[rising]) / (us[0] - us[rising]) if rising and us[0] > us[rising] else 0.0
    return float(figures[0] + rate * max(0, end_us - int(us[0])))
