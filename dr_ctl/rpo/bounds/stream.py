"""Bounds what is lost with the outflows of a lost site: their content at a reading, and all that came since. A message
is lost if it was neither shipped nor consumed at the lost site; a message whose acknowledgement is lost becomes a
duplicate. The cut of a reading R is the newest earlier reading C such that all that was put into the outflow up to C
had been shipped by R: what came up to C is safe, what came later may be lost. In this module "the site" is the lost
site, and its peer the other one.

Two bounds are computed, and the smaller is used: the first from the last reading that included queues, the second from
the last reading of the outflows. Messages that lay at one site alone, and were not on their way, are added, by queue.
docs/rpo-method.md ("A failover's bounds") says how each bound is computed."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from typing import Final, Literal, Self

import numpy as np

from dr_ctl.core.model import total
from dr_ctl.core.notation import matches
from dr_ctl.rpo.bounds.readings import Counters, Counts, Grids, Readings, Windows
from dr_ctl.rpo.bounds.result import LostSite
from dr_ctl.rpo.core.arrays import NA, SECOND_US, Flags, Ints
from dr_ctl.rpo.core.cut import SHARED
from dr_ctl.rpo.history.newest import WINDOW_US

# The kinds of outflows in the history, whatever the topology: `mixed` ones carry both.
CARRY_MESSAGES: Final = ("mirror", "mixed")
CARRY_ACKS: Final = ("acks", "mixed")
UNBOUNDED: Final = 1 << 60  # a count that stands for: no bound is known
_TRIED: Final = 8  # readings of the queues: a broker's counters are not read in one instant, and may not match
_MIN_TO_EXTRAPOLATE: Final = 10  # fewer messages in the busiest minute give no rate beyond the history, and no bound


@dataclass(frozen=True, slots=True)
class LossTerm:
    """A term of a bound: at most `at_reading` were lost as of the reading made at `at_us`, and `since` more in the next
    `took_us`, which begin when that reading was asked for and end when the site stopped serving. If it served longer,
    `rate` more were lost a second. `apart` counts further messages, which lay at the site alone."""

    at_reading: int
    since: int
    at_us: int
    took_us: int
    rate: float
    apart: int = 0

    @property
    def at_most(self) -> int:
        return self.at_reading + self.since + self.apart


@dataclass(frozen=True)
class QueueGroups:
    """One bound is computed for each of `count` groups. `group` has the number of each queue's group, -1 for none."""

    group: Ints
    count: int


