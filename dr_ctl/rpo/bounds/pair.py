"""The bounds of a pair: the messages that its outflows take with them, in all and queue by queue. Beside them stands
the likely figure (docs/rpo-method.md): the messages that likely lay there at the last reading of the queues, and those
that came since if the growth went on."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Self

import numpy as np
import pyarrow.compute as pc

from dr_ctl.core.model import Role, total
from dr_ctl.core.notation import matches
from dr_ctl.rpo.bounds.readings import Grids, Readings, gaps_filled
from dr_ctl.rpo.bounds.result import LostSite
from dr_ctl.rpo.bounds.stream import NOTHING_COMPARED, UNBOUNDED, Comparison, EventStream, LossTerm, at_most, sum_of
from dr_ctl.rpo.core.arrays import NA, SECOND_US, Ints
from dr_ctl.rpo.core.cut import SHARED, Columns, Outflows
from dr_ctl.rpo.core.queues import Queues
from dr_ctl.rpo.core.starts import same_start
from dr_ctl.rpo.core.step_functions import Figures, LagSeries
from dr_ctl.rpo.history.newest import Recent, longest_us
from dr_ctl.rpo.history.row import Row

READINGS: Final = 5
MIN_APART_US: Final = 4_000_000
"""Readings that follow each other at once see one delay of a confirmation, and count as one."""


def copies_without_ack(readings: Readings, name: str, serving: Ints) -> int | None:
    """Return how many copies of processed messages lie at the peer because a link has lost the acknowledgements: a
    failover delivers them all. The count is an upper bound at the last reading of that queue, for a flow of its own
    name. `serving` has the moments of readings that saw the site serve. The result is None if no reading read both
    sites.

    Shipped messages that still lie in the site's own queue have a copy too, but those that were seen to have none;
    perhaps all lack one if ids were not compared. The greatest count of the last readings holds, because confirmations
    come late; and every message that was processed since may have lost its acknowledgement."""
    queue, outflows = readings.index.get(name), readings.outflows
    sends = [row for row in outflows.rows[name] if outflows.names[row][0] == "mirror"]
    if queue is None or not sends or name not in readings.peer_queues.rows:
        return None
    at_peer, at_site = readings.peer_queues.depth[readings.peer_queues.rows[name][0]], readings.queues.depth[queue]
    out, us, start_id = (of[readings.full] for of in (outflows.depth[sends[0]], readings.us, readings.start_id))
    read = np.flatnonzero((at_peer != NA) & (at_site != NA) & (out != NA) & np.isin(us, serving))
    if not len(read):
        return None
    then, now = read[-1], np.flatnonzero(at_site != NA)[-1]
    before, acked = readings.queues.acked[queue, [then, now]].tolist()
    if start_id[then] != start_id[now] or NA in (before, acked) or acked < before:
        return None
    uncopied = readings.uncopied_of(name)
    copied = at_site[read] - out[read] - uncopied if uncopied is not None else np.zeros_like(read)
    copies = np.maximum(0, at_peer[read] - np.maximum(0, copied))
    rounds = (us[then] - us[read]) // MIN_APART_US
    last_few = (rounds < READINGS) | (np.arange(len(read)) >= len(read) - READINGS)
    return int(copies[last_few].max() + acked - before)


@dataclass(frozen=True)
class Pair:
    """A pair whose outflow was not read has no readings. `stale_copies` counts by queue the copies that lost
    acknowledgements left at the other site (None: not read), and `delivering` the most messages that clients had.
    `apart` compares the queues that differ between the sites. No outflow ships the queues of `not_shipped`, or not all
    of them; their values bound what came to each since the sites were compared, and still lies there. `overtaken`
    counts the messages that came to the other site since the last reading of both, if the outflow and the pace do not
    explain them: then the pace says nothing."""

    name: str
    readings: Readings
    messages: EventStream
    acknowledgements: EventStream
    stale_copies: Mapping[str, int | None]
    delivering: Mapping[str, int | None]
    apart: Comparison
    not_shipped: Mapping[str, int]
    overtaken: int | None

    @classmethod
    def of(cls, name: str, recorded: Recent, end_us: int, of: LostSite, live: Sequence[Row] = ()) -> Self:
        """`live` has the counts of the other site's queues now."""
        readings = Readings(name, recorded)
        own = [flow for kind, flow in readings.outflows.names if kind == "acks" and flow != SHARED]
        copies = {flow: copies_without_ack(readings, flow, recorded.saw(Role.SERVING)) for flow in own}
        known = {flow: count for flow, count in copies.items() if count is not None}
        messages, acknowledgements = _streams(readings, gaps_filled(readings.grids), end_us, known)
        delivering = {queue: readings.most_delivering(index) for queue, index in readings.index.items()}
        apart, overtaken = NOTHING_COMPARED, None
        then = recorded.compared.get(name)
        both = None if then is None else Readings(name, then)
        if then is not None and both is not None and len(both.us):
            sent, acked = _streams(both, both.grids, end_us, known)
            apart = Comparison.of(sent, acked, of).with_left(readings)
            came = _arrived_at_peer(
                [row for row in live if row.pair == name and messages.outflow_of(row.name) is not None], then
            )
            overtaken = came if came > _explained_arrivals(messages, sent) else None
        not_shipped = [queue for queue in readings.index if of.selects(queue) and messages.outflow_of(queue) is None]
        not_shipped += [
            name for name, queue in apart.queues.items() if queue.uncopied is None and name in readings.index
        ]
        of_unshipped = {queue: _came_unshipped(queue, both, readings, apart) for queue in not_shipped}
        return cls(name, readings, messages, acknowledgements, copies, delivering, apart, of_unshipped, overtaken)

    def until(self, end_us: int) -> Pair:
        messages, acknowledgements = (replace(side, end_us=end_us) for side in (self.messages, self.acknowledgements))
        return replace(self, messages=messages, acknowledgements=acknowledgements)

    @property
    def is_read(self) -> bool:
        return len(self.readings.us) > 0

    @property
    def _is_paced(self) -> bool:
        return self.is_read and self.overtaken is None

    @cached_property
    def lost(self) -> LossTerm | None:
        bound, apart = self.messages.all_queues, self.apart.lost()
        if self.not_shipped:
            bound = sum_of([bound, self._not_shipped(self.not_shipped)])
        if bound is None or apart is None or self.overtaken is not None:
            return None
        beyond, alone = apart
        return replace(bound, apart=max(beyond, alone - bound.at_most))

    def _not_shipped(self, names: Collection[str]) -> LossTerm | None:
        since = self.messages.not_shipped(names)
        return None if since is None else replace(since, at_reading=sum(self.not_shipped[name] for name in names))

    @cached_property
    def duplicates(self) -> int | None:
        shipping = at_most(self.acknowledgements.all_queues) if self._is_paced else None
        return _with_divergence(total([shipping, *self.delivering.values()]), self.apart.duplicates())

    def burst_in_gap(self, since: int) -> tuple[int, int] | None:
        """Return the begin and the end of the gap that alone explains so many arrivals, if there is one."""
        grids, us = self.messages.gaps_filled, self.readings.us
        came = np.diff(grids.put.sum_of(self.messages.rows).low[0])
        is_gap = np.diff(us)[np.searchsorted(us, grids.us[1:]) - 1] > longest_us(us)
        ordinary, in_gap = (came[mask].max(initial=0) for mask in (~is_gap, is_gap))
        at = int(np.searchsorted(us, grids.us[1:][is_gap][came[is_gap].argmax()])) if in_gap else 0
        return (int(us[at - 1]), int(us[at])) if in_gap > 2 * ordinary and 2 * in_gap > since else None

    @property
    def lost_read_us(self) -> int | None:
        return self.messages.read_us if self.lost is None else self.lost.at_us

    @property
    def duplicates_read_us(self) -> int | None:
        shipping = self.acknowledgements
        return shipping.read_us if shipping.all_queues is None else shipping.all_queues.at_us

    @property
    def age_us(self) -> int | None:
        """The age of the oldest message that the outflows may take with them. Nobody knows it of messages that lay here
        alone."""
        apart = self.apart.lost()
        return self.messages.oldest_us if apart is not None and not apart[0] and self._is_paced else None

    def queue_lost(self, name: str) -> int | None:
        if not self._is_paced:
            return None
        is_shipped = name not in self.not_shipped
        own = self.messages.by_queue.get(name, 0) if is_shipped else at_most(self._not_shipped([name]))
        return _with_divergence(own, self.apart.lost([name]))

    def queue_duplicates(self, name: str) -> int | None:
        """Add up the content of the outflow, the acknowledgements of clients since and the messages in delivery."""
        apart = self.apart.duplicates([name])
        if apart is None or not self._is_paced:
            return None
        if name not in self.delivering:
            return _with_divergence(0, apart)
        own = _with_divergence(total([self.acknowledgements.by_queue.get(name), self.delivering[name]]), apart)
        return min((bound for bound in (own, self.duplicates) if bound is not None), default=None)

    def class_lost(self, patterns: Sequence[str]) -> int | None:
        if not self._is_paced:
            return None
        own = self.messages.of_patterns(patterns)
        if not_shipped := [name for name in self.not_shipped if matches(patterns, name)]:
            own = total([own, at_most(self._not_shipped(not_shipped))])
        return _with_divergence(own, self.apart.lost([name for name in self.apart.queues if matches(patterns, name)]))


