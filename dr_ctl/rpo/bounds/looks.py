"""The last minutes' looks at one pair as arrays: its outflows at every look, its queues at the looks that read them.

A look has two moments: the question went out (`asked`), the reply came (`us`); what it counted is of a moment between.
`NA` stands where nothing was read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.rpo.bounds.stretch import Seen
from dr_ctl.rpo.core.columns import NA, Ints, begins_of
from dr_ctl.rpo.core.cut import side_of
from dr_ctl.rpo.history.newest import OUTFLOWS, US, Recent

UNTOLD_US: Final = US
"""What a look is taken to have waited for its answer, where no row says it: a broker that is later is not
waited for."""


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

    @classmethod
    def of(cls, rows: pa.Table, kinds: Sequence[str], us: Ints) -> Self:
        """Of looks at these moments."""
        rows = rows.filter(pc.is_in(rows["kind"], pa.array(kinds)))
        kind, name = (pc.dictionary_encode(rows[column].combine_chunks()) for column in ("kind", "name"))
        size = max(1, len(name.dictionary))
        keys, number = np.unique(_codes(kind) * size + _codes(name), return_inverse=True)
        places = number * len(us) + np.searchsorted(us, rows["us"].to_numpy())
        acked = pc.coalesce(rows["acked"], rows["removed"])
        grids = []
        for each in fields(cls)[1:]:
            grid = np.full((len(keys), len(us)), NA)
            # Of two rows of one moment the last one.
            grid.flat[places] = pc.fill_null(acked if each.name == "acked" else rows[each.name], NA).to_numpy()
            grids.append(grid)
        names = ((kind.dictionary[int(key) // size].as_py(), name.dictionary[int(key) % size].as_py()) for key in keys)
        return cls([*names], *grids)

    @cached_property
    def rows(self) -> Mapping[str, Sequence[int]]:
        """The places of the things of a name."""
        found: dict[str, list[int]] = {}
        for row, (_, name) in enumerate(self.names):
            found.setdefault(name, []).append(row)
        return found


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
    def of(cls, pair: str, seen: Recent) -> Self:
        """The looks at one pair; none where none read an outflow."""
        if pair not in seen.spans:
            grid = np.zeros((0, 0), np.int64)
            none, nothing = grid.ravel(), Counts([], *(grid,) * 7)
            return cls(none, none, none, nothing, none, nothing, nothing, none, nothing)
        begin, end = seen.spans[pair]
        rows = seen.table.filter(pc.equal(seen.table["pair"], pair))
        rows = rows.filter(pc.and_(pc.greater_equal(rows["us"], begin), pc.less_equal(rows["us"], end)))
        outer = rows.filter(pc.is_in(rows["kind"], pa.array(OUTFLOWS)))
        us = np.unique(outer["us"].to_numpy())
        inner = rows.filter(pc.is_in(rows["kind"], pa.array(["queue", "staged"])))
        of_queues = inner.filter(pc.equal(inner["kind"], "queue"))["us"].to_numpy()
        whole = np.flatnonzero(np.isin(us, of_queues))
        whole_us = us[whole]
        inner = inner.filter(pc.is_in(inner["us"], pa.array(whole_us)))
        there = rows.slice(0, 0) if seen.beside is None else seen.beside
        there = there.filter(pc.and_(pc.equal(there["pair"], pair), pc.is_valid(there["start"])))
        there = there.filter(pc.is_in(there["us"], pa.array(whole_us)))
        outflows = Counts.of(outer, OUTFLOWS, us)
        return cls(
            us,
            us - _took_us(rows, us),
            _eras(outer, us, outflows),
            outflows,
            whole,
            Counts.of(inner, ("queue",), whole_us),
            Counts.of(pa.concat_tables([_staged(there, inner), inner]), ("staged",), whole_us),
            np.flatnonzero(np.isin(whole_us, there["us"].to_numpy())),
            Counts.of(there, OUTFLOWS, whole_us),
        )

    @cached_property
    def place(self) -> Mapping[str, int]:
        """The place of each queue by its name."""
        return {name: place for place, (_, name) in enumerate(self.queues.names)}

    @cached_property
    def cuts(self) -> tuple[Ints, Ints]:
        """By outflow and look the place of the look that cuts history, -1 where none is known, and the likely cut."""
        row, place = np.nonzero((self.outflows.depth != NA) & (self.outflows.added != NA))
        depth, added = self.outflows.depth[row, place], self.outflows.added[row, place]
        begins = begins_of(row * (len(self.us) + 1) + self.era[place])
        side = side_of(np.stack([depth, added, added - depth]), self.us[place], np.cumsum(begins), begins)
        cut, likely_us = np.full(self.outflows.depth.shape, -1), np.full(self.outflows.depth.shape, NA)
        cut[row, place] = np.where(side.cut_us == NA, -1, np.searchsorted(self.us, side.cut_us))
        likely_us[row, place] = side.likely_us
        return cut, likely_us

    @cached_property
    def seen(self) -> Seen:
        """What they counted."""
        flows = {name: getattr(self.outflows, name) for name in ("added", "queues_added", "queues_acked")}
        queues = {"added": self.queues.added, "acked": self.queues.acked}
        return Seen(self.us, self.asked, self.era, self.whole, flows, queues)


def _staged(there: pa.Table, inner: pa.Table) -> pa.Table:
    """The other site's queues as `staged` rows: what a look told itself of a queue there counts before these."""
    queues = there.filter(pc.equal(there["kind"], "queue"))
    kind = pa.array(["staged"] * queues.num_rows, pa.string())
    return queues.set_column(queues.schema.get_field_index("kind"), "kind", kind).select(inner.column_names)


def _codes(encoded: pa.DictionaryArray) -> Ints:
    codes: Ints = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _took_us(rows: pa.Table, us: Ints) -> Ints:
    """How long each look waited for its answer."""
    told = rows.filter(pc.and_(pc.equal(rows["kind"], "site"), pc.is_valid(rows["took_ms"])))
    told = told.filter(pc.is_in(told["us"], pa.array(us)))
    took = np.full(len(us), UNTOLD_US)
    took[np.searchsorted(us, told["us"].to_numpy())] = told["took_ms"].to_numpy() * 1000
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
