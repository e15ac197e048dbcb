"""Ledgers of message ids against each other: DataFrame in, DataFrame out.

A message is its queue and its id. Counts come first (`facts`); then every message is judged (`judged`).

A site holds the messages of its newest snapshot: the `stored` events of one ledger at one site, dated by the last of
them.

    lost        sent or stored once; never received, and in no site's newest snapshot, each taken after it was sent
    doubled     consumed more often than sent; or received, or held by a newest snapshot, after it was consumed
    recovered   a snapshot missed it although it was promised and not consumed by then, and it came there later
    unexpected  consumed, received or stored, and never sent, though the ledgers tell of sends to its queue
    unknown     gone, and the ledgers cannot say where to: its send is in doubt, nobody tells of consumption from
                its queue, or it was sent after some site's newest snapshot, and may lie there
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dr_ctl.rpo.ledgers.files import COLUMNS, EVENTS
from dr_ctl.rpo.pipeline import sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from dr_ctl.rpo.ledgers.files import Ledger

KINDS: Final = ("lost", "doubled", "recovered", "unexpected", "unknown")


class Snapshot(NamedTuple):
    """The messages that a site stored by one ledger, at a moment between `at_us` and `until_us`."""

    site: str
    ledger: int
    at_us: int
    until_us: int


def read(spark: SparkSession, number: int, ledger: Ledger) -> DataFrame:
    """The events of one ledger. Unreadable lines and rows with an empty column are `bad`."""
    named = sql.files(ledger.paths)
    if ledger.is_parquet:
        # Given, because finding the schema out takes Spark a job.
        words = COLUMNS if ledger.ts_is_text else [column for column in COLUMNS if column != "ts"]
        schema = ", ".join(f"{column} {'STRING' if column in words else 'TIMESTAMP'}" for column in COLUMNS)
        frame = spark.read.schema(schema).parquet(*named).selectExpr("*", "false AS torn")
    else:
        schema = ", ".join(f"{column} STRING" for column in (*COLUMNS, "_corrupt_record"))
        frame = spark.read.schema(schema).json(named).selectExpr(*COLUMNS, "_corrupt_record IS NOT NULL AS torn")
    known = ", ".join(sql.text(event) for event in EVENTS)
    return sql.over(
        """
        SELECT {number} AS ledger, queue, id, site, unix_micros(at) AS us,
               CASE WHEN torn OR queue IS NULL OR id IS NULL OR site IS NULL OR at IS NULL
                      OR event IS NULL OR event NOT IN ({known}) THEN 'bad' ELSE event END AS event
        FROM (SELECT *, try_cast(ts AS TIMESTAMP) AS at FROM {frame})
        WHERE event IS NULL OR event != 'ack-in-doubt'
        """,
        frame=frame,
        number=number,
        known=known,
    )


def facts(events: DataFrame) -> DataFrame:
    """Count by ledger, site, queue and kind of event, and tell the last moment of each."""
    return sql.over(
        """
        SELECT ledger, site, queue, event, count(*) AS n, max(us) AS last_us
        FROM {events} GROUP BY ledger, site, queue, event
        """,
        events=events,
    )


def judged(
    events: DataFrame,
    snapshots: Sequence[Snapshot],
    newest: Sequence[Snapshot],
    queues: Sequence[tuple[str, bool, bool]],
) -> DataFrame:
    """The fate of all messages: rows of `kind`, `queue` and `id`.

    `queues`: whether the ledgers tell of sends to the queue, and of consumption from it.
    """
    places = [f"({sql.text(each.site)}, {each.ledger})" for each in newest]
    return sql.over(
        """
        WITH listed AS (
          SELECT *, event = 'stored' AND {in_newest} AS is_held FROM {events} WHERE event != 'bad'),
        messages AS (
          SELECT queue, id,
            count_if(event = 'sent') AS sent, count_if(event = 'send-in-doubt') AS doubts,
            count_if(event = 'stored') AS stored, count_if(event = 'consumed') AS consumed,
            count_if(event = 'received') AS received,
            min(CASE WHEN event IN ('sent', 'stored') THEN us END) AS promised_us,
            min(CASE WHEN event = 'consumed' THEN us END) AS consumed_us,
            max(CASE WHEN event = 'received' THEN us END) AS received_us,
            max(CASE WHEN is_held THEN us END) AS held_us,
            {seen} AS seen
          FROM listed GROUP BY queue, id),
        looked AS (
          SELECT m.*, q.sends, q.consumption, {snapshots} AS snapshots, {newest} AS newest
          FROM messages m JOIN {queues} q ON q.queue = m.queue),
        findings AS (
          SELECT queue, id,
            stored + consumed + received = 0 AND sent = 0 AS never_seen,
            consumed = 0 AND received = 0 AND held_us IS NULL AS gone,
            consumption AND forall(newest, s -> s.at_us >= promised_us) AS can_tell,
            consumed > greatest(sent, 1) OR received_us > consumed_us OR held_us > consumed_us AS doubled,
            exists(snapshots, s -> s.at_us >= promised_us AND (consumed_us IS NULL OR consumed_us > s.until_us)
              AND NOT exists(seen, e -> e.site = s.site AND e.ledger <=> s.ledger)
              AND exists(seen, e -> e.site = s.site AND e.us > s.until_us)) AS recovered,
            sends AND sent = 0 AND doubts = 0 AS unexpected
          FROM looked),
        named AS (
          SELECT queue, id, explode(array_compact(array(
            CASE WHEN gone AND NOT never_seen AND can_tell THEN 'lost' END,
            CASE WHEN doubled THEN 'doubled' END,
            CASE WHEN recovered THEN 'recovered' END,
            CASE WHEN unexpected THEN 'unexpected' END,
            CASE WHEN gone AND (never_seen OR NOT can_tell) THEN 'unknown' END))) AS kind
          FROM findings)
        SELECT kind, queue, id FROM named
        """,
        events=events,
        in_newest=f"(site, ledger) IN ({', '.join(places)})" if places else "false",
        # A list for each message costs more than all else; only a snapshot can have missed one.
        seen=f"collect_list({_SEEN})" if snapshots else f"array({_NEVER_SEEN})",
        snapshots=_as_array(snapshots),
        newest=_as_array(newest),
        queues=sql.rows(
            "queue, sends, consumption",
            [(sql.text(name), str(sends).lower(), str(consumed).lower()) for name, sends, consumed in queues],
            "'', true, true",
        ),
    )


_SEEN: Final = """CASE WHEN event IN ('stored', 'received', 'consumed')
  THEN struct(site, us, CASE WHEN event = 'stored' THEN ledger END AS ledger) END"""
_NEVER_SEEN: Final = "CAST(NULL AS STRUCT<site: STRING, us: BIGINT, ledger: INT>)"


def _as_array(given: Sequence[Snapshot]) -> str:
    if not given:
        return "CAST(array() AS ARRAY<STRUCT<site: STRING, ledger: INT, at_us: BIGINT, until_us: BIGINT>>)"
    each = (
        f"named_struct('site', {sql.text(one.site)}, 'ledger', {one.ledger}, 'at_us', {one.at_us}L,"
        f" 'until_us', {one.until_us}L)"
        for one in given
    )
    return f"array({', '.join(each)})"
