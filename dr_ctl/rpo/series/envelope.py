"""From looks to bounds: messages of each queue under way between two looks, at most and likely; added up per outflow.

With A for what was sent to a queue, K for what was consumed from it:

    loss        sent since the cut, and no more than the queue held
    age         time since the cut, while anything is lost
    duplicates  consumed since the cut of the acknowledgements, among the messages that were shipped

Between two looks the truth moves; bounds are taken from the end of the interval that makes them larger (sends at the
end, cut at the start). No bound is thus below the truth in between. Where a cut is not known (just after a restart)
what the queue held is the bound of loss. Likely figures are of the looks themselves, by the likely cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final, Self

import numpy as np

from dr_ctl.rpo.series.columns import NA, QUEUE, SHARED, Columns, Flags, Floats, Ints, firsts
from dr_ctl.rpo.series.cut import AWAY_US, Outflows, Side

FIGURES: Final = ("loss", "age", "twice")


@dataclass(frozen=True, slots=True)
class Sums:
    """The queues of each scope (the first is the total) added up by look: of the interval that ends with it, or of the
    look itself. `queues`: how many were counted; `unknown` of a figure: at least one of them does not tell it."""

    queues: Ints
    loss: Ints
    loss_unknown: Flags
    age: Ints
    twice: Ints
    twice_unknown: Flags
    is_floor: Flags

    @classmethod
    def none(cls, scopes: int, looks: int) -> Self:
        flags = ("loss_unknown", "twice_unknown", "is_floor")
        kinds = {each.name: bool if each.name in flags else np.int64 for each in fields(cls)}
        return cls(**{name: np.zeros((scopes, looks), kind) for name, kind in kinds.items()})

    def take(self, at: object) -> Self:
        return type(self)(**{each.name: getattr(self, each.name)[:, at] for each in fields(self)})

    @classmethod
    def joined(cls, parts: list[Self]) -> Self:
        columns = {each.name: [getattr(part, each.name) for part in parts] for each in fields(cls)}
        return cls(**{name: np.concatenate(of_parts, axis=1) for name, of_parts in columns.items()})


@dataclass(frozen=True, slots=True)
class Presence:
    """When each queue was read: from its first to its last look, a row for each time that it was not away between."""

    queue: tuple[str, ...]
    flow: Ints
    mask: Ints
    from_us: Ints
    to_us: Ints


@dataclass(frozen=True, slots=True)
class Envelope:
    """`within` by the look that ends an interval; `likely` of the looks; `last` the bound at each outflow's last look
    that read a queue too.
    `told`: things put into the outflow in each interval that the queues' counters account for."""

    within: Sums
    likely: Sums
    last: Sums
    told: Floats
    presence: Presence


@dataclass(frozen=True, slots=True)
class _Queues:
    """Looks at queues, each with the place of the look at the outflow that serves it."""

    thing: Ints
    queue: Ints
    place: Ints
    acks: Ints  # -1 where acknowledgements have no outflow
    us: Ints
    depth: Ints
    sent: Ints
    consumed: Ints
    oldest_us: Ints
    passed: Ints  # messages ever sent to it, from the queue's own side: at least `sent`
    new: Flags
    begins: Flags


def envelope(rows: Columns, flows: Outflows, mask_of: Callable[[str], int], scopes: int) -> Envelope:
    """Bound every queue of `rows`; `mask_of` says by bits in which scopes it counts (1: in the total)."""
    q = _queues(rows, flows)
    names = np.unique(q.queue)
    mask = np.array([mask_of(rows.words[name]) for name in names], np.int64)[np.searchsorted(names, q.queue)]
    cut, acked = _at(q, flows.sends, q.place), _at(q, flows.acks, q.acks)
    looks = len(flows.us)
    return Envelope(
        within=_added(_within(q, flows, cut, acked), mask, scopes, looks),
        likely=_added(_likely(q, flows, cut, acked), mask, scopes, looks),
        last=_added(_last(q, flows, cut, acked), mask, scopes, len(flows.keys)),
        told=_told(q, flows),
        presence=_presence(rows, q, flows, mask),
    )


