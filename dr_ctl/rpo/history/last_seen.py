"""The last moment of an earlier state, and other nodes than the settings name, by the newest files of the history; and
from when to when a site was seen in which role, by all of them. Without Spark."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.core.model import Finding, Role
from dr_ctl.rpo.history.row import micros, moment
from dr_ctl.rpo.history.sources import FAR_BACK, Sources, read, rows_of
from dr_ctl.settings.model import Place


def last_seen(history: Path | Place, site: str, role: Role) -> datetime | None:
    """The last look that saw the site in that role, if the newest files hold one."""
    is_so = (pc.field("kind") == "site") & (pc.field("name") == role.value)
    return read(history, lambda files: _last(files, site, ("ts", "kind", "name"), is_so))[0]


def newest_look(history: Path | Place, sites: Iterable[str]) -> tuple[datetime | None, list[Finding]]:
    """The last look at any of these sites, as a monitor that lives makes several a second; the finding says that a
    store did not answer, which may have later ones."""
    last, findings = read(history, lambda files: [_last(files, site, ("ts",)) for site in sites])
    return max((each for each in last if each is not None), default=None), findings


def link_lost(history: Path | Place, site: str, pair: str) -> datetime | None:
    """The last look that saw the link of a broker connected, if the newest files hold one."""
    is_so = (pc.field("pair") == pair) & pc.field("link")
    return read(history, lambda files: _last(files, site, ("ts", "pair", "link"), is_so))[0]


def _last(files: Sources, site: str, columns: tuple[str, ...], is_so: pc.Expression | None = None) -> datetime | None:
    """The last look of which that is so, or any."""
    rows = next(_newest(files, site, columns, is_so), None)
    return None if rows is None else pc.max(rows["ts"]).as_py()


def nodes(history: Path | Place, site: str) -> Sequence[tuple[str, str, datetime]]:
    """Other nodes of a site's brokers than the settings name: pair, name and latest moment of each that was told with
    the last whole reading of its broker, or since. What an earlier reading told, and a later one of the same broker did
    not, is over."""
    return read(history, lambda files: _nodes(files, site))[0]


def _nodes(files: Sources, site: str) -> Sequence[tuple[str, str, datetime]]:
    found: dict[tuple[str, str], datetime] = {}
    read_at: dict[str, datetime] = {}
    for rows in _newest(files, site, ("ts", "pair", "kind", "name")):
        for (pair, name), at in _latest(rows, "node", "name").items():
            found[pair, name] = max(at, found.get((pair, name), at))
        for (pair,), at in _latest(rows, "queue").items():
            read_at[pair] = max(at, read_at.get(pair, at))
        if read_at:
            break  # earlier files tell of earlier readings
    return [(*key, at) for key, at in found.items() if at >= read_at.get(key[0], at)]


def _latest(rows: pa.Table, kind: str, *by: str) -> dict[tuple[str, ...], datetime]:
    """The latest moment of the rows of a kind, by pair and these columns."""
    keys = ["pair", *by]
    of_kind = rows.filter(pc.equal(rows["kind"], kind)).group_by(keys).aggregate([("ts", "max")])
    return {tuple(str(row[key]) for key in keys): row["ts_max"] for row in of_kind.to_pylist()}


def _newest(
    files: Sources, site: str, columns: tuple[str, ...], is_so: pc.Expression | None = None
) -> Iterator[pa.Table]:
    """Rows of a site of which that is so, the newest first: by file, and as many files as this looks back. A torn file
    tells nothing of it; the estimate names such files."""
    for source in chain(files.tails(site), islice(files.newest_first(site), FAR_BACK)):
        if (rows := source.told([], columns, is_so)).num_rows:
            yield rows


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
