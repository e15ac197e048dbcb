"""Reconciliation against an oracle that looks at every message, on ledgers of all kinds, good and bad."""

import json
import random
import re
import stat
from collections import defaultdict
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dr_ctl.core.errors import UsageError
from dr_ctl.rpo.ledgers import files, reconcile
from dr_ctl.rpo.ledgers.files import SCHEMA, first_bad, ledgers
from dr_ctl.rpo.ledgers.reconcile import KINDS, Reconciled, reconcile_in
from dr_ctl.rpo.pipeline import session

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
    told = ({**asdict(event), "ts": event.at.isoformat()} for event in events)
    path.write_text("".join(json.dumps({key: each[key] for key in SCHEMA.names}) + "\n" for each in told))
    return str(path)


def as_parquet(events: Iterable[Event], path: Path) -> str:
    columns = [[getattr(event, name) for event in events] for name in ("id", "queue", "event", "site", "at")]
    pq.write_table(pa.table(columns, schema=SCHEMA), path)
    return str(path)


def reconciled(spark: Any, books: Iterable[Iterable[Event]], folder: Path, *more: str) -> Reconciled:
    """Of ledgers of both kinds, in turn."""
    told = [(as_lines, as_parquet)[n % 2]([*book], folder / f"{n}.ledger") for n, book in enumerate(books)]
    (folder / "scratch").mkdir()
    return reconcile_in(spark, ledgers([*told, *more], folder / "scratch"), folder / "out")


def ids(of: Reconciled) -> dict[str, set[tuple[str, str]]]:
    """What stands in the files, which are the owner's alone."""
    told = {}
    for kind, each in of.parts.items():
        named = [tuple(json.loads(line).values()) for line in each.file.read_text().splitlines()]
        assert named == sorted({*named})
        assert (len(named), stat.S_IMODE(each.file.stat().st_mode)) == (each.count, 0o600)
        told[kind] = {*named}
    return told


def judged(books: list[list[Event]]) -> dict[str, set[tuple[str, str]]]:
    """The same by the words of docs/ledgers.md, message by message."""
    snapshots: dict[tuple[str, int], int] = {}
    told: dict[tuple[str, str], list[tuple[int, Event]]] = defaultdict(list)
    for number, book in enumerate(books):
        for event in book:
            told[event.queue, event.id].append((number, event))
            if event.event == "stored":
                snapshots[event.site, number] = max(snapshots.get((event.site, number), 0), event.second)
    newest = {site: max((at, n) for (s, n), at in snapshots.items() if s == site)[1] for site, _ in snapshots}
    last = {site: max(at for (s, _), at in snapshots.items() if s == site) for site, _ in snapshots}
    sends = {event.queue for book in books for event in book if event.event in ("sent", "send-in-doubt")}
    read = {event.queue for book in books for event in book if event.event == "consumed"}
    found: dict[str, set[tuple[str, str]]] = {kind: set() for kind in KINDS}
    for key, events in told.items():
        of = {kind: [event for _, event in events if event.event == kind] for kind in ("sent", "consumed", "received")}
        stored = {(event.site, number) for number, event in events if event.event == "stored"}
        promised = min((e.second for _, e in events if e.event in ("sent", "stored")), default=None)
        consumed = min((event.second for event in of["consumed"]), default=None)
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
    """Every message has any events, at any moments, in any ledgers, at any sites; of some queues no ledger tells of
    sends, of some none of consumption."""
    chance = random.Random(seed)
    books: list[list[Event]] = [[] for _ in range(5)]
    looked = [(chance.choice(["london", "paris"]), chance.randrange(100, 900)) for _ in range(chance.randrange(4))]
    kinds = {
        "audit {1} it's": ["sent", "consumed", "received", "send-in-doubt"],
        "never-read": ["sent", "received"],
        "never-sent": ["consumed"],
    }
    for number in range(messages):
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
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(1, 13))])
def test_what_became_of_each_message(spark: Any, tmp_path: Path, seed: int) -> None:
    books = lives(seed)

    found = reconciled(spark, books, tmp_path)

    assert ids(found) == judged(books)
    assert found.events["sent"] == sum(event.event == "sent" for book in books for event in book)


def events(told: str) -> list[Event]:
    """`ID EVENT SECOND [SITE]`, apart by commas."""
    words = (each.split() for each in told.split(","))
    return [Event(ident, event, int(second), *site) for ident, event, second, *site in words]