def _streams(readings: Readings, grids: Grids, end_us: int, lost: Mapping[str, int]) -> tuple[EventStream, EventStream]:
    return EventStream(readings, grids, "added", end_us, lost), EventStream(readings, grids, "acked", end_us, lost)


def _came_unshipped(name: str, compared: Readings | None, readings: Readings, apart: Comparison) -> int:
    """Bound the messages that came to a queue after the last reading of both sites, and lie there at the newest one of
    this site, beside those that `apart` counts. Counters that fell are those of another queue of that name."""
    depth, added, acked = readings.newest(name, apart.at_us or 0) or (0, NA, NA)
    if compared is None or apart.at_us is None or name not in compared.index:
        return depth
    at = compared.index[name], compared.at_both[-1]
    came, gone = added - int(compared.queues.added[at]), acked - int(compared.queues.acked[at])
    is_read = NA not in (added, acked, compared.queues.added[at], compared.queues.acked[at])
    is_same = compared.last_start is not None and same_start(compared.last_start, readings.last_start)
    came = came if is_read and is_same and min(came, gone) >= 0 else depth
    alone = apart.queues[name].only_at_site if name in apart.queues else 0
    return min(came, max(0, depth - alone))


def _arrived_at_peer(live: Iterable[Row], then: Recent) -> int:
    """Count the messages that came to queues of the other site since they were last read, in one start of their
    broker."""
    rows = [] if then.peer_rows is None else then.peer_rows.sort_by("us").to_pylist()
    read = {row["name"]: row for row in rows if row["kind"] == "queue"}
    both = ((row, read.get(row.name)) for row in live)
    pairs = ((row.added, was["added"]) for row, was in both if was is not None and same_start(row.start, was["start"]))
    return sum(max(0, now - was) for now, was in pairs if now is not None and was is not None)