@dataclass(frozen=True)
class EventStream:
    """The outflows of messages, or of acknowledgements, up to `end_us`, when the site stopped serving. `counter` names
    the queues' counter that grows with what goes into the outflows. `gaps_filled` has readings added in gaps, over
    which the arrivals of a gap are spread. `lost_acks` bounds, by queue, the processed messages that still lie at the
    peer because the link lost their acknowledgements while the site served."""

    readings: Readings
    gaps_filled: Grids
    counter: Literal["added", "acked"]
    end_us: int
    lost_acks: Mapping[str, int]

    @cached_property
    def rows(self) -> Sequence[int]:
        kinds = CARRY_MESSAGES if self.counter == "added" else CARRY_ACKS
        return [row for row, (kind, _) in enumerate(self.readings.outflows.names) if kind in kinds]

    @property
    def read_us(self) -> int | None:
        return min((int(self.readings.us[self._last[row]]) for row in self.rows), default=None)

    @cached_property
    def all_queues(self) -> LossTerm | None:
        everything = QueueGroups(np.zeros(len(self.readings.queues.names), np.int64), 1)
        return sum_of([parts[0] for parts in self._by_last_reading(self.rows, everything)])

    @cached_property
    def by_queue(self) -> Mapping[str, int | None]:
        by_name: dict[str, int | None] = {}
        for row, own in self.queues.items():
            group = np.full(len(self.readings.queues.names), -1)
            group[own] = np.arange(len(own))
            [parts] = self._by_last_reading([row], QueueGroups(group, len(own)))
            names = (self.readings.queues.names[index][1] for index in own)
            by_name |= zip(names, map(at_most, parts), strict=True)
        return by_name

    def of_patterns(self, patterns: Sequence[str]) -> int | None:
        """Bound the queues that match. If none is known, a new queue may match: bound all that came since."""
        is_in = np.array([matches(patterns, name) for _, name in self.readings.queues.names], bool)
        rows = [row for row in self.rows if is_in[self.queues[row]].any()]
        if rows:
            group = QueueGroups(np.where(is_in, 0, -1), 1)
            return at_most(sum_of([parts[0] for parts in self._by_last_reading(rows, group)]))
        if not self.rows:
            return None
        return at_most(self._with_arrivals(self.rows, min(self._last.values()), np.zeros(1, np.int64), None)[0])

    def not_shipped(self, names: Iterable[str]) -> LossTerm | None:
        """Bound the arrivals in some queues since the last reading by their own counts: no outflow ships them."""
        grids = self.gaps_filled
        windows = Windows(grids.us[grids.full], grids.asked[grids.full], grids.start_id[grids.full])
        own = grids.counted[self.counter].sum_of([self.readings.index[name] for name in names])

        def most(us: int) -> Ints:
            return np.array([own.most(*windows.enclosing_readings(us)).max(initial=0)])

        return self._terms(int(self.readings.full[-1]), np.zeros(1, np.int64), windows, most)[0]

    def outflow_of(self, name: str) -> int | None:
        return self._by_name.get(name, self._by_name.get(SHARED))

    @property
    def oldest_us(self) -> int | None:
        """The greatest possible age of a message that is lost with the outflows, or None."""
        cuts = [int(self.readings.cuts[row, self._last[row]]) for row in self.rows]
        return None if not cuts or -1 in cuts else self.end_us - int(self.readings.asked[cuts].min())

    def _by_last_reading(self, rows: Sequence[int], queues: QueueGroups) -> Iterable[Sequence[LossTerm | None]]:
        for index in dict.fromkeys(self._last[row] for row in rows):
            yield self._smaller_bound([row for row in rows if self._last[row] == index], index, queues)

    def _smaller_bound(self, rows: Sequence[int], index: int, queues: QueueGroups) -> Sequence[LossTerm | None]:
        readings, counts = self.readings, self.readings.outflows
        read = readings.full[readings.full <= index]
        read = read[(counts.depth[rows][:, read] != NA).all(axis=0)]
        depths = {row: np.full(queues.count, counts.depth[row, index]) for row in rows}
        parts = []
        for at in read[: -_TRIED - 1 : -1].tolist():
            told = {row: self._at_reading(row, at, queues) for row in rows}
            at_reading = {
                row: np.full(queues.count, counts.depth[row, at]) if of_groups is None else of_groups
                for row, of_groups in told.items()
            }
            parts.append(self._with_arrivals(rows, at, self._summed(at_reading), queues))
            if readings.start_id[at] == readings.start_id[index]:
                put = counts.added[:, index] - counts.added[:, at]
                depths = {row: np.minimum(depths[row], at_reading[row] + put[row]) for row in rows}
            if all(of_groups is not None for of_groups in told.values()):
                break
        parts.append(self._with_arrivals(rows, index, self._summed(depths), queues))
        known = [[part for part in of_group if part is not None] for of_group in zip(*parts, strict=True)]
        return [min(candidates, key=lambda part: part.at_most, default=None) for candidates in known]

    def _summed(self, at_reading: Mapping[int, Ints]) -> Ints:
        """Add outflows up. An outflow of acknowledgements counts at least those that were lost earlier."""
        names, is_acks = self.readings.outflows.names, self.counter == "acked"
        parts = [
            np.maximum(depths, self.lost_acks.get(names[row][1], 0)) if is_acks and names[row][0] == "acks" else depths
            for row, depths in at_reading.items()
        ]
        return np.sum(parts, axis=0)

    def _at_reading(self, row: int, index: int, queues: QueueGroups) -> Ints | None:
        """Bound the content of each group at a reading of the queues: no more than the outflow's depth, no more than
        the queues counted since the cut, and, of messages, no more than lie in the queues. Content that no queue
        accounts for may be of any group, and is added to each. The result is None where this reading tells no more than
        the depth."""
        readings, counts, own = self.readings, self.readings.outflows, self.queues[row]
        depth = np.full(queues.count, counts.depth[row, index])
        now, of_messages = int(np.searchsorted(readings.full, index)), self.counter == "added"
        if counts.names[row][0] == "acks" or not len(own):
            return depth
        if (readings.queues.depth[own, now] == NA).any():
            return None
        # Count from the last reading of the queues before the cut, else from the first of this start.
        same_start = np.flatnonzero(readings.start_id[readings.full] == readings.start_id[index])
        cut = readings.cuts[row, index]
        until_cut = same_start[(cut >= 0) & (readings.us[readings.full[same_start]] <= readings.asked[cut])]
        then = int(until_cut[-1] if len(until_cut) else same_start[0])
        accounted = self._accounted(readings.grids, [row]).least(then, now)[0]
        unattributed = max(0, int(counts.added[row, index] - counts.added[row, readings.full[then]] - accounted))
        in_queues = readings.queues.depth[own, now]
        if not len(until_cut) and not of_messages:
            return depth
        if not len(until_cut) and (unattributed or then == now):
            return None  # earlier content may be of any queue
        since_cut = readings.grids.counted[self.counter].most(then, now)[own] if len(until_cut) else in_queues
        most = np.minimum(since_cut, in_queues) if of_messages else since_cut
        is_in = queues.group[own] >= 0
        of_groups = np.bincount(queues.group[own][is_in], most[is_in], queues.count).astype(np.int64)
        return np.minimum(depth, of_groups + unattributed)

    def _with_arrivals(
        self, rows: Sequence[int], index: int, at_reading: Ints, queues: QueueGroups | None
    ) -> Sequence[LossTerm | None]:
        """Add, for each group, the content at a reading and the arrivals since. Without groups, all that was put into
        the outflows counts as arrivals."""
        return self._terms(index, at_reading, self.gaps_filled, lambda us: self._arrivals(rows, us, queues))

    def _terms(
        self, index: int, at_reading: Ints, windows: Windows, most: Callable[[int], Ints]
    ) -> Sequence[LossTerm | None]:
        """Add the content and the arrivals since: as many as came in the busiest window of that length."""
        took_us, longest_us = self.end_us - int(self.readings.asked[index]), windows.longest_us
        times = windows.split(took_us)
        if times is None:
            return [None] * len(at_reading)
        nothing = np.zeros(len(at_reading), np.int64)
        since = sum((count * most(us) for count, us in times), nothing)
        busiest = most(longest_us) if longest_us else nothing
        # A rate is extrapolated over more time than the history has only if the busiest minute had many messages.
        is_near = took_us <= max(WINDOW_US, int(self.gaps_filled.us[-1] - self.gaps_filled.us[0]))
        us, rates = int(self.readings.us[index]), busiest * SECOND_US / max(1, longest_us)
        return [
            LossTerm(int(lay), int(came), us, took_us, float(rate)) if is_near or paced >= _MIN_TO_EXTRAPOLATE else None
            for lay, came, paced, rate in zip(at_reading, since, busiest, rates, strict=True)
        ]

    def _arrivals(self, rows: Sequence[int], us: int, queues: QueueGroups | None) -> Ints:
        """Bound the arrivals in any window of `us`: no more than was put into the outflows, and no more than the
        queues' counts plus what these do not account for."""
        grids = self.gaps_filled
        begin, end = grids.enclosing_readings(us)
        put = grids.put.sum_of(rows)
        most = np.minimum(put.most(begin, end)[0], self._by_sums(rows, put, begin, end))
        if queues is None:
            return np.array([most.max(initial=0)])
        before, after, is_bounded = self._enclosing(grids.full, begin, end)
        # Windows between the same readings of queues differ only in what was put into the outflows: the most counts.
        (before, after), number = np.unique(np.stack([before, after]), axis=1, return_inverse=True)
        of_pairs = np.zeros(len(before), np.int64)
        np.maximum.at(of_pairs, number.reshape(-1), most[is_bounded])
        sent, accounted = grids.counted[self.counter].grouped(queues.group, queues.count), self._accounted(grids, rows)
        put_in = put.most(grids.full[before], grids.full[after])[0]
        unattributed = np.maximum(0, put_in - accounted.least(before, after)[0])
        attributed = np.minimum(of_pairs, sent.most(before, after) + unattributed).max(axis=1, initial=0)
        return np.maximum(attributed, most[~is_bounded].max(initial=0))

    def _by_sums(self, rows: Sequence[int], put: Counters, begin: Ints, end: Ints) -> Ints:
        """Bound the arrivals by the sum of all queues' counts, between readings that recorded that sum."""
        own, other = (self.gaps_filled.flows[f"queues_{name}"][rows] for name in (self.counter, self._other_counter))
        indices = np.flatnonzero((own != NA).all(0) & (other != NA).all(0))
        bound = np.full(len(begin), UNBOUNDED)
        before, after, is_bounded = self._enclosing(indices, begin, end)
        before, after = indices[before], indices[after]
        grown, others = (counts[:, after].sum(0) - counts[:, before].sum(0) for counts in (own, other))
        bound[is_bounded] = grown + np.maximum(0, put.most(before, after)[0] - grown - others)
        return bound

    def _enclosing(self, indices: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints, Flags]:
        """Find, of readings of some indices, the last before and the first after each window, and flag the windows that
        have both in one start of the broker."""
        before, after = np.searchsorted(indices, begin, "right") - 1, np.searchsorted(indices, end)
        is_bounded = (before >= 0) & (after < len(indices))
        start_id = self.gaps_filled.start_id[indices]
        is_bounded[is_bounded] = start_id[before[is_bounded]] == start_id[after[is_bounded]]
        return before[is_bounded], after[is_bounded], is_bounded

    def _accounted(self, grids: Grids, rows: Sequence[int]) -> Counters:
        """Add up what the queues put into outflows; a mixed outflow gets messages and acknowledgements."""
        own = [queue for row in rows for queue in self.queues[row]]
        mixed = [queue for row in rows if self.readings.outflows.names[row][0] == "mixed" for queue in self.queues[row]]
        one, other = grids.counted[self.counter].sum_of(own), grids.counted[self._other_counter].sum_of(mixed)
        return Counters(one.low + other.low, one.high + other.high)

    @cached_property
    def _by_name(self) -> Mapping[str, int]:
        return {self.readings.outflows.names[row][1]: row for row in self.rows}

    @cached_property
    def _last(self) -> Mapping[int, int]:
        depth = self.readings.outflows.depth
        return {row: int(np.flatnonzero(depth[row] != NA)[-1]) for row in self.rows}

    @cached_property
    def queues(self) -> Mapping[int, Sequence[int]]:
        served: dict[int, list[int]] = {row: [] for row in self.rows}
        for index, (_, name) in enumerate(self.readings.queues.names):
            if (row := self.outflow_of(name)) is not None:
                served[row].append(index)
        return served

    @property
    def _other_counter(self) -> str:
        return "acked" if self.counter == "added" else "added"


