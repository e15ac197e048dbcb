"""What is recorded of a site whose producers write to its peer too, what counters prove, what moves do by ids."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from dr_ctl.engine.debts import DebtKind
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.loader import load
from dr_ctl.topologies.common.calls import debt_name
from dr_ctl.topologies.common.view import Config, Connection, Consumer, Queue
from dr_ctl.topologies.fanout.checks import ONE_SITE_ONLY, counted, undecided
from dr_ctl.topologies.fanout.counting import CHECKPOINTS, Checkpoint, Checkpoints, Counters, Mark, QueueAtSite
from dr_ctl.topologies.fanout.reading import ListedQueue, prove_consumed
from dr_ctl.topologies.fanout.view import BrokerView, FanoutConfig
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.recording import recording
from dr_ctl_lab.twin.kinds import FANOUT
from tests.broker.driving import until
from tests.conftest import Command
from tests.timeouts import impatient
from tests.topologies import made
from tests.topologies.fanout.stories import ANY, SITES, Story, read, route

AT = datetime(2026, 11, 23, tzinfo=UTC)
PORTS = {"stomp": 1, "producers": 2, "sync": 3, "openwire": 4}
CONFIG = Config(("stomp",), None, None, agent="sync")
OWN = FanoutConfig(("producers",), "order_id")


def queue(name: str, depth: int, *, added: int = 100, removed: int = 40, **more: Any) -> Queue:
    counts = {"added": added, "removed": removed, "acked": removed}
    return made.queue(name, f"bean of {name}", depth, **{"routing": "queue", **counts, **more})


def view(site: str, *queues: Queue, is_open: bool = True, **more: Any) -> BrokerView:
    listeners = tuple(
        made.listener(name, f"bean of {name}", port, "STOMP", started=is_open or name != "stomp", opens_at_boot=True)
        for name, port in PORTS.items()
    )
    options = {"config": CONFIG, "fanout": OWN, "version": "5.18.3", "start": f"start of {site}", "now_ms": 0}
    return made.view(BrokerView, site, **{**options, "acceptors": listeners, "queues": queues, **more})


def client(name: str, connector: str) -> Connection:
    return Connection(name, PORTS[connector], "10.0.0.1", name, "app", connector)


def rows(here: BrokerView, peer: BrokerView | None) -> dict[str, Row]:
    return {row.kind: row for row in here.link.rows(peer, AT)}


@pytest.mark.parametrize(
    ("here", "there", "lost", "duplicates"),
    [(5, 5, 0, 0), (5, 9, 0, 4), (9, 5, 4, 0)],
    ids=["even", "residue", "lacking"],
)
def test_beside_its_peer_what_that_lacks_may_be_lost_and_what_it_has_more_may_come_twice(
    here: int, there: int, lost: int, duplicates: int
) -> None:
    result = rows(view("london", queue("q", here)), view("paris", queue("q", there), is_open=False))
    assert {kind: row.depth for kind, row in result.items()} == {"mirror": lost, "acks": duplicates, "staged": there}
    assert (result["mirror"].added, result["acks"].added, result["acks"].removed) == (0, 40, 40 - duplicates)


def test_where_a_store_tells_what_was_done_nothing_of_it_comes_twice_beside_its_peer_or_alone() -> None:
    own = replace(OWN, stored=True)
    london, paris = view("london", queue("q", 5), fanout=own), view("paris", queue("q", 9), fanout=own, is_open=False)
    for peer in (paris, None):
        result = rows(london, peer)
        assert (result["acks"].name, result["acks"].depth, result["acks"].start) == ("*", 0, result["mirror"].start)
    assert (london.link.stake(paris).duplicates, london.link.redelivers) == (0, False)
    unread = replace(london, fanout=replace(own, unread="it cannot be read"))
    assert (rows(unread, paris)["acks"].depth, unread.link.redelivers) == (4, True)


def test_alone_all_that_lies_there_may_be_lost_and_no_rate_joins_that_to_looks_beside_the_peer() -> None:
    london = view("london", queue("q", 60))
    owing = replace(london, documents={debt_name(DebtKind.QUARANTINE, "paris", "london"): "{}"})
    even = rows(london, view("paris", queue("q", 60), is_open=False))["mirror"]
    for case in (rows(london, None), rows(owing, view("paris", queue("q", 60), is_open=False))):
        assert case.keys() == {"mirror"}
        assert (case["mirror"].depth, case["mirror"].added) == (60, 100)
        assert case["mirror"].start != even.start


def test_of_a_peer_that_was_lost_and_is_back_equal_counts_are_no_equal_messages() -> None:
    owed = {debt_name(DebtKind.QUARANTINE, "paris", "london"): "{}"}
    london = replace(view("london", queue("q", 7), is_open=False), documents=owed)
    paris = view("paris", queue("q", 5), is_open=False)
    items, back = london.link.stake(paris), paris.link.stake(london)
    assert (items.lost, items.duplicates, items.queues) == (7, 5, {"q": (7, 5)})
    assert (back.lost, back.duplicates) == (5, 7)


def test_a_site_that_waits_records_no_outflow_and_dead_letters_none_at_all() -> None:
    dead = queue("ActiveMQ.DLQ", 7, dead_letter_address="ActiveMQ.DLQ")
    assert rows(view("paris", queue("q", 5), is_open=False), view("london", queue("q", 5))) == {}
    assert rows(view("london", dead), None) == {}


def test_a_queue_that_counts_below_zero_is_not_read() -> None:
    stake = view("london", queue("q", -1)).link.stake(view("paris", queue("q", 5)))
    assert (stake.lost, stake.duplicates, stake.queues) == (None, None, None)
    assert rows(view("london", queue("q", -1)), view("paris", queue("q", 5))) == {}


def test_a_receipt_rests_on_what_left_while_producers_go_on() -> None:
    before, later = (view("london", queue("q", depth, added=added)) for depth, added in ((5, 100), (9, 104)))
    taken = view("london", queue("q", 4, removed=41))
    assert [*before.link.counters] == [*later.link.counters]
    assert [*before.link.counters] != [*taken.link.counters]


def test_consumers_among_the_producers_and_clients_elsewhere_would_work_behind_a_fence() -> None:
    taker = Consumer("q", None, "both", "", "app", 0)
    remote = (
        client("both", "producers"),
        client("sender", "producers"),
        client("dr-ctl-mine", "sync"),
        client("x", "openwire"),
    )
    broker_view = view("london", queue("q", 1), connections=remote, consumers=(taker,))

    assert [item.partition(" (")[0] for item in broker_view.fence.clients_elsewhere()] == [
        "client x from 10.0.0.1",
        "consumer of q: client both",
    ]
    assert [listener.name for listener in broker_view.fence.leaves_open] == ["openwire"]


START = Checkpoint(Mark("london 1"), Mark("paris 1"))


def listed(ids: Iterable[str], *, removed: int = 0, came: int = 0, expired: int = 0) -> ListedQueue:
    """A listing, with so many messages that came while it was made: the counters before it do not have them."""
    shown = {item: {"id": item} for item in ids}
    depth = len(shown) - came
    before = Counters(depth, depth + removed, removed, expired, removed)
    after = replace(before, depth=len(shown), added=before.added + came)
    return ListedQueue("q", shown, len(shown), before, after)


# One message lay at london alone, and was copied to paris since.
COPIED = Checkpoint(Mark("london 1", entered=4, unmatched=frozenset("x")), Mark("paris 1", entered=3))


@pytest.mark.parametrize(
    ("here", "there", "since", "ids"),
    [
        # London is listed after paris: f and g came in between, and lie at london alone for a moment.
        (listed("cdefg", removed=2, came=2), listed("abcde", came=2), START, "ab"),
        (listed("cde", removed=2), listed("abcdey"), START, ""),
        (listed("cdex", removed=2), listed("abcdey"), START, ""),
        (listed("cde", removed=2, expired=1), listed("abcde"), START, ""),
        (listed("bcx", removed=1), listed("abcx"), COPIED, "a"),
    ],
    ids=["both get some meanwhile", "one came alone", "one alone at each", "one expired", "a copy made since"],
)
def test_what_counters_prove_to_be_consumed(here: ListedQueue, there: ListedQueue, since: Checkpoint, ids: str) -> None:
    assert {*prove_consumed(here, there, since).ids} == {*ids}


def test_what_was_removed_what_expired_and_what_no_client_had_is_not_among_what_clients_consumed() -> None:
    """Five were purged at london, one expired at both, and 289 copies of consumed ones were removed at paris."""
    assert START.consumed(Counters(0, 305, 305, 1, 299), Counters(15, 305, 290, 1, 0)) == 10


@pytest.mark.parametrize(
    ("changed", "is_continued_by"),
    [({}, True), ({"start": "london 2"}, False), ({"counters": Counters(1, 2, 1, 0, 1)}, False)],
    ids=["as it was", "a restart", "a queue made again, or statistics reset"],
)
def test_a_comparison_counts_while_both_brokers_and_both_queues_are_the_same(
    changed: dict[str, object], *, is_continued_by: bool
) -> None:
    marks = {"london": Mark("london 1", 10, 7, finished=7), "paris": Mark("paris 1", 10, unmatched=frozenset("y"))}
    kept = Checkpoints.read({CHECKPOINTS: Checkpoints({"q": marks}).text})
    london = replace(QueueAtSite("london", "london 1", Counters(4, 12, 8, 0, 8)), **changed)  # type: ignore[arg-type]
    paris = QueueAtSite("paris", "paris 1", Counters(12, 13, 0, 0, 0))
    assert kept.queues == {"q": marks}
    assert (kept.since("q", london, paris) == Checkpoint(marks["london"], marks["paris"])) is is_continued_by


@pytest.mark.parametrize("text", ["", "[]", "{", '{"q": {"london": {}}}', '{"q": 1}'])
def test_a_damaged_document_is_none(text: str) -> None:
    assert Checkpoints.read({CHECKPOINTS: text}).queues == {}


def judged(*readings: tuple[int, int]) -> dict[str, str]:
    """What keeps a move back. Clients of london have taken what it lacks."""
    london, paris = view("london", queue("q", 20, added=60)), view("paris", queue("q", 35, added=60, removed=25))
    several = [
        (Counters(local - 40, local, 40, 0, 40), Counters(remote - 25, remote, 25, 0, 0)) for local, remote in readings
    ]
    now = {"q": counted(london, paris, several, 1.0)}
    reason = undecided(replace(london, counted=now), replace(paris, counted=now))
    return {name: value.why for name, value in reason.items()}


@pytest.mark.parametrize(
    ("readings", "why"),
    [
        ([(60, 60), (60, 60)], {}),
        ([(61, 58), (70, 71), (75, 72), (80, 79), (85, 85)], {}),
        ([(61, 64), (70, 72), (75, 76), (80, 83), (85, 87)], {"q": ONE_SITE_ONLY}),
    ],
    ids=["at rest", "busy", "busy, and two came to paris alone"],
)
def test_where_messages_come_all_the_time_only_counts_that_never_meet_refuse(
    readings: list[tuple[int, int]], why: dict[str, str]
) -> None:
    """The gate counts again with clients out: what it may well prove does not keep a move back."""
    assert judged(*readings) == why


LINES = read(Path(__file__).with_name("stories.txt").read_text("utf-8").format(ANY=ANY)) | {
    f"messages without an id and listings that are cut end a move before the fence, at {sites}": "send a b c; "
    # Paris holds as many, whatever came to London alone.
    "consume london c; page 1; run 10 swapover --to paris; says limits what a listing shows; page 400; "
    f"nameless {' '.join(sites)}; run 10 swapover --to paris; says has no order_id; serves london"
    for sites in (SITES, SITES[:1], SITES[1:])
}


LONG = ("messages without", "a return from a listing")


@pytest.mark.parametrize(
    "line",
    [pytest.param(LINES[name], id=name, marks=pytest.mark.deep if name.startswith(LONG) else ()) for name in LINES],
)
def test_story(story: Story, line: str) -> None:
    story.play(line)


def test_a_return_beside_busy_clients_leaves_only_what_the_lost_site_held(story: Story) -> None:
    """What clients of the serving site take after the return counters tell: the failback that follows removes it."""
    story.play("without ids; busy; send a b c d e f g h; lose; send k l m n o p q r s t to paris; consume paris a")
    story.play("start london; run 10 failback --to london; says `dr-ctl reinstate london` first")
    story.play("run 0 reinstate london; nothing_paused")
    unmatched, since = {*story.lying("london")} - {*story.lying("paris")}, story.lying("paris")[:2]
    story.play(f"consume paris {' '.join(since)}; run 0 failback --to london --accept-duplicates {len(unmatched)}")
    assert "a" in unmatched
    assert {*since}.isdisjoint(story.lying("london"))


def test_all_queues_wait_together_for_what_lies_at_one_site_alone(story: Story) -> None:
    timeouts = impatient(story.patch, differs_s=1.0)
    story.without("ids")
    for number in range(9):
        route(story.twin, "paris", f"orders.{number}", b"alone", {"order_id": "alone"})
    story.run("0 swapover --to paris --accept-duplicates 9")
    assert story.ended.document["data"]["outage_s"] < 3 * timeouts.differs_s


def test_what_the_store_knows_costs_a_failover_no_duplicates_as_long_as_it_can_be_read(
    story: Story, twin: PlayedTwin, dr_ctl: Command
) -> None:
    store = twin.settings_path.parent / yaml.safe_load(twin.settings_path.read_text())["ids"]["sqlite"]
    failover = "failover", "--to", "paris", "--yes"
    story.play("send a b c; consume london a b")
    with recording(load(twin.settings_path), every_s=0.1):
        until(lambda: dr_ctl("status").document["data"]["last_sample"] is not None)
        twin.kill("london")
        until(lambda: dr_ctl(*failover, "--dry-run").code == 0)
    hidden = store.rename(store.with_suffix(".gone"))
    story.play(
        "run 10 failover --to paris; says up to 3 message(s) at paris come as duplicates: the store of processed"
    )
    story.play("run 0 failover --to paris --accept-duplicates 3 --dry-run")
    hidden.rename(store)
    story.play("run 0 failover --to paris; paris c")
    assert story.ended.document["data"]["bounds"]["duplicates"]["at_most"] == 0


@pytest.fixture
def twin(tmp_path: Path, system_of_test: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedTwin]:
    """London serves, and nothing was ever sent."""
    impatient(monkeypatch, differs_s=0.3)
    with PlayedTwin.up(tmp_path / "twin", topology=FANOUT) as twin:
        yield twin


@pytest.fixture
def story(twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch) -> Story:
    story = Story(twin, dr_ctl)
    story.patch = monkeypatch
    return story
