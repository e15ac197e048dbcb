"""Reconciliation against an oracle that looks at every message, on ledgers of all kinds, good and bad."""

from __future__ import annotations

import json
import random
import stat
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dr_ctl.core.errors import UsageError
from dr_ctl.rpo.ledgers import exports
from dr_ctl.rpo.ledgers.exports import SCHEMA
from dr_ctl.rpo.ledgers.files import ledgers
from dr_ctl.rpo.ledgers.reconcile import Reconciled, reconcile_in
from dr_ctl.rpo.ledgers.transforms import KINDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Event:
    id: str
    event: str
    second: int
    site: str = "london"
    queue: str = "orders"

    @property
    def at(self) -> datetime:
        return BEGIN + timedelta(seconds=self.second)


def as_lines(events: Iterable[Event], path: Path) -> str:
    with path.open("w") as file:
        for each in events:
            told = {key: value for key, value in asdict(each).items() if key != "second"}
            file.write(json.dumps({**told, "ts": each.at.isoformat()}) + "\n")
    return str(path)


def as_parquet(events: Iterable[Event], path: Path) -> str:
    given = list(events)
    columns = [[getattr(each, name) for each in given] for name in ("id", "queue", "event", "site", "at")]
    pq.write_table(pa.table(columns, schema=SCHEMA), path)
    return str(path)


def reconciled(spark: SparkSession, told: list[str], folder: Path, **more: str) -> Reconciled:
    (folder / "scratch").mkdir(exist_ok=True)
    given = ledgers(told, folder / "scratch", **more)
    return reconcile_in(spark, given, folder / "out")


def ids(found: Reconciled) -> dict[str, set[tuple[str, str]]]:
    told = {
        kind: [tuple(json.loads(line).values()) for line in part.file.read_text().splitlines()]
        for kind, part in found.parts.items()
    }
    for kind, named in told.items():
        assert len(named) == len(set(named)) == found.parts[kind].count
        assert named == sorted(named)
    return {kind: set(named) for kind, named in told.items()}  # type: ignore[arg-type]


def judged(books: list[list[Event]]) -> dict[str, set[tuple[str, str]]]:
    """The same by the words of docs/ledgers.md, message by message."""
    snapshots: dict[tuple[str, int], int] = {}
    told: dict[tuple[str, str], list[tuple[int, Event]]] = defaultdict(list)
    for number, book in enumerate(books):
        for each in book:
            told[each.queue, each.id].append((number, each))
            if each.event == "stored":
                snapshots[each.site, number] = max(snapshots.get((each.site, number), 0), each.second)
    newest = {site: max((at, n) for (s, n), at in snapshots.items() if s == site)[1] for site, _ in snapshots}
    last = {site: max(at for (s, _), at in snapshots.items() if s == site) for site, _ in snapshots}
    sends = {each.queue for book in books for each in book if each.event in ("sent", "send-in-doubt")}
    read = {each.queue for book in books for each in book if each.event == "consumed"}
    found: dict[str, set[tuple[str, str]]] = {kind: set() for kind in KINDS}
    for key, events in told.items():
        of = {kind: [each for _, each in events if each.event == kind] for kind in ("sent", "consumed", "received")}
        stored = {(each.site, number) for number, each in events if each.event == "stored"}
        promised = min((e.second for _, e in events if e.event in ("sent", "stored")), default=None)
        consumed = min((each.second for each in of["consumed"]), default=None)
        held = [e.second for n, e in events if e.event == "stored" and newest[e.site] == n]
        gone = not of["consumed"] and not of["received"] and not held
        can_tell = key[0] in read and all(at >= (promised or 0) for at in last.values())
        if gone and promised is not None and can_tell:
            found["lost"].add(key)
        if gone and (promised is None or not can_tell):
            found["unknown"].add(key)
        came_after = [s for s in (*held, *(e.second for e in of["received"])) if consumed is not None and s > consumed]
        if len(of["consumed"]) > max(1, len(of["sent"])) or came_after:
            found["doubled"].add(key)
        for (site, number), at in snapshots.items():
            later = any(
                e.site == site and e.second > at for _, e in events if e.event in ("stored", "received", "consumed")
            )
            due = promised is not None and promised <= at and (consumed is None or consumed > at)
            if due and (site, number) not in stored and later:
                found["recovered"].add(key)
        if key[0] in sends and not of["sent"] and all(e.event != "send-in-doubt" for _, e in events):
            found["unexpected"].add(key)
    return found


