"""Compares the id stores of two sites, where the settings say where they are: ids that one store knows as processed and
the other does not."""

import sqlite3
from collections.abc import Collection, Mapping
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


def ids_lacking(store: Store, other: Store, queues: Collection[str]) -> Mapping[str, frozenset[str]]:
    """The ids of these queues that `store` has and `other` lacks, by queue. Raises `NotRead`."""
    found: dict[str, set[str]] = {}
    try:
        with closing(sqlite3.connect(store.uri, uri=True, timeout=WITHIN_S)) as here:
            here.execute("ATTACH DATABASE ? AS other", (other.uri,))
            known = f"SELECT 1 FROM ({other.rows('other')}) AS o WHERE o.q = m.q AND o.i = m.i"  # noqa: S608
            asked = f"SELECT q, i FROM ({store.rows('main')}) AS m WHERE m.q = ? AND NOT EXISTS ({known})"  # noqa: S608
            for queue in queues:
                for name, each in here.execute(asked, (queue,)):
                    found.setdefault(str(name), set()).add(str(each))
    except sqlite3.Error as error:
        raise NotRead(f"{store.path.name} beside {other.path.name}: {error}") from error
    return {queue: frozenset(ids) for queue, ids in found.items()}
