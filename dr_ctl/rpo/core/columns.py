"""Rows of a history as NumPy columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

NA: Final = -(1 << 60)
"""Not known, in a column of integers."""
NEVER: Final = 1 << 62
"""Above all, in a column of integers."""
SHARED: Final = "*"
"""The name of an outflow that serves all queues of its pair."""
KINDS: Final = ("queue", "mirror", "acks", "mixed", "site")
QUEUE, MIRROR, ACKS, MIXED, SITE = range(5)
READ: Final = ("ts", "pair", "kind", "name", "depth", "added", "removed", "acked", "oldest_ms", "link", "start")


class Rows:
    """A dataclass of columns of one length, of such, and of what is of all rows."""

    __slots__ = ()

    def take(self, at: npt.NDArray[np.generic] | slice) -> Self:
        return type(self)(**{each.name: _taken(getattr(self, each.name), at) for each in fields(self)})  # type: ignore[arg-type]

    def only(self, flags: Flags) -> Self:
        """Take the rows whose flag is set."""
        return self if flags.all() else self.take(np.flatnonzero(flags))


def _taken(value: Any, at: Any) -> Any:
    if isinstance(value, tuple) and value and isinstance(value[0], Rows):
        return tuple(each.take(at) for each in value)
    return value[at] if isinstance(value, np.ndarray) else value.take(at) if isinstance(value, Rows) else value


@dataclass(frozen=True, slots=True)
class Columns(Rows):
    """`kind` is a place in `KINDS`; `pair`, `name` are places in `words`, -1 is none; `start` numbers starts."""

    words: Sequence[str]
    us: Ints
    kind: Ints
    pair: Ints
    name: Ints
    depth: Ints
    added: Ints
    removed: Ints
    acked: Ints
    oldest_ms: Ints
    link: Flags
    start: Ints

    @classmethod
    def of(cls, table: pa.Table) -> Self:
        """Take an Arrow table with the columns `READ`, `ts` in microseconds. A thing that was not read whole was not
        read."""
        chunks = [[_encoded(chunk) for chunk in table[column].chunks] for column in ("kind", "pair", "name", "start")]
        # In one order, whatever the order of the rows.
        every = sorted({word for each in chunks for told in each for word in told.dictionary.to_pylist()})
        words = {word: place for place, word in enumerate(every)}
        kind, pair, name, start = (_coded(each, words) for each in chunks)
        kinds = np.full(len(words) + 1, -1)
        kinds[[words[each] for each in KINDS if each in words]] = [n for n, each in enumerate(KINDS) if each in words]
        counted = {column: _ints(table[column]) for column in ("depth", "added", "removed", "acked", "oldest_ms")}
        link = pc.fill_null(table["link"], fill_value=True).to_numpy().astype(bool)
        whole = cls(tuple(words), _ints(table["ts"]), kinds[kind], pair, name, **counted, link=link, start=start)
        is_read = np.logical_and.reduce([counted[column] != NA for column in ("depth", "added", "removed")])
        return whole.only((whole.kind >= 0) & ((whole.kind == SITE) | is_read))

    def by_time(self) -> Self:
        return self if (self.us[1:] >= self.us[:-1]).all() else self.take(np.argsort(self.us, kind="stable"))


def _encoded(chunk: pa.Array) -> pa.DictionaryArray:
    return chunk if pa.types.is_dictionary(chunk.type) else pc.dictionary_encode(chunk)


def _coded(chunks: Sequence[pa.DictionaryArray], words: Mapping[str, int]) -> Ints:
    """The place of each row's word; -1 for none."""
    found = [np.zeros(0, np.int64)]
    for told in chunks:
        own = [words[word] for word in told.dictionary.to_pylist()]
        found.append(np.array([*own, -1], np.int64)[pc.fill_null(told.indices, -1).to_numpy()])
    return np.concatenate(found)


def _ints(column: pa.ChunkedArray) -> Ints:
    found: Ints = pc.fill_null(column.cast(pa.int64()), NA).to_numpy()
    return found


def in_order(key: Ints, us: Ints) -> npt.NDArray[np.intp] | slice:
    """The order by key and time; rows that stand in it already are not sorted again."""
    if (us[1:] < us[:-1]).any():
        is_sorted = ((key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & (us[1:] >= us[:-1]))).all()
        return slice(None) if is_sorted else np.lexsort((us, key))
    if (key[1:] >= key[:-1]).all():
        return slice(None)
    code = key - key.min()
    # NumPy sorts numbers of sixteen bits by their digits, many times as fast.
    return np.argsort(code.astype(np.uint16) if code.max() < 1 << 16 else code, kind="stable")


def begins_of(key: Ints) -> Flags:
    """Where sorted rows begin another key."""
    found = np.ones(len(key), bool)
    found[1:] = key[1:] != key[:-1]
    return found


def newest_of(keys: Ints, wanted: Ints) -> Ints:
    """Where among sorted keys the last stands that is not above a wanted one; -1 where all are."""
    if len(keys) and keys[-1] - keys[0] == len(keys) - 1 and (keys[1:] > keys[:-1]).all():  # without a gap
        found: Ints = np.clip(wanted - keys[0], -1, len(keys) - 1)
        return found
    return np.searchsorted(keys, wanted, "right") - 1


def place_of(keys: Ints, wanted: Ints) -> Ints:
    """Where each wanted key stands among sorted ones; -1 where it does not."""
    if not len(keys):
        return np.full(len(wanted), -1)
    at = newest_of(keys, wanted)
    return np.where(keys[at] == wanted, at, -1)


def last_true(flags: Flags, begins: Flags) -> Ints:
    """The newest place so far at which a flag is set, within what began last; -1 where there is none."""
    places = np.arange(len(flags))
    newest, began = (np.maximum.accumulate(np.where(each, places, -1)) for each in (flags, begins))
    return np.where(newest >= began, newest, -1)
