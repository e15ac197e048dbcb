"""Which role a site was seen in, and from when to when, by all looks of the history, without Spark."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.core.model import Finding
from dr_ctl.rpo.history.row import micros, moment
from dr_ctl.rpo.history.sources import Sources, read, rows_of
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
    findings: list[Finding] = []
    is_role = pc.field("kind") == "site"
    if since is not None:
        is_role &= pc.field("ts") >= moment(micros(since))
    found: list[Spell] = []
    for site in sites:
        # The last minute's looks may stand in a file already: the same looks twice are the same spells.
        sources = chain(files.newest_first(site, since), files.tails(site))
        found += _of_site(site, rows_of(sources, findings, ["ts", "name"], is_role).sort_by("ts"))
    return sorted(found, key=lambda each: each.first), findings


def _of_site(site: str, looks: pa.Table) -> Iterator[Spell]:
    names = looks["name"].combine_chunks().dictionary_encode()
    codes, at = names.indices.to_numpy(), looks["ts"].cast(pa.int64()).to_numpy()
    begins = [0, *(np.flatnonzero(np.diff(codes)) + 1)] if len(at) else []
    for begin, end in zip(begins, [*begins[1:], len(codes)], strict=False):
        role = names.dictionary[int(codes[begin])].as_py()
        yield Spell(site, role, moment(int(at[begin])), moment(int(at[end - 1])))
