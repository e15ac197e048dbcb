"""Bounds on the messages that a failover now may lose or duplicate, made from the last readings and without Spark; with
the latest moment at which the site can have served, and a sum in words that an operator can check. docs/rpo-method.md
("A failover's bounds") says how each bound is made. The total is the sum over the pairs; a figure that was not read for
one pair makes it unknown, never zero."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Final, TypeVar

import numpy as np

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role, Severity, brief, total
from dr_ctl.core.notation import duration, if_known
from dr_ctl.core.system import stamp
from dr_ctl.rpo.bounds.pair import Pair, likely
from dr_ctl.rpo.bounds.readings import LONGEST_US
from dr_ctl.rpo.bounds.result import Bound, Bounds, ClassBound, Loss, LostSite, QueueBound
from dr_ctl.rpo.bounds.stream import Divergence, LossTerm, at_most, sum_of
from dr_ctl.rpo.core.arrays import SECOND_US
from dr_ctl.rpo.estimate.result import Objectives
from dr_ctl.rpo.history.newest import Recent, last_message, recent
from dr_ctl.rpo.history.row import Row, micros, moment
from dr_ctl.settings.model import HistoryLocation

B = TypeVar("B", bound=Bound)
STALE_US: Final = 30 * SECOND_US
"""The site counts as down between two readings that saw it down if they are no further apart than this."""


class EndEvidence(Enum):
    """How the moment is known after which no message can have been sent to the site."""

    DOWN = "it was seen down"
    FENCED = "clients had been kept out of it"
    SUPPOSED = "it is taken to be lost"
    WORD = "its service had ended, as the operator stated"
    OPEN = "it was not yet seen down"
    UNWATCHED = "it is seen down, without a reading before"


@dataclass(frozen=True, slots=True)
class Death:
    """The latest moment at which the site can have served. `unwatched` is a time without readings after the site was
    first seen down: it may have served then."""

    at_us: int
    how: EndEvidence
    unwatched: tuple[int, int] | None = None

    @property
    def text(self) -> str:
        return f"{stamp(moment(self.at_us))}, when {self.how.value}"

    @property
    def grows(self) -> bool:
        """Whether the moment is later each time a bound is made."""
        return self.how in (EndEvidence.OPEN, EndEvidence.UNWATCHED)


def latest(recorded: Recent, now_us: int, *, is_down: bool, supposed: bool = False, fence_ends: bool = False) -> Death:
    """Return the begin of the unbroken series of readings up to now that saw the site down, or now without such a
    series.

    A reading in another role, or too long a time without readings, begins a new series, because the site may have
    served again. `is_down`: the caller sees the site down now, or with `supposed` assumes it. With `fence_ends` no
    client can send to a fenced site."""
    read_us = last_read_us(recorded)
    downs = recorded.saw(Role.DOWN)
    others = _others(recorded, Role.DOWN)
    run = downs[downs > max([read_us, *others, now_us if supposed else 0])]
    edges = np.append(run, now_us)
    gaps = np.flatnonzero(np.diff(edges) > STALE_US)
    first = int(gaps[-1]) + 1 if len(gaps) else 0
    unwatched = (int(edges[first - 1]), int(edges[first])) if first else None
    if first == len(run):
        is_watched = now_us - max([0, *others, *downs[-1:]]) <= STALE_US
        unread = EndEvidence.SUPPOSED if supposed and is_watched else EndEvidence.UNWATCHED
        how = unread if is_down else EndEvidence.OPEN
        death = Death(now_us, how, unwatched)
    else:
        death = Death(int(run[first]), EndEvidence.DOWN, unwatched)
    return _fenced(recorded, death) if fence_ends and death.how in (EndEvidence.DOWN, EndEvidence.UNWATCHED) else death


def _fenced(recorded: Recent, death: Death) -> Death:
    """Return the earlier end that a fence makes, if unbroken readings show the fence until the site was seen down."""
    closed = recorded.saw(Role.STANDBY)
    closed = closed[(closed > max([0, *_others(recorded, Role.DOWN, Role.STANDBY)])) & (closed <= death.at_us)]
    full = len(closed) and np.diff(np.append(closed, death.at_us)).max() <= STALE_US
    return Death(max(int(closed[0]), last_read_us(recorded)), EndEvidence.FENCED, death.unwatched) if full else death


def _others(recorded: Recent, *roles: Role) -> list[int]:
    known = {role.value for role in roles}
    return [int(moments[-1]) for role, moments in recorded.roles.items() if role not in known and len(moments)]


def last_read_us(recorded: Recent) -> int:
    return max((last for _, last in recorded.spans.values()), default=0)


def because(pairs: Sequence[Pair], death: Death, likely: int | None, sites: tuple[str, str]) -> str | None:
    """Return the sum of the possible loss in words, or why it is not known. The result is None if it was not read."""
    lost = sum_of([pair.lost for pair in pairs])
    if lost is None:
        return _at_least(pairs, sites)
    expected = "" if likely is None else f"likely {likely}, at most {lost.at_most}, because "
    only_at_site = [queue for pair in pairs for queue in pair.apart.queues.values() if queue.only_at_site > 0]
    may = " perhaps" if any(queue.uncopied is None for queue in only_at_site) else ""
    only = f", + {lost.apart}{may} only at {sites[0]} ({_named(only_at_site, sites)})" if lost.apart else ""
    text = (
        f"{expected}{lost.at_most} = {lost.at_reading} neither shipped nor consumed at the reading of "
        f"{stamp(moment(lost.at_us))}{only}, + {_sent_since(pairs, lost, death)}"
    )
    if death.grows and lost.rate:
        until = "it is seen down" if death.how is EndEvidence.OPEN else "a monitor reads it again"
        return f"{text}; it grows by up to {math.ceil(lost.rate)} a second until {until}"
    return text if death.how is EndEvidence.SUPPOSED else f"{text}; waiting does not change this"


def _at_least(pairs: Sequence[Pair], sites: tuple[str, str]) -> str | None:
    unknown = [queue for pair in pairs for queue in pair.apart.queues.values() if queue.lost is None]
    if not unknown:
        return None
    least = sum(queue.only_at_site for queue in unknown)
    why = f", and none of them was on its way to {sites[1]}: the reason is not known"
    if all(queue.uncopied for queue in unknown):
        why = ": more may have lost their copies since"
    return f"not known, but at least {least}: {_named(unknown, sites)}{why}"


def _named(queues: Sequence[Divergence], sites: tuple[str, str]) -> str:
    return brief([queue.text(*sites) for queue in queues])


def _sent_since(pairs: Sequence[Pair], lost: LossTerm, death: Death) -> str:
    assumed = " (assuming the highest rate of the last minutes)" if lost.since else ""
    for pair in pairs:
        if assumed and (gap := pair.burst_in_gap(lost.since)) is not None:
            late = f"no reading for {duration((gap[1] - gap[0]) // SECOND_US)} from {stamp(moment(gap[0]))}"
            assumed = f" (assuming that all messages of a gap came at once: {late})"
    return f"at most {lost.since} sent in the {duration(lost.took_us / SECOND_US)} until {death.text}{assumed}"


def findings(
    sites: tuple[str, str], pairs: Sequence[Pair], death: Death, later: int, *, is_summed: bool
) -> Iterator[Finding]:
    """Yield findings on the readings behind the bounds. With `is_summed` the sum in words already has the counts of
    each pair."""
    site, other = sites
    if later:
        yield found("DR-RPO-031", later=later, site=site)
    if death.unwatched is not None and death.how is not EndEvidence.WORD:
        since, until = (stamp(moment(us)) for us in death.unwatched)
        yield found("DR-RPO-030.not_watched", site=site, since=since, until=until)
    elif death.how is EndEvidence.UNWATCHED and any(pair.is_read for pair in pairs):
        grows = any(pair.lost is not None and pair.lost.rate for pair in pairs)
        grow = ": the bounds count up to now, and grow" if grows else ""
        yield found("DR-RPO-030.since_read", site=site, grow=grow)
    for pair in pairs:
        yield from _of_pair(site, pair, death, is_summed=is_summed)
        if unknown := [queue for queue in pair.apart.queues.values() if None in (queue.lost, queue.duplicates)]:
            at = "" if pair.apart.at_us is None else f" (reading of {stamp(moment(pair.apart.at_us))})"
            key, differences = "DR-PARITY-001.lost_site", _named(unknown, sites)
            yield found(key, severity=Severity.WARNING, at=at, site=site, other=other, differences=differences)


def _of_pair(site: str, pair: Pair, death: Death, *, is_summed: bool) -> Iterator[Finding]:
    where = f"the outflow of {site}, pair {pair.name}"
    if pair.lost_read_us is None or pair.duplicates_read_us is None:
        missing = "messages" if pair.lost_read_us is None else "acknowledgements"
        yield found("DR-RPO-005.not_read", where=where, missing=missing)
    if pair.lost_read_us is None:
        return
    elapsed_us = death.at_us - pair.lost_read_us
    if elapsed_us > STALE_US:
        yield found("DR-RPO-003.at_end", where=where, age=f"{elapsed_us / SECOND_US:.0f}", end=death.text)
    has_unknown = any(None in (queue.lost, queue.duplicates) for queue in pair.apart.queues.values())
    if (pair.lost is None or pair.duplicates is None) and not has_unknown:
        why = "too few readings before it show the rate, or readings are missing after a quiet time"
        why = "it is stamped later than this machine's clock" if elapsed_us < 0 else f"{why}, or a figure was not read"
        if pair.overtaken is not None:
            why = f"{pair.overtaken} message(s) came to the other site since, more than the rate before explains"
        yield found("DR-RPO-011", where=where, moment=stamp(moment(pair.lost_read_us)), why=why)
    elif pair.lost is not None and not is_summed:
        yield found(
            "DR-RPO-010", where=where, at=stamp(moment(pair.lost.at_us)), arrived=_sent_since([pair], pair.lost, death)
        )
    # Lost acknowledgements left copies of processed messages at the other site.
    if unread := [name for name, number in pair.stale_copies.items() if number is None]:
        yield found("DR-RPO-021", pair=pair.name, site=site, unread=brief(unread))
    if copies := [f"{name}: {number}" for name, number in pair.stale_copies.items() if number]:
        yield found("DR-RPO-022", pair=pair.name, site=site, left=brief(copies))


AHEAD_US: Final = 60 * SECOND_US
"""The clock that stamps readings may be ahead of this one by so much; later readings are left out."""


def bounds(
    history: HistoryLocation,
    of: LostSite,
    *,
    objectives: Objectives | None = None,
    down_at: datetime | None = None,
    supposed: bool = False,
    fence_ends: bool = False,
    silent_since: datetime | None = None,
    live: Sequence[Row] = (),
) -> Bounds:
    """Bound the messages that are lost and duplicated if the service goes on without that site now.

    `down_at` is the moment at which the caller itself saw the site down, or with `supposed` assumes it. With
    `fence_ends` no client can send to a fenced site. `silent_since` is the end of the service as the operator states
    it. `live` has the counts of the other site's queues now, while clients are kept out there: no more than lies there
    is likely to come twice."""
    now_us = micros(of.now)
    recorded = recent(history, of.site, of.pairs, until_us=now_us + AHEAD_US, other=of.other)
    sites = of.site, of.other or "the other site"
    # The clock that stamped the readings may be ahead of this one; these readings count.
    now_us = max([now_us, *(int(moments[-1]) for moments in recorded.roles.values() if len(moments))])
    # A monitor may have read later, because a site that is only assumed to be lost goes on.
    end_us = now_us if down_at is None else max(min(now_us, micros(down_at)), last_read_us(recorded))
    death = latest(recorded, end_us, is_down=down_at is not None, supposed=supposed, fence_ends=fence_ends)
    observed = death
    if silent_since is not None and micros(silent_since) < death.at_us:
        # Only the time after the last reading is shortened; counts already read stay.
        death = Death(max(micros(silent_since), last_read_us(recorded)), EndEvidence.WORD)
    bounded = [Pair.of(name, recorded, death.at_us, of, live) for name in sorted(recorded.pairs)]
    names = sorted({name for pair in bounded for name in (*pair.delivering, *pair.apart.queues) if of.selects(name)})
    of_lost, of_duplicates = likely(bounded, death.at_us)
    held = total(row.depth for row in live) if live else None
    if of_duplicates is not None and held is not None:
        of_duplicates = min(of_duplicates, held)
    lost = _bound(Loss, [(at_most(pair.lost), pair.lost_read_us) for pair in bounded], of_lost)
    duplicates = _bound(Bound, [(pair.duplicates, pair.duplicates_read_us) for pair in bounded], of_duplicates)
    why = because(bounded, death, lost.likely, sites)
    if lost.at_most is not None and death.how is EndEvidence.WORD:
        observed_lost = total(at_most(pair.until(observed.at_us).lost) for pair in bounded)
        observed_text = "an unknown number" if observed_lost is None else f"at most {observed_lost}"
        why = f"{if_known(why)}; without that statement {observed_text}"
    ages = [pair.age_us for pair in bounded]
    grow = [pair.lost for pair in bounded], [pair.acknowledgements.all_queues for pair in bounded]
    rates = [sum(part.rate for part in parts if part is not None) for parts in grow]
    of_classes = () if objectives is None else objectives.classes
    lost_of = {kind.queues: total([pair.class_lost(kind.queues) for pair in bounded] or [None]) for kind in of_classes}
    return Bounds(
        site=of.site,
        lost=replace(lost, because=why),
        duplicates=duplicates,
        queues=tuple(
            QueueBound(
                name, *(total(of(pair, name) for pair in bounded) for of in (Pair.queue_lost, Pair.queue_duplicates))
            )
            for name in names
        ),
        classes=tuple(
            ClassBound(of_class.queues, lost_of[of_class.queues], of_class.loss.messages, of_class.loss.age_s)
            for of_class in of_classes
        ),
        findings=(*recorded.findings, *findings(sites, bounded, death, recorded.later, is_summed=why is not None)),
        age_s=max(age_us or 0 for age_us in ages) / SECOND_US if ages and None not in ages else None,
        growing=(rates[0], rates[1]) if death.grows else (0.0, 0.0),
        last_message=last_message(recorded),
    )


def latest_end(history: HistoryLocation, of: LostSite, most: int) -> datetime | None:
    """Return the latest end of the site's service, to a tenth of a second, with which no more than `most` messages are
    lost. The result is None if no end after the last reading allows that, or if the loss is not known."""
    now_us = micros(of.now)
    recorded = recent(history, of.site, of.pairs, until_us=now_us + AHEAD_US, other=of.other)
    bounded = [Pair.of(name, recorded, now_us, of) for name in sorted(recorded.pairs)]

    def lost(end_us: int) -> LossTerm | None:
        return sum_of([pair.until(end_us).lost for pair in bounded])

    begin_us = last_read_us(recorded)
    least = lost(begin_us)
    if least is None or least.at_most > most:
        return None
    # After a minute the loss grows at the rate of the busiest minute.
    longest_us = (
        LONGEST_US + round((most - least.at_reading - least.apart) / least.rate * SECOND_US) if least.rate else now_us
    )
    end_us = min(now_us, begin_us + longest_us)
    while end_us - begin_us > SECOND_US // 10:
        middle_us = (begin_us + end_us) // 2
        then = lost(middle_us)
        is_within = then is not None and then.at_most <= most
        begin_us, end_us = (middle_us, end_us) if is_within else (begin_us, middle_us)
    return moment(begin_us)


def _bound(kind: type[B], of_pairs: Sequence[tuple[int | None, int | None]], likely_count: int | None) -> B:
    """Sum the bounds of the pairs, with their oldest reading. The likely figure is at most the bound, and unknown with
    an unknown bound."""
    most, moments = total([count for count, _ in of_pairs] or [None]), [us for _, us in of_pairs if us is not None]
    of_likely = None if most is None or likely_count is None else min(most, likely_count)
    return kind(most, moment(min(moments)) if moments else None, likely=of_likely)