def lives(seed: int, messages: int = 400) -> list[list[Event]]:
    """Ledgers of one installation: producers, consumers, and snapshots of both sites; few messages go wrong."""
    chance = random.Random(seed)
    looked = [(site, second) for second in (300, 700) for site in ("london", "paris")] if seed % 3 else []
    books: list[list[Event]] = [[], [], *([] for _ in looked)]
    for number in range(messages):
        ident, queue = f"m{number}", chance.choice(["orders", "audit {1} it's", "never-read", "never-sent"])
        sent = chance.randrange(0, 900)
        wrong = chance.random() < 0.06
        end = sent + chance.randrange(1, 400)
        fate = chance.choice(["lost", "twice", "doubt", "again", "unsent", "away"]) if wrong else "well"
        if queue != "never-sent" and fate != "unsent":
            books[0].append(Event(ident, "send-in-doubt" if fate == "doubt" else "sent", sent, queue=queue))
        is_read = queue != "never-read" and fate != "lost" and (fate != "doubt" or chance.random() < 0.5)
        if is_read:
            books[1].append(Event(ident, "received", end, queue=queue))
            books[1].append(Event(ident, "consumed", end, queue=queue))
        if fate == "twice":
            books[1].append(Event(ident, "consumed", end + 9, "paris", queue))
        if fate == "again":
            books[1].append(Event(ident, "received", end + 9, "paris", queue))
        for place, (site, second) in enumerate(looked):
            lies_there = sent <= second < end and fate not in ("lost", "doubt")
            if (lies_there and not (fate == "away" and second == 300)) or (fate == "again" and second > end):
                books[2 + place].append(Event(ident, "stored", second, site, queue))
    return books


