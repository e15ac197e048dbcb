"""Counts events of Parquet ledgers without Spark and without reading ids, while Spark starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dr_ctl.rpo.ledgers.files import COLUMNS, EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dr_ctl.rpo.ledgers.files import Ledger

BAD: Final = "bad"
_ROWS: Final = 1 << 20
_WORDS: Final = ("site", "queue", "event")


class Count(NamedTuple):
    """The number of events of a kind that a ledger has for a site's queue, and the last one's time. Rows that are no
    event count as bad."""

    ledger: int
    site: str
    queue: str
    event: str
    n: int
    last_us: int


def counts(given: Sequence[Ledger]) -> dict[int, list[Count]]:
    """The counts of every ledger whose footers suffice, by number. Spark counts the others: JSON lines, times as text,
    empty columns."""
    return {
        number: [count for path in ledger.paths for count in _counts(number, path)]
        for number, ledger in enumerate(given)
        if ledger.is_parquet and not ledger.ts_is_text and all(map(_is_full, ledger.paths))
    }


def _is_full(path: str) -> bool:
    """Whether the footer says that no column is ever empty."""
    footer = pq.read_metadata(path)
    places = [footer.schema.to_arrow_schema().get_field_index(column) for column in COLUMNS]
    parts = [footer.row_group(number).column(place) for number in range(footer.num_row_groups) for place in places]
    return all(part.statistics is not None and part.statistics.null_count == 0 for part in parts)


def _counts(number: int, path: str) -> Iterator[Count]:
    with pq.ParquetFile(path, read_dictionary=[*_WORDS]) as file:
        for batch in file.iter_batches(_ROWS, columns=[*_WORDS, "ts"]):
            table = pa.table(batch).unify_dictionaries()
            us = table["ts"].cast(pa.timestamp("us", table["ts"].type.tz)).cast(pa.int64())
            table = table.set_column(table.column_names.index("ts"), "us", us)
            folded = table.group_by([*_WORDS]).aggregate([("us", "max"), ([], "count_all")])
            for row in folded.to_pylist():
                event = row["event"] if row["event"] in EVENTS else BAD
                if event != "ack-in-doubt":
                    yield Count(number, row["site"], row["queue"], event, row["count_all"], row["us_max"])
