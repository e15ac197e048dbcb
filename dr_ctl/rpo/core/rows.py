"""What adds up: the rows that an hour of a history is summed up in, of whichever task and of whichever time.

A row is of one kind. What it is of stands in typed columns (its keys); rows whose keys are equal are put together:
weights and counts are added, of `most` the largest counts, of `least` the smallest.

| kind | of | weight | count | most | least |
| --- | --- | --- | --- | --- | --- |
| figure | scope, metric, likely, cell, bucket; of a drain `flow` and `acks` | time, us | | largest value | |
| change | scope, metric, horizon_us, cell, level, stalled, bucket | time, us | moments | largest change | |
| drained | scope (a flow), acks, level, bucket | | messages | | slowest, thousandths a second |
| put | scope (a flow), bucket | | intervals | quickest, thousandths a second | |
| time | scope, metric (covered, late, idle, floor), cell | time, us | intervals | | |
| looks | scope (a flow), cell | | looks | last, us | first, us |
| told | scope (a flow) | things put in | of these told by queues | | |
| read | scope (a class) | | flows that have a queue of it | | |
| curve | scope, metric, likely, cell; of a drain `flow` and `acks` | | | largest value | |
| share | scope (a flow), name (a queue; none: of all others), cell | message-milliseconds | | most at a look | |
| now | scope, metric, likely; of a drain `flow` and `acks`; stalled | | | value at the last look | |
| since | scope, metric | | | bound of the last covered time | |
| spacing | scope (a flow) | | | between looks, us | |
| role | name (a role) | | | last seen, us | |
| check | metric, cell | a sum over moments | moments | | |
| fault | metric (torn, gone, short), name (a file, or a version) | | | how far back, us | |
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.rpo.core.columns import NA, Flags, Ints
from dr_ctl.rpo.core.histogram import bucket_of

TOTAL: Final = "total"
UNKNOWN: Final = -(1 << 30)
"""The bucket of what is not known."""
MILLI: Final = 1000
WORDS: Final = ("kind", "scope", "metric", "flow", "name")
NUMBERS: Final = ("cell", "level", "horizon_us", "bucket")
FLAGS: Final = ("is_total", "likely", "acks", "stalled")
VALUES: Final = ("weight", "count", "most", "least")
KEYS: Final = (*WORDS, *NUMBERS, *FLAGS)
SCHEMA: Final = pa.schema(
    [
        *((name, pa.string()) for name in WORDS),
        *((name, pa.int64()) for name in NUMBERS),
        *((name, pa.bool_()) for name in FLAGS),
        *((name, pa.int64()) for name in VALUES),
    ]
)
"""`is_total`: the row tells of the total too, for its flow is the only one."""
NEVER: Final = 1 << 62
LAST: Final = ("now", "since", "spacing")
OWN: Final = ("drained", "put", "told")
"""Kinds of rows of single flows that the total and the classes are told by too."""
_HOW: Final = (np.add, np.add, np.maximum, np.minimum)
_DEFAULTS: Final = {**dict.fromkeys(SCHEMA.names, 0), "least": NEVER}
"""Of a column that rows of a kind do not have; of a word the place of none."""


CLASS: Final = "class "


def class_name(number: int) -> str:
    return f"{CLASS}{number}"


def flow_name(pair: str, name: str) -> str:
    return json.dumps([pair, name])


def bucket(values: Ints) -> Ints:
    return np.where(values == NA, UNKNOWN, bucket_of(values))


class Gathered:
    """Gathers the rows of an hour, put together as they come; words are held as their places."""

    def __init__(self) -> None:
        self._words: dict[str, int] = {"": 0}
        self._columns: dict[str, list[Ints]] = {name: [] for name in SCHEMA.names}
        self._single: dict[str, list[int]] = {name: [] for name in SCHEMA.names}

    def add(
        self,
        kind: str,
        words: Sequence[str],
        scope: Ints | int,
        *,
        weight: Ints | None = None,
        count: Ints | None = None,
        most: Ints | None = None,
        least: Ints | None = None,
        size: int | None = None,
        **keys: Any,
    ) -> None:
        """Add rows: `scope`, like the keys `flow` and `name`, are places in `words`; `metric` is a word."""
        told = [each for each in (weight, count, most, least) if each is not None]
        length = size if size is not None else len(told[0])
        if not length:
            return
        codes = {"kind": self._code(kind), "metric": self._code(keys.pop("metric", ""))}
        own = np.array([*map(self._code, words), 0])
        arrays = {name: np.asarray(each, np.int64) for name, each in {"scope": scope, **keys}.items()}
        varied = {name: each for name, each in arrays.items() if each.ndim and bool((each != each[0]).any())}
        order, first = _grouped(list(varied.values()), length)
        found: dict[str, Ints | int] = {**_DEFAULTS, **codes}
        for name, each in arrays.items():
            some = each[order][first] if name in varied else each.flat[:1]
            found[name] = own[some] if name in WORDS else some
        for name, value, how in zip(VALUES, (weight, count, most, least), _HOW, strict=True):
            if value is not None:
                found[name] = how.reduceat(value[order], first)
        for name, column in self._columns.items():
            whole = np.empty(len(first), np.int64)
            whole[:] = found[name]
            column.append(whole)

    def one(
        self,
        kind: str,
        scope: str = "",
        *,
        weight: int = 0,
        count: int = 0,
        most: int = 0,
        least: int = NEVER,
        **keys: Any,
    ) -> None:
        """Add one row, of words."""
        told = {"kind": kind, "scope": scope, "weight": weight, "count": count, "most": most, "least": least, **keys}
        for name, column in self._single.items():
            each = told.get(name, _DEFAULTS[name])
            column.append(self._code(each) if isinstance(each, str) else int(each))

    def _code(self, word: str) -> int:
        return self._words.setdefault(word, len(self._words))

    def table(self) -> pa.Table:
        words = pa.array([*self._words], pa.string())
        columns = []
        for field in SCHEMA:
            told = np.concatenate([*self._columns[field.name], np.array(self._single[field.name], np.int64)])
            if field.name in WORDS:
                columns.append(words.take(pa.array(told)))
            else:
                columns.append(pa.array(told.astype(field.type.to_pandas_dtype())))
        return pa.table(columns, schema=SCHEMA)


def _grouped(keys: list[Ints], length: int) -> tuple[npt.NDArray[np.intp] | slice, npt.NDArray[np.intp]]:
    """The order by these keys, and the places in it at which another begins."""
    if not keys:
        return slice(None), np.zeros(1, np.intp)
    code = np.zeros(length, np.int64)
    size = 1
    for key in keys:
        least = int(key.min())
        span = int(key.max()) - least + 1
        size *= span
        code = code * span + (key - least)
    order = np.argsort(code, kind="stable") if size < NEVER else np.lexsort(keys[::-1])
    new = np.ones(length, bool)
    new[1:] = np.logical_or.reduce([key[order][1:] != key[order][:-1] for key in keys])
    return order, np.flatnonzero(new)


ADDED: Final = (("weight", "sum"), ("count", "sum"), ("most", "max"), ("least", "min"))


def together(tables: Sequence[pa.Table]) -> pa.Table:
    """Rows with equal keys put together."""
    whole = pa.concat_tables([SCHEMA.empty_table(), *tables])
    found = whole.group_by([*KEYS], use_threads=False).aggregate([*ADDED])
    return found.rename_columns([*KEYS, *(name for name, _ in ADDED)]).select(SCHEMA.names).cast(SCHEMA)


def coarsened(tables: Sequence[pa.Table], figures_us: int, curve_us: int) -> pa.Table:
    """Rows in coarser cells."""
    whole = pa.concat_tables([SCHEMA.empty_table(), *tables])
    # Of what was last only the last counts.
    is_last = pc.is_in(whole["kind"], pa.array(LAST))
    newest = pc.max(whole["cell"].filter(is_last)).as_py()
    if newest is not None:
        whole = whole.filter(pc.or_(pc.invert(is_last), pc.equal(whole["cell"], newest)))
    length = np.where(pc.equal(whole["kind"], "curve").to_numpy(zero_copy_only=False), curve_us, figures_us)
    cell = whole["cell"].to_numpy()
    return together([whole.set_column(whole.column_names.index("cell"), "cell", pa.array(cell - cell % length))])


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one kind, scope and metric; `flow` and `name` are places in the words of all."""

    flow: Ints
    name: Ints
    cell: Ints
    level: Ints
    horizon_us: Ints
    bucket: Ints
    acks: Flags
    stalled: Flags
    weight: Ints
    count: Ints
    most: Ints
    least: Ints

    def take(self, at: Ints | Flags | slice) -> Self:
        return type(self)(*(getattr(self, each.name)[at] for each in fields(self)))

    @property
    def values(self) -> Ints:
        return np.where(self.bucket == UNKNOWN, NA, self.most)

    def words(self, of: Rows) -> list[str]:
        return [of.words[place] for place in self.name.tolist()]


