"""The last minutes' looks at one pair as arrays: its outflows at every look, its queues at the looks that read them.

A look has two moments: the question went out (`asked`), the reply came (`us`); what it counted is of a moment between.
Counters are compared within one era, a start of the broker. `NA` stands where nothing was read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.rpo.core.columns import NA, Ints
from dr_ctl.rpo.history.newest import OUTFLOWS, US, Recent

UNTOLD_US: Final = US
"""What a look is taken to have waited for its answer, where no row says it: a broker that is later is not
waited for."""

_COUNTED: Final = ("depth", "added", "removed", "acked", "delivering", "pending", "queues_added", "queues_acked")


@dataclass(frozen=True)
class Counts:
    """Things (rows) by look (columns). `queues_added` and `queues_acked`: what the queues of an outflow count
    together."""

    names: Sequence[tuple[str, str]]
    depth: Ints
    added: Ints
    acked: Ints
    delivering: Ints
    pending: Ints
    queues_added: Ints
    queues_acked: Ints


@dataclass(frozen=True)
class Looks:
    """`whole`: the places of the looks that read queues; the rest is of those alone. Where the other site was read
    beside, `met` are the looks that read its queues too, `staged` is what lay there, and `back` its own outflows."""

    us: Ints
    asked: Ints
    era: Ints
    outflows: Counts
    whole: Ints
    queues: Counts
    staged: Counts
    met: Ints
    back: Counts

    @classmethod
    def of(cls, pair: str, seen: Recent) -> Self | None:
        """The looks at one pair; None where none read an outflow."""
        if pair not in seen.spans:
            return None
        begin, end = seen.spans[pair]
        table = seen.table
        of_pair = pc.and_(
            pc.equal(table["pair"], pair),
            pc.and_(pc.greater_equal(table["us"], begin), pc.less_equal(table["us"], end)),
        )
        rows = table.filter(pc.fill_null(of_pair, fill_value=False))
        outer = rows.filter(pc.is_in(rows["kind"], pa.array(OUTFLOWS)))
        us = np.unique(outer["us"].to_numpy())
        if not len(us):
            return None
        inner = rows.filter(pc.is_in(rows["kind"], pa.array(["queue", "staged"])))
        inner = inner.filter(pc.is_in(inner["us"], pa.array(us)))
        whole = np.flatnonzero(np.isin(us, inner.filter(pc.equal(inner["kind"], "queue"))["us"].to_numpy()))
        inner = inner.filter(pc.is_in(inner["us"], pa.array(us[whole])))
        outflows = _counts(outer, OUTFLOWS, us)
        there = _at(table.slice(0, 0) if seen.beside is None else seen.beside, pair, us[whole])
        return cls(
            us,
            us - _took_us(rows, us),
            _eras(outer, us, outflows),
            outflows,
            whole,
            _counts(inner, ("queue",), us[whole]),
            _counts(pa.concat_tables([_staged(there, inner), inner]), ("staged",), us[whole]),
            np.flatnonzero(np.isin(us[whole], there["us"].to_numpy())),
            _counts(there, OUTFLOWS, us[whole]),
        )

    @cached_property
    def place(self) -> Mapping[str, int]:
        """The place of each queue by its name."""
        return {name: place for place, (_, name) in enumerate(self.queues.names)}

    def last(self, counts: Counts, number: int) -> int | None:
        """The last look that read a thing, by its place among the looks of `counts`."""
        read = np.flatnonzero(counts.depth[number] != NA)
        return int(read[-1]) if len(read) else None


def _at(rows: pa.Table, pair: str, us: Ints) -> pa.Table:
    """What of a pair answered at looks of these times."""
    is_told = pc.and_(
        pc.equal(rows["pair"], pair), pc.and_(pc.is_valid(rows["start"]), pc.is_in(rows["us"], pa.array(us)))
    )
    return rows.filter(pc.fill_null(is_told, fill_value=False))


def _staged(there: pa.Table, inner: pa.Table) -> pa.Table:
    """The other site's queues as `staged` rows: what a look told itself of a queue there counts before these."""
    queues = there.filter(pc.equal(there["kind"], "queue"))
    kind = pa.array(["staged"] * queues.num_rows, pa.string())
    return queues.set_column(queues.schema.get_field_index("kind"), "kind", kind).select(inner.column_names)


def _counts(rows: pa.Table, kinds: Sequence[str], us: Ints) -> Counts:
    rows = rows.filter(pc.is_in(rows["kind"], pa.array(kinds)))
    kind, name = (pc.dictionary_encode(rows[column].combine_chunks()) for column in ("kind", "name"))
    size = max(1, len(name.dictionary))
    keys, number = np.unique(_codes(kind) * size + _codes(name), return_inverse=True)
    at = np.searchsorted(us, rows["us"].to_numpy())
    names = [(kind.dictionary[int(key) // size].as_py(), name.dictionary[int(key) % size].as_py()) for key in keys]

    def grid(values: Ints) -> Ints:
        cells = np.full((len(keys), len(us)), NA)
        cells[number, at] = values  # of two rows of one moment the last one
        return cells

    read = {name: pc.fill_null(rows[name], NA).to_numpy() for name in _COUNTED}
    read["acked"] = np.where(read["acked"] == NA, read["removed"], read["acked"])
    return Counts(names, **{each.name: grid(read[each.name]) for each in fields(Counts) if each.name != "names"})


def _codes(encoded: pa.DictionaryArray) -> Ints:
    codes: Ints = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _took_us(rows: pa.Table, us: Ints) -> Ints:
    """How long each look waited for its answer."""
    told = rows.filter(pc.and_(pc.equal(rows["kind"], "site"), pc.is_valid(rows["took_ms"])))
    took = np.full(len(us), UNTOLD_US)
    at = np.searchsorted(us, told["us"].to_numpy())
    is_look = (at < len(us)) & (us[np.minimum(at, len(us) - 1)] == told["us"].to_numpy()) if len(us) else at < 0
    took[at[is_look]] = told["took_ms"].to_numpy()[is_look] * 1000
    return took


def _eras(outer: pa.Table, us: Ints, outflows: Counts) -> Ints:
    """A new one with each start of the broker, and where a counter of an outflow fell all the same."""
    starts = pc.dictionary_encode(pc.fill_null(outer["start"], "").combine_chunks())
    start = np.full(len(us), NA)
    start[np.searchsorted(us, outer["us"].to_numpy())] = _codes(starts)
    new = np.zeros(len(us), bool)
    new[1:] = start[1:] != start[:-1]
    for added in outflows.added:
        read = np.flatnonzero(added != NA)
        new[read[1:][np.diff(added[read]) < 0]] = True
    return np.cumsum(new)
