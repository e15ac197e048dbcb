"""Reads the looks of a slice: of each hour, of some time around it, and of the past what the cut needs.

Memory follows the looks of an hour and not the length of a stall: outflows are read first, and of the past only those
looks at queues that are somebody's cut, and one every five minutes. Where even an hour is too much at once its queues
are read in several parts.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dr_ctl.rpo.core.calendar import Period
from dr_ctl.rpo.core.columns import READ, Columns, Flags, Ints
from dr_ctl.rpo.core.cut import AWAY_US, Outflows
from dr_ctl.rpo.core.hour import FURTHER, is_cut, needed, whole
from dr_ctl.rpo.estimate.listing import File
from dr_ctl.rpo.history.files import SCHEMA
from dr_ctl.rpo.history.row import micros
from dr_ctl.rpo.history.store import Store

if TYPE_CHECKING:
    from dr_ctl.rpo.estimate.slices import Slice

AT_ONCE: Final = 1_500_000
"""Rows that are held at once."""
BATCH: Final = 1 << 16
_WORDS: Final = ("pair", "kind", "name", "start")
_SCHEMA: Final = pa.schema(
    [pa.field(each.name, pa.dictionary(pa.int32(), pa.string()) if each.name in _WORDS else each.type)
     for each in SCHEMA if each.name in READ]
)  # fmt: skip
Wanted = Callable[[pa.RecordBatch], Flags]


class TooShort(Exception):
    """The files that were told do not reach back as far as `from_us`."""

    def __init__(self, from_us: int) -> None:
        super().__init__()
        self.from_us = from_us


class Gone(Exception):
    """A file went while it was read: joined to others, or too old."""


@dataclass(frozen=True, slots=True)
class Around:
    """The looks around an hour: outflows and roles in `rows` (and queues, where all fit), queues in chunks; `from_us`:
    from when on was read."""

    rows: Columns
    flows: Outflows
    chunks: Callable[[], Iterator[Columns]]
    from_us: int


class _Group(NamedTuple):
    """A group of rows of a file, by its footer."""

    number: int
    first_us: int
    last_us: int
    rows: int
    kinds: tuple[str, str]

    def overlap(self, from_us: int, to_us: int) -> float:
        """About how many of its rows lie in that time."""
        if self.first_us >= to_us or self.last_us < from_us:
            return 0.0
        inside = min(self.last_us + 1, to_us) - max(self.first_us, from_us)
        return self.rows * inside / (self.last_us + 1 - self.first_us)


class Looks:
    """The looks of a slice. `torn`: files that are torn inside, which no footer shows, and why they are left out."""

    def __init__(self, told: Slice) -> None:
        self._told, self._store = told, Store.of(told.history)
        self.torn: dict[str, str] = {}
        self._groups: dict[str, list[_Group]] = {}
        self._held = Columns.of(_SCHEMA.empty_table())
        self._held_us = (0, 0)

    def around(self, hour: Period) -> Around | None:
        """None where nobody looked in that hour. Raises TooShort, Gone."""
        told, back_us = self._told, AWAY_US
        end_us = min(hour.to_us + AWAY_US, told.end_us)
        if not any(file.is_read and file.touches(hour.from_us, min(hour.to_us, told.end_us)) for file in told.files):
            return None
        while True:
            from_us = max(told.begin_us, hour.from_us - back_us)
            if from_us < told.reaches_us:
                raise TooShort(from_us)
            fits = self._rows_of(from_us, end_us) <= AT_ONCE
            rows = self._all(from_us, end_us) if fits else self._outer(from_us, end_us)
            flows = Outflows.of(rows)
            if from_us <= told.begin_us or is_cut(flows, hour.from_us, from_us):
                break
            back_us *= FURTHER
        if not ((rows.us >= hour.from_us) & (rows.us < hour.to_us)).any():
            return None
        near_us = hour.from_us - AWAY_US
        if fits:
            kept = rows
            if rows.us[0] < near_us:  # of the past only what some cut needs
                some = needed(whole(rows), flows, near_us)
                kept = rows.only((rows.us >= near_us) | np.isin(rows.us, some))
            return Around(rows, flows, lambda: iter([kept]), from_us)
        return Around(rows, flows, lambda: self._chunks(flows, from_us, near_us, end_us), from_us)

    def _all(self, from_us: int, to_us: int) -> Columns:
        """Every row of that time. Rows are held for the hours to come."""
        if not (self._held_us[0] <= from_us and to_us <= self._held_us[1]):
            wide = min(from_us, self._told.from_us - AWAY_US), min(self._told.to_us + AWAY_US, self._told.end_us)
            span = (
                wide
                if wide[0] <= from_us and to_us <= wide[1] and self._rows_of(*wide) <= AT_ONCE
                else (from_us, to_us)
            )
            self._held, self._held_us = Columns.of(self._table(*span)).by_time(), span
        at = np.searchsorted(self._held.us, [from_us, to_us])
        return self._held.take(slice(int(at[0]), int(at[1])))

    def _outer(self, from_us: int, to_us: int) -> Columns:
        """The rows of outflows and roles alone."""
        return Columns.of(self._table(from_us, to_us, lambda group: group.kinds != ("queue", "queue"), _not_queues))

    def _chunks(self, flows: Outflows, from_us: int, near_us: int, to_us: int) -> Iterator[Columns]:
        """The looks at queues, some queues at a time."""
        moments = self._whole(from_us, near_us)
        some = needed(moments, flows, near_us)
        share = len(some) / max(1, len(np.unique(moments[1])))
        count = int((self._rows_of(near_us, to_us) + share * self._rows_of(from_us, near_us)) // AT_ONCE) + 1
        for number in range(count):

            def mine(batch: pa.RecordBatch, number: int = number) -> Flags:
                return _in_part(batch, number, count)

            def past(batch: pa.RecordBatch, number: int = number) -> Flags:
                return _in_part(batch, number, count) & np.isin(_moments(batch), some)

            near = self._table(near_us, to_us, _has_queues, mine)
            far = self._table(from_us, near_us, lambda group: _has_queues(group) and _touches(group, some), past)
            yield Columns.of(pa.concat_tables([near, far]))

    def _whole(self, from_us: int, to_us: int) -> tuple[Ints, Ints]:
        """When queues were looked at: a number for each pair, and the moment."""
        found: dict[str, Ints] = {}

        def note(batch: pa.RecordBatch) -> Flags:
            of_queues = _queues(batch)
            codes = batch.column("pair").indices.to_numpy(zero_copy_only=False)
            for code, word in enumerate(batch.column("pair").dictionary.to_pylist()):
                times = np.unique(_moments(batch)[of_queues & (codes == code)])
                found[word] = np.union1d(found.get(word, times), times)
            return np.zeros(batch.num_rows, bool)

        self._table(from_us, to_us, _has_queues, note, columns=("ts", "pair", "kind"))
        pairs = [np.full(len(times), number) for number, times in enumerate(found.values())]
        return np.concatenate([*pairs, np.zeros(0, np.int64)]), np.concatenate([*found.values(), np.zeros(0, np.int64)])

    def _rows_of(self, from_us: int, to_us: int) -> float:
        """About how many rows there are in that time."""
        files = [file for file in self._told.files if file.is_read and file.touches(from_us, to_us)]
        if sum(file.rows for file in files) <= AT_ONCE:
            return sum(file.rows for file in files)
        return sum(group.overlap(from_us, to_us) for file in files for group in self._groups_of(file))

    def _groups_of(self, file: File) -> list[_Group]:
        if file.name not in self._groups:
            try:
                with self._opened(file) as told:
                    self._groups[file.name] = [
                        _group(told.metadata.row_group(n), n, file) for n in range(told.num_row_groups)
                    ]
            except (pa.ArrowException, OSError) as error:
                self._tear(file, error)
        return self._groups.get(file.name, [])

    def _opened(self, file: File) -> pq.ParquetFile:
        return pq.ParquetFile(self._store.opened(file.name), read_dictionary=[*_WORDS])

    def _tear(self, file: File, error: Exception) -> None:
        if isinstance(error, FileNotFoundError):
            raise Gone(file.name) from error
        try:
            self._store.must_answer(file.name)
        except FileNotFoundError as gone:
            raise Gone(file.name) from gone
        self.torn[file.name] = f"it is torn inside ({str(error).splitlines()[0]})"

    def _table(
        self,
        from_us: int,
        to_us: int,
        groups: Callable[[_Group], bool] = lambda _: True,
        wanted: Wanted | None = None,
        columns: tuple[str, ...] = READ,
    ) -> pa.Table:
        """The rows of that time that are wanted. A file is read whole or not at all."""
        found = [_SCHEMA.empty_table().select(columns)]
        for file in self._told.files:
            if not file.is_read or not file.touches(from_us, to_us) or file.name in self.torn:
                continue
            chosen = [g for g in self._groups_of(file) if g.first_us < to_us and g.last_us >= from_us and groups(g)]
            is_inside = from_us <= file.first_us and file.last_us < to_us
            try:
                with self._opened(file) as told:
                    mine = []
                    for batch in told.iter_batches(
                        BATCH, [group.number for group in chosen], [*columns], use_threads=False
                    ):
                        keep = None if is_inside else (_moments(batch) >= from_us) & (_moments(batch) < to_us)
                        if wanted is not None:
                            keep = wanted(batch) if keep is None else keep & wanted(batch)
                        part = batch if keep is None or keep.all() else batch.filter(pa.array(keep))
                        if part.num_rows:
                            mine.append(pa.table(part).select(columns).cast(found[0].schema))
            except (pa.ArrowException, OSError) as error:
                self._tear(file, error)
            else:
                found += mine
        return pa.concat_tables(found)


def _group(told: pq.RowGroupMetaData, number: int, file: File) -> _Group:
    columns = {told.column(place).path_in_schema: told.column(place).statistics for place in range(told.num_columns)}
    ts, kind = (
        None if each is None or not each.has_min_max else (each.min, each.max)
        for each in (columns["ts"], columns["kind"])
    )
    first, last = (file.first_us, file.last_us) if ts is None else (micros(ts[0]), micros(ts[1]))
    return _Group(number, first, last, told.num_rows, ("", "~") if kind is None else kind)


def _has_queues(group: _Group) -> bool:
    return group.kinds[0] <= "queue" <= group.kinds[1]


def _touches(group: _Group, moments: Ints) -> bool:
    return bool(np.searchsorted(moments, group.first_us) < np.searchsorted(moments, group.last_us, "right"))


def _moments(batch: pa.RecordBatch) -> Ints:
    found: Ints = batch.column("ts").cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found


def _queues(batch: pa.RecordBatch) -> Flags:
    found: Flags = pc.fill_null(pc.equal(batch.column("kind").cast(pa.string()), "queue"), fill_value=False).to_numpy(
        zero_copy_only=False
    )
    return found


def _not_queues(batch: pa.RecordBatch) -> Flags:
    return ~_queues(batch)


def _in_part(batch: pa.RecordBatch, number: int, count: int) -> Flags:
    """Whether the rows are of queues of one of so many parts, by their names."""
    names = batch.column("name")
    mine = np.array([zlib.crc32(name.encode()) % count == number for name in names.dictionary.to_pylist()] + [False])
    codes = pc.fill_null(names.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    found: Flags = mine[codes] & _queues(batch)
    return found