def _queues(rows: Columns, flows: Outflows) -> _Queues:
    q = rows.take(np.flatnonzero((rows.kind == QUEUE) & (rows.pair >= 0)))
    place, acks = _served(q, flows)
    thing_flow = np.where(place >= 0, flows.flow[np.maximum(place, 0)] if len(flows.us) else place, -1)
    order, new = firsts(q.pair, q.name, thing_flow, q.us)
    keep = order[new & (place[order] >= 0)]
    q, place, acks = q.take(keep), place[keep], acks[keep]
    flow = thing_flow[keep]
    new = np.ones(len(keep), bool)
    new[1:] = (q.name[1:] != q.name[:-1]) | (flow[1:] != flow[:-1])
    consumed = np.where(q.acked == NA, q.removed, q.acked)
    era = np.where(acks >= 0, flows.series[np.maximum(acks, 0)], -1) if len(keep) else acks
    begins = new.copy()
    begins[1:] |= q.us[1:] - q.us[:-1] > AWAY_US
    for told in (q.start, flows.series[place], era):
        begins[1:] |= told[1:] != told[:-1]
    for counter in (q.added, q.removed, consumed):
        begins[1:] |= counter[1:] < counter[:-1]
    oldest = np.where(q.oldest_ms == NA, NA, q.oldest_ms * 1000)
    passed = np.maximum(q.added, q.removed + q.depth)
    thing = np.cumsum(new) - 1
    return _Queues(thing, q.name, place, acks, q.us, q.depth, q.added, consumed, oldest, passed, new, begins)


def _served(q: Columns, flows: Outflows) -> tuple[Ints, Ints]:
    """The places of the looks at the outflows of a queue's messages and of its acknowledgements, by its own outflow,
    where it has one, else by the one that serves all of its pair."""
    codes = {key: place for place, key in enumerate(flows.keys)}
    pairs, pair_at = np.unique(q.pair, return_inverse=True)
    names, name_at = np.unique(q.name, return_inverse=True)
    own_of = [[codes.get((q.words[pair], q.words[name]), -1) for name in names] for pair in pairs]
    shared_of = [codes.get((q.words[pair], SHARED), -1) for pair in pairs]
    own_flow = np.array(own_of, np.int64).reshape(len(pairs), len(names))[pair_at, name_at]
    own, shared = flows.at(own_flow, q.us), flows.at(np.array(shared_of, np.int64)[pair_at], q.us)

    def chosen(side: Side) -> Ints:
        def has(place: Ints) -> Flags:
            return (place >= 0) & (side.known[np.maximum(place, 0)] if len(side.depth) else False)

        return np.where(has(own), own, np.where(has(shared), shared, -1))

    return chosen(flows.sends), chosen(flows.acks)


@dataclass(frozen=True, slots=True)
class _Cut:
    """At each look at a queue, the queue's newest look not after the cut (`at`, where it is `known`), and the likely
    cut as a place between two looks (`low`, and `past` of the way to the one after it)."""

    at: Ints
    known: Flags
    low: Ints
    past: Floats

    def likely(self, counter: Ints) -> Floats:
        high = np.minimum(self.low + 1, len(counter) - 1)
        low = counter[self.low].astype(float)
        found: Floats = low + self.past * (counter[high] - low)
        return found


def _at(q: _Queues, side: Side, place: Ints) -> _Cut:
    if not len(q.us) or not len(side.depth):
        none = np.zeros(len(q.us), np.int64)
        return _Cut(none, none.astype(bool), none, none.astype(float))
    served = place >= 0
    cut_us, likely_us = (np.where(served, each[np.maximum(place, 0)], NA) for each in (side.cut_us, side.likely_us))
    here, series = np.arange(len(q.us)), np.cumsum(q.begins)
    at, low = (_newest(q, moment) for moment in (cut_us, likely_us))
    known = (cut_us != NA) & (at >= 0) & (series[at] == series)
    low = np.maximum(np.where(known, low, here), 0)
    after = np.minimum(low + 1, here)
    took = np.maximum(1, q.us[after] - q.us[low])
    past = np.where(known & (after > low), np.clip((likely_us - q.us[low]) / took, 0, 1), 0.0)
    return _Cut(np.where(known, at, 0), known, low, past)