BOOKS: dict[str, tuple[list[str], float | None, dict[str, set[str]], list[str]]] = {
    "all is well": (
        ["a sent 0, b sent 1, c sent 2", "a consumed 5 paris, b consumed 6 paris", "c stored 600 paris"], None, {}, []),
    "what the ledgers do not tell": (["a sent 0, b consumed 0"], None, {"lost": {"a"}, "unexpected": {"b"}}, ["015"]),
    "two sites hold what nobody sent": (
        ["a sent 0, a consumed 1", "s stored 5 london", "s stored 5 paris"], None, {"unexpected": {"s"}}, []),
    "an export of an empty site says that all is gone": (
        ["a sent 0, b sent 0, b consumed 1"], 86_400, {"lost": {"a"}}, []),
    "what was sent after the last snapshot is unknown": (
        ["a sent 0, b sent 50, c consumed 2, c sent 1"], 20, {"lost": {"a"}, "unknown": {"b"}}, []),
    # The only snapshot after the send is of the site that shipped it; the survivor was looked at before.
    "what may lie at a site whose snapshot is older is unknown": (
        ["a sent 500, b sent 0, b consumed 200", "c sent 0, c stored 300 paris", "d sent 0, d stored 700 london"], None,
        {"unknown": {"a"}}, []),
}  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("name", BOOKS)
def test_what_became_of_a_few_messages(spark: Any, tmp_path: Path, name: str) -> None:
    """With an export of an empty site at that moment."""
    books, looked_s, expected, findings = BOOKS[name]
    (tmp_path / "export.xml").write_text("<activemq-journal><messages></messages></activemq-journal>")
    moment = None if looked_s is None else (BEGIN + timedelta(seconds=looked_s)).isoformat()
    more = [] if moment is None else [f"london={tmp_path}/export.xml@{moment}"]

    found = reconciled(spark, map(events, books), tmp_path, *more)

    assert ids(found) == {kind: {("orders", ident) for ident in expected.get(kind, ())} for kind in KINDS}
    assert [finding.id for finding in found.findings] == [f"DR-RPO-{finding}" for finding in findings]
    assert found.is_clean is not bool(expected.get("lost"))


NOON = "2026-03-02T12:00:00Z"
BROWSED = json.loads(Path(__file__).with_name("browsed.json").read_text("utf-8"))


def stored(folder: Path, told: str, **more: str | None) -> list[tuple[str, str]]:
    [ledger] = ledgers([told], folder, **more)
    rows = pq.read_table(ledger.paths[0]).to_pylist()
    assert {row["site"] for row in rows} <= {ledger.site}
    return [(row["queue"], row["id"]) for row in rows]


# As Artemis exports and shows the same messages: of a CORE client; of AMQP clients whose ids are text and numbers, for
# which the export makes up a `user-id`; and of one that gives none.
EXPORT = Path(__file__).with_name("export.xml").read_text("utf-8")
SHOWN = json.loads(Path(__file__).with_name("shown.json").read_text("utf-8"))


def test_a_message_of_any_protocol_has_one_id_in_an_export_and_a_snapshot(tmp_path: Path) -> None:
    (tmp_path / "export.xml").write_text(EXPORT)
    shown = {**BROWSED, "request": {"mbean": 'address="q",queue="q"'}, "value": SHOWN}
    (tmp_path / "browse.json").write_text(json.dumps([shown]))
    by_name = {"property_name": "order_id"}

    for more, idents in (({}, ["ID:my-id-1", "ID:4711", "node:77"]), (by_name, ["m1", "m2", "m3"])):
        exported, browsed = (
            stored(tmp_path, told, **more)
            for told in (f"london={tmp_path}/export.xml@{NOON}", f"paris={tmp_path}/browse.json")
        )
        assert [queue for queue, _ in exported] == ["audit", *["q"] * 4]
        assert exported[1:] == browsed
        assert [ident for _, ident in browsed][1:] == idents


GOOD = '{"id": "m", "queue": "q", "event": "sent", "site": "s", "ts": "2026-03-01T12:00:00Z"}\n'


@pytest.mark.spark
def test_a_torn_last_line_is_left_out_and_named_and_one_in_the_middle_ends_it(spark: Any, tmp_path: Path) -> None:
    ledger = tmp_path / "l.jsonl"
    ledger.write_text(GOOD + GOOD[:30])

    found = reconciled(spark, [], tmp_path, str(ledger))

    assert found.events == {"sent": 1}
    [torn] = [finding for finding in found.findings if finding.id == "DR-RPO-012"]
    assert "l.jsonl: line 2" in torn.text
    ledger.write_text(GOOD + GOOD[:30] + "\n" + GOOD)
    with pytest.raises(UsageError, match=r"l\.jsonl: line 2: no JSON") as error:
        reconcile_in(spark, ledgers([str(ledger)], tmp_path), tmp_path / "none")
    assert "nothing was reconciled" in error.value.remedy
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"event": "sent", "site": "s", "ts": "2026-03-01T12:00:00Z"}', "", "no JSON"),
        ('"q"', "null", "lacks queue"),
        ("sent", "seen", "unknown event 'seen'"),
        ("2026-03-01T12:00:00Z", "noon", "ts 'noon' is no time"),
    ],
)
def test_a_line_that_is_no_event_is_told_with_its_place(tmp_path: Path, old: str, new: str, why: str) -> None:
    (tmp_path / "l.jsonl").write_text(f"{GOOD}{GOOD.replace(old, new)}{GOOD}")

    place, is_torn = first_bad(ledgers([str(tmp_path / "l.jsonl")], tmp_path)[0])

    assert f"l.jsonl: line 2: {why}" in place
    assert not is_torn