@pytest.mark.spark
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(1, 6))])
def test_what_became_of_each_message(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    books = lives(seed)
    told = [
        as_lines(book, tmp_path / f"{number}.jsonl") if number % 2 else as_parquet(book, tmp_path / f"{number}.parquet")
        for number, book in enumerate(books)
    ]

    found = reconciled(spark, told, tmp_path)

    assert ids(found) == judged(books)
    assert found.events["sent"] == sum(each.event == "sent" for each in books[0])


def wild(seed: int) -> list[list[Event]]:
    """Every message has any events, at any moments, in any ledgers, at any sites."""
    chance = random.Random(seed)
    books: list[list[Event]] = [[] for _ in range(5)]
    looked = [(chance.choice(["london", "paris"]), chance.randrange(100, 900)) for _ in range(chance.randrange(4))]
    kinds = {"a": ["sent", "consumed", "received", "send-in-doubt"], "b": ["sent", "received"], "c": ["consumed"]}
    for number in range(60):
        queue = chance.choice(sorted(kinds))
        for _ in range(chance.randrange(1, 5)):
            second, site = chance.randrange(1000), chance.choice(["london", "paris"])
            event = Event(f"m{number}", chance.choice(kinds[queue]), second, site, queue)
            books[chance.randrange(2)].append(event)
        for place, (site, second) in enumerate(looked):
            if chance.random() < 0.4:
                books[2 + place].append(Event(f"m{number}", "stored", second, site, queue))
    return [book for book in books if book]


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.parametrize("seed", range(6))
def test_wild_ledgers_are_judged_as_their_words_say(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    books = wild(seed)

    found = reconciled(spark, [as_parquet(book, tmp_path / f"{n}.parquet") for n, book in enumerate(books)], tmp_path)

    assert ids(found) == judged(books)


@pytest.mark.spark
@pytest.mark.deep
def test_what_two_sites_hold_and_nobody_sent_is_unexpected(spark: SparkSession, tmp_path: Path) -> None:
    books = [[Event("m1", "sent", 0), Event("m1", "consumed", 1)]]
    books += [[Event("stray", "stored", 5, site)] for site in ("london", "paris")]

    found = reconciled(spark, [as_parquet(book, tmp_path / f"{n}.parquet") for n, book in enumerate(books)], tmp_path)

    assert ids(found)["unexpected"] == {("orders", "stray")}


@pytest.mark.spark
def test_where_all_is_well_nothing_is_told(spark: SparkSession, tmp_path: Path) -> None:
    sent = [Event(f"m{n}", "sent", n) for n in range(500)]
    consumed = [Event(f"m{n}", "consumed", n + 5, "paris") for n in range(490)]
    held = [Event(f"m{n}", "stored", 600, "paris") for n in range(490, 500)]
    told = [as_parquet(book, tmp_path / f"{n}.parquet") for n, book in enumerate((sent, consumed, held))]

    found = reconciled(spark, told, tmp_path)

    assert (found.is_clean, found.findings) == (True, ())
    assert all(part.count == 0 and part.file.read_text() == "" for part in found.parts.values())


@pytest.mark.spark
def test_the_files_are_the_owners_alone(spark: SparkSession, tmp_path: Path) -> None:
    told = as_lines([Event("m1", "sent", 0), Event("m2", "consumed", 0)], tmp_path / "l.jsonl")

    found = reconciled(spark, [told], tmp_path)

    assert {stat.S_IMODE(part.file.stat().st_mode) for part in found.parts.values()} == {0o600}
    assert ids(found)["lost"] == {("orders", "m1")}
    assert ids(found)["unexpected"] == {("orders", "m2")}
    assert [finding.id for finding in found.findings] == ["DR-RPO-015"]


NOON = "2026-03-02T12:00:00Z"
EXPORT = """<?xml version='1.0'?>
<activemq-journal>
   <bindings><queue-binding address="orders" filter-string="" name="orders" id="37" routing-type="ANYCAST"/></bindings>
   <messages>
      <message id="40" priority="4" expiration="0" timestamp="1795284049106" type="text" user-id="ID:one">
         <properties><property name="order_id" value="m1" type="simple-string"/></properties>
         <queues><queue name="orders"/><queue name="audit"/></queues>
         <body><![CDATA[AQ==]]></body>
      </message>
      <message id="41" priority="4" expiration="0" timestamp="1795284049138" type="text">
         <properties>
            <property name="order_id" value="m2" type="simple-string"/>
            <property name="x-opt-amq-bkr-id" value="node" type="simple-string"/>
            <property name="x-opt-amq-mr-id" value="77" type="long"/>
         </properties>
         <queues><queue name="orders"/></queues>
         <body><![CDATA[AQ==]]></body>
      </message>
   </messages>
</activemq-journal>
"""
BROWSED = {
    "request": {"mbean": 'org.apache.activemq.artemis:address="orders",broker="b",component=addresses,queue="orders"'},
    "value": [
        {"messageID": 9, "userID": None, "StringProperties": {"order_id": "m1"}},
        {"messageID": 10, "userID": "ID:two", "StringProperties": {"order_id": "m3"}, "LongProperties": {}},
    ],
    "timestamp": 1795284100,
    "status": 200,
}


def stored(folder: Path, told: str, **more: str | None) -> list[tuple[str, str, str]]:
    [ledger] = ledgers([told], folder, **more)  # type: ignore[arg-type]
    rows = pq.read_table(ledger.paths[0]).to_pylist()
    return [(row["queue"], row["id"], row["site"]) for row in rows]


def test_an_export_and_a_snapshot_become_ledgers(tmp_path: Path) -> None:
    (tmp_path / "export.xml").write_text(EXPORT)
    (tmp_path / "browse.json").write_text(json.dumps([BROWSED]))

    by_name = stored(tmp_path, f"london={tmp_path}/export.xml@{NOON}", property_name="order_id")
    by_itself = stored(tmp_path, f"london={tmp_path}/export.xml@{NOON}")
    browsed = stored(tmp_path, f"paris={tmp_path}/browse.json", property_name="order_id")

    assert by_name == [("audit", "m1", "london"), ("orders", "m1", "london"), ("orders", "m2", "london")]
    assert [ident for _, ident, _ in by_itself] == ["ID:one", "ID:one", "node:77"]
    assert browsed == [("orders", "m1", "paris"), ("orders", "m3", "paris")]


# As Artemis exports and shows the same messages: of a CORE client; of AMQP clients whose ids are text and numbers, for
# which the export makes up a `user-id`; and of one that gives none.
NATIVE = """<activemq-journal><messages>
  <message id="2" type="text" user-id="5e4c7e3c-e951-11f1-8130-02fc00000001">
    <queues><queue name="q"/></queues></message>
  <message id="3" type="text" user-id="3a9998b4-e961-11f1-939e-02fc00000001"><properties>
    <property name="NATIVE_MESSAGE_ID" value="ID:AMQP_NO_PREFIX:my-id-1" type="simple-string"/>
    <property name="order_id" value="m1" type="simple-string"/></properties><queues><queue name="q"/></queues></message>
  <message id="4" type="text" user-id="3a99bfc5-e961-11f1-939e-02fc00000001"><properties>
    <property name="NATIVE_MESSAGE_ID" value="ID:AMQP_ULONG:4711" type="simple-string"/></properties>
    <queues><queue name="q"/></queues></message>
  <message id="5" type="text"><properties>
    <property name="x-opt-amq-bkr-id" value="node" type="simple-string"/>
    <property name="x-opt-amq-mr-id" value="77" type="long"/></properties><queues><queue name="q"/></queues></message>
</messages></activemq-journal>
"""
SHOWN = [
    {"messageID": 12, "protocol": "CORE", "userID": "ID:5e4c7e3c-e951-11f1-8130-02fc00000001"},
    {
        "messageID": 13,
        "protocol": "AMQP",
        "userID": "ID:my-id-1",
        "StringProperties": {"applicationProperties.order_id": "m1", "extraProperties._AMQ_AD": "q"},
    },
    {"messageID": 14, "protocol": "AMQP", "userID": "ID:4711"},
    {
        "messageID": 15,
        "protocol": "AMQP",
        "userID": "",
        "StringProperties": {"extraProperties.x-opt-amq-bkr-id": "node", "applicationProperties.x-opt-amq-bkr-id": "x"},
        "LongProperties": {"extraProperties.x-opt-amq-mr-id": 77, "messageAnnotations.x-opt-amq-mr-id": 5},
    },
]


def test_a_message_of_any_protocol_has_one_id_in_an_export_and_a_snapshot(tmp_path: Path) -> None:
    snapshot = {**BROWSED, "request": {"mbean": 'address="q",queue="q"'}, "value": SHOWN}
    named = {**snapshot, "value": SHOWN[1:2]}
    for name, text in (("export.xml", NATIVE), ("all.json", json.dumps(snapshot)), ("one.json", json.dumps(named))):
        (tmp_path / name).write_text(text)

    exported = stored(tmp_path, f"london={tmp_path}/export.xml@{NOON}")
    shown = stored(tmp_path, f"paris={tmp_path}/all.json")
    by_name = stored(tmp_path, f"paris={tmp_path}/one.json", property_name="order_id")

    assert [ident for _, ident, _ in exported] == [ident for _, ident, _ in shown]
    assert [ident for _, ident, _ in shown][1:] == ["ID:my-id-1", "ID:4711", "node:77"]
    assert by_name == [("q", "m1", "paris")]


@pytest.mark.spark
def test_an_export_of_an_empty_site_says_that_all_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    told = as_lines([Event("m1", "sent", 0), Event("m2", "sent", 0), Event("m2", "consumed", 1)], tmp_path / "l.jsonl")
    (tmp_path / "export.xml").write_text("<activemq-journal><messages></messages></activemq-journal>")

    found = reconciled(spark, [told, f"london={tmp_path}/export.xml@{NOON}"], tmp_path)

    assert ids(found)["lost"] == {("orders", "m1")}
    assert found.findings == ()


@pytest.mark.spark
def test_what_was_sent_after_the_last_snapshot_is_unknown(spark: SparkSession, tmp_path: Path) -> None:
    books = [Event("m1", "sent", 0), Event("m2", "sent", 50), Event("m0", "consumed", 2), Event("m0", "sent", 1)]
    (tmp_path / "export.xml").write_text("<activemq-journal><messages></messages></activemq-journal>")
    at = (BEGIN + timedelta(seconds=20)).isoformat()

    found = reconciled(spark, [as_lines(books, tmp_path / "l.jsonl"), f"london={tmp_path}/export.xml@{at}"], tmp_path)

    assert (ids(found)["lost"], ids(found)["unknown"]) == ({("orders", "m1")}, {("orders", "m2")})


GOOD = '{"id": "m", "queue": "q", "event": "sent", "site": "s", "ts": "2026-03-01T12:00:00Z"}\n'


@pytest.mark.spark
def test_what_may_lie_at_a_site_whose_snapshot_is_older_is_unknown(spark: SparkSession, tmp_path: Path) -> None:
    """The only snapshot after the send is of the site that shipped it; the survivor was looked at before."""
    books = [
        [Event("m1", "sent", 500), Event("m0", "sent", 0), Event("m0", "consumed", 900)],
        [Event("old", "stored", 300, "paris")],
        [Event("other", "stored", 700, "london")],
    ]

    found = reconciled(spark, [as_parquet(book, tmp_path / f"{n}.parquet") for n, book in enumerate(books)], tmp_path)

    assert ("orders", "m1") in ids(found)["unknown"]
    assert ids(found)["lost"] == set()


@pytest.mark.spark
def test_a_torn_last_line_is_left_out_and_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").write_text(GOOD + GOOD[:30])

    found = reconciled(spark, [str(tmp_path / "l.jsonl")], tmp_path)

    assert found.events == {"sent": 1}
    torn = next(finding for finding in found.findings if finding.id == "DR-RPO-012")
    assert "l.jsonl: line 2" in torn.text


@pytest.mark.spark
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"id": "m"', "no JSON"),
        (GOOD.replace('"q"', "null").strip(), "lacks queue"),
        (GOOD.replace("sent", "seen").strip(), "unknown event 'seen'"),
        (GOOD.replace("2026-03-01T12:00:00Z", "noon").strip(), "ts 'noon' is no time"),
    ],
)
def test_a_line_that_is_no_event_ends_it_with_its_place(
    spark: SparkSession, tmp_path: Path, line: str, why: str
) -> None:
    (tmp_path / "l.jsonl").write_text(f"{GOOD}{line}\n{GOOD}")

    with pytest.raises(UsageError, match=rf"l\.jsonl: line 2: .*{why}") as error:
        reconciled(spark, [str(tmp_path / "l.jsonl")], tmp_path)

    assert "nothing was reconciled" in error.value.remedy
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.txt", "queue,id\n", "line 1: 'queue,id' is the beginning of no ledger"),
        ("a.xml", EXPORT[:700], "line"),
        ("a.xml", "<beans/>", "of another kind"),
        ("a.json", "[{}]", "document 1: neither a ledger nor Jolokia's answer"),
        ("a.json", json.dumps([{**BROWSED, "value": None}]), "no list of messages"),
        ("a.json", json.dumps([BROWSED]), "message 9: has no id"),
        ("a.parquet", "PAR1", "cannot be opened"),
    ],
)
def test_what_is_no_ledger_is_refused_with_its_place(tmp_path: Path, name: str, text: str, why: str) -> None:
    (tmp_path / name).write_text(text)

    with pytest.raises(UsageError, match=why) as error:
        ledgers([f"london={tmp_path / name}{'@' + NOON if name == 'a.xml' else ''}"], tmp_path)

    assert str(tmp_path / name) in str(error.value)
    assert error.value.remedy


