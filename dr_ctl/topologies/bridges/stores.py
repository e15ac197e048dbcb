"""Compares the id stores of two sites, where the settings say where they are: ids that one store knows as processed and
the other does not."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing

from dr_ctl.topologies.common.idstore import WITHIN_S, NotRead, Store


def lacking(store: Store, other: Store) -> Mapping[str, int]:
    """How many ids `store` has and `other` lacks, by queue. The databases do the comparison; no store is written to.
    Raises `NotRead`."""
    try:
        with closing(sqlite3.connect(store.uri, uri=True, timeout=WITHIN_S)) as here:
            here.execute("ATTACH DATABASE ? AS other", (other.uri,))
            asked = f"SELECT q, count(*) FROM ({store.rows('main')} EXCEPT {other.rows('other')}) GROUP BY q"  # noqa: S608
            return {str(queue): int(count) for queue, count in here.execute(asked)}
    except sqlite3.Error as error:
        raise NotRead(f"{store.path.name} beside {other.path.name}: {error}") from error
