"""Rows that add up, for an estimate, of an hour that is over: weights are added, of `most` the most counts.

A row says of a scope (the total, a class, a flow) how long a figure stayed in which bucket, in which cell of time.
Cells are the coarser the longer ago they are, so that ten years are not more than a few days.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from dr_ctl.rpo.estimate.horizon import Changes
from dr_ctl.rpo.estimate.periods import SECOND, Fineness
from dr_ctl.rpo.series.columns import NA, Ints
from dr_ctl.rpo.series.flow import Flow
from dr_ctl.rpo.series.histogram import bucket_of
from dr_ctl.rpo.series.steps import DEPTH_BITS, WAITS, Here, Scope, Steps, fold, here_of, scope_of

HORIZON_US: Final = 300 * SECOND
"""What is told of the next minutes: of these."""
TOTAL: Final = "total"
TOLD: Final = ("loss", "age_ms", "duplicates")
"""The figures that depend on which queues were read."""
UNKNOWN: Final = -(1 << 30)
"""The bucket of what is not known."""
MOVED: Final = 1 << 20
MILLI: Final = 1000
KEYS: Final = ("scope", "what", "name", "cell", "key")
SCHEMA: Final = pa.schema([(each, pa.string()) for each in KEYS[:3]] + [(each, pa.int64()) for each in (*KEYS[3:], "weight", "most")])  # fmt: skip  # noqa: E501


def class_name(number: int) -> str:
    return f"class {number}"


def flow_name(pair: str, name: str) -> str:
    return json.dumps([pair, name])


class Rows:
    """Gathers rows, grouped as they come."""

    def __init__(self, fineness: Fineness) -> None:
        self._fineness = fineness
        self._parts: list[tuple[str, str, str, list[Ints]]] = []
        self._queues: list[tuple[str, int, dict[str, int]]] = []

    def add(self, scope: str, what: str, us: Ints, key: Ints | int, weight: Ints, most: Ints, name: str = "") -> None:
        """Add what began at these moments."""
        if not len(us):
            return
        cell = us - us % self._fineness.of(scope, what)
        keys = np.broadcast_to(np.asarray(key, np.int64), len(us))
        self._parts.append((scope, what, name, grouped(cell, keys, weight, most)))

    def one(self, scope: str, what: str, us: int, weight: int) -> None:
        self.add(scope, what, np.array([us], np.int64), 0, np.array([weight], np.int64), np.array([weight], np.int64))

    def queues(self, scope: str, us: int, masks: dict[str, int]) -> None:
        """Add which queues were read, each with the scopes that it counts in."""
        self._queues.append((scope, us - us % self._fineness.of(scope, "queue"), masks))

    def table(self) -> pa.Table:
        named = [self._named(*each) for each in self._queues]
        if not self._parts:
            return pa.concat_tables([SCHEMA.empty_table(), *named])
        counts = [len(part[3][0]) for part in self._parts]
        words = [pa.array(np.repeat(np.array([part[n] for part in self._parts], object), counts)) for n in range(3)]
        ints = [pa.array(np.concatenate([part[3][n] for part in self._parts])) for n in range(4)]
        return pa.concat_tables([pa.table([*words, *ints], schema=SCHEMA), *named])

    def _named(self, scope: str, cell: int, masks: dict[str, int]) -> pa.Table:
        count = len(masks)
        columns = [[scope] * count, ["queue"] * count, [*masks], [cell] * count, [*masks.values()], [0] * count]
        return pa.table([*columns, [0] * count], schema=SCHEMA)


def grouped(cell: Ints, key: Ints, weight: Ints, most: Ints) -> list[Ints]:
    """Add up to a row for each key in each cell."""
    order = np.lexsort((key, cell))
    cell, key = cell[order], key[order]
    new = np.ones(len(order), bool)
    new[1:] = (cell[1:] != cell[:-1]) | (key[1:] != key[:-1])
    first = np.flatnonzero(new)
    return [cell[first], key[first], np.add.reduceat(weight[order], first), np.maximum.reduceat(most[order], first)]


@dataclass(frozen=True, slots=True)
class Last:
    """A scope at the end: its last look (None if read long ago), and the bounds of the last covered time."""

    here: Here | None
    since: dict[str, int | None]
    spacing_us: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """From where to where, and how finely."""

    from_us: int
    to_us: int
    fineness: Fineness


def summarized(flows: Sequence[Flow], scopes: int, window: Window) -> tuple[pa.Table, dict[str, Last]]:
    """The rows of a window from looks of it and of some time before and after; and how each scope stands at the last
    of these looks."""
    rows, last = Rows(window.fineness), dict[str, Last]()
    looked: dict[str, int] = {}
    for flow in flows:
        looked[flow.pair] = max(looked.get(flow.pair, 0), int(flow.us[-1]))
    within = (window.from_us, window.to_us)
    names = [flow_name(flow.pair, flow.name) for flow in flows]
    for scope in reversed(range(scopes)):
        parts = [scope_of(flow, scope, looked[flow.pair], within) for flow in flows]
        name = TOTAL if scope == 0 else class_name(scope - 1)
        last[name] = _scope(rows, name, parts, names, within)
    for flow, name, part in zip(flows, names, parts, strict=True):
        last[name] = replace(_scope(rows, name, [part], [name], within), spacing_us=flow.spacing_us or 0)
        _flow(rows, name, flow, part, within)
    return rows.table(), last


def _scope(rows: Rows, scope: str, parts: Sequence[Scope], names: Sequence[str], within: tuple[int, int]) -> Last:
    whole = fold([part.steps for part in parts])
    steps, lacking = whole.clipped(*within), fold([part.lacking for part in parts]).clipped(*within)
    at = np.flatnonzero(steps.covered)
    _figures(rows, scope, "", steps, at)
    _figures(rows, scope, "lacking ", lacking, at)
    _drains(rows, scope, steps, at, names)
    _coverage(rows, scope, steps)
    _changes(rows, scope, whole, within)
    if scope == TOTAL:
        for metric in TOLD:
            one, other = (end[metric][at] for end in steps.likely)
            likely = np.where(one == NA, NA, np.maximum(one, other))
            for what, values in (("curve", steps.bound[metric][at]), ("curve likely", likely)):
                rows.add(scope, f"{what} {metric}", steps.begin[at], 0, steps.weight[at], values)
    covered = np.flatnonzero(whole.covered)
    since = {metric: _known(whole.bound[metric][covered[-1]]) if len(covered) else None for metric in TOLD}
    return Last(here_of([part.here for part in parts]), since)


def _figures(rows: Rows, scope: str, prefix: str, steps: Steps, at: Ints) -> None:
    begin, weight = steps.begin[at], steps.weight[at]
    for metric in TOLD:
        values = steps.bound[metric][at]
        rows.add(scope, f"{prefix}{metric}", begin, _bucket(values), weight, values)
        # The likely figure at a look holds for half the time to the next.
        ends = np.concatenate([end[metric][at] for end in steps.likely])
        rows.add(scope, f"{prefix}likely {metric}", np.tile(begin, 2), _bucket(ends), np.tile(weight, 2), ends)


def _bucket(values: Ints) -> Ints:
    return np.where(values == NA, UNKNOWN, bucket_of(values))


def _drains(rows: Rows, scope: str, steps: Steps, at: Ints, names: Sequence[str]) -> None:
    """How much waits in the outflow that takes longest; how long that takes is told by the rates of all time."""
    begin, weight = steps.begin[at], steps.weight[at]
    told = [("drain", begin, weight, steps.bound[WAITS][at])]
    ends = np.concatenate([end[WAITS][at] for end in steps.likely])
    told.append(("likely drain", np.tile(begin, 2), np.tile(weight, 2), ends))
    for what, us, weights, codes in told:
        depth = np.where(codes == NA, NA, codes & (1 << DEPTH_BITS) - 1)
        whose = np.where(depth <= 0, 0, codes >> DEPTH_BITS)  # zero is zero, wherever it is
        for each in np.unique(whose).tolist():
            mine = np.flatnonzero(whose == each)
            name = f"{each & 1} {names[each >> 1]}"
            rows.add(scope, what, us[mine], _bucket(depth[mine]), weights[mine], depth[mine], name)
            if scope == TOTAL and what == "drain":
                rows.add(scope, "curve drain", us[mine], _bucket(depth[mine]), weights[mine], depth[mine], name)


def _coverage(rows: Rows, scope: str, steps: Steps) -> None:
    kinds = (("covered", steps.covered), ("late", steps.missed), ("idle", steps.idle))
    for what, flags in (*kinds, ("floor", steps.covered & steps.is_floor)):
        at = np.flatnonzero(flags)
        rows.add(scope, what, steps.begin[at], 0, steps.weight[at], np.ones(len(at), np.int64))
    at = np.flatnonzero(steps.covered)
    rows.add(scope, "intervals", steps.begin[at], 0, np.ones(len(at), np.int64), np.ones(len(at), np.int64))


def _changes(rows: Rows, scope: str, steps: Steps, within: tuple[int, int]) -> None:
    for metric in TOLD[:2]:
        found = Changes.of(steps, metric, horizon_us=HORIZON_US, since_us=within[0])
        found = found.take(np.flatnonzero(found.begin < within[1]))
        key = (found.level * 2 + found.stalled) * 2 * MOVED + MOVED + bucket_of(found.change)
        rows.add(scope, f"change {metric}", found.begin, key, found.weight, found.change)
        rows.add(scope, f"moments {metric}", found.begin, key, found.count, found.count)


def _flow(rows: Rows, scope: str, flow: Flow, part: Scope, within: tuple[int, int]) -> None:
    at = slice(*np.searchsorted(flow.us, within))
    us = flow.us[at]
    one = np.ones(len(us), np.int64)
    rows.add(scope, "looks", us, 0, one, us)
    rows.add(scope, "first look", us, 0, one, -us)
    for number, side in enumerate((flow.sends, flow.acks)):
        told = flow.drained(side)
        mine = slice(*np.searchsorted(told.us, within))
        rate = (told.rate[mine] * MILLI).astype(np.int64)
        key = (number * 64 + told.level[mine]) * MOVED + bucket_of(rate)
        rows.add(scope, "rate", told.us[mine], key, told.more[mine], -rate)
    ends, put_rate = flow.put_rates
    mine = slice(*np.searchsorted(ends, within))
    rate = np.ceil(put_rate[mine] * MILLI).astype(np.int64)
    rows.add(scope, "put rate", ends[mine], bucket_of(rate), np.ones(len(rate), np.int64), rate)
    if part.put is not None:
        rows.one(scope, "accounted", within[0], part.put[0])
        rows.one(scope, "told", within[0], part.put[1])
    put = np.concatenate([[NA], np.where(flow.goes_on[1:] & flow.sends.known[1:] & flow.sends.known[:-1], np.diff(flow.sends.added), NA)])[at]  # fmt: skip  # noqa: E501
    known = np.flatnonzero(put != NA)
    excess = np.maximum(0, np.rint(put - flow.told[at])).astype(np.int64)
    rows.add(scope, "put", us[known], 0, put[known], put[known])
    rows.add(scope, "excess", us[known], 0, excess[known], excess[known])
    seen = flow.presence
    rows.queues(scope, within[0], dict(zip(seen.queue, seen.mask.tolist(), strict=True)))


def _known(value: np.int64) -> int | None:
    return None if value < 0 else int(value)


def coarsened(tables: Sequence[pa.Table], fineness: Fineness) -> pa.Table:
    """Put rows together in coarser cells."""
    whole = pa.concat_tables(tables)
    if not whole.num_rows:
        return whole
    scope, what = (whole[each].to_pylist() for each in KEYS[:2])
    lengths = {key: fineness.of(*key) for key in set(zip(scope, what, strict=True))}
    length = np.array([lengths[key] for key in zip(scope, what, strict=True)], np.int64)
    cell = whole["cell"].to_numpy()
    whole = whole.set_column(KEYS.index("cell"), "cell", pa.array(cell - cell % length))
    found = whole.group_by([*KEYS], use_threads=False).aggregate([("weight", "sum"), ("most", "max")])
    return found.rename_columns([*KEYS, "weight", "most"]).select(SCHEMA.names).cast(SCHEMA)
