"""Digests never hide a message of which there is something to say: wild ledgers against a plain oracle."""

from __future__ import annotations

from collections import Counter, defaultdict
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dr_ctl.rpo.ledgers import digests, reconcile
from dr_ctl.rpo.ledgers.digests import CODES, CONSUMED, RECEIVED, SENT, STORED, Digests, Snapshot
from tests.rpo.test_reconcile import Event, as_parquet, ids, judged, reconciled, wild

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SITES = ["london", "paris"]


def hashed(event: Event) -> int:
    told = blake2b(f"{event.queue} {event.id}".encode(), digest_size=8).digest()
    return int.from_bytes(told, "little", signed=True)


def digested(books: list[list[Event]]) -> tuple[Digests, list[Snapshot], list[Snapshot]]:
    """What the SQL of `transforms.digested` makes, event by event."""
    last: dict[tuple[str, int], int] = {}
    for number, book in enumerate(books):
        for each in book:
            if each.event == "stored":
                last[each.site, number] = max(last.get((each.site, number), 0), each.second)
    snapshots = [Snapshot(site, number, second, second) for (site, number), second in sorted(last.items())]
    newest = {each.site: each for each in sorted(snapshots, key=lambda each: (each.at_us, each.ledger))}
    moments = sorted({each.at_us for each in snapshots})
    sends = {each.queue for book in books for each in book if each.event == "sent"}
    rows: dict[tuple[int, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
    for number, book in enumerate(books):
        for each in book:
            code, it = CODES[each.event], hashed(each)
            part = number * len(SITES) + SITES.index(each.site) if code in (STORED, CONSUMED, RECEIVED) else 0
            epoch = sum(each.second > moment for moment in moments) if code in (SENT, CONSUMED) else 0
            row = rows[it % digests.BUCKETS, int(each.queue not in sends), code, part, epoch]
            row[:] = row[0] + 1, row[1] ^ it, row[2] + ((it & (1 << 64) - 1) >> 34)
    columns = np.array([[*key, *row] for key, row in rows.items()], np.int64).T
    return Digests(*columns), snapshots, list(newest.values())


def in_order_only(books: list[list[Event]]) -> set[tuple[str, str]]:
    """Messages that some client tells to have received as often as it consumed them: in which order, no digest says."""
    counts: dict[tuple[str, str], Counter[tuple[int, str, str]]] = defaultdict(Counter)
    for number, book in enumerate(books):
        for each in book:
            counts[each.queue, each.id][number, each.site, each.event] += 1
    return {
        key
        for key, told in counts.items()
        if any(told[n, site, "consumed"] == count for (n, site, event), count in told.items() if event == "received")
    }


@pytest.mark.parametrize("buckets", [4, 1 << 16])
@pytest.mark.parametrize("seed", range(40))
def test_of_whatever_there_is_something_to_say_the_slot_is_suspect(
    seed: int, buckets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "BUCKETS", buckets)
    books = wild(seed)
    told, snapshots, newest = digested(books)

    suspects = set(told.suspects(snapshots, newest, SITES).tolist())

    found = {key for messages in judged(books).values() for key in messages} - in_order_only(books)
    assert {hashed(Event(ident, "", 0, queue=queue)) % buckets for queue, ident in found} <= suspects


def test_what_was_sent_and_consumed_or_is_held_is_no_suspect() -> None:
    sent = [Event(f"m{n}", "sent", n) for n in range(500)]
    consumed = [Event(f"m{n}", "consumed", n + 5, "paris") for n in range(490)]
    held = [[Event(f"m{n}", "stored", 600, site) for n in range(490, 500)] for site in SITES]
    unsent = [[Event(f"x{n}", "stored", 600, site, "audit") for n in range(50)] for site in SITES]

    told, snapshots, newest = digested([sent, consumed, *(a + b for a, b in zip(held, unsent, strict=True))])

    assert told.suspects(snapshots, newest, SITES).tolist() == []


def test_a_send_that_is_twice_is_not_one_of_another_message() -> None:
    """The exclusive or of what is there twice is nothing."""
    books = [[Event("a", "sent", 0), Event("a", "sent", 0)], [Event("b", "consumed", 1), Event("b", "consumed", 1)]]

    told, *_ = digested(books)

    assert len(told.suspects([], [], SITES)) == 2


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.parametrize("seed", range(40, 46))
def test_digests_made_by_spark_hide_nothing_of_wild_ledgers(
    spark: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "FEW_EVENTS", 0)
    books = wild(seed)
    told = [as_parquet(book, tmp_path / f"{number}.parquet") for number, book in enumerate(books)]

    found = ids(reconciled(spark, told, tmp_path))

    for kind, messages in judged(books).items():
        assert messages - in_order_only(books) <= found[kind] <= messages