class Rows:
    """All rows of an estimate, by kind, scope and metric."""

    def __init__(self, tables: Sequence[pa.Table]) -> None:
        whole = pa.concat_tables([SCHEMA.empty_table(), *tables])
        total = whole.filter(pc.field("is_total"))
        total = total.set_column(
            total.column_names.index("scope"), "scope", pa.repeat(pa.scalar(TOTAL), total.num_rows)
        )
        whole = pa.concat_tables([whole, total]).combine_chunks()
        self.words: list[str] = []
        coded = {name: self._coded(whole[name]) for name in WORDS}
        columns = {name: whole[name].to_numpy(zero_copy_only=False) for name in SCHEMA.names if name not in WORDS}
        key = [coded["kind"], coded["scope"], coded["metric"], columns["likely"].astype(np.int64)]
        order, first = _grouped(key, whole.num_rows) if whole.num_rows else (slice(None), np.zeros(0, np.intp))
        columns = {**columns, "flow": coded["flow"], "name": coded["name"]}
        rows = Part(*(columns[each.name][order] for each in fields(Part)))
        self._parts: dict[tuple[str, str, str, bool], Part] = {}
        heads = np.stack([each[order][first] for each in key], axis=1).tolist() if len(first) else []
        for (kind, scope, metric, likely), begin, end in zip(
            heads, first.tolist(), [*first.tolist(), whole.num_rows][1:], strict=True
        ):
            self._parts[self.words[kind], self.words[scope], self.words[metric], likely > 0] = rows.take(
                slice(begin, end)
            )
        self._none = rows.take(slice(0, 0))
        self.flows = sorted(
            (scope for kind, scope, *_ in self._parts if kind == "looks" and scope != TOTAL), key=json.loads
        )

    def _coded(self, column: pa.ChunkedArray) -> Ints:
        if not len(column):
            return np.zeros(0, np.int64)
        told = pc.dictionary_encode(column.combine_chunks())
        told = told.chunk(0) if isinstance(told, pa.ChunkedArray) else told
        begin = len(self.words)
        self.words += told.dictionary.to_pylist()
        found: Ints = told.indices.to_numpy().astype(np.int64) + begin
        return found

    def part(self, kind: str, scope: str = "", metric: str = "", *, likely: bool = False) -> Part:
        return self._parts.get((kind, scope, metric, likely), self._none)
