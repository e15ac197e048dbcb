"""Histories like the monitor's, made with DuckDB or NumPy, for measurements."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

QUEUES, POLL_S = 100, 5
FIRST_DAY, LOOKS_OF_A_DAY = date(2026, 3, 1), 86_400 // POLL_S
OWN = 150
FILE_ROWS = 200_000


def rows_of_queues(begin: int, end: int, queues: int) -> str:
    """The part of a COPY for readings of queues, with the macros `moment`, `sent` and `consumed`."""
    return f"""SELECT moment(n) AS ts, 'orders-1' AS pair, 'queue' AS kind, 'orders.' || q AS name,
                (sent(q, n) - consumed(q, n))::BIGINT AS depth, 0::BIGINT AS delivering, sent(q, n)::BIGINT AS added,
                consumed(q, n)::BIGINT AS removed, consumed(q, n)::BIGINT AS acked, NULL::BIGINT AS oldest_ms,
                NULL::BIGINT AS pending, NULL::BOOLEAN AS link, '1' AS start
              FROM range({begin}, {end}) r(n), range({queues}) t(q)"""


def make_history(folder: Path, rows: int) -> None:
    """One pair with a mixed outflow and a hundred queues; every hour the link stalls for five minutes."""
    looks = rows // (QUEUES + 2)
    con = duckdb.connect()
    con.execute("SET threads = 2; SET TimeZone = 'UTC'")
    con.execute(
        """CREATE MACRO sent(q, n) AS 5 * n + (n * q) % 5;
           CREATE MACRO consumed(q, n) AS sent(q, greatest(n - 2, 0));
           CREATE MACRO moment(n) AS TIMESTAMPTZ '2026-03-01 00:00:00Z' + to_seconds(5 * n)"""
    )
    con.execute(
        f"""CREATE TABLE puts AS SELECT n, sum(sent(q, n) + consumed(q, n))::BIGINT AS put
            FROM range({looks}) r(n), range({QUEUES}) t(q) GROUP BY n"""
    )
    con.execute(
        """CREATE TABLE flows AS SELECT p.n, p.put, coalesce(s.put, 0) AS shipped FROM puts p LEFT JOIN puts s
           ON s.n = CASE WHEN p.n % 720 BETWEEN 300 AND 360 THEN p.n - p.n % 720 + 299 ELSE p.n - 1 END"""
    )
    nothing = ", ".join(["NULL"] * 8)
    for begin in range(0, looks, LOOKS_OF_A_DAY):
        day, end = FIRST_DAY + timedelta(days=begin // LOOKS_OF_A_DAY), min(looks, begin + LOOKS_OF_A_DAY)
        target = folder / f"date={day.isoformat()}" / "site=london"
        target.mkdir(parents=True)
        con.execute(
            f"""COPY (
              {rows_of_queues(begin, end, QUEUES)}
              UNION ALL
              SELECT moment(n), 'orders-1', 'mixed', '*', put - shipped, 0, put, shipped, NULL, NULL, NULL, true, '1'
              FROM flows WHERE n >= {begin} AND n < {end}
              UNION ALL
              SELECT moment(n), 'orders-1', 'site', 'serving', {nothing}, '1'
              FROM flows WHERE n >= {begin} AND n < {end})
            TO '{target}/{day:%Y%m%d}T000000-{begin:012}.parquet' (FORMAT parquet)"""
        )


def make_monitored(folder: Path, rows: int) -> None:
    """The same history with one file an hour, and one file a minute for the last hour."""
    make_history(folder, rows)
    days = sorted(folder.glob("date=*/site=*/*.parquet"))
    for day in days:
        whole = pq.ParquetFile(day).read().sort_by([("ts", "ascending"), ("kind", "ascending"), ("name", "ascending")])
        day.unlink()
        seconds = pc.divide(whole["ts"].cast(pa.int64()), 1_000_000)
        last = pc.max(seconds).as_py()
        length = pa.scalar(3600)
        hours = pc.subtract(seconds, pc.subtract(seconds, pc.multiply(pc.divide(seconds, length), length)))
        for hour in pc.unique(hours).to_pylist():
            own = whole.filter(pc.equal(hours, hour))
            is_open = day == days[-1] and last < hour + 3600
            step = (QUEUES + 2) * 60 // POLL_S if is_open else FILE_ROWS
            for begin in range(0, own.num_rows, step):
                part = own.slice(begin, step)
                name = f"{part['ts'][0].as_py():%Y%m%dT%H%M%S}-{begin:012}.parquet"
                pq.write_table(part, day.with_name(name))


def make_plugins(folder: Path, rows: int) -> None:
    """Every queue has an outflow of messages and one of acknowledgements; sometimes one stalls."""
    looks = rows // (3 * OWN + 1)
    con = duckdb.connect()
    con.execute("SET threads = 2; SET TimeZone = 'UTC'")
    con.execute(
        """CREATE MACRO sent(q, n) AS 5 * n + (n * q) % 5;
           CREATE MACRO consumed(q, n) AS sent(q, greatest(n - 2, 0));
           CREATE MACRO reached(q, n) AS CASE WHEN (n + 7 * q) % 720 < 60 THEN greatest(n - (n + 7 * q) % 720 - 1, 0)
             ELSE greatest(n - 1, 0) END;
           CREATE MACRO moment(n) AS TIMESTAMPTZ '2026-03-01 00:00:00Z' + to_seconds(5 * n)"""
    )
    outflow = (
        "0::BIGINT, {0}(q, n)::BIGINT, {0}(q, reached(q, n))::BIGINT, NULL::BIGINT, NULL::BIGINT, NULL::BIGINT, true"
    )
    outflow_rows = " UNION ALL ".join(
        f"""SELECT moment(n), 'orders-1', '{kind}', 'orders.' || q, ({of}(q, n) - {of}(q, reached(q, n)))::BIGINT,
            {outflow.format(of)}, '1' FROM range({looks}) r(n), range({OWN}) t(q)"""
        for kind, of in (("mirror", "sent"), ("acks", "consumed"))
    )
    nothing = ", ".join(["NULL"] * 8)
    target = folder / "date=2026-03-01" / "site=london"
    target.mkdir(parents=True)
    con.execute(
        f"""COPY (
          {rows_of_queues(0, looks, OWN)}
          UNION ALL {outflow_rows}
          UNION ALL SELECT moment(n), 'orders-1', 'site', 'serving', {nothing}, '1' FROM range({looks}) r(n)
        ) TO '{target}/20260301T000000-0.parquet' (FORMAT parquet)"""
    )


def make_long(
    folder: Path, *, hours: int, queues: int, apart_s: float, every_s: float, stall_h: tuple[int, int]
) -> None:
    """One file an hour: readings of the outflow each `apart_s`, of the queues each `every_s`. A queue gets one message
    a reading, which is consumed and shipped by the next, except during the stall."""
    from dr_ctl.rpo.history.files import SCHEMA, WRITTEN  # noqa: PLC0415

    begin_us = 1_772_323_200_000_000  # 2026-03-01
    stall = [item * 3600 for item in stall_h]
    for hour in range(hours):
        at = np.arange(hour * 3600, hour * 3600 + 3600, apart_s)
        counts = (at / every_s).astype(np.int64)
        done = (np.where((at >= stall[0]) & (at < stall[1]), stall[0], at) / every_s).astype(np.int64)
        put, removed = queues * (counts + done), 2 * queues * np.maximum(done - 1, 0)
        whole = np.flatnonzero(at % every_s == 0)
        n, q = np.repeat(whole, queues), np.tile(np.arange(queues), len(whole))
        zeros = np.zeros(len(at), np.int64)
        parts = [
            {"at": at, "kind": "site", "name": "serving"},
            {"at": at, "kind": "mixed", "name": "*", "depth": put - removed, "delivering": zeros, "added": put,
             "removed": removed, "link": True},
            {"at": at[n], "kind": "queue", "name": np.char.add("q", q.astype(str)), "depth": counts[n] - done[n],
             "delivering": zeros[n], "added": counts[n], "removed": done[n], "acked": done[n]},
        ]  # fmt: skip
        tables = [_table(part, begin_us, SCHEMA) for part in parts]
        moment = np.datetime64(begin_us + hour * 3_600_000_000, "us").item()
        target = folder / f"date={moment:%Y-%m-%d}" / "site=london"
        target.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(target / f"{moment:%Y%m%dT%H%M%S}-{hour:032x}.parquet", SCHEMA, **WRITTEN) as writer:
            writer.write_table(pa.concat_tables(tables[:2]))
            order = [("name", "ascending"), ("ts", "ascending")]
            writer.write_table(tables[2].sort_by(order), row_group_size=FILE_ROWS)


def _table(part: dict[str, Any], begin_us: int, schema: pa.Schema) -> pa.Table:
    length = len(part["at"])
    moments = pa.array((begin_us + part["at"] * 1e6).astype(np.int64)).cast(schema.field("ts").type)
    columns = []
    for field in schema:
        options = {"ts": moments, "pair": "p", "start": "1", **part}.get(field.name)
        if options is None:
            columns.append(pa.nulls(length, field.type))
        else:
            is_column = isinstance(options, pa.Array | np.ndarray)
            columns.append(
                pa.array(options, field.type) if is_column else pa.repeat(pa.scalar(options, field.type), length)
            )
    return pa.table(columns, schema=schema)
