"""Ledgers of message ids against each other: DataFrame in, DataFrame out.

A message is its queue and its id. Where all is well each was sent once and then consumed once, or is held by a site.
So the sends of a bucket of messages, taken together, equal its consumptions and what any one site holds: `digests`
counts and hashes them in one pass over the ledgers, and only the buckets in which that does not hold (`differing`) are
looked at message by message (`judged`). A digest is a count, the exclusive or of 64-bit hashes, and the sum of 30 of
their bits: the last tells {a, a} from {b, b}. What it cannot tell is in which order a message was consumed and received
by one client: few events are judged message by message, whatever their digests (`every`).

What a site holds is what its newest snapshot says: the `stored` events of one ledger at one site are one snapshot,
and the last of them is its moment.

    lost        sent or stored once; never received, and in no site's newest snapshot, taken after it was sent
    doubled     consumed more often than sent; or received, or held by a newest snapshot, after it was consumed
    recovered   a snapshot missed it although it was promised and not consumed by then, and it came there later
    unexpected  consumed, received or stored, and never sent, though the ledgers tell of sends to its queue
    unknown     gone, and the ledgers cannot say where to: its send is in doubt, nobody tells of consumption from
                its queue, or it was sent after the last snapshot
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dr_ctl.rpo.ledgers.files import COLUMNS, EVENTS
from dr_ctl.rpo.spark import sql

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from dr_ctl.rpo.ledgers.files import Ledger

KINDS: Final = ("lost", "doubled", "recovered", "unexpected", "unknown")
BAD: Final = "bad"


class Snapshot(NamedTuple):
    """All that one ledger says a site stored."""

    site: str
    ledger: int
    at_us: int


def read(spark: SparkSession, number: int, ledger: Ledger) -> DataFrame:
    """The events of one ledger. What is no event (a line that cannot be read, a column that is empty) is `bad`."""
    named = sql.files(ledger.paths)
    if ledger.is_parquet:
        # Told, because to find it out takes Spark a job.
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
                      OR event IS NULL OR event NOT IN ({known}) THEN 'bad' ELSE event END AS event,
               xxhash64(queue, id) AS hash
        FROM (SELECT *, try_cast(ts AS TIMESTAMP) AS at FROM {frame})
        WHERE event IS NULL OR event != 'ack-in-doubt'
        """,
        frame=frame,
        number=number,
        known=known,
    )


def digests(events: DataFrame, moments: Collection[int], *, buckets: int) -> DataFrame:
    """One row per bucket of a queue, kind of event and time between two `moments`; what is stored by its snapshot.

    What is bad comes by ledger.
    """
    return sql.over(
        """
        SELECT queue, event, pmod(hash, {buckets}) AS bucket,
               CASE WHEN event IN ('stored', 'bad', 'consumed', 'received') THEN ledger END AS ledger,
               CASE WHEN event IN ('stored', 'consumed', 'received') THEN site END AS site,
               CASE WHEN event IN ('sent', 'consumed') THEN {later} ELSE 0 END AS epoch,
               count(*) AS n, bit_xor(hash) AS x, sum(shiftrightunsigned(hash, 34)) AS s, max(us) AS last_us
        FROM {events} GROUP BY 1, 2, 3, 4, 5, 6
        """,
        events=events,
        buckets=buckets,
        later=" + ".join(["0", *(f"int(us > {moment}L)" for moment in sorted(moments))]),
    )


def facts(digested: DataFrame) -> DataFrame:
    """Count by queue and kind of event; what is stored or bad also by ledger and site."""
    return sql.over(
        """
        SELECT queue, event, ledger, site, sum(n) AS n, max(last_us) AS last_us
        FROM {digested} GROUP BY queue, event, ledger, site
        """,
        digested=digested,
    )


def every(digested: DataFrame) -> DataFrame:
    """All buckets, however well they look."""
    return sql.over("SELECT DISTINCT queue, bucket FROM {digested} WHERE event != 'bad'", digested=digested)


