"""What is counted of Parquet ledgers without Spark, and what is left to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dr_ctl.rpo.history.row import micros
from dr_ctl.rpo.ledgers.counting import BAD, Count, counts
from dr_ctl.rpo.ledgers.exports import SCHEMA
from dr_ctl.rpo.ledgers.files import ledgers

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
GOOD = {"id": "m", "queue": "orders", "event": "sent", "site": "london", "ts": AT}


def counted(tmp_path: Path, *rows: dict[str, object], **written: object) -> dict[int, list[Count]]:
    table = pa.Table.from_pylist([{**GOOD, **row} for row in rows], schema=SCHEMA)
    pq.write_table(table, tmp_path / "l.parquet", **written)
    return counts(ledgers([str(tmp_path / "l.parquet")], tmp_path))


def test_events_are_counted_by_site_queue_and_kind_with_their_last_moment(tmp_path: Path) -> None:
    later = AT + timedelta(microseconds=1500)

    found = counted(tmp_path, {}, {"ts": later}, {"queue": "audit"}, {"event": "ack-in-doubt"}, row_group_size=1)

    totals: dict[tuple[str, str], tuple[int, int]] = {}
    for each in found[0]:
        n, us = totals.get((each.queue, each.event), (0, 0))
        totals[each.queue, each.event] = n + each.n, max(us, each.last_us)
    assert totals == {("orders", "sent"): (2, micros(later)), ("audit", "sent"): (1, micros(AT))}


def test_an_unknown_event_is_bad(tmp_path: Path) -> None:
    assert [each.event for each in counted(tmp_path, {"event": "seen"})[0]] == [BAD]


def test_what_may_be_empty_is_left_to_spark(tmp_path: Path) -> None:
    assert counted(tmp_path, {}, {"id": None}) == {}
    assert counted(tmp_path, {}, write_statistics=False) == {}