def _explained_arrivals(messages: EventStream, then: EventStream) -> int:
    """Count the messages that can have come since: the content of the outflows, and messages put in since at the
    pace."""
    depths = then.readings.outflows.depth[then.rows]
    bound, at_both = messages.all_queues, then.readings.at_both
    index = then.readings.full[at_both[-1]] if len(at_both) else 0
    if bound is None:
        return UNBOUNDED
    before_us = max(0, bound.at_us - int(then.readings.asked[index]))
    lay = int(np.maximum(0, depths).max(axis=1, initial=0).sum())
    return lay + bound.since + math.ceil(bound.rate * before_us / SECOND_US)


def _with_divergence(at_most: int | None, apart: tuple[int, int] | None) -> int | None:
    """Add to a bound the messages that lay at one site alone beyond those on their way. The result is no less than all
    that lay there alone."""
    return None if at_most is None or apart is None else max(at_most + apart[0], apart[1])


BACK_US: Final = tuple(round(each * SECOND_US) for each in (0, 1, 2, 5, 10, 20, 40, 60))
"""Readings so long before the last one show whether the messages under way grow in number."""


def likely(pairs: Sequence[Pair], end_us: int) -> tuple[int | None, int | None]:
    """Return how many messages are likely lost, and how many likely come twice, if the site died then. None means not
    known."""
    if not pairs or not all(pair.messages.rows for pair in pairs):
        return None, None
    lost, duplicates = (sum(own) for own in zip(*(_of_pair(pair, end_us) for pair in pairs), strict=True))
    # Messages lay at one site alone beside those on their way.
    alone_lost = sum(of.lost or 0 for pair in pairs for of in pair.apart.queues.values() if not of.is_all)
    alone_lost += sum(sum(pair.not_shipped.values()) for pair in pairs)
    alone_duplicates = sum((pair.apart.duplicates() or (0, 0))[0] for pair in pairs)
    known = ((lost, alone_lost), (duplicates, alone_duplicates))
    lost_count, duplicate_count = (None if math.isnan(of) else round(of) + alone for of, alone in known)
    return lost_count, duplicate_count