REFUSED: list[tuple[str, str | dict[str, list[Any]], str, str]] = [
    ("a.txt", "queue,id\n", "london={}", "line 1: 'queue,id' is the beginning of no ledger"),
    ("a.xml", EXPORT[:600], f"london={{}}@{NOON}", "line"),
    ("a.xml", "<beans/>", f"london={{}}@{NOON}", "of another kind"),
    ("a.xml", EXPORT, "{}", "whose messages"),
    ("a.xml", EXPORT, "london={}", "of which moment"),
    ("a.xml", EXPORT, "london={}@2026-03-02T12:00:00", "no moment"),
    ("a.json", "[{}]", "london={}", "document 1: neither a ledger nor Jolokia's answer"),
    ("a.json", json.dumps([{**BROWSED, "value": None}]), "london={}", "no list of messages"),
    ("a.json", json.dumps([BROWSED]), "london={}", "message 9: has no id"),
    ("a.jsonl", GOOD, f"london={{}}@{NOON}", "tells the moment of each event"),
    ("a.parquet", "PAR1", "{}", "cannot be opened"),
    ("a.parquet", {"id": [1], "event": ["sent"]}, "{}", "lacks the columns queue, site, ts"),
    ("a.parquet", {name: [1] for name in SCHEMA.names}, "{}", "id is int64"),
    ("a.parquet", "", "{}/none", "no ledger"),
]


@pytest.mark.parametrize(("name", "told", "argument", "why"), REFUSED)
def test_what_is_no_ledger_is_refused_with_its_place(
    tmp_path: Path, name: str, told: str | dict[str, list[Any]], argument: str, why: str
) -> None:
    path = tmp_path / name
    path.write_text(told) if isinstance(told, str) else pq.write_table(pa.table(told), path)

    with pytest.raises(UsageError, match=why) as error:
        ledgers([argument.format(path)], tmp_path)

    assert str(path) in str(error.value) or "no moment" in why
    assert error.value.remedy


