"""The looks of a stretch of time, as files of a history that can be read elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dr_ctl.rpo.history.files import SCHEMA, WRITTEN, completed, folder_of, name_of, rows_of_tail
from dr_ctl.rpo.history.sources import Source, Sources, read

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from dr_ctl.core.model import Finding
    from dr_ctl.settings.model import Place

_WITHIN_S: Final = 60.0
"""So long a store elsewhere may take for the files of two days."""


def excerpt(
    history: Path | Place, sites: Sequence[str], since: datetime, until: datetime
) -> tuple[dict[str, bytes], list[Finding]]:
    """The files by their names below a root of their own, one a site; findings name what could not be read."""
    (written, findings), silent = read(history, lambda files: _excerpt(files, sites, since, until), within_s=_WITHIN_S)
    return written, [*silent, *findings]


def _excerpt(
    files: Sources, sites: Sequence[str], since: datetime, until: datetime
) -> tuple[dict[str, bytes], list[Finding]]:
    usable, findings = files.usable(sites, since=since, until=until)
    written = {}
    for site in sites:
        own = [source for source in usable if f"/site={site}/" in source.name]
        tables = [_within(table, since, until) for table in _tables(own, findings)]
        rows = pa.concat_tables([SCHEMA.empty_table(), *tables]).sort_by("ts")
        newest = pc.max(rows["ts"]).as_py()
        for path in files.tails(site):  # its looks come into a file later, and fewer of them
            later = _within(rows_of_tail(path), since, until)
            rows = pa.concat_tables([rows, later if newest is None else _after(later, newest)])
        if rows.num_rows:
            first = pc.min(rows["ts"]).as_py()
            written[(folder_of((first.date(), site), Path()) / name_of(first)).as_posix()] = _bytes(rows)
    return written, findings


def _tables(sources: Sequence[Source], findings: list[Finding]) -> Iterator[pa.Table]:
    for source in sources:
        try:
            with source.opened() as file:
                yield completed(file.read()).select(SCHEMA.names).cast(SCHEMA)
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            findings.append(source.without(f"it is torn inside ({str(error).splitlines()[0]})"))


def _within(table: pa.Table, since: datetime, until: datetime) -> pa.Table:
    return table.filter(pc.and_(pc.greater_equal(table["ts"], since), pc.less_equal(table["ts"], until)))


def _after(table: pa.Table, at: datetime) -> pa.Table:
    return table.filter(pc.greater(table["ts"], at))


def _bytes(table: pa.Table) -> bytes:
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, **WRITTEN)
    return bytes(buffer.getvalue().to_pybytes())
