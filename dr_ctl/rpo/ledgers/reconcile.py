"""Reconciliation: ledgers of message ids against each other, DataFrame in, DataFrame out, to counts and files of ids.
Contacts no broker.

A message is its queue and its id. Counts come first (`facts`); then every message is judged (`judged`).

A site holds the messages of its newest snapshot: the `stored` events of one ledger at one site, dated by the last of
them.

    lost        sent or stored once; never received, and in no site's newest snapshot, each taken after it was sent
    doubled     consumed more often than sent; or received, or held by a newest snapshot, after it was consumed
    recovered   a snapshot missed it although it was sent and not consumed by then, and it was stored there later
    unexpected  consumed, received or stored, and never sent, although the ledgers contain sends to its queue
    unknown     gone without a trace in the ledgers: its send is in doubt, no ledger covers consumption from
                its queue, or it was sent after some site's newest snapshot, and may lie there
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from dr_ctl.core.errors import EnvironmentFault, UsageError
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, brief
from dr_ctl.engine.disk import written_whole
from dr_ctl.rpo.history.row import micros
from dr_ctl.rpo.ledgers.files import COLUMNS, EVENTS, Ledger, first_bad, ledgers, sizes
from dr_ctl.rpo.ledgers.result import KINDS, Category, Kind, Reconciled
from dr_ctl.rpo.pipeline import sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SENDS: Final = {"sent", "send-in-doubt"}
_QUEUES: Final = pa.schema([("queue", pa.string()), ("sends", pa.bool_()), ("consumption", pa.bool_())])


class Snapshot(NamedTuple):
    """The messages that a site stored by one ledger, at a moment between `at_us` and `until_us`."""

    site: str
    ledger: int
    at_us: int
    until_us: int


def read(spark: SparkSession, number: int, ledger: Ledger) -> DataFrame:
    """The events of one ledger. Unreadable lines and rows with an empty column are `bad`."""
    named = [sql.escaped(sql.url(path)) for path in ledger.paths]
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
    return sql.over(
        """
        SELECT ledger, site, queue, event, count(*) AS n, max(us) AS last_us
        FROM {events} GROUP BY ledger, site, queue, event
        """,
        events=events,
    )


def judged(
    events: DataFrame, snapshots: Sequence[Snapshot], newest: Sequence[Snapshot], queues: Mapping[str, set[str]]
) -> DataFrame:
    """Return the fate of all messages: rows of `kind`, `queue` and `id`. `queues` has the events that ledgers tell of
    each."""
    places = [f"({sql.text(snapshot.site)}, {snapshot.ledger})" for snapshot in newest]
    known = [
        {"queue": name, "sends": bool(kinds & SENDS), "consumption": "consumed" in kinds}
        for name, kinds in queues.items()
    ]
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
        queues=events.sparkSession.createDataFrame(pa.Table.from_pylist(known, _QUEUES)),
    )


_SEEN: Final = """CASE WHEN event IN ('stored', 'received', 'consumed')
  THEN struct(site, us, CASE WHEN event = 'stored' THEN ledger END AS ledger) END"""
_NEVER_SEEN: Final = "CAST(NULL AS STRUCT<site: STRING, us: BIGINT, ledger: INT>)"


def _as_array(given: Sequence[Snapshot]) -> str:
    kind = "ARRAY<STRUCT<site: STRING, ledger: INT, at_us: BIGINT, until_us: BIGINT>>"
    return f"from_json({sql.text(json.dumps([snapshot._asdict() for snapshot in given]))}, '{kind}')"


BAD: Final = "bad"
SHORT_WORK_BYTES: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class _Tally:
    snapshots: list[Snapshot] = field(default_factory=list)
    queues: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    events: Counter[str] = field(default_factory=Counter)
    bad: dict[int, int] = field(default_factory=dict)

    @property
    def newest(self) -> list[Snapshot]:
        in_order = sorted(self.snapshots, key=lambda snapshot: (snapshot.at_us, snapshot.ledger))
        return [*{snapshot.site: snapshot for snapshot in in_order}.values()]


def reconcile(
    arguments: Sequence[str],
    out: Path,
    *,
    property_name: str | None = None,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
) -> Reconciled:
    """Say what became of every message that the ledgers (`[SITE=]FILE`) speak of; the ids go into files in `out`.

    Raises UsageError where a ledger is none, with the place; EnvironmentFault where Spark or the disk fails.
    """
    with tempfile.TemporaryDirectory(prefix="dr-ctl-ledgers-") as scratch:
        before = sizes(arguments)
        given = ledgers(arguments, Path(scratch), property_name=property_name)
        from dr_ctl.rpo.pipeline import session as starting  # noqa: PLC0415 - not before the files are known to be ledgers

        with starting.session(master=master, conf=conf, is_busy=sum(before.values()) >= SHORT_WORK_BYTES) as session:
            made = reconcile_in(session, given, out)
        grown = sorted({path for path, _ in before.items() ^ sizes(arguments).items()})
        still_written = (found("DR-LEDGER-002", grown=brief(grown)),) if grown else ()
        return replace(made, findings=(*made.findings, *still_written))


def reconcile_in(spark: SparkSession, given: Sequence[Ledger], out: Path) -> Reconciled:
    events = sql.union([read(spark, number, ledger) for number, ledger in enumerate(given)])
    tally = _tallied(facts(events).collect(), given)
    findings = [*_bad_lines(tally, given), *_gaps(tally, given)]
    fates = judged(events, tally.snapshots, tally.newest, tally.queues)
    # Into one partition: to cut what is sorted into several, Spark would judge everything twice.
    rows = fates.repartition(1).sortWithinPartitions("kind", "queue", "id").toLocalIterator()
    return Reconciled(_written(rows if tally.queues else (), out), dict(tally.events), tuple(findings))


def _tallied(rows: Iterable[Any], given: Sequence[Ledger]) -> _Tally:
    # Exports and snapshots that held nothing tell that too.
    moments = {(ledger.site or "", n): micros(ledger.export.at) for n, ledger in enumerate(given) if ledger.export}
    tally = _Tally()
    for row in rows:
        if row.event == BAD:
            tally.bad[row.ledger] = tally.bad.get(row.ledger, 0) + row.n
            continue
        tally.events[row.event] += row.n
        tally.queues[row.queue].add(row.event)
        if row.event == "stored":
            key = (row.site, row.ledger)
            moments[key] = max(moments.get(key, row.last_us), row.last_us)
    blur_us = [ledger.export.blur_us if ledger.export else 0 for ledger in given]
    ordered = sorted(moments.items())
    tally.snapshots = [Snapshot(site, number, us, us + blur_us[number]) for (site, number), us in ordered]
    return tally


def _bad_lines(tally: _Tally, given: Sequence[Ledger]) -> Iterable[Finding]:
    """A torn last line is a finding, any other bad line an error, because its event is not known."""
    for number, count in sorted(tally.bad.items()):
        place, is_torn = first_bad(given[number])
        if not (is_torn and count == 1):
            more = f" ({count} such lines)" if count > 1 else ""
            raise UsageError(f"{place}{more}", remedy="Fix the ledger or leave it out; nothing was reconciled.")
        yield found("DR-RPO-012", place=place)


def _gaps(tally: _Tally, given: Sequence[Ledger]) -> Iterable[Finding]:
    """Findings on messages that brokers keep for themselves, which count as held by no queue, and on gaps in the
    ledgers."""
    if counts := sum((ledger.export.left_out for ledger in given if ledger.export), Counter[str]()):
        listed = brief([f"{count} of {name}" for name, count in sorted(counts.items())])
        yield found("DR-LEDGER-001", listed=listed)
    sends = {name for name, events in tally.queues.items() if events & SENDS}
    consumed = {name for name, events in tally.queues.items() if "consumed" in events}
    if unsent := sorted(tally.queues.keys() - sends):
        yield found("DR-RPO-013", unsent=brief(unsent))
    if unread := sorted(tally.queues.keys() - consumed):
        yield found("DR-RPO-014", unread=brief(unread))
    if not tally.snapshots and tally.events:
        yield found("DR-RPO-015")


def _written(rows: Iterable[Any], out: Path) -> dict[Kind, Category]:
    """Write the ids, sorted, as JSON lines of `queue` and `id`. Either all files are there, whole, or none."""
    counts = {kind: Counter[str]() for kind in KINDS}
    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ExitStack() as opened:
            files = {kind: opened.enter_context(written_whole(out / f"{kind}.jsonl", 0o600)) for kind in KINDS}
            for row in rows:
                counts[row.kind][row.queue] += 1
                line = json.dumps({"queue": row.queue, "id": row.id}, ensure_ascii=False) + "\n"
                files[row.kind].write(line.encode())
            for file in files.values():  # no file gets its name before all are on disk
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise EnvironmentFault(f"the ids cannot be written to {out}: {error}") from error
    return {
        kind: Category(by_queue.total(), out / f"{kind}.jsonl", dict(sorted(by_queue.items())))
        for kind, by_queue in counts.items()
    }
