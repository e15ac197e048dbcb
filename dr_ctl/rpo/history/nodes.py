"""Other nodes of a site's brokers than the settings name, as the newest files of the history have them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.rpo.history.last_seen import newest
from dr_ctl.rpo.history.sources import Sources, read

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dr_ctl.settings.model import Place

_COLUMNS: Final = ("ts", "pair", "kind", "name")


def nodes(history: Path | Place, site: str) -> Sequence[tuple[str, str, datetime]]:
    """Pair, name and latest moment of each that was told with the last whole reading of its broker, or since. What an
    earlier reading told, and a later one of the same broker did not, is over."""
    return read(history, lambda files: _told(files, site))[0]


def _told(files: Sources, site: str) -> Sequence[tuple[str, str, datetime]]:
    found: dict[tuple[str, str], datetime] = {}
    read_at: dict[str, datetime] = {}
    for rows in newest(files, site, _COLUMNS):
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
