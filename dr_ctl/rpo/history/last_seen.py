"""The last moment of an earlier state, by the newest files of the history, without Spark."""

from __future__ import annotations

from datetime import datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dr_ctl.core.model import Role
from dr_ctl.rpo.history.files import TAILS, newest_first, rows_of_tail, tails

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_FILES: Final = 250
"""How many files are read back: an hour of a monitor that writes one a minute, and a week of joined hours."""


def last_seen(history: Path, site: str, role: Role) -> datetime | None:
    """The last look that saw the site in that role, if the newest files hold one."""
    for rows in _newest(history, site, ("ts", "kind", "name")):
        matching = rows.filter((pc.field("kind") == "site") & (pc.field("name") == role.value))
        if matching.num_rows:
            return _latest(matching)
    return None


def newest_look(history: Path, sites: Iterable[str]) -> datetime | None:
    """The last look at any of these sites, as a monitor that lives makes several a second."""
    last = [
        _latest(rows)
        for site in sites
        for rows in islice((each for each in _newest(history, site, ("ts",)) if each.num_rows), 1)
    ]
    return max(last, default=None)


def link_lost(history: Path, site: str, pair: str) -> datetime | None:
    """The last look that saw the link of a broker connected, if the newest files hold one."""
    for rows in _newest(history, site, ("ts", "pair", "link")):
        matching = rows.filter((pc.field("pair") == pair) & pc.field("link"))
        if matching.num_rows:
            return _latest(matching)
    return None


def _newest(history: Path, site: str, columns: tuple[str, ...]) -> Iterator[pa.Table]:
    for path in chain(tails(history, site), islice(newest_first(history, site), _FILES)):
        try:
            if path.match(TAILS):
                yield rows_of_tail(path).select([*columns])
            else:
                yield pq.read_table(path, columns=[*columns], partitioning=None)
        except (pa.ArrowException, OSError):
            continue  # a torn file tells nothing of it; the estimate names such files


def _latest(rows: pa.Table) -> datetime:
    latest: datetime = pc.max(rows.column("ts")).as_py()
    return latest
