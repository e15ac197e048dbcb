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
| short | | | | | |
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dr_ctl.rpo.core.columns import NA, NEVER, Ints
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
OWN: Final = ("drained", "put", "told")
"""Kinds of rows of single flows that the total and the classes are told by too."""
ADDED: Final = (("weight", "sum"), ("count", "sum"), ("most", "max"), ("least", "min"))
"""How rows with equal keys are put together."""
_HOW: Final = dict(zip(VALUES, (np.add, np.add, np.maximum, np.minimum), strict=True))
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

    def add(self, kind: str, words: Sequence[str], scope: Ints | int, **keys: Any) -> None:
        """Add rows of keys and `VALUES`: `scope`, like the keys `flow` and `name`, are places in `words`; `metric` is a
        word."""
        values: dict[str, Ints] = {name: keys.pop(name) for name in VALUES if name in keys}
        length = len(next(iter(values.values())))
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
        for name, value in values.items():
            found[name] = _HOW[name].reduceat(value[order], first)
        for name, column in self._columns.items():
            whole = np.empty(len(first), np.int64)
            whole[:] = found[name]
            column.append(whole)

    def one(self, kind: str, scope: str = "", **more: str | int) -> None:
        """Add one row, of words."""
        told = {"kind": kind, "scope": scope, **more}
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
