"""Bounds on the messages that a failover now may lose or bring twice: from the last looks, at once, without Spark.

    lost    what was neither shipped nor consumed at the last look, and what was sent since (`direction`)
    twice   what was acknowledged and not shipped then, or lay at the other site and was done here (`staged`:
            acknowledgements that were lost before are in no outflow) where that is more, and what was acknowledged
            since; what clients had in delivery (the most that was seen: their windows limit it)
    age     time since the last look at which nothing of what lay in the outflow at the end had been put in yet

In the first two what lay at one site and not at the other at the last readings counts by queue, whatever the outflow
says (`apart`). Pairs add up; a figure not read for one pair makes the total unknown, never zero.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from dr_ctl.core.printable import if_known
from dr_ctl.rpo.bounds.apart import Selected
from dr_ctl.rpo.bounds.death import How, last_read_us, latest
from dr_ctl.rpo.bounds.direction import Part, added, at_most
from dr_ctl.rpo.bounds.likely import likely
from dr_ctl.rpo.bounds.pair import Pair, total
from dr_ctl.rpo.bounds.result import Bound, Bounds, ClassBound, QueueBound
from dr_ctl.rpo.bounds.stretch import LONGEST_US
from dr_ctl.rpo.bounds.telling import because, findings
from dr_ctl.rpo.estimate.result import Objectives
from dr_ctl.rpo.history.newest import US, Recent, recent
from dr_ctl.rpo.history.row import Row, micros, moment
from dr_ctl.settings.model import Place

AHEAD_US: Final = 60 * US
"""A clock that made looks may be ahead of this one by so much; looks of later moments are left out."""


def bounds(
    history: Path | Place,
    *,
    site: str,
    now: datetime,
    objectives: Objectives | None = None,
    include: Sequence[str] = ("#",),
    exclude: Sequence[str] = (),
    differ: Collection[str] = (),
    pairs: Sequence[str] = (),
    other: str | None = None,
    down_at: datetime | None = None,
    silent_since: datetime | None = None,
    live: Sequence[Row] = (),
) -> Bounds:
    """Bound the messages lost and doubled if the service goes on without `site` now.

    `down_at`: when the caller itself saw the site down. `silent_since`: when its service ended, by the word of somebody
    who knows. `live`: what the `other` site's queues count now, while clients are out there. `pairs`: all pairs of the
    settings; a pair that the history does not know makes the total unknown. The patterns narrow the queues and classes
    in the answer, and which queues are compared with those of the `other` site; never what an outflow takes with it,
    which does not tell its queues apart. `differ`: queues whose content may rightly differ.
    """
    now_us = micros(now)
    seen = recent(history, site, pairs, until_us=now_us + AHEAD_US, other=other)
    sites = site, other or "the other site"
    # The clock that stamped the looks may be ahead of this one, and what it saw was seen.
    now_us = max([now_us, *(int(moments[-1]) for moments in seen.roles.values() if len(moments))])
    # What a monitor read meanwhile was read: a site that is only taken for lost goes on.
    end_us = now_us if down_at is None else max(min(now_us, micros(down_at)), last_read_us(seen))
    death = latest(seen, end_us, is_down=down_at is not None)
    unsaid = death
    if silent_since is not None:
        death = death.or_earlier(micros(silent_since), seen)
    selected = Selected(include, exclude, differ)
    bounded = _pairs_until(seen, death.us, selected, live)
    names = sorted({name for pair in bounded for name in (*pair.delivering, *pair.apart.queues) if name in selected})
    of_lost, of_duplicates = likely(bounded, death.us)
    lost = _bound([(at_most(pair.lost), pair.lost_read_us) for pair in bounded], of_lost)
    duplicates = _bound([(pair.duplicates, pair.duplicates_read_us) for pair in bounded], of_duplicates)
    why = because(bounded, death, lost.likely, sites)
    if lost.at_most is not None and death.how is How.WORD:
        unsaid_lost = total(at_most(each.until(unsaid.us).lost) for each in bounded)
        unsaid_text = "an unknown number" if unsaid_lost is None else f"at most {unsaid_lost}"
        why = f"{if_known(why)}; without that word {unsaid_text}"
    return Bounds(
        site=site,
        lost=lost,
        duplicates=duplicates,
        queues=tuple(
            QueueBound(
                each, total(p.queue_lost(each) for p in bounded), total(p.queue_duplicates(each) for p in bounded)
            )
            for each in names
        ),
        classes=tuple(
            ClassBound(
                of.queues, total([p.class_lost(of.queues) for p in bounded] or [None]), of.loss.messages, of.loss.age_s
            )
            for of in (() if objectives is None else objectives.classes)
        ),
        findings=(*seen.findings, *findings(sites, bounded, death, later=seen.later, is_summed=why is not None)),
        age_s=_oldest(pair.age_us for pair in bounded),
        because=why,
        growing=(_rate(each.lost for each in bounded), _rate(each.acknowledgements.whole for each in bounded))
        if death.grows
        else (0.0, 0.0),
    )


def _pairs_until(seen: Recent, end_us: int, selected: Selected, live: Sequence[Row] = ()) -> list[Pair]:
    return [Pair.of(name, seen, end_us, selected, live) for name in sorted(seen.pairs)]


def latest_end(
    history: Path | Place,
    *,
    site: str,
    now: datetime,
    most: int,
    include: Sequence[str] = ("#",),
    exclude: Sequence[str] = (),
    differ: Collection[str] = (),
    pairs: Sequence[str] = (),
    other: str | None = None,
) -> datetime | None:
    """The latest end of the site's service, to a tenth of a second, with which no more than `most` are lost; None where
    there is none after its last look, or the loss is not known."""
    now_us = micros(now)
    seen = recent(history, site, pairs, until_us=now_us + AHEAD_US, other=other)
    bounded = _pairs_until(seen, now_us, Selected(include, exclude, differ))

    def lost(end_us: int) -> Part | None:
        return added([each.until(end_us).lost for each in bounded])

    begin_us = max((last for _, last in seen.spans.values()), default=now_us)
    least = lost(begin_us)
    if least is None or least.at_most > most:
        return None
    # From a minute on the loss grows by the busiest one.
    longest_us = LONGEST_US + round((most - least.there - least.apart) / least.rate * US) if least.rate else now_us
    end_us = min(now_us, begin_us + longest_us)
    while end_us - begin_us > US // 10:
        middle_us = (begin_us + end_us) // 2
        then = lost(middle_us)
        is_within = then is not None and then.at_most <= most
        begin_us, end_us = (middle_us, end_us) if is_within else (begin_us, middle_us)
    return moment(begin_us)


def _rate(parts: Iterable[Part | None]) -> float:
    """How fast they grow for who asks later."""
    return sum(each.rate for each in parts if each is not None)


def _bound(of_pairs: Sequence[tuple[int | None, int | None]], likely_count: int | None) -> Bound:
    """Of each pair the bound, and when it was read. What is likely is at most the bound; with an unknown bound it is
    unknown."""
    most, moments = total([count for count, _ in of_pairs] or [None]), [us for _, us in of_pairs if us is not None]
    of_likely = None if most is None or likely_count is None else min(most, likely_count)
    return Bound(most, moment(min(moments)) if moments else None, of_likely)


def _oldest(ages: Iterable[int | None]) -> float | None:
    """The greatest age of all pairs, in seconds; an unknown age makes the answer unknown."""
    listed = list(ages)
    return max(each or 0 for each in listed) / US if listed and None not in listed else None
