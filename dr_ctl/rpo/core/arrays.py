"""Columns of NumPy: their types, what stands for a value that is not known, units of time, and searches in sorted
ones."""

from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

NA: Final = -(1 << 60)
"""Not known, in a column of integers."""
NEVER: Final = 1 << 62
"""A value above all others, in a column of integers."""
SECOND_US: Final = 1_000_000
HOUR_US: Final = 3600 * SECOND_US
DAY_US: Final = 24 * HOUR_US


class Rows:
    """A dataclass whose fields are columns of one length, other such dataclasses, and values that hold for all rows."""

    __slots__ = ()

    def take(self, at: npt.NDArray[np.generic] | slice) -> Self:
        return type(self)(**{column.name: _taken(getattr(self, column.name), at) for column in fields(self)})  # type: ignore[arg-type]

    def only(self, flags: Flags) -> Self:
        return self if flags.all() else self.take(np.flatnonzero(flags))


def _taken(value: Any, at: Any) -> Any:
    if isinstance(value, tuple) and value and isinstance(value[0], Rows):
        return tuple(part.take(at) for part in value)
    return value[at] if isinstance(value, np.ndarray) else value.take(at) if isinstance(value, Rows) else value


def in_order(key: Ints, us: Ints) -> npt.NDArray[np.intp] | slice:
    """Return the order by key and time; rows that stand in it already are not sorted again."""
    if (us[1:] < us[:-1]).any():
        is_sorted = ((key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & (us[1:] >= us[:-1]))).all()
        return slice(None) if is_sorted else np.lexsort((us, key))
    if (key[1:] >= key[:-1]).all():
        return slice(None)
    code = key - key.min()
    # NumPy sorts numbers of sixteen bits by their digits, many times as fast.
    return np.argsort(code.astype(np.uint16) if code.max() < 1 << 16 else code, kind="stable")


def begins_of(key: Ints) -> Flags:
    """Flag the sorted rows that begin another key."""
    begins = np.ones(len(key), bool)
    begins[1:] = key[1:] != key[:-1]
    return begins


def parts(key: Ints) -> Iterator[tuple[int, slice]]:
    """Yield each of the sorted keys with its rows."""
    edges = np.append(np.flatnonzero(begins_of(key)), len(key)).tolist()
    yield from ((int(key[begin]), slice(begin, end)) for begin, end in pairwise(edges))


def newest_of(keys: Ints, wanted: Ints) -> Ints:
    """Find the last of the sorted keys that is not above each wanted one; -1 where all are."""
    if len(keys) and keys[-1] - keys[0] == len(keys) - 1 and (keys[1:] > keys[:-1]).all():  # without a gap
        return np.clip(wanted - keys[0], -1, len(keys) - 1)
    return np.searchsorted(keys, wanted, "right") - 1


def index_of(keys: Ints, wanted: Ints) -> Ints:
    """Find each wanted key among sorted ones; -1 where it is missing."""
    if not len(keys):
        return np.full(len(wanted), -1)
    at = newest_of(keys, wanted)
    return np.where(keys[at] == wanted, at, -1)


def last_true(flags: Flags, begins: Flags) -> Ints:
    """Find the newest index so far at which a flag is set, within what began last; -1 where there is none."""
    indices = np.arange(len(flags))
    newest, began = (np.maximum.accumulate(np.where(flagged, indices, -1)) for flagged in (flags, begins))
    return np.where(newest >= began, newest, -1)


def next_true(flags: Flags, begins: Flags) -> Ints:
    """Find the first index from here on at which a flag is set, before anything else begins; the length where there is
    none."""
    ends = np.append(begins[1:], True)[: len(begins)]
    return len(flags) - 1 - last_true(flags[::-1], ends[::-1])[::-1]
