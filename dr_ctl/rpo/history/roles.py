"""Which role a site was seen in, and from when to when, by all looks of the history, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.rpo.history.files import SCHEMA, rows_of_tail, site_rows
from dr_ctl.rpo.history.row import micros, moment
from dr_ctl.rpo.history.sources import Source, Sources, read

if TYPE_CHECKING:
    from pathlib import Path

    from dr_ctl.core.model import Finding
    from dr_ctl.settings.model import Place

_COLUMNS: Final = ["ts", "kind", "name"]
_WITHIN_S: Final = 60.0
"""So long a store elsewhere may take for a month of files."""


@dataclass(frozen=True, slots=True)
class Spell:
    """Looks one after the other that saw a site in one role: the first of them and the last."""

    site: str
    role: str
    first: datetime
    last: datetime


def spells(
    history: Path | Place, sites: Sequence[str], since: datetime | None = None
) -> tuple[list[Spell], list[Finding]]:
    """The spells of each site, in the order of their first looks; findings name what could not be read. `since` leaves
    out earlier looks."""
    (found, findings), silent = read(history, lambda files: _spells(files, sites, since), within_s=_WITHIN_S)
    return found, [*silent, *findings]


def _spells(files: Sources, sites: Sequence[str], since: datetime | None) -> tuple[list[Spell], list[Finding]]:
    usable, findings = files.usable(sites, since=since)
    all_: list[Spell] = []
    for site in sites:
        own = [source for source in usable if f"/site={site}/" in source.name]
        # The last minute's looks may stand in a file already: the same looks twice are the same spells.
        tables = [*(_of_file(source, findings) for source in own), *map(_of_tail, files.tails(site))]
        all_ += _joined(site, sorted(part for table in tables for part in _parts(table, since)))
    return sorted(all_, key=lambda each: each.first), findings


def _of_file(source: Source, findings: list[Finding]) -> pa.Table:
    try:
        with source.opened() as file:
            return site_rows(file)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        source.store.must_answer(source.name)
        findings.append(source.without(f"it is torn inside ({str(error).splitlines()[0]})"))
        return SCHEMA.empty_table().select(_COLUMNS)


def _of_tail(path: Path) -> pa.Table:
    rows = rows_of_tail(path)
    return rows.filter(pc.equal(rows["kind"], "site")).select(_COLUMNS)


def _parts(table: pa.Table, since: datetime | None) -> Iterator[tuple[int, int, str]]:
    """From when to when each role was seen, in a table whose rows have any order."""
    if since is not None:
        table = table.filter(pc.greater_equal(table["ts"].cast(pa.int64()), micros(since)))
    if not table.num_rows:
        return
    table = table.sort_by("ts")
    names = table["name"].combine_chunks().dictionary_encode()
    codes, at = names.indices.to_numpy(), table["ts"].cast(pa.int64()).to_numpy()
    begins = [0, *(np.flatnonzero(np.diff(codes)) + 1)]
    for begin, end in zip(begins, [*begins[1:], len(codes)], strict=True):
        yield int(at[begin]), int(at[end - 1]), names.dictionary[int(codes[begin])].as_py()


def _joined(site: str, parts: Sequence[tuple[int, int, str]]) -> list[Spell]:
    joined: list[Spell] = []
    for first, last, role in parts:
        if joined and joined[-1].role == role:
            joined[-1] = replace(joined[-1], last=max(joined[-1].last, moment(last)))
        else:
            joined.append(Spell(site, role, moment(first), moment(last)))
    return joined