def test_an_export_without_its_site_and_parquet_without_a_column_are_refused(tmp_path: Path) -> None:
    (tmp_path / "export.xml").write_text(EXPORT)
    pq.write_table(pa.table({"id": [1], "event": ["sent"]}), tmp_path / "few.parquet")
    pq.write_table(pa.table({name: [1] for name in SCHEMA.names}), tmp_path / "wrong.parquet")

    with pytest.raises(UsageError, match="whose messages"):
        ledgers([str(tmp_path / "export.xml")], tmp_path)
    with pytest.raises(UsageError, match="lacks the columns queue, site, ts"):
        ledgers([str(tmp_path / "few.parquet")], tmp_path)
    with pytest.raises(UsageError, match="id is int64"):
        ledgers([str(tmp_path / "wrong.parquet")], tmp_path)
    with pytest.raises(UsageError, match="no ledger"):
        ledgers([str(tmp_path / "none")], tmp_path)


@pytest.mark.spark
def test_moments_may_be_words_or_times_and_not_both_in_one_ledger(spark: SparkSession, tmp_path: Path) -> None:
    told = as_parquet([Event("m1", "sent", 0), Event("m2", "sent", 1)], tmp_path / "a.parquet")
    columns = {
        "id": ["m1"],
        "queue": ["orders"],
        "event": ["consumed"],
        "site": ["paris"],
        "ts": ["2026-03-01T12:00:09Z"],
    }
    (tmp_path / "words").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "words" / "1.parquet")

    found = reconciled(spark, [told, str(tmp_path / "words")], tmp_path)

    assert ids(found)["lost"] == {("orders", "m2")}
    as_parquet([Event("m2", "consumed", 9)], tmp_path / "words" / "2.parquet")
    with pytest.raises(UsageError, match="`ts` is a timestamp in some files and a string in others"):
        ledgers([str(tmp_path / "words")], tmp_path)


