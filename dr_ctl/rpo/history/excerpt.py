"""The looks of a stretch of time, as files of a history that can be read elsewhere."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dr_ctl.core.model import Finding
from dr_ctl.rpo.history.files import WRITTEN, folder_of, name_of
from dr_ctl.rpo.history.row import micros, moment
from dr_ctl.rpo.history.sources import Sources, read, rows_of
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
    findings: list[Finding] = []
    within = (pc.field("ts") >= moment(micros(since))) & (pc.field("ts") <= moment(micros(until)))
    written = {}
    for site in sites:
        rows = rows_of(files.newest_first(site, since, until), findings, where=within).sort_by("ts")
        newest = pc.max(rows["ts"]).as_py()
        # What stands in a tail comes into a file later, and fewer of it.
        later = within if newest is None else within & (pc.field("ts") > newest)
        rows = pa.concat_tables([rows, rows_of(files.tails(site), findings, where=later)])
        if rows.num_rows:
            first = pc.min(rows["ts"]).as_py()
            buffer = pa.BufferOutputStream()
            pq.write_table(rows, buffer, **WRITTEN)
            name = folder_of((first.date(), site), Path()) / name_of(first)
            written[name.as_posix()] = bytes(buffer.getvalue().to_pybytes())
    return written, findings