def at_most(part: LossTerm | None) -> int | None:
    return None if part is None else part.at_most


def sum_of(parts: Sequence[LossTerm | None]) -> LossTerm | None:
    """Add the parts up, as of their oldest reading. The sum is unknown if a part is."""
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    at_reading, since, us, took_us, rates, apart = zip(*map(astuple, known), strict=True)
    return LossTerm(sum(at_reading), sum(since), min(us), max(took_us), sum(rates), sum(apart))


RECENT_US: Final = 10 * SECOND_US  # the readings of the last ten seconds are recent
MIN_READINGS_TO_LAST: Final = 3  # a difference lasts if at least this many recent readings, and all of them, show it


@dataclass(frozen=True, slots=True)
class Divergence:
    """A queue at the last reading of both sites. `lost` counts its messages at the site alone, `duplicates` its
    messages at the peer alone, without messages on their way: the least of the recent readings, or None if the
    difference lasts, so that nobody can say why. With `has_ids` ids tell which copies at the peer were consumed, so
    that none is a duplicate. With `is_all` all messages at the site count as lost, because copies of messages consumed
    at the peer stay until a client receives them, or because ids were not compared. `uncopied` counts, by id, the
    messages without a copy at the peer; it is None where ids were not compared. `left` is the depth of the queue at a
    later reading of the site alone: no more than that is lost."""

    name: str
    at_site: int
    at_peer: int
    lost: int | None
    duplicates: int | None
    has_ids: bool
    is_all: bool
    uncopied: int | None
    left: int | None = None

    @property
    def only_at_site(self) -> int:
        """The number of messages that lay at the site alone, as far as it is known."""
        alone = self.at_site if self.uncopied is None else max(self.at_site - self.at_peer, self.uncopied)
        return alone if self.left is None else min(alone, self.left)

    def text(self, site: str, other: str) -> str:
        copies = f", {self.uncopied} of them without a copy" if self.uncopied else ""
        note = f", copies of what was done at {other} among them" if self.is_all else ""
        note = ", not compared by id" if self.uncopied is None else note
        left = f", {self.left} left at {site}" if self.left is not None and self.left != self.at_site else ""
        return f"{self.name}: {self.at_site} at {site}{copies}, {self.at_peer} at {other}{note}{left}"


