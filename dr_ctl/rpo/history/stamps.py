"""Times at which looks were made: gaps between them, and times that cannot be.

Counters of one start of a broker only grow, so a look at fewer than an earlier look saw was made before that one, and
its clock was ahead. A counter that somebody set back stays low, and no look after it sees as much again: then counting
begins anew.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Stamps = npt.NDArray[np.int64]
"""Moments in microseconds after 1970."""
_TIMES: Final = 4
"""A time between two looks that is so many times the usual one is a gap."""
_LEAST_US: Final = 1_000_000
"""A shorter time is none."""


def gaps(us: Stamps) -> npt.NDArray[np.bool_]:
    """Whether the time from each look to the next is a gap, by the usual one."""
    apart: Stamps = np.diff(us)
    is_gap: npt.NDArray[np.bool_] = apart > longest_us(us)
    return is_gap


def longest_us(us: Stamps) -> int:
    """The longest time between two looks that is no gap."""
    return max(_LEAST_US, _TIMES * usual_us(us))


def usual_us(us: Stamps) -> int:
    """The usual time between two looks."""
    return int(np.median(np.diff(us))) if len(us) > 1 else 0


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
