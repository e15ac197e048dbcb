"""Rows of a history as NumPy columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

NA: Final = -(1 << 60)
"""Not known, in a column of integers."""
SHARED: Final = "*"
"""The name of an outflow that serves all queues of its pair."""
KINDS: Final = ("queue", "mirror", "acks", "mixed", "site")
QUEUE, MIRROR, ACKS, MIXED, SITE = range(5)
READ: Final = ("ts", "pair", "kind", "name", "depth", "added", "removed", "acked", "oldest_ms", "link", "start")


@dataclass(frozen=True, slots=True)
class Columns:
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
        """Take an Arrow table with the columns `READ`. A thing that was not read whole was not read."""
        table = table.unify_dictionaries().combine_chunks()
        words: dict[str, int] = {}

        def coded(column: str) -> Ints:
            told = table[column]
            if not pa.types.is_dictionary(told.type):
                told = pc.dictionary_encode(told)
            if not table.num_rows:
                return np.zeros(0, np.int64)
            chunk = told.combine_chunks() if isinstance(told, pa.ChunkedArray) else told
            chunk = chunk.chunk(0) if isinstance(chunk, pa.ChunkedArray) else chunk
            own = [words.setdefault(word, len(words)) for word in chunk.dictionary.to_pylist()]
            places = pc.fill_null(chunk.indices.cast(pa.int64()), -1).to_numpy()
            found: Ints = np.array([*own, -1], np.int64)[places]
            return found

        def ints(column: str) -> Ints:
            found: Ints = pc.fill_null(table[column].cast(pa.int64()), NA).to_numpy()
            return found

        kind, pair, name, start = (coded(column) for column in ("kind", "pair", "name", "start"))
        kinds = np.full(len(words) + 1, -1)
        kinds[[words[each] for each in KINDS if each in words]] = [n for n, each in enumerate(KINDS) if each in words]
        counted = {column: ints(column) for column in ("depth", "added", "removed", "acked", "oldest_ms")}
        link = pc.fill_null(table["link"], fill_value=True).to_numpy().astype(bool)
        whole = cls(tuple(words), ints("ts"), kinds[kind], pair, name, **counted, link=link, start=start)
        is_read = np.logical_and.reduce([counted[column] != NA for column in ("depth", "added", "removed")])
        return whole.take(np.flatnonzero((whole.kind >= 0) & ((whole.kind == SITE) | is_read)))

    def take(self, at: npt.NDArray[np.generic] | slice) -> Self:
        told = {each.name: getattr(self, each.name)[at] for each in fields(self) if each.name != "words"}
        return type(self)(words=self.words, **told)


def in_order(key: Ints, us: Ints) -> npt.NDArray[np.intp] | slice:
    """The order by key and time; rows that stand in it already are not sorted again."""
    if len(key) < 2 or bool(((key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & (us[1:] >= us[:-1]))).all()):  # noqa: PLR2004
        return slice(None)
    return np.lexsort((us, key))


def place_of(keys: Ints, wanted: Ints) -> Ints:
    """Where each wanted key stands among sorted ones; -1 where it does not."""
    if not len(keys):
        return np.full(len(wanted), -1)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, at, -1)


def last_true(flags: Flags, begins: Flags) -> Ints:
    """The newest place so far at which a flag is set, within what began last; -1 where there is none."""
    places = np.arange(len(flags))
    newest = np.maximum.accumulate(np.where(flags, places, -1)) if len(flags) else places
    began = np.maximum.accumulate(np.where(begins, places, 0)) if len(flags) else places
    return np.where(newest >= began, newest, -1)