@dataclass(frozen=True)
class Comparison:
    """The queues of a pair that differ, by name. `at_us` is the time of the last reading of both sites, if any."""

    at_us: int | None
    queues: Mapping[str, Divergence]

    @classmethod
    def of(cls, messages: EventStream, acknowledgements: EventStream, lost_site: LostSite) -> Self:
        readings = messages.readings
        if not len(readings.at_both):
            return cls(None, {})
        us = readings.us[readings.full[readings.at_both]]
        lately = readings.at_both[us >= us[-1] - RECENT_US]
        compared = _Compared(readings, lately, messages, acknowledgements, lost_site)
        return cls(int(us[-1]), {queue.name: queue for queue in compared.queues()})

    def with_left(self, readings: Readings) -> Self:
        """Return this with the depths at the newest reading of the site's queues."""

        def counted(queue: Divergence) -> Divergence:
            if (newest := readings.newest(queue.name, self.at_us or 0)) is None:
                return queue
            left, *_ = newest
            return replace(queue, left=left, lost=None if queue.lost is None else min(queue.lost, left))

        return replace(self, queues={name: counted(queue) for name, queue in self.queues.items()})

    def lost(self, names: Collection[str] | None = None) -> tuple[int, int] | None:
        """Return two numbers for these queues, or for all: the messages at the site alone that were not on their way,
        and all messages that lay at the site alone at the last reading."""
        return _total([(queue.lost, queue.only_at_site) for queue in self._of(names)])

    def duplicates(self, names: Collection[str] | None = None) -> tuple[int, int] | None:
        return _total([(of.duplicates, 0 if of.has_ids else of.at_peer - of.at_site) for of in self._of(names)])

    def _of(self, names: Collection[str] | None) -> Iterable[Divergence]:
        return self.queues.values() if names is None else [self.queues[name] for name in names if name in self.queues]


