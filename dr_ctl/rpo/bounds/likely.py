"""The likely loss of a failover, beside its upper bound: what likely lay there at the last look that read the queues,
and what has come since if it went on growing as it grew.

The moment up to which all is shipped is drawn between two looks; of each queue what was sent after it and lies in it is
likely lost, and what was acknowledged after it comes twice where the message itself was shipped. Where looks at the
outflow alone are newer, what was put in since is shared out as between the last two looks at the queues. `None` = not
known."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dr_ctl.rpo.bounds.direction import Direction
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
    unshipped: float = 0.0
    lying: float = 0.0


def likely(pairs: Sequence[Pair], end_us: int) -> tuple[int | None, int | None]:
    """How many messages are likely lost, and how many likely come twice, if the site died then."""
    found = [_of_pair(pair, end_us) for pair in pairs]
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found):
        return None, None
    lost, duplicates = (_told(each.apart.lost() for each in pairs), _told(each.apart.duplicates() for each in pairs))
    return (round(sum(each.lost for each in known)) + lost, round(sum(each.duplicates for each in known)) + duplicates)


def _told(apart: Iterable[tuple[int, int] | None]) -> int:
    """What lay at one site alone beside what was on its way."""
    return sum(each[0] for each in apart if each is not None)


def _of_pair(pair: Pair, end_us: int) -> Likely | None:
    if pair.looks is None or pair.messages is None or pair.acknowledgements is None or not pair.messages.rows:
        return None
    looks = pair.looks
    places = list(_places(looks))
    seen = [_at(looks, pair.messages, pair.acknowledgements, place) for place in places]
    us = looks.us[places]
    last = len(looks.us) - 1
    if places[0] != last:
        seen.insert(0, _nearer(looks, pair.messages, pair.acknowledgements, seen[0], places[0], last))
        us = np.insert(us, 0, looks.us[last])
    lost, duplicates = (
        _ahead(us, np.array(values), end_us)
        for values in zip(*((each.lost, each.duplicates) for each in seen), strict=True)
    )
    return Likely(lost, duplicates)


def _places(looks: Looks) -> Iterator[int]:
    """The newest looks at everything, some time apart, the last one first; without any, the newest at the outflows."""
    own = looks.whole if len(looks.whole) else np.arange(len(looks.us))
    own = own[looks.era[own] == looks.era[own[-1]]]
    yield from dict.fromkeys(
        int(own[np.searchsorted(looks.us[own], looks.us[own[-1]] - back, "right") - 1])
        for back in BACK_US
        if looks.us[own[-1]] - back >= looks.us[own[0]]
    )


def _at(looks: Looks, messages: Direction, acks: Direction, place: int) -> Likely:
    lost = sent = acked = 0.0
    counts = looks.outflows
    for row in messages.rows:
        if (depth := int(counts.depth[row, place])) == NA:
            continue
        queues = messages.queues_of(row)
        now = int(np.searchsorted(looks.whole, place))
        at_us = _shipped_until(looks, messages, row, place)
        is_whole = now < len(looks.whole) and looks.whole[now] == place
        lying = np.maximum(0, looks.queues.depth[queues, now]) if is_whole else np.zeros(0)
        if not queues or at_us is None or not is_whole:
            there = min(depth, int(lying.sum())) if queues and is_whole else depth
            lost, sent = lost + there, sent + there
            acked += (depth - there * bool(queues)) * (counts.names[row][0] == "mixed")
            continue
        own_sent = _since(looks, looks.queues.added[queues], at_us, now)
        own_lost = np.minimum(own_sent, lying)
        row_sent, row_lost = min(float(own_sent.sum()), depth), min(float(own_lost.sum()), depth)
        sent, lost = sent + row_sent, lost + row_lost
        if counts.names[row][0] == "mixed":
            acked += min(float(_since(looks, looks.queues.acked[queues], at_us, now).sum()), depth - row_lost)
    for row in acks.rows:
        if counts.names[row][0] == "acks" and counts.depth[row, place] != NA:
            acked += max(int(counts.depth[row, place]), acks.left.get(counts.names[row][1], 0))
    held = looks.queues.depth[:, np.searchsorted(looks.whole, place)] if place in looks.whole else np.zeros(0)
    return Likely(lost, max(0.0, acked - (sent - lost)), sent, float(np.maximum(0, held).sum()))


def _shipped_until(looks: Looks, messages: Direction, row: int, place: int) -> float | None:
    """The moment up to which all that was put in is shipped at a look, drawn between two looks."""
    cut, counts = messages.cut(row, place), looks.outflows
    if cut is None or cut == place:
        return None if cut is None else float(looks.us[place])
    end = cut + 1 + int(np.flatnonzero(counts.added[row, cut + 1 : place + 1] != NA)[0])
    step = int(counts.added[row, end] - counts.added[row, cut])
    beyond = int(counts.added[row, place] - counts.depth[row, place] - counts.added[row, cut])
    share = min(1.0, max(0.0, beyond / step)) if step else 0.0
    return float(looks.us[cut] + (looks.us[end] - looks.us[cut]) * share)


def _since(looks: Looks, counters: Ints, at_us: float, now: int) -> Floats:
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


def _nearer(looks: Looks, messages: Direction, acks: Direction, then: Likely, place: int, last: int) -> Likely:
    """At a newer look at the outflows alone: clients went on to send as before, and the rest are acknowledgements, of
    the oldest messages first."""
    counts, us = looks.outflows, looks.us
    rows = [row for row in {*messages.rows, *acks.rows} if NA not in counts.added[row, [place, last]]]
    if looks.era[place] != looks.era[last]:
        return then
    put, depth = counts.added[:, last] - counts.added[:, place], counts.depth[:, last]
    sent, acked, unshipped, waiting = 0.0, 0.0, 0.0, 0.0
    for row in rows:
        kind = counts.names[row][0]
        if kind == "mixed":
            steady = min(float(put[row]), _per_us(looks, messages.queues_of(row)) * int(us[last] - us[place]))
            sent, acked = sent + steady, acked + put[row] - steady
            there = (then.unshipped + steady) * depth[row] / max(1, counts.depth[row, place] + put[row])
            unshipped, waiting = unshipped + there, waiting + depth[row] - there
        elif kind == "mirror":
            sent, unshipped = sent + put[row], unshipped + depth[row]
        else:
            acked, waiting = acked + put[row], waiting + depth[row]
    lost = min(unshipped, max(0.0, then.lying + sent - acked))
    return Likely(lost, max(0.0, waiting - (unshipped - lost)))


def _per_us(looks: Looks, queues: Sequence[int]) -> float:
    """How fast clients sent between the last two looks at the queues."""
    if len(looks.whole) < 2 or not queues:  # noqa: PLR2004
        return 0.0
    then, now = looks.queues.added[queues, -2], looks.queues.added[queues, -1]
    known = (then != NA) & (now != NA)
    grown = int(np.maximum(0, now[known] - then[known]).sum())
    return grown / int(looks.us[looks.whole[-1]] - looks.us[looks.whole[-2]])


def _ahead(us: Ints, figures: Floats, end_us: int) -> float:
    """What grew with every look goes on growing at that rate. The newest look is the first."""
    rising = 0
    while rising + 1 < len(figures) and figures[rising] > figures[rising + 1]:
        rising += 1
    rate = (figures[0] - figures[rising]) / (us[0] - us[rising]) if rising and us[0] > us[rising] else 0.0
    return float(figures[0] + rate * max(0, end_us - int(us[0])))
