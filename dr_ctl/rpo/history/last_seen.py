"""The last moment of an earlier state, and other nodes than the settings name, by the newest files of the history,
without Spark."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.core.model import Finding, Role
from dr_ctl.rpo.history.sources import FAR_BACK, Sources, read
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
