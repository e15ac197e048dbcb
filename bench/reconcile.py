"""Reconcile beside DuckDB on the same ledgers, whole processes in turn; then alone, by how many ids differ.

    python -m bench reconcile

Both count the same: ids that were sent and not consumed, consumed twice, and consumed and never sent.
"""

import sys
import tempfile
from pathlib import Path

import duckdb

from bench.pipeline import TIMES, Took, in_turn, took
from bench.table import Figure

IDS = (1_000_000, 10_000_000)


def make_ledgers(folder: Path, ids: int, *, lost: str = "n % 10000 = 7", twice: str = "n % 20000 = 11") -> None:
    """Write ledgers with sent and consumed messages, some of them lost or duplicated."""
    folder.mkdir(parents=True)
    con = duckdb.connect()
    con.execute("SET threads = 2; SET TimeZone = 'UTC'")
    text = "'run-' || n AS id, 'orders.' || n % 20 AS queue"
    moment = "TIMESTAMPTZ '2026-03-01 00:00:00Z' + to_milliseconds(n)"
    con.execute(
        f"COPY (SELECT {text}, 'sent' AS event, 'london' AS site, {moment} AS ts FROM range({ids}) r(n)) "
        f"TO '{folder}/sent.parquet' (FORMAT parquet)"
    )
    con.execute(
        f"""COPY (SELECT {text}, 'consumed' AS event, 'london' AS site, {moment} + INTERVAL 1 MINUTE AS ts
            FROM (SELECT n FROM range({ids}) r(n) WHERE NOT ({lost}) UNION ALL
                  SELECT n FROM range({ids}) r(n) WHERE {twice}))
            TO '{folder}/consumed.parquet' (FORMAT parquet)"""
    )


def duck_reconcile(folder: Path) -> None:
    con = duckdb.connect()
    con.execute("SET threads = 2")
    print(
        con.execute(
            f"""
            WITH m AS (
              SELECT queue, id, count(*) FILTER (event = 'sent') AS sent,
                count(*) FILTER (event = 'consumed') AS consumed
              FROM '{folder}/*.parquet' GROUP BY queue, id)
            SELECT count(*) FILTER (sent > 0 AND consumed = 0), count(*) FILTER (consumed > greatest(sent, 1)),
              count(*) FILTER (sent = 0 AND consumed > 0) FROM m
            """
        ).fetchall()
    )


def our_reconcile(folder: Path) -> None:
    from dr_ctl.rpo.ledgers.reconcile import reconcile  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as out:
        outcome = reconcile(
            [str(folder / f"{name}.parquet") for name in ("sent", "consumed")], Path(out), master="local[2]"
        )
    print([tuple(outcome.parts[kind].count for kind in ("lost", "doubled", "unexpected"))])


def measured() -> list[Figure]:
    return [figure for ids in IDS for figure in beside(ids)] + [
        by_difference(IDS[0], lost) for lost in (0, 100, 100_000)
    ]


def beside(ids: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "data"
        make_ledgers(folder, ids)
        runs: dict[str, list[Took]] = {"our_reconcile": [], "duck_reconcile": []}
        for _ in range(TIMES):
            for program, results in runs.items():
                results.append(took(program, folder, "bench.reconcile"))
            ours, yardstick = (results[-1].answer for results in runs.values())
            assert ours == yardstick, (ours, yardstick)
    name = f"reconcile of 1e{len(str(ids)) - 1} ids sent and as many consumed"
    return in_turn(name, runs["our_reconcile"], runs["duck_reconcile"])


def by_difference(ids: int, lost: int) -> Figure:
    """Measure by the number of ids that differ."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "data"
        # In every queue: without any consumption in a queue, its messages would be unknown, not lost.
        make_ledgers(folder, ids, lost=f"n * 7919 % {ids} < {lost}", twice="false")
        durations = took("our_reconcile", folder, "bench.reconcile")
    assert durations.answer == (lost, 0, 0), durations
    return Figure(f"reconcile of 1e{len(str(ids)) - 1} ids, {lost} of them lost", "s", (durations.seconds,))


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
