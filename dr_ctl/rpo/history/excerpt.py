"""The looks of a stretch of time, as files of a history that can be read elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dr_ctl.rpo.history.files import (
    SCHEMA,
    WRITTEN,
    completed,
    folder_of,
    listed_anew,
    name_of,
    rows_of_tail,
    tails,
    usable_files,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from dr_ctl.core.model import Finding


def excerpt(
    root: Path, sites: Iterable[str], since: datetime, until: datetime
) -> tuple[dict[str, bytes], list[Finding]]:
    """The files by their names below a root of their own, one a site; findings name what could not be read."""
    return listed_anew(lambda: _excerpt(root, [*sites], since, until))


def _excerpt(
    root: Path, sites: Sequence[str], since: datetime, until: datetime
) -> tuple[dict[str, bytes], list[Finding]]:
    files, findings = usable_files(root, since=since, until=until)
    written = {}
    for site in sites:
        tables = [_within(table, since, until) for table in _tables(files, root, site, findings)]
        rows = pa.concat_tables([SCHEMA.empty_table(), *tables]).sort_by("ts")
        newest = pc.max(rows["ts"]).as_py()
        for path in tails(root, site):  # its looks come into a file later, and fewer of them
            later = _within(rows_of_tail(path), since if newest is None else max(since, newest), until)
            rows = pa.concat_tables([rows, later if newest is None else _after(later, newest)])
        if rows.num_rows:
            first = pc.min(rows["ts"]).as_py()
            name = (folder_of((first.date(), site), root) / name_of(first)).relative_to(root)
            written[str(name)] = _bytes(rows)
    return written, findings


def _tables(files: Sequence[Path], root: Path, site: str, findings: list[Finding]) -> Iterator[pa.Table]:
    for path in files:
        if path.parent.name == f"site={site}":
            try:
                yield completed(pq.read_table(path, partitioning=None)).select(SCHEMA.names).cast(SCHEMA)
            except FileNotFoundError:
                raise
            except (pa.ArrowException, OSError) as error:
                why = f"it is torn inside ({str(error).splitlines()[0]})"
                findings.append(without(f"{path.relative_to(root)} is left out: {why}"))


def _within(table: pa.Table, since: datetime, until: datetime) -> pa.Table:
    return table.filter(pc.and_(pc.greater_equal(table["ts"], since), pc.less_equal(table["ts"], until)))


def _after(table: pa.Table, at: datetime) -> pa.Table:
    return table.filter(pc.greater(table["ts"], at))


def _bytes(table: pa.Table) -> bytes:
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, **WRITTEN)
    return bytes(buffer.getvalue().to_pybytes())
