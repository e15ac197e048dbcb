"""Which role a site was seen in, and from when to when, by all looks of the history, without Spark."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.core.model import Finding
from dr_ctl.rpo.history.row import micros, moment
from dr_ctl.rpo.history.sources import Sources, read
from dr_ctl.settings.model import Place

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
    is_role = pc.field("kind") == "site"
    if since is not None:
        is_role &= pc.field("ts") >= moment(micros(since))
    all_: list[Spell] = []
    for site in sites:
        own = [source for source in usable if f"/site={site}/" in source.name]
        # The last minute's looks may stand in a file already: the same looks twice are the same spells.
        told = (each.told(findings, ["ts", "name"], is_role) for each in (*own, *files.tails(site)))
        all_ += _joined(site, sorted(part for table in told if table is not None for part in _parts(table)))
    return sorted(all_, key=lambda each: each.first), findings


def _parts(table: pa.Table) -> Iterator[tuple[int, int, str]]:
    """From when to when each role was seen, in a table whose rows have any order."""
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