@pytest.mark.spark
def test_the_plan_has_no_python_and_moves_each_message_once(spark: SparkSession, tmp_path: Path) -> None:
    from dr_ctl.rpo.ledgers import transforms as r  # noqa: PLC0415
    from tests.rpo.plans import shape  # noqa: PLC0415

    told = as_parquet([Event("m1", "sent", 0)], tmp_path / "l.parquet")
    events = r.read(spark, 0, ledgers([told], tmp_path)[0])
    newest = [r.Snapshot("london", 0, 5, 5)]

    judged_ = r.judged(events, newest, newest, [("orders", True, True)])
    assert shape(judged_)["python"] == 0
    assert shape(judged_)["exchanges"] == 1


INSIDE = """<activemq-journal><messages>
  <message id="1" user-id="ID:1"><queues>
    <queue name="orders"/><queue name="$ACTIVEMQ_ARTEMIS_MIRROR_paris"/></queues></message>
  <message id="2"><queues><queue name="$ACTIVEMQ_ARTEMIS_MIRROR_paris"/></queues></message>
  <message id="3"><queues><queue name="orders.out.acks"/></queues></message>
  <message id="4" user-id="ID:4"><queues><queue name="orders.out.mirror"/></queues></message>
  <message id="5" user-id="ID:5"><queues><queue name="orders.in.mirror"/></queues></message>
  <message id="6"><queues><queue name="continuity.cmd.out"/></queues></message>
  <message id="7"><queues><queue name="dr-ctl.lock.london"/></queues></message>
</messages></activemq-journal>"""


