"""What a failover now may lose at most, and what may come twice at most: from the last looks, at once, without Spark.

The last look that read the outflow of the lost site was at t0. What lay in the outflow then may be lost with the site;
so may what was put in later, until it died. That was at the latest when the site was first seen down in an unbroken run
of such looks up to the last one, which is not long ago; else now. The operator may know better since when it served
nobody: then that holds. Nobody saw what was put in between: it is taken to be no more than the
highest rate of the last minutes before t0, times the time that passed.

    lost    what lay in the outflow at t0 and was not consumed (`waiting`; its depth where that is not known)
            + the highest rate of the messages x time since
    twice   depth of the outflow of acknowledgements at t0, or what lay at the other site and was done here (`staged`:
            acknowledgements that were lost before are in no outflow) where that is more
            + its highest rate x time since
            + what clients had in delivery (the most that was seen: their windows limit it)

A `mixed` outflow carries both: its whole depth and rate bound what comes twice, and what is lost where the queues tell
no more. What is lost of one queue lay in that queue too: its own depth and its own rate bound it as well, and the
smaller figure holds. Pairs add up; what was not read of one of them is not known of the total, and never zero.

    age     time since the last look at which nothing of what lay in the outflow at t0 had been put in yet

All of it rests on one assumption, told with the sum: that clients were not faster in the end than before.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from dr_ctl.core.clock import stamp
from dr_ctl.core.model import Finding, Role, Severity, some
from dr_ctl.rpo.bounds.death import STALE_US, Death, How, latest
from dr_ctl.rpo.bounds.likely import likely
from dr_ctl.rpo.bounds.result import Bound, Bounds, ClassBound, QueueBound
from dr_ctl.rpo.bounds.staged import done_and_there
from dr_ctl.rpo.bounds.waiting import is_explained, newest_cut, unconsumed, unshipped_acks
from dr_ctl.rpo.estimate.result import LossLimit, Objectives, matches
from dr_ctl.rpo.history.newest import US, WINDOW_US, Count, Recent, recent
from dr_ctl.rpo.history.row import micros, moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from pathlib import Path

_SENDS: Final = ("mirror", "mixed")
_ACKS: Final = ("acks", "mixed")
_LEAST_INTERVALS: Final = 2
_EVERY_FLOW: Final = "*"


def bounds(
    history: Path,
    *,
    site: str,
    now: datetime,
    objectives: Objectives | None = None,
    include: Sequence[str] = ("#",),
    exclude: Sequence[str] = (),
    pairs: Sequence[str] = (),
    down_at: datetime | None = None,
    silent_since: datetime | None = None,
) -> Bounds:
    """Say what is lost at most, and comes twice at most, if the service goes on without `site` now.

    `down_at`: when the caller itself saw the site down. `silent_since`: when its service ended, by the word of somebody
    who knows. `pairs`: all that the settings name; one that the history does not know makes the total unknown. The
    patterns narrow the queues and classes that are told, never the totals: an outflow cannot say what of it belongs to
    which queue.
    """
    seen = recent(history, site, pairs)
    death = latest(seen, micros(down_at or now), is_down=down_at is not None)
    if silent_since is not None:
        death = death.or_earlier(micros(silent_since), seen)
    told = _least_of([_Pair(name, each, death.us) for name in sorted(seen.pairs)] for each in (seen, seen.at_queues()))
    names = sorted({name for pair in told for name in pair.queues if matches(include, name)})
    names = [name for name in names if not matches(exclude, name)]
    classes = () if objectives is None else objectives.classes
    lost = _bound((pair.lost for pair in told), (pair.lost_read_us for pair in told))
    twice = _bound((pair.twice for pair in told), (pair.twice_read_us for pair in told))
    likely_lost, likely_twice = likely(seen, death.us, seen.pairs)
    lost, twice = _likely(lost, likely_lost), _likely(twice, likely_twice)
    because = _because(told, death, lost.likely)
    return Bounds(
        site=site,
        lost=lost,
        twice=twice,
        queues=tuple(_queue(name, told) for name in names),
        classes=tuple(_class(each.queues, each.loss, names, told) for each in classes),
        findings=(*seen.findings, *_findings(site, told, death, is_summed=because is not None)),
        age_s=_oldest(pair.age_us for pair in told),
        because=because,
    )


def _least_of(asked: Iterable[list[_Pair]]) -> list[_Pair]:
    """Two bounds of the same, the smaller one: a look at an outflow alone is nearer to the end, one at the queues too
    tells what of it was consumed."""
    told = list(asked)
    sums = [_sum(pair.lost for pair in pairs) for pairs in told]
    known = [(lost, place) for place, lost in enumerate(sums) if lost is not None]
    return told[min(known)[1]] if known else told[0]


class _Pair:
    """The bounds of one pair."""

    def __init__(self, name: str, seen: Recent, death_us: int) -> None:
        self.name = name
        self._flows = seen.outflows(name)
        last_us = max((looks[-1].us for looks in self._flows.values()), default=0)
        # A queue that the last minutes do not know is gone; one that only the last look lacks may not have been read.
        self.queues = {key: looks for key, looks in seen.queues(name).items() if looks[-1].us > last_us - WINDOW_US}
        self._death_us = death_us
        serving = {us for us, role in seen.roles if role == Role.SERVING.value}
        self.left = {
            name: done_and_there(
                seen.staged(self.name).get(name, ()), looks, self._flows.get(("mirror", name), ()), serving
            )
            for name, looks in self.queues.items()
            if ("acks", name) in self._flows
        }
        self.parts = self._under_way(_SENDS, "added")
        self.lost = _sum(self.parts)
        self.lost_read_us = self._read_us(_SENDS)
        delivering = _sum(_most_delivering(looks) for looks in self.queues.values())
        self.twice = _sum((*self._under_way(_ACKS, "acked"), delivering))
        self.twice_read_us = self._read_us(_ACKS)

    @property
    def age_us(self) -> int | None:
        """Since when the oldest that its outflows may take with them was sent, at most. What lay there at the last look
        came in order: it was put in after the last look at which the counter had not come as far as what was shipped
        by then. None where no look of the last minutes goes back so far."""
        ages = []
        for looks in self._of(_SENDS):
            cut = newest_cut(looks)
            if cut is None:
                return None
            ages.append(self._death_us - cut.us)
        return max(ages, default=None)

    @property
    def rate(self) -> float:
        """The highest rates of its outflows together, per second; what has none adds nothing."""
        rates = [_fastest(looks, "added") for looks in self._flows.values()]
        return sum(more * US / within_us for more, within_us in filter(None, rates))

    def queue_lost(self, name: str) -> int | None:
        """At most what the queue held and got, and at most what its outflow can take with it."""
        looks = self.queues.get(name)
        if looks is None:
            return 0 if self._flows else None
        own = _sum((looks[-1].depth, self._grown(looks, "added")))
        shipping = _sum(_sum((flow[-1].depth, self._grown(flow, "added"))) for flow in self._of(_SENDS, name))
        return _least(own, shipping if self._of(_SENDS, name) else None, self.lost)

    def queue_twice(self, name: str) -> int | None:
        """At most what lay in the outflow, what clients acknowledged since and what they had in delivery."""
        looks = self.queues.get(name)
        if looks is None:
            return 0 if self._flows else None
        waiting = _sum(self._acks(name, each) for each in self._of(_ACKS, name)) if self._of(_ACKS, name) else None
        own = _sum((waiting, self._grown(looks, "acked"), _most_delivering(looks)))
        return _least(own, self.twice)

    def class_lost(self, names: Sequence[str]) -> int | None:
        return _least(_sum(self.queue_lost(name) for name in names), self.lost)

    def grown(self) -> int | None:
        """What was put into the outflow since it was looked at: all that a queue can hold that was not there then."""
        return _sum(self._grown(looks, "added") for looks in self._of(_SENDS)) if self._of(_SENDS) else None

    def _of(self, kinds: Sequence[str], queue: str | None = None) -> list[list[Count]]:
        names = None if queue is None else (_EVERY_FLOW, queue)
        return [each for (kind, name), each in self._flows.items() if kind in kinds and (not names or name in names)]

    def _under_way(self, kinds: Sequence[str], counter: Literal["added", "acked"]) -> tuple[int | None, int | None]:
        """At most so many messages that were `added`, or acknowledgements of those that were `acked`, go with it: of
        what lay there at the last look, and of what may have come since."""
        flows = [(kind, name, looks) for (kind, name), looks in self._flows.items() if kind in kinds]
        own = {name for _, name, _ in flows}
        there_all: list[int | None] = []
        since_all: list[int | None] = []
        for kind, name, looks in flows:
            served = [each for queue, each in self.queues.items() if (queue if queue in own else _EVERY_FLOW) == name]
            mixed = kind == "mixed"
            there = looks[-1].depth if counter == "added" else self._acks(name, looks)
            if counter == "added":
                there = _least(there, unconsumed(looks, served, mixed=mixed))
            elif mixed:
                there = _least(there, unshipped_acks(looks, served))
            explained = is_explained(looks, served, ("added", "acked") if mixed else (counter,))
            since = _sum(self._grown(each, counter) for each in served) if explained else None
            grown = self._grown(looks, "added")
            # Without the outflow's own figures nothing is known, whatever the queues say.
            is_read = looks[-1].depth is not None and grown is not None
            there_all.append(there if is_read else None)
            since_all.append(_least(grown, since) if is_read else None)
        return (_sum(there_all), _sum(since_all)) if flows else (None, None)

    def _acks(self, name: str, looks: Sequence[Count]) -> int | None:
        """What was acknowledged and comes again: to be shipped, or lost on the way and still there."""
        depth = looks[-1].depth
        return None if depth is None else max(depth, self.left.get(name) or 0)

    def _read_us(self, kinds: Sequence[str]) -> int | None:
        return min((looks[-1].us for looks in self._of(kinds)), default=None)

    def _grown(self, looks: Sequence[Count], counter: Literal["added", "acked"]) -> int | None:
        """What was added since the last look, at the highest rate; None without a rate, or where time ran backwards."""
        elapsed_us = self._death_us - looks[-1].us
        fastest = _fastest(looks, counter)
        if elapsed_us < 0 or fastest is None:
            return 0 if elapsed_us == 0 else None
        more, within_us = fastest
        return -(-more * elapsed_us // within_us)


def _fastest(looks: Sequence[Count], counter: Literal["added", "acked"]) -> tuple[int, int] | None:
    """The interval in which most was added, as count and microseconds; None from fewer than two intervals.

    An interval lies between two looks of one start of the broker: a restart counts anew. The last minutes are asked;
    where they hold fewer than two intervals, the last two.
    """
    intervals = []
    for before, after in itertools.pairwise(looks):
        one, other = getattr(before, counter), getattr(after, counter)
        same = before.start == after.start and after.us > before.us
        if same and one is not None and other is not None and other >= one:
            intervals.append((after.us, other - one, after.us - before.us))
    late = [each for each in intervals if each[0] > looks[-1].us - WINDOW_US]
    asked = late if len(late) >= _LEAST_INTERVALS else intervals[-_LEAST_INTERVALS:]
    if len(asked) < _LEAST_INTERVALS:
        return None
    _, more, within_us = max(asked, key=lambda each: each[1] / each[2])
    return more, within_us


def _most_delivering(looks: Sequence[Count]) -> int | None:
    if looks[-1].delivering is None:
        return None
    return max(each.delivering or 0 for each in looks if each.us > looks[-1].us - WINDOW_US)


def _oldest(ages: Iterable[int | None]) -> float | None:
    """The greatest of all pairs, in seconds; one that is not known makes it unknown."""
    found = list(ages)
    known = [each for each in found if each is not None]
    return max(known) / US if known and len(known) == len(found) else None


def _sum(parts: Iterable[int | None]) -> int | None:
    """Add up; one that is not known makes the sum unknown."""
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def _least(*bounds_: int | None) -> int | None:
    """Two upper bounds of the same: the smaller one that is known."""
    return min((each for each in bounds_ if each is not None), default=None)


def _bound(counts: Iterable[int | None], read: Iterable[int | None]) -> Bound:
    found = list(counts)
    moments = [us for us in read if us is not None]
    return Bound(_sum(found) if found else None, moment(min(moments)) if moments else None)


def _likely(bound: Bound, found: int | None) -> Bound:
    """What is likely is no more than what may be; where that is not known, neither is."""
    return bound if found is None or bound.at_most is None else replace(bound, likely=min(found, bound.at_most))


def _queue(name: str, pairs: Sequence[_Pair]) -> QueueBound:
    return QueueBound(
        name, _sum(pair.queue_lost(name) for pair in pairs), _sum(pair.queue_twice(name) for pair in pairs)
    )


def _class(patterns: tuple[str, ...], limit: LossLimit, names: Sequence[str], pairs: Sequence[_Pair]) -> ClassBound:
    mine = [name for name in names if matches(patterns, name)]
    lost = [pair.class_lost(mine) if mine else pair.grown() for pair in pairs]
    return ClassBound(patterns, _sum(lost) if lost else None, limit.messages, limit.age_s)


def _because(pairs: Sequence[_Pair], death: Death, likely_: int | None) -> str | None:
    """The sum of what may be lost, as an operator can check it."""
    there, since = _sum(pair.parts[0] for pair in pairs), _sum(pair.parts[1] for pair in pairs)
    read = [pair.lost_read_us for pair in pairs if pair.lost_read_us is not None]
    if there is None or since is None or not read:
        return None
    elapsed_s = max(0, death.us - min(read)) / US
    rate = f", at up to {since / elapsed_s:.1f} a second as before it," if since and elapsed_s else ""
    text = (
        f"{_told(likely_, there + since)}{there + since} = {there} not shipped at the last look, "
        f"{stamp(moment(min(read)))}, + at most {since} that may have come{rate} in the "
        f"{elapsed_s:.1f} s until {death.text}"
    )
    if death.how is How.OPEN:
        return f"{text}; it grows by up to {sum(pair.rate for pair in pairs):.0f} a second until then"
    return f"{text}; it does not shrink or grow by waiting"


def _told(likely_: int | None, at_most: int) -> str:
    return "" if likely_ is None else f"likely {likely_}, at most {at_most}, because "


def _findings(site: str, pairs: Sequence[_Pair], death: Death, *, is_summed: bool) -> Iterable[Finding]:
    """What the bounds of each pair rest on; where the sum of all is told, it says so already."""
    for pair in pairs:
        where = f"the outflow of {site}, pair {pair.name}"
        if pair.lost_read_us is None or pair.twice_read_us is None:
            missing = "messages" if pair.lost_read_us is None else "acknowledgements"
            text = f"the history holds no recent look at {where}: how many {missing} it takes with it is not known"
            remedy = "Let `dr-ctl monitor` run while the site answers; now only the unknown can be accepted."
            yield Finding("DR-RPO-005", Severity.WARNING, text, remedy)
        if pair.lost_read_us is None:
            continue
        elapsed_us = death.us - pair.lost_read_us
        if elapsed_us > STALE_US:
            text = f"the last look at {where} was {elapsed_us / US:.0f} s before {death.text}"
            yield Finding("DR-RPO-003", Severity.WARNING, text, "The bounds grow with this time.")
        if pair.lost is None or pair.twice is None:
            yield _unbounded(pair, where, elapsed_us)
        elif not is_summed:
            yield _rests_on(pair, where, elapsed_us, death)
        yield from _left(pair, site)


def _left(pair: _Pair, site: str) -> Iterable[Finding]:
    """What the way between the sites has left there of what was done."""
    if unread := [name for name, number in pair.left.items() if number is None]:
        text = (
            f"pair {pair.name}: what lies at the other site of {site} was not read beside it: {some(unread)}; what was "
            "done and left there by lost acknowledgements comes twice beside the bound"
        )
        yield Finding("DR-RPO-021", Severity.WARNING, text, "Let `dr-ctl monitor` run while both sites answer.")
    if left := [f"{name}: {number}" for name, number in pair.left.items() if number]:
        text = (
            f"pair {pair.name}: lies at the other site although {site} has it no more, at most: {some(left)}; "
            "acknowledgements on their way, and those that were lost: the bound on what comes twice holds them"
        )
        yield Finding("DR-RPO-022", Severity.INFO, text, "A planned move removes such copies by their ids.")


def _unbounded(pair: _Pair, where: str, elapsed_us: int) -> Finding:
    why = "there are too few looks before it for a rate, or not every figure was read"
    why = "it lies in the future of this machine's clock" if elapsed_us < 0 else why
    read_at = stamp(moment(pair.lost_read_us or 0))
    text = f"{where}: what changed after the look at {read_at} has no bound: {why}"
    return Finding("DR-RPO-011", Severity.WARNING, text, "Let `dr-ctl monitor` run, on a machine whose clock is set.")


def _rests_on(pair: _Pair, where: str, elapsed_us: int, death: Death) -> Finding:
    text = (
        f"{where}: the bounds rest on the look at {stamp(moment(pair.lost_read_us or 0))} and on at most "
        f"{pair.rate:.1f} a second since, the highest rate of the minutes before it, for {elapsed_us / US:.1f} s until "
        f"{death.text}"
    )
    return Finding("DR-RPO-010", Severity.INFO, text, "A shorter `history.every` makes them narrower.")
