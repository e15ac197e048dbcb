"""Looks whose time cannot be: counters of one start of a broker only grow, so a look at fewer than an earlier look saw
was made before that one, and its clock was ahead.

A counter that somebody set back stays low, and no look after it sees as much again: then counting begins anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Stamps = npt.NDArray[np.int64]
"""Moments in microseconds after 1970."""


def misstamped(outflows: pa.Table, downs: Stamps) -> Mapping[str, Stamps]:
    """By pair the moments of looks at outflows that were made earlier than they say. `downs`: when the site was seen
    down, in order: what a process counts ends with it."""
    bad: dict[str, list[Stamps]] = {}
    for pair, us, added in _runs(outflows):
        most = np.maximum.accumulate(added)
        low = added < most
        if not low.any():
            continue
        again = np.maximum.accumulate(added[::-1])[::-1] >= most
        holder = np.maximum.accumulate(np.where(low, 0, np.arange(len(us))))
        ended = np.searchsorted(downs, us) > np.searchsorted(downs, us[holder])
        bad.setdefault(pair, []).append(us[low & (again | ended)])
    return {pair: np.unique(np.concatenate(each)) for pair, each in bad.items()}


def _runs(outflows: pa.Table) -> Iterator[tuple[str, Stamps, Stamps]]:
    """Pair, moments and counter of each outflow within one start of its broker, in order of time."""
    if not outflows.num_rows:
        return
    keys = [
        pc.dictionary_encode(pc.fill_null(outflows[name], "").combine_chunks())
        for name in ("pair", "kind", "name", "start")
    ]
    codes = [each.indices.to_numpy(zero_copy_only=False).astype(np.int64) for each in keys]
    us = outflows["ts"].cast(pa.int64()).to_numpy()
    added = pc.fill_null(outflows["added"], -1).to_numpy()
    order = np.lexsort([us, *codes[::-1]])
    codes, us, added = [code[order] for code in codes], us[order], added[order]
    edges = np.flatnonzero(np.logical_or.reduce([np.diff(code) != 0 for code in codes])) + 1
    names = keys[0].dictionary.to_pylist()
    for begin, end in zip([0, *edges], [*edges, len(us)], strict=True):
        known = added[begin:end] >= 0
        yield names[codes[0][begin]], us[begin:end][known], added[begin:end][known]