def differing(
    digested: DataFrame, snapshots: Sequence[Snapshot], newest: Sequence[Snapshot], sends: Collection[str]
) -> DataFrame:
    """The buckets that their digests alone do not show to be well: at each snapshot, and in the end.

    `sends`: the queues that the ledgers tell of sends to. There nothing may be held that was not sent.
    """
    moments = sorted({each.at_us for each in snapshots})
    looks = [
        (sql.text(each.site), str(each.ledger), str(moments.index(each.at_us)), str(each in newest).lower())
        for each in snapshots
    ]
    return sql.over(
        """
        WITH looks AS (
          SELECT d.queue, d.bucket, s.site, s.ledger, s.is_newest, {sent}, {consumed}, {sent_by_then},
            {consumed_by_then}, {held}, sum(CASE WHEN event = 'send-in-doubt' THEN n ELSE 0 END) AS doubts,
            sum(CASE WHEN event = 'stored' AND NOT s.is_newest THEN n ELSE 0 END) AS past
          FROM {digested} d CROSS JOIN {looks} s WHERE d.event != 'bad'
          GROUP BY d.queue, d.bucket, s.site, s.ledger, s.is_newest)
        SELECT queue, bucket FROM looks GROUP BY queue, bucket
        HAVING NOT bool_and(
          doubts = 0
          AND (({then_known} AND (NOT is_newest OR {end_known}))
               OR (sent_n = 0 AND consumed_n = 0 AND past = 0 AND NOT {has_sends})))
          OR min(sent_n) = 0 AND (min(held_n), min(held_x), min(held_s)) != (max(held_n), max(held_x), max(held_s))
          OR min(sent_n) = 0 AND max(held_n) > 0 AND NOT {several}
        UNION
        -- Whoever received messages and told of it consumed the same ones.
        SELECT queue, bucket FROM (
          SELECT queue, bucket, ledger, site, {received}, {consumed} FROM {digested}
          WHERE event IN ('consumed', 'received') GROUP BY queue, bucket, ledger, site)
        WHERE received_n > 0 AND (received_n, received_x, received_s) != (consumed_n, consumed_x, consumed_s)
        """,
        digested=digested,
        # Without a snapshot nothing is held: one that nobody took, in the end.
        looks=sql.rows("site, ledger, epoch, is_newest", looks or [("''", "-1", "0", "true")], ""),
        sent=_side("sent", "event = 'sent'"),
        consumed=_side("consumed", "event = 'consumed'"),
        received=_side("received", "event = 'received'"),
        sent_by_then=_side("sent_by_then", "event = 'sent' AND d.epoch <= s.epoch"),
        consumed_by_then=_side("consumed_by_then", "event = 'consumed' AND d.epoch <= s.epoch"),
        held=_side("held", "event = 'stored' AND d.site = s.site AND d.ledger = s.ledger"),
        then_known=_adds_up("sent_by_then", "consumed_by_then"),
        end_known=_adds_up("sent", "consumed"),
        has_sends=f"(queue IN ({', '.join(map(sql.text, sorted(sends)))}))" if sends else "false",
        several="true" if len(newest) > 1 else "false",
    )


def judged(
    events: DataFrame,
    suspects: DataFrame,
    snapshots: Sequence[Snapshot],
    newest: Sequence[Snapshot],
    queues: Sequence[tuple[str, bool, bool]],
    *,
    buckets: int,
) -> DataFrame:
    """What became of the messages in the suspect buckets: `kind`, `queue`, `id`, one row for each thing to say.

    `queues`: whether the ledgers tell of sends to the queue, and of consumption from it.
    """
    return sql.over(
        """
        WITH told AS (
          SELECT /*+ BROADCAST(suspects) */ e.*, held.site IS NOT NULL AS is_held
          FROM {events} e
          JOIN {suspects} suspects ON suspects.queue = e.queue AND suspects.bucket = pmod(e.hash, {buckets})
          LEFT JOIN {newest} held ON e.event = 'stored' AND held.site = e.site AND held.ledger = e.ledger),
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
          FROM told GROUP BY queue, id),
        looked AS (
          SELECT m.*, q.sends, q.consumption, {snapshots} AS snapshots
          FROM messages m JOIN {queues} q ON q.queue = m.queue),
        findings AS (
          SELECT queue, id,
            stored + consumed + received = 0 AND sent = 0 AS never_seen,
            consumed = 0 AND received = 0 AND held_us IS NULL AS gone,
            consumption AND (size(snapshots) = 0 OR exists(snapshots, s -> s.at_us >= promised_us)) AS can_tell,
            consumed > greatest(sent, 1) OR received_us > consumed_us OR held_us > consumed_us AS doubled,
            exists(snapshots, s -> s.at_us >= promised_us AND (consumed_us IS NULL OR consumed_us > s.at_us)
              AND NOT exists(seen, e -> e.site = s.site AND e.ledger <=> s.ledger)
              AND exists(seen, e -> e.site = s.site AND e.us > s.at_us)) AS recovered,
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
        suspects=suspects,
        buckets=buckets,
        newest=_snapshots(newest),
        # A list for each message costs more than all else; only a snapshot can have missed one.
        seen=f"collect_list({_SEEN})" if snapshots else f"array({_NEVER_SEEN})",
        snapshots=_as_array(snapshots),
        queues=sql.rows(
            "queue, sends, consumption",
            [(sql.text(name), str(sends).lower(), str(consumed).lower()) for name, sends, consumed in queues],
            "'', true, true",
        ),
    )


_SEEN: Final = """CASE WHEN event IN ('stored', 'received', 'consumed')
  THEN struct(site, us, CASE WHEN event = 'stored' THEN ledger END AS ledger) END"""
_NEVER_SEEN: Final = "CAST(NULL AS STRUCT<site: STRING, us: BIGINT, ledger: INT>)"


def _side(name: str, when: str) -> str:
    def of(column: str, fold: str) -> str:
        return f"{fold}(CASE WHEN {when} THEN {column} ELSE 0 END) AS {name}_{column}"

    return ", ".join((of("n", "sum"), of("x", "bit_xor"), of("s", "sum")))


def _adds_up(sent: str, consumed: str) -> str:
    """What was sent is what was consumed and what is held."""
    return f"(({sent}_n, {sent}_x, {sent}_s) = ({consumed}_n + held_n, {consumed}_x ^ held_x, {consumed}_s + held_s))"


def _snapshots(given: Sequence[Snapshot]) -> str:
    written = [(sql.text(each.site), str(each.ledger), f"{each.at_us}L") for each in given]
    return sql.rows("site, ledger, at_us", written, "'', 0, 0L")


def _as_array(given: Sequence[Snapshot]) -> str:
    if not given:
        return "CAST(array() AS ARRAY<STRUCT<site: STRING, ledger: INT, at_us: BIGINT>>)"
    each = (
        f"named_struct('site', {sql.text(one.site)}, 'ledger', {one.ledger}, 'at_us', {one.at_us}L)" for one in given
    )
    return f"array({', '.join(each)})"