NOTHING_COMPARED: Final = Comparison(None, {})


def _total(parts: Sequence[tuple[int | None, int]]) -> tuple[int, int] | None:
    beyond = [count for count, _ in parts]
    if None in beyond:
        return None
    return sum(count or 0 for count in beyond), sum(max(0, apart) for _, apart in parts)


@dataclass(frozen=True)
class _Compared:
    readings: Readings
    indices: Ints
    """The readings of both sites, by their place among those that read queues."""
    messages: EventStream
    acknowledgements: EventStream
    lost_site: LostSite

    def queues(self) -> Iterator[Divergence]:
        readings = self.readings
        for name in sorted({*readings.queues.rows, *readings.peer_queues.rows}):
            if not self.lost_site.selects(name):
                continue
            at_site, at_peer = (self._depths(counts, name) for counts in (readings.queues, readings.peer_queues))
            row = self.acknowledgements.outflow_of(name)
            outflow = None if row is None else readings.outflows.names[row]
            # Where a queue's acknowledgements have an outflow of their own, equal counts prove nothing: a message
            # without a copy, and a copy whose message was consumed, cancel each other out. There ids are compared.
            uncopied = readings.uncopied_of(name) if outflow == ("acks", name) and at_site[-1] else 0
            if (at_site != at_peer).any() or uncopied != 0:
                to_ship = self._to_ship(name)
                lost = self._beyond(name, at_site - at_peer, to_ship)
                # If one outflow ships the ids of all queues, the other site keeps copies of all consumed messages.
                has_ids = outflow == ("acks", SHARED)
                duplicates = 0 if has_ids else self._beyond(name, at_peer - at_site, self._acknowledged(name))
                if is_all := uncopied is None or (lost is None and has_ids and to_ship is not None):
                    on_its_way = 0 if uncopied is None or to_ship is None else int(to_ship[-1])
                    lost = max(0, int(at_site[-1]) - on_its_way)
                elif uncopied and uncopied == readings.held(name):
                    # The Continuity Plugin also ships acknowledgements that are not committed, so messages that a
                    # client holds may have lost their copies.
                    lost = total([lost, max(uncopied, readings.most_delivering(readings.index[name]) or 0)])
                elif uncopied:
                    # More messages may have lost their copies since.
                    lost = max(lost or 0, uncopied) if name in self.lost_site.may_differ else None
                yield Divergence(name, int(at_site[-1]), int(at_peer[-1]), lost, duplicates, has_ids, is_all, uncopied)

    def _depths(self, counts: Counts, *names: str) -> Ints:
        """Add up the depths of these names; a queue that is absent where the site was read is empty there."""
        rows = [row for name in names for row in counts.rows.get(name, ())]
        return np.maximum(0, counts.depth[rows][:, self.indices]).sum(axis=0)

    def _to_ship(self, name: str) -> Ints | None:
        """Return the messages on their way between the sites, or None if no outflow ships this queue."""
        row, readings = self.messages.outflow_of(name), self.readings
        # Messages that the peer still had to ship are on their way, too.
        back = self._depths(readings.peer_outflows, name, SHARED)
        return None if row is None else self._of_outflow(readings.outflows.depth, row, UNBOUNDED) + back

    def _acknowledged(self, name: str) -> Ints | None:
        """Return the acknowledgements on their way, or None if no outflow ships this queue."""
        counts, row = self.readings.outflows, self.acknowledgements.outflow_of(name)
        if row is None:
            return None if self.messages.outflow_of(name) is None else np.full(len(self.indices), UNBOUNDED)
        on_its_way = self._of_outflow(counts.depth, row, UNBOUNDED) + self._of_outflow(counts.pending, row, 0)
        lost_acks: Ints = np.maximum(on_its_way, self.acknowledgements.lost_acks.get(name, 0))
        return lost_acks + self._depths(self.readings.peer_outflows, name, SHARED)

    def _of_outflow(self, grid: Ints, row: int, unread: int) -> Ints:
        values = grid[row, self.readings.full[self.indices]]
        return np.where(values == NA, unread, values)

    def _beyond(self, name: str, difference: Ints, on_its_way: Ints | None) -> int | None:
        """Return the part of a difference that messages on their way do not explain, the least of the readings; None if
        it lasts, and is more than came or went in the queue meanwhile: then nobody can say why."""
        if on_its_way is None:
            return max(0, int(difference[-1]))
        beyond = np.maximum(0, difference - on_its_way)
        if name in self.lost_site.may_differ:
            return int(beyond[-1])
        stays = len(self.indices) >= MIN_READINGS_TO_LAST and bool((beyond > self._moved(name)).all())
        return None if stays else int(beyond.min())

    def _moved(self, name: str) -> Ints:
        """Return how many messages came or went from the reading before to the reading after, because the two sites are
        never read in the same instant."""
        index, grids = self.readings.index.get(name), self.readings.grids
        if index is None:
            return np.zeros(len(self.indices), np.int64)
        before, after = np.maximum(0, self.indices - 1), np.minimum(len(grids.full) - 1, self.indices + 1)
        counted = grids.counted.values()
        moved: Ints = np.sum([count.high[index, after] - count.low[index, before] for count in counted], axis=0)
        return np.where(grids.start_id[grids.full[before]] == grids.start_id[grids.full[after]], moved, UNBOUNDED)