@pytest.mark.spark
def test_moments_may_be_words_or_times_and_not_both_in_one_ledger(spark: Any, tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.mkdir()
    columns = {"id": "m1", "queue": "orders", "event": "consumed", "site": "paris", "ts": "2026-03-02T12:00:09Z"}
    pq.write_table(pa.table({name: [value] for name, value in columns.items()}), words / "1.parquet")
    told = as_parquet(events("m1 sent 0, m2 sent 1"), tmp_path / "a.parquet")

    found = reconciled(spark, [], tmp_path, told, str(words))

    assert ids(found)["lost"] == {("orders", "m2")}
    as_parquet(events("m2 consumed 9"), words / "2.parquet")
    with pytest.raises(UsageError, match="`ts` is a timestamp in some files and a string in others"):
        ledgers([str(words)], tmp_path)


@pytest.mark.spark
def test_the_plan_has_no_python_and_moves_each_message_once(spark: Any, tmp_path: Path) -> None:
    from dr_ctl.rpo.ledgers import reconcile as r  # noqa: PLC0415 - the fast tests do without Spark

    told = as_parquet(events("m1 sent 0"), tmp_path / "l.parquet")
    newest = [r.Snapshot("london", 0, 5, 5)]

    rows = r.judged(r.read(spark, 0, ledgers([told], tmp_path)[0]), newest, newest, {"orders": {"sent", "consumed"}})

    plan = rows._jdf.queryExecution().executedPlan().toString()
    assert not re.search("Python|InPandas|InArrow|FlatMapGroups|MapPartitions|DeserializeToObject", plan)
    assert len(re.findall(r"(?<!Broadcast)(?<!Reused)Exchange (?:hash|range|Single|Round)", plan)) == 1


INSIDE = Path(__file__).with_name("inside.xml").read_text("utf-8")


def test_what_brokers_keep_for_themselves_is_held_by_nobody_and_what_is_staged_by_its_queue(tmp_path: Path) -> None:
    (tmp_path / "export.xml").write_text(INSIDE)
    staged = json.loads(json.dumps(BROWSED).replace("orders", "orders.in.mirror"))
    outflow = json.loads(json.dumps({**BROWSED, "value": [{"messageID": 1}]}).replace("orders", "orders.out.acks"))
    (tmp_path / "browse.json").write_text(json.dumps([staged, outflow]))
    export, browse = f"london={tmp_path}/export.xml@{NOON}", f"paris={tmp_path}/browse.json"

    assert stored(tmp_path, export) == [("orders", "ID:1"), ("orders", "ID:5")]
    assert stored(tmp_path, browse, property_name="order_id") == [("orders", "m1"), ("orders", "m3")]
    asked = ((export, None), (browse, "order_id"))
    both = (ledgers([each], tmp_path, property_name=name)[0].export.left_out for each, name in asked)
    names = ("orders.out.acks", "orders.out.mirror", "continuity.cmd.out", "dr-ctl.lock.london")
    assert [*both] == [{"$ACTIVEMQ_ARTEMIS_MIRROR_paris": 2, **dict.fromkeys(names, 1)}, {"orders.out.acks": 1}]


def test_the_names_of_brokers_own_queues_are_those_that_topologies_know() -> None:
    from dr_ctl.topologies.common.calls import BROKERS, OURS  # noqa: PLC0415
    from dr_ctl.topologies.continuity.view import PREFIX  # noqa: PLC0415

    assert all(any(name.startswith(own) for own in files.OWN) for name in (*BROKERS, *OURS, f"{PREFIX}.in"))


def test_an_exports_moment_is_told_and_a_snapshots_is_between_its_answers(tmp_path: Path) -> None:
    (tmp_path / "export.xml").write_text(EXPORT)
    (tmp_path / "browse.json").write_text(json.dumps([BROWSED, {**BROWSED, "timestamp": BROWSED["timestamp"] + 2}]))

    [export] = ledgers([f"london={tmp_path}/export.xml@{NOON}"], tmp_path)
    [browsed] = ledgers([f"paris={tmp_path}/browse.json"], tmp_path, property_name="order_id")

    assert (export.export.at, export.export.blur_us) == (datetime(2026, 3, 2, 12, tzinfo=UTC), 0)
    # Two answers two seconds apart, each at some time in its second.
    assert (browsed.export.at, browsed.export.blur_us) == (datetime.fromtimestamp(1795284100, UTC), 2_999_999)


@pytest.mark.spark
def test_what_was_consumed_in_the_second_of_a_snapshot_or_sent_in_it_was_not_missed(spark: Any, tmp_path: Path) -> None:
    begin = int(BEGIN.timestamp())
    (tmp_path / "browse.json").write_text(json.dumps({**BROWSED, "value": [], "timestamp": begin + 10}))
    lines = [GOOD.replace('"m"', f'"{ident}"').replace("sent", event).replace("12:00:00", second)
             for ident, event, second in (("a", "sent", "12:00:05"), ("a", "consumed", "12:00:10.7"),
                                          ("b", "sent", "12:00:10.5"), ("b", "consumed", "12:00:12"),
                                          ("c", "sent", "12:00:09"), ("c", "consumed", "12:00:12"))]  # fmt: skip
    (tmp_path / "l.jsonl").write_text("".join(lines).replace('"s"', '"london"').replace('"q"', '"orders"'))

    found = reconciled(spark, [], tmp_path, str(tmp_path / "l.jsonl"), f"london={tmp_path}/browse.json")

    assert ids(found)["recovered"] == {("orders", "c")}


@pytest.mark.parametrize("name", ["sent.jsonl", "next.jsonl"])
def test_a_ledger_that_is_written_to_meanwhile_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "sends").mkdir()
    as_lines([Event("1", "sent", 1)], tmp_path / "sends/sent.jsonl")
    done, grown = as_lines([Event("1", "consumed", 1)], tmp_path / "consumed"), tmp_path / "sends" / name

    def meanwhile(_spark: object, _given: object, _out: Path) -> Reconciled:
        with grown.open("a") as ledger:
            ledger.write("{}")
        return Reconciled({}, {}, ())

    monkeypatch.setattr(reconcile, "reconcile_in", meanwhile)
    monkeypatch.setattr(session, "session", lambda **_: nullcontext())

    findings = reconcile.reconcile([str(grown.parent), done], tmp_path / "out").findings

    assert [(finding.id, finding.text) for finding in findings] == [
        ("DR-LEDGER-002", f"still written while it was read: {grown}")
    ]