def _of_pair(pair: Pair, end_us: int) -> tuple[float, float]:
    """Use the figures that an estimate makes of the same readings: of whole readings some time apart, and of the newest
    one if that read the outflows alone. Acknowledgements that a link lost are added. The result is `nan` if no counter
    tells after a restart which things of before are acknowledgements."""
    readings, rows = pair.readings, pair.readings.rows
    flows = Outflows(Columns.of(rows.filter(pc.field("kind") != "queue")).by_time())
    if not len(flows.us):
        return math.nan, math.nan
    newest = flows.us >= flows.us.max() - BACK_US[-1]
    cuts = [us[newest & (us != NA)] for us in (flows.us, flows.sends.cut_us, flows.acks.cut_us)]
    whole_us = readings.us[readings.full]
    since_us = whole_us[whole_us <= np.concatenate(cuts).min()][-1:].sum()  # earlier ones say no more
    queues = Queues(flows, 1)
    of_queues = Columns.of(rows.filter((pc.field("kind") == "queue") & (pc.field("us") >= since_us))).by_time()
    queues.add(of_queues, flows, lambda _: 1, (0, 0))
    series = LagSeries(flows, queues)
    figures = series.under_way(0, series.unread(0))
    read_us, last = np.unique(flows.us[series.read]) if series.read.any() else flows.times, flows.ends
    places = np.searchsorted(read_us, read_us[-1] - np.array(BACK_US), "right") - 1
    us = read_us[[*dict.fromkeys(places[places >= 0].tolist())]]
    at = [flows.at(np.arange(len(last)), np.full(len(last), moment)) for moment in np.searchsorted(flows.times, us)]
    both = ([float(np.maximum(0, of[own[own >= 0]]).sum()) for own in at] for of in (figures.loss, figures.duplicates))
    lost, duplicates = both
    if us[0] < flows.times[-1]:
        goes_on = (at[0] >= 0) & (flows.series[at[0]] == flows.series[last])
        newer = _nearer(pair, flows, figures, at[0], last) if goes_on.all() else (lost[0], duplicates[0])
        us, lost, duplicates = np.insert(us, 0, flows.times[-1]), [newer[0], *lost], [newer[1], *duplicates]
    depths = {flows.keys[flow][1]: int(flows.acks.depth[index]) for flow, index in enumerate(last)}
    again: float = sum(
        max(0, count - max(0, depths.get(name, 0))) for name, count in pair.acknowledgements.lost_acks.items()
    )
    lying = np.maximum(0, readings.queues.depth[:, -1:]).sum()
    is_untold = flows.is_mixed[last] & (flows.sends.likely_us[last] == NA) & (flows.sends.depth[last] > lying)
    again += math.nan if series.read.any() and is_untold.any() else 0
    return _ahead(us, lost, end_us), _ahead(us, duplicates, end_us) + again


def _nearer(pair: Pair, flows: Outflows, then: Figures, at: Ints, last: Ints) -> tuple[float, float]:
    """Continue to a newer reading of the outflows alone: clients went on to send as before, and the rest are
    acknowledgements, of the oldest messages first."""
    sends, acks, is_mixed, readings = flows.sends, flows.acks, flows.is_mixed[last], pair.readings
    rates = {readings.outflows.names[row][1]: _per_us(readings, own) for row, own in pair.messages.queues.items()}
    pace = np.array([rates.get(name, 0.0) for _, name in flows.keys]) * (flows.us[last] - flows.us[at])
    put, held = sends.added[last] - sends.added[at], sends.depth[at]
    # A mixed outflow held messages, lost or not, and acknowledgements of messages that were shipped.
    unshipped = (held + then.loss[at] - then.duplicates[at]) / 2
    steady = np.where(is_mixed, np.minimum(put, pace), put)
    messages = np.where(
        is_mixed, (unshipped + steady) * sends.depth[last] / np.maximum(1, held + put), sends.depth[last]
    )
    acked = np.where(is_mixed, put - steady, acks.added[last] - acks.added[at])
    waiting = np.where(is_mixed, sends.depth[last] - messages, acks.depth[last])
    messages, steady = (np.where(sends.known[last], of, 0).sum() for of in (messages, steady))
    waiting, acked = (np.where(acks.known[last], of, 0).sum() for of in (waiting, acked))
    lying = np.maximum(0, readings.queues.depth[:, -1:]).sum()
    lost = min(messages, max(0.0, lying + steady - acked))
    return float(lost), float(max(0.0, waiting - (messages - lost)))


def _per_us(readings: Readings, queues: Sequence[int]) -> float:
    if len(readings.full) < 2 or not queues:  # noqa: PLR2004
        return 0.0
    then, now = readings.queues.added[queues, -2], readings.queues.added[queues, -1]
    known = (then != NA) & (now != NA)
    grown = int(np.maximum(0, now[known] - then[known]).sum())
    return grown / int(readings.us[readings.full[-1]] - readings.us[readings.full[-2]])


def _ahead(us: Ints, figures: Sequence[float], end_us: int) -> float:
    """Let a figure that grew with every reading go on at that rate. The newest reading is the first."""
    rising = 0
    while rising + 1 < len(figures) and figures[rising] > figures[rising + 1]:
        rising += 1
    rate = (figures[0] - figures[rising]) / (us[0] - us[rising]) if rising and us[0] > us[rising] else 0.0
    return float(figures[0] + rate * max(0, end_us - int(us[0])))