def test_what_brokers_keep_for_themselves_is_held_by_nobody_and_what_is_staged_by_its_queue(tmp_path: Path) -> None:
    (tmp_path / "export.xml").write_text(INSIDE)

    [ledger] = ledgers([f"london={tmp_path}/export.xml@{NOON}"], tmp_path)

    rows = pq.read_table(ledger.paths[0]).to_pylist()
    assert [(row["queue"], row["id"]) for row in rows] == [("orders", "ID:1"), ("orders", "ID:5")]
    assert ledger.left_out == {
        "$ACTIVEMQ_ARTEMIS_MIRROR_paris": 2,
        "orders.out.acks": 1,
        "orders.out.mirror": 1,
        "continuity.cmd.out": 1,
        "dr-ctl.lock.london": 1,
    }


def test_the_names_of_brokers_own_queues_are_those_that_topologies_know() -> None:
    from dr_ctl.topologies.common.names import BROKERS, OURS  # noqa: PLC0415
    from dr_ctl.topologies.continuity.view import PREFIX  # noqa: PLC0415

    assert all(any(name.startswith(own) for own in exports.OWN) for name in (*BROKERS, *OURS, f"{PREFIX}.in"))


def test_a_staged_message_that_was_browsed_is_held_of_its_queue_and_an_outflow_of_none(tmp_path: Path) -> None:
    staged = json.loads(json.dumps(BROWSED).replace("orders", "orders.in.mirror"))
    outflow = json.loads(json.dumps({**BROWSED, "value": [{"messageID": 1}]}).replace("orders", "orders.out.acks"))
    (tmp_path / "browse.json").write_text(json.dumps([staged, outflow]))

    [ledger] = ledgers([f"paris={tmp_path}/browse.json"], tmp_path, property_name="order_id")

    rows = pq.read_table(ledger.paths[0]).to_pylist()
    assert [(row["queue"], row["id"]) for row in rows] == [("orders", "m1"), ("orders", "m3")]
    assert ledger.left_out == {"orders.out.acks": 1}