def _newest(q: _Queues, moment: Ints) -> Ints:
    """The queue's own newest look not after a moment, and not after this one; below 0, or another's, where none is."""
    times = np.unique(q.us)
    key = q.thing * (len(times) + 1) + np.searchsorted(times, q.us) + 1
    wanted = q.thing * (len(times) + 1) + np.searchsorted(times, moment, "right")
    return np.minimum(np.searchsorted(key, wanted, "right") - 1, np.arange(len(q.us)))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Figures of single queues: where they belong, which row of the queues they are of, and which are not known."""

    place: Ints
    row: Ints
    loss: Ints
    loss_known: Flags
    age: Ints
    twice: Ints
    twice_known: Flags
    is_floor: Flags

    @classmethod
    def unknown(cls, place: Ints, row: Ints) -> Self:
        none = np.zeros(len(place), np.int64)
        return cls(place, row, none, none > 0, none, none, none > 0, none > 0)

    @classmethod
    def joined(cls, *parts: Self) -> Self:
        return cls(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls)))

    def take(self, at: Ints) -> Self:
        return type(self)(*(getattr(self, each.name)[at] for each in fields(self)))


def _pairs(q: _Queues) -> tuple[Ints, Ints]:
    """The intervals of each queue, by their ends: the places of both looks."""
    end = np.flatnonzero(~q.new)
    end = end[q.us[end] - q.us[end - 1] <= AWAY_US]
    return end - 1, end


def _within(q: _Queues, flows: Outflows, cut: _Cut, acked: _Cut) -> _Rows:
    b, e = _pairs(q)
    goes_on = ~q.begins[e]
    held = q.depth[b] + q.sent[e] - q.sent[b]
    loss = np.maximum(np.where(cut.known[b], np.minimum(q.sent[e] - q.sent[cut.at[b]], held), held), 0)
    passed = np.minimum(q.passed[np.where(cut.known, np.minimum(cut.at + 1, np.arange(len(q.us))), 0)], q.passed)
    passed = np.where(cut.known, passed, q.passed)
    twice = np.maximum(np.minimum(q.consumed, passed)[e] - q.consumed[acked.at[b]], 0)
    twice, twice_known = _or_all(twice, acked.known[b], flows, q.acks[b], q.acks[e])
    took = q.us[e] - q.us[b]
    # No message in the queue can be older than what was oldest at the start.
    in_queue = np.where(q.depth[b] == 0, took, np.where(q.oldest_us[b] == NA, NA, q.oldest_us[b] + took))
    since = q.us[e] - flows.oldest_us[q.place[b]]
    age, is_floor = _age(loss, since, in_queue, flows.is_floor[q.place[b]])
    rows = _Rows(q.place[e], e, loss, goes_on, age, twice, goes_on & twice_known, is_floor & goes_on)
    rows = _spread(rows, q.place[e] - q.place[b])
    # A queue that was just made may have been there before: a queue that is read again was.
    first = np.flatnonzero(q.new)
    first = first[flows.goes_on[q.place[first]]]
    return _Rows.joined(rows, _Rows.unknown(q.place[first], first))


def _or_all(twice: Ints, known: Flags, flows: Outflows, begin: Ints, end: Ints) -> tuple[Ints, Flags]:
    """Where the cut of the acknowledgements is not known: everything their outflow held between two of its looks."""
    acks, there = flows.acks, (begin >= 0) & (end >= 0)
    if not len(acks.depth):
        return twice, known
    held = acks.depth[begin] + acks.added[end] - acks.added[begin]
    there &= flows.series[begin] == flows.series[end]
    return np.where(known, twice, np.where(there, held, 0)), known | there


def _age(loss: Ints, since: Ints, in_queue: Ints, is_floor: Flags) -> tuple[Ints, Flags]:
    age = np.where(loss == 0, 0, np.where(in_queue == NA, since, np.minimum(since, in_queue)))
    return age, is_floor & (loss > 0) & (in_queue == NA)


def _spread(rows: _Rows, wide: Ints) -> _Rows:
    """An interval in which the outflow was looked at more often than the queue counts in each of its parts."""
    if not len(wide) or wide.max() == 1:
        return rows
    again = np.repeat(np.arange(len(wide)), wide)
    back = np.arange(len(again)) - np.repeat(np.cumsum(wide) - wide, wide)
    found = rows.take(again)
    return _Rows(found.place - back, *(getattr(found, each.name) for each in fields(_Rows)[1:]))


def _likely(q: _Queues, flows: Outflows, cut: _Cut, acked: _Cut) -> _Rows:
    place, row = q.place, np.arange(len(q.us))
    loss = np.minimum(np.rint(q.sent - cut.likely(q.sent)), q.depth)
    loss = np.maximum(np.where(cut.known, loss, q.depth), 0).astype(np.int64)
    shipped = np.where(cut.known, cut.likely(q.passed), q.passed)
    twice = np.maximum(np.rint(np.minimum(q.consumed, shipped) - acked.likely(q.consumed)), 0).astype(np.int64)
    twice, twice_known = _or_all(twice, acked.known, flows, q.acks, q.acks)
    likely_us = flows.sends.likely_us[place]
    since = q.us - np.where(likely_us == NA, flows.oldest_us[place], likely_us)
    age, is_floor = _age(loss, since, q.oldest_us, flows.is_floor[place])
    return _Rows(place, row, loss, np.ones(len(row), bool), age, twice, twice_known, is_floor)


def _last(q: _Queues, flows: Outflows, cut: _Cut, acked: _Cut) -> _Rows:
    """The bound at the last look at each outflow that read a queue too."""
    newest = np.full(len(flows.keys), -1)
    np.maximum.at(newest, flows.flow[q.place], q.place)
    row = np.flatnonzero(np.isin(q.place, newest))
    lost = np.where(cut.known, np.minimum(q.sent - q.sent[cut.at], q.depth), q.depth)[row]
    lost = np.maximum(lost, 0)
    after = np.minimum(cut.at + 1, np.arange(len(q.us)))
    passed = np.where(cut.known, np.minimum(q.passed[after], q.passed), q.passed)
    twice = np.maximum(np.minimum(q.consumed, passed) - q.consumed[acked.at], 0)[row]
    twice, twice_known = _or_all(twice, acked.known[row], flows, q.acks[row], q.acks[row])
    since = (q.us - flows.oldest_us[q.place])[row]
    in_queue = np.where(q.depth > 0, q.oldest_us, NA)[row]
    age, is_floor = _age(lost, since, in_queue, flows.is_floor[q.place[row]])
    known = np.ones(len(row), bool)
    return _Rows(flows.flow[q.place[row]], row, lost, known, age, twice, twice_known, is_floor)


def _added(rows: _Rows, mask: Ints, scopes: int, looks: int) -> Sums:
    found = Sums.none(scopes, looks)
    for scope in range(scopes):
        counts = (mask[rows.row] >> scope & 1) > 0
        # Queues left out count nothing, and were read.
        found.queues[scope] = np.bincount(rows.place if scope == 0 else rows.place[counts], minlength=looks)
        inside = rows.take(np.flatnonzero(counts))
        found.loss[scope] = np.bincount(inside.place, inside.loss * inside.loss_known, looks)
        found.twice[scope] = np.bincount(inside.place, inside.twice * inside.twice_known, looks)
        np.maximum.at(found.age[scope], inside.place, inside.age * inside.loss_known)
        found.loss_unknown[scope, inside.place[~inside.loss_known]] = True
        found.twice_unknown[scope, inside.place[~inside.twice_known]] = True
        found.is_floor[scope, inside.place[inside.is_floor]] = True
    return found


def _told(q: _Queues, flows: Outflows) -> Floats:
    b, e = _pairs(q)
    on = ~q.begins[e]
    b, e = b[on], e[on]
    wide = q.place[e] - q.place[b]
    more = q.sent[e] - q.sent[b] + np.where(flows.is_mixed[q.place[e]], q.consumed[e] - q.consumed[b], 0)
    again = np.repeat(np.arange(len(e)), wide)
    back = np.arange(len(again)) - np.repeat(np.cumsum(wide) - wide, wide)
    return np.bincount(q.place[e][again] - back, (more / np.maximum(1, wide))[again], len(flows.us)).astype(float)


def _presence(rows: Columns, q: _Queues, flows: Outflows, mask: Ints) -> Presence:
    begins = q.new.copy()
    begins[1:] |= q.us[1:] - q.us[:-1] > AWAY_US
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(q.us)) - 1
    names = tuple(rows.words[place] for place in q.queue[first])
    flow = flows.flow[q.place[first]]
    return Presence(names, flow, mask[first], q.us[first], q.us[last[: len(first)]])
