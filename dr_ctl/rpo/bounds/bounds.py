"""What a failover now may lose at most, and what may come twice at most: from the last looks, at once, without Spark.

What lay in the outflow of the lost site at its last look may be lost with the site; so may what was put in later, until
it died. That was at the latest when the site was first seen down in an unbroken run of such looks up to the last one,
which is not long ago; else now. The operator may know better since when it served nobody: then that holds. Nobody saw
what was put in between: it is taken to be no more than the pace of the last minutes allows (`pace`).

    lost    what was neither shipped nor consumed at the last look, and what was sent since (`outflow`)
    twice   what was acknowledged and not shipped then, or lay at the other site and was done here (`staged`:
            acknowledgements that were lost before are in no outflow) where that is more
            + what was acknowledged since
            + what clients had in delivery (the most that was seen: their windows limit it)

What is lost of one queue lay in that queue too: its own depth and its own pace bound it as well, and the smaller figure
holds. Pairs add up; what was not read of one of them is not known of the total, and never zero.

    age     time since the last look at which nothing of what lay in the outflow at the end had been put in yet

All of it rests on one assumption, told with the sum: that clients were not faster in the end than before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dr_ctl.core.patterns import matches
from dr_ctl.rpo.bounds.death import STALE_US, Death, latest
from dr_ctl.rpo.bounds.likely import likely
from dr_ctl.rpo.bounds.looks import Looks
from dr_ctl.rpo.bounds.pair import Pair, total
from dr_ctl.rpo.bounds.received import Received
from dr_ctl.rpo.bounds.result import Bound, Bounds, ClassBound, QueueBound
from dr_ctl.rpo.bounds.telling import because, findings
from dr_ctl.rpo.estimate.result import LossLimit, Objectives
from dr_ctl.rpo.history.newest import US, WINDOW_US, Recent, recent
from dr_ctl.rpo.history.row import micros, moment

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path


def bounds(
    history: Path,
    *,
    site: str,
    now: datetime,
    objectives: Objectives | None = None,
    include: Sequence[str] = ("#",),
    exclude: Sequence[str] = (),
    pairs: Sequence[str] = (),
    survivor: str | None = None,
    down_at: datetime | None = None,
    silent_since: datetime | None = None,
) -> Bounds:
    """Say what is lost at most, and comes twice at most, if the service goes on without `site` now, at the `survivor`.

    `down_at`: when the caller itself saw the site down. `silent_since`: when its service ended, by the word of somebody
    who knows. `pairs`: all that the settings name; one that the history does not know makes the total unknown. The
    patterns narrow the queues and classes that are told, never the totals: an outflow cannot say what of it belongs to
    which queue.
    """
    seen = recent(history, site, pairs)
    death = latest(seen, micros(down_at or now), is_down=down_at is not None)
    if silent_since is not None:
        death = death.or_earlier(micros(silent_since), seen)
    looks = Looks.of(seen)
    received = None if survivor is None else Received.of(_waited(history, survivor, pairs, death))
    told = [Pair.of(name, looks, seen, death.us, received) for name in sorted(seen.pairs)]
    names = sorted({name for pair in told for name in pair.queues if matches(include, name)})
    names = [name for name in names if not matches(exclude, name)]
    classes = () if objectives is None else objectives.classes
    parts = [pair.lost for pair in told]
    lost = _bound([None if each is None else each.at_most for each in parts], [pair.lost_read_us for pair in told])
    twice = _bound([pair.twice for pair in told], [pair.twice_read_us for pair in told])
    expected = likely(looks, told, death.us)
    lost, twice = _likely(lost, expected.lost), _likely(twice, expected.twice)
    why = because(told, death, lost.likely)
    return Bounds(
        site=site,
        lost=lost,
        twice=twice,
        queues=tuple(_queue(name, told) for name in names),
        classes=tuple(_class(each.queues, each.loss, names, told) for each in classes),
        findings=(*seen.findings, *findings(site, told, death, is_summed=why is not None)),
        age_s=_oldest(pair.age_us for pair in told),
        because=why,
    )


def _waited(history: Path, survivor: str, pairs: Sequence[str], death: Death) -> Recent:
    """The looks at the survivor up to the death; later looks, of hours perhaps, tell nothing of the link."""
    return recent(history, survivor, pairs, silent_within_us=WINDOW_US, until_us=death.us + STALE_US)


def _oldest(ages: Iterable[int | None]) -> float | None:
    """The greatest of all pairs, in seconds; one that is not known makes it unknown."""
    found = list(ages)
    known = [each for each in found if each is not None]
    return max(known) / US if known and len(known) == len(found) else None


def _bound(counts: Sequence[int | None], read: Sequence[int | None]) -> Bound:
    moments = [us for us in read if us is not None]
    return Bound(total(counts) if counts else None, moment(min(moments)) if moments else None)


def _likely(bound: Bound, found: int | None) -> Bound:
    """What is likely is no more than what may be; where that is not known, neither is."""
    return bound if found is None or bound.at_most is None else replace(bound, likely=min(found, bound.at_most))


def _queue(name: str, pairs: Sequence[Pair]) -> QueueBound:
    return QueueBound(
        name, total(pair.queue_lost(name) for pair in pairs), total(pair.queue_twice(name) for pair in pairs)
    )


def _class(patterns: tuple[str, ...], limit: LossLimit, names: Sequence[str], pairs: Sequence[Pair]) -> ClassBound:
    mine = [name for name in names if matches(patterns, name)]
    lost = [pair.class_lost(mine) for pair in pairs]
    return ClassBound(patterns, total(lost) if lost else None, limit.messages, limit.age_s)