def test_an_exports_moment_is_told_and_never_that_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "export.xml").write_text(EXPORT)
    (tmp_path / "browse.json").write_text(json.dumps([BROWSED, {**BROWSED, "timestamp": BROWSED["timestamp"] + 2}]))
    as_lines([Event("m1", "sent", 0)], tmp_path / "l.jsonl")

    with pytest.raises(UsageError, match="of which moment") as untold:
        ledgers([f"london={tmp_path}/export.xml"], tmp_path)
    with pytest.raises(UsageError, match="no moment") as naive:
        ledgers([f"london={tmp_path}/export.xml@2026-03-02T12:00:00"], tmp_path)
    with pytest.raises(UsageError, match="tells the moment of each event"):
        ledgers([f"london={tmp_path}/l.jsonl@{NOON}"], tmp_path)
    [export] = ledgers([f"london={tmp_path}/export.xml@{NOON}"], tmp_path)
    [browsed] = ledgers([f"paris={tmp_path}/browse.json"], tmp_path, property_name="order_id")

    assert "SITE=FILE@MOMENT" in untold.value.remedy
    assert "Z" in naive.value.remedy
    assert (export.looked_at, export.blur_us) == (datetime(2026, 3, 2, 12, tzinfo=UTC), 0)
    # Two answers two seconds apart, each at some time in its second.
    assert (browsed.looked_at, browsed.blur_us) == (datetime.fromtimestamp(1795284100, UTC), 2_999_999)


@pytest.mark.spark
def test_what_was_consumed_in_the_second_of_a_snapshot_or_sent_in_it_was_not_missed(
    spark: SparkSession, tmp_path: Path
) -> None:
    begin = int(BEGIN.timestamp())
    (tmp_path / "browse.json").write_text(json.dumps({**BROWSED, "value": [], "timestamp": begin + 10}))
    lines = [GOOD.replace('"m"', f'"{ident}"').replace("sent", event).replace("12:00:00", second)
             for ident, event, second in (("a", "sent", "12:00:05"), ("a", "consumed", "12:00:10.7"),
                                          ("b", "sent", "12:00:10.5"), ("b", "consumed", "12:00:12"),
                                          ("c", "sent", "12:00:09"), ("c", "consumed", "12:00:12"))]  # fmt: skip
    (tmp_path / "l.jsonl").write_text("".join(lines).replace('"s"', '"london"').replace('"q"', '"orders"'))

    found = reconciled(spark, [str(tmp_path / "l.jsonl"), f"london={tmp_path}/browse.json"], tmp_path)

    assert ids(found)["recovered"] == {("orders", "c")}
