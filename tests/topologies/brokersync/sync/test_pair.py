"""The agent of one pair, and of all, on brokers in memory: what it deletes, and above all what it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dr_ctl.engine.debts import Debt, DebtKind
from dr_ctl.topologies.brokersync.sync import queue as agent
from dr_ctl.topologies.brokersync.sync.pair import LOST_S, Pair, PairsCleaner
from dr_ctl.topologies.brokersync.sync.queue import Account, Count, Counters, Listing, PendingDeletions, Queue
from dr_ctl.topologies.common.consumed import CompleteListing, Consumed, decided
from tests.clocks import Ticking
from tests.topologies.brokersync.sync.fakes import Q, Sites


class Agent:
    def __init__(self, sites: Sites, remembered: Any = None, **run_notes: dict[str, int]) -> None:
        self.sites, self.run_notes = sites, run_notes
        self.reason: str | None = None
        self.pair = Pair("orders-1", sites.primary, sites.standby, remembered or {}, lambda _: run_notes)  # type: ignore[arg-type]

    def run(self, seconds: float = 2.0) -> Agent:
        until = self.sites.clock.passed_s + seconds
        while self.sites.clock.passed_s < until and self.pair.over is None:
            before = self.sites.clock.passed_s
            self.pair.step(lambda: self.reason)
            self.sites.clock.passed_s += 0.01 if self.sites.clock.passed_s == before else 0.0
        return self

    @property
    def queue(self) -> Queue:
        return self.pair.queues[Q]


class Story:
    """Plays a line: what happens, and what is so then. An agent is there from the first `run` on; `end` ends it, and
    the next `run` is another one's, which remembers. `level`: what waits are the copies of what is held."""

    def __init__(self) -> None:
        self.sites = Sites()
        self.agent: Agent | None = None
        self.remembered: Any = None

    def play(self, line: str) -> None:
        for step in line.split(", "):
            word, _, rest = step.partition(" ")
            if word[0] in "+-":
                assert hasattr(self.sites, word[1:])
                setattr(self.sites, word[1:], word[0] == "+")
            elif hasattr(self, word):
                getattr(self, word)(*map(float, rest.split()))
            elif word in ("send", "consume", "purge", "give_back", "ship"):
                getattr(self.sites, word)(*map(int, rest.split()))
            else:
                self.shown(word, rest, step)

    def shown(self, word: str, rest: str, step: str) -> None:
        """What is so, or the test fails."""
        assert self.agent is not None
        if word in ("over", "refused", "standby_silent", "why_not"):
            lengths = getattr(self.agent.queue.snapshot if word == "why_not" else self.agent.pair, word)
            assert rest in str(lengths) if rest != "None" else lengths is None, (step, lengths)
        else:
            lengths = len(self.sites.copies) if word == "copies" else getattr(self.agent.queue.snapshot, word)
            assert lengths == int(rest), (step, lengths)

    def run(self, seconds: float = 2.0) -> None:
        self.agent = self.agent or Agent(self.sites, self.remembered)
        self.agent.run(seconds)

    def end(self) -> None:
        assert self.agent is not None
        self.remembered = self.agent.pair.remembers()
        self.agent.pair.close()
        self.agent = None

    def hold(self) -> None:
        assert self.agent is not None
        self.agent.reason = "a run is open, or a person said so"

    def free(self) -> None:
        assert self.agent is not None
        self.agent.reason = None

    def word(self) -> None:
        """A person answers for what has gone."""
        assert self.agent is not None
        self.agent.pair.go_on()

    def unsubscribe(self) -> None:
        """Its connection is cut: what leaves from now on is announced to nobody."""
        self.sites.primary.unsubscribe()

    def anew(self) -> None:
        """The serving broker starts again, and counts from zero."""
        self.sites.start, self.sites.dequeued, self.sites.dispatched = "second", 0, 0

    def made_again(self) -> None:
        """The queue is, without a word."""
        self.sites.held.clear()
        self.sites.dequeued = self.sites.dispatched = 0

    def vanish(self, count: float) -> None:
        """So many messages are not in the store that comes back."""
        self.sites.held = self.sites.held[int(count) :]

    def on_the_way(self, count: float) -> None:
        """The next browse leaves these out."""
        self.sites.on_the_way_to_a_client = self.sites.held[: int(count)]

    def transaction(self, count: float) -> None:
        self.sites.in_a_transaction = self.sites.held[: int(count)]

    def page(self, count: float) -> None:
        self.sites.page = int(count)

    def level(self) -> None:
        assert self.sites.copies == self.sites.held


STORIES = Path(__file__).with_name("stories.txt").read_text("utf-8").format(past_lost=LOST_S + 5)
BESIDE = "give_back 5, run 1, " * 20  # clients that give back all the time
LINES = dict(line.split(": ") for line in STORIES.strip().replace("\n    ", " ").splitlines()) | {
    "a purge beside clients that give back": f"run, send 1000, {BESIDE}purge 40, {BESIDE}copies 1000"
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_story(line: str) -> None:
    Story().play(line)


@pytest.mark.parametrize("gone", [1, 7, 100])
def test_what_an_operator_took_away_is_never_deleted(gone: int) -> None:
    then = f"give_back 100, send 50, consume {min(10, 150 - gone)}, run 30"  # the counters fall again
    Story().play(f"run, send 100, run, purge {gone}, run, {then}, vanished {gone}, copies 150")


@pytest.fixture
def sites() -> Sites:
    return Sites()


def test_what_the_waiting_site_did_not_ship_when_it_served_is_no_copy(sites: Sites) -> None:
    sites.send(10)
    sites.copies += ["ID:old-1", "ID:old-2"]
    sites.not_shipped_back = ["ID:old-1", "ID:old-2"]
    sites.consume(4)
    Agent(sites).run()
    assert sites.copies == [*sites.held, "ID:old-1", "ID:old-2"]


def test_what_was_deleted_while_the_site_waited_is_no_alarm(sites: Sites) -> None:
    sites.send(100)
    sites.copies = sites.held[20:]
    sites.purge(20)  # by the agent of the other direction, before this site served
    assert Agent(sites).run().queue.snapshot.vanished == 0
    assert sites.copies == sites.held


@pytest.mark.parametrize(
    ("method", "consumed", "shown"),
    [("list_queue", 0, {"vanished": 30}), ("list_queue", 30, {}), ("remove", 30, {})],
    ids=[
        "a purge while both are compared",
        "listeners open while both are compared",
        "listeners open after the reading",
    ],
)
def test_what_happens_meanwhile_is_seen(sites: Sites, method: str, consumed: int, shown: dict[str, int]) -> None:
    sites.send(100)
    sites.consume(consumed)
    agent = Agent(sites)
    standby: Any = agent.pair._standby
    before = getattr(standby, method)

    def meanwhile(*asked: Any, **more: bool) -> Any:
        earlier = before(*asked, **more) if shown else None
        sites.standby_open = not shown
        if shown and sites.held == sites.copies:
            sites.purge(30)
        return earlier or before(*asked, **more)

    setattr(standby, method, meanwhile)
    agent.run(30.0 if shown else 5.0)
    assert len(sites.copies) == 100
    assert {name: getattr(agent.queue.snapshot, name) for name in shown} == shown
    assert method == "list_queue" or "lets clients in too" in str(agent.pair.over)


def test_what_a_run_did_while_it_held_the_agent_is_counted_once(sites: Sites) -> None:
    """A run deletes copies by the counters, and is shown messages: neither proves anything of other copies."""
    agent = Agent(sites).run()
    agent.run_notes |= {"shown": {Q: 3}, "deleted": {Q: 5}}
    agent.run()
    remembered = agent.pair.remembers()
    second = Agent(sites, remembered, **agent.run_notes).run()
    agent.run_notes |= {"deleted": {Q: 6}}
    third = Agent(sites, remembered, **agent.run_notes).run()
    accounts = [row.queue.account for row in (agent, second, third)]
    assert [(account.shown, account.accounted) for account in accounts] == [(3, 5), (3, 5), (3, 6)]


@pytest.mark.parametrize(("given_back", "wait_s", "purged"), [(50, 2.5, 50), (1000, 1.8, 999), (1000, 2.5, 500)])
def test_a_purge_soon_after_a_client_gave_messages_back_deletes_no_copy(
    sites: Sites, given_back: int, wait_s: float, purged: int
) -> None:
    agent = Agent(sites).run()
    sites.send(1000)
    agent.run(15.0)
    sites.give_back(given_back)
    agent.run(wait_s)
    sites.purge(purged)
    agent.run(30.0)
    assert len(sites.copies) == 1000
    snapshot = agent.queue.snapshot
    assert snapshot.vanished or snapshot.unproven == purged


def test_memory_is_bounded_and_what_was_let_go_is_found_again() -> None:
    queue = Queue("orders-1", Q, Account())
    queue.to_compare = False

    for number in range(agent.MAX_IDS + 1):
        queue.add_announced(f"ID:{number}")

    assert (len(queue.announced), queue.to_compare) == (0, True)


acts = st.lists(st.tuples(st.sampled_from(["send", "consume", "give back", "hold", "run"]), st.integers(1, 30)))


@settings(max_examples=150)
@given(acts)
def test_whatever_clients_do_no_live_copy_is_lost_and_none_is_left(acts: list[tuple[str, int]]) -> None:
    sites = Sites()
    agent = Agent(sites).run()
    for what, count in acts:
        if what == "send":
            sites.send(count)
        elif what == "consume":
            sites.consume(min(count, len(sites.held)))
        elif what == "give back":
            sites.give_back(min(count, len(sites.held)))
        elif what == "hold":
            agent.reason = None if agent.reason else "held"
        else:
            agent.run(count / 20)
        assert set(sites.held) <= set(sites.copies)
    agent.reason = None
    agent.run(20.0)

    assert sites.copies == sites.held


@dataclass
class Many:
    """A pair with many queues, in each of which one message was consumed and another lies."""

    names: list[str]
    clock: Ticking = field(default_factory=Ticking)
    looks: int = 0
    listings: int = 0
    removed: int = 0
    followed: bool = False

    def read(self) -> agent.ServingReading:
        self.looks += 1
        consumed = Counters(1, 0, 1, 0)
        return agent.ServingReading(
            "first", True, dict.fromkeys(self.names, consumed), dict.fromkeys(self.names, Count(0, 2)),
        )  # fmt: skip

    def read_counts(self) -> agent.StandbyReading:
        return agent.StandbyReading(dict.fromkeys(self.names, Count(2, 2)), {})

    def list_queue(self, queue: str, before: Count | None, *, grows: bool = False) -> Listing:
        """A listing takes its time."""
        self.listings += 1
        self.clock.passed_s += 0.01
        ids = frozenset({f"{queue}:1", f"{queue}:2"} if before is not None else {f"{queue}:2"})
        return Listing(ids, CompleteListing(queue, ids, len(ids), len(ids)))

    def unshipped(self, queue: str, before: Count | None) -> Listing:
        return Listing(frozenset(), CompleteListing(queue, frozenset(), 0, 0))

    def subscribe(self, queues: Sequence[str]) -> Sequence[str]:
        fresh, self.followed = not self.followed, True
        return queues if fresh else []

    def receive(self, within_s: float) -> Sequence[tuple[str, str]]:
        self.clock.passed_s += within_s
        return []

    def is_open(self) -> bool:
        return False

    def remove(self, queue: str, consumed: Consumed) -> int:
        self.removed += len(consumed.ids)
        return len(consumed.ids)

    def unsubscribe(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("queues", [100, 1000])
def test_many_queues_are_compared_in_small_portions_and_each_once(queues: int) -> None:
    many = Many([f"q.{number}" for number in range(queues)])
    pair = Pair("orders-1", many, many, {})
    longest = 0.0

    while many.removed < queues and many.clock.passed_s < queues:
        at = many.clock.passed_s
        pair.step(lambda: None)
        longest = max(longest, many.clock.passed_s - at)

    assert many.listings == 2 * queues
    assert many.looks <= 2 * agent.FRESH_READINGS + 2 * queues * 0.01 / 0.3 * 2
    assert longest < 1.0


@pytest.mark.parametrize(("primary", "standby"), [("paris", "london"), ("london", "paris")])
@pytest.mark.parametrize("kind", DebtKind)
def test_nothing_is_deleted_beside_a_site_that_was_lost_and_is_not_taken_in(
    primary: str, standby: str, kind: DebtKind
) -> None:
    sites, owed = Sites(), [Debt(kind, "london", "paris", "2026-11-23T00:00:00Z")]
    pair = Pair("orders-1", sites.primary, sites.standby, {})
    cleaner = PairsCleaner([pair], primary, standby, lambda: owed)
    sites.send(10)
    sites.consume(4)

    for _ in range(50):
        kept = cleaner.step(lambda: None)
    held = len(sites.copies)
    owed.clear()
    for _ in range(500):
        cleaner.step(lambda: None)
        sites.clock.passed_s += 0.01

    assert held == 10
    assert [finding.id for finding in kept.findings] == ["DR-AGENT-005"]
    assert sites.copies == sites.held


# Counters of one queue of a 5.18.3, in the order in which they were read.
ACKED = Counters(50, 100, 150, 0)
CLOSED = Counters(50, 0, 150, 0)  # a consumer that held 100 has gone
REMOVED = Counters(51, 0, 150, 0)  # removeMatchingMessages of one
HELD = Counters(51, 249, 399, 0)
REMOVED_HELD = Counters(54, 249, 399, 0)  # of three that a consumer holds
MOVED_HELD = Counters(56, 249, 399, 0)
DEAD = Counters(57, 248, 399, 0)  # a client gave one up: a dead letter
PURGED_HELD = Counters(300, 248, 399, 0)
EXPIRED = Counters(360, 470, 1499, 30)
BEFORE_EXPIRY = Counters(320, 480, 1499, 0)


@pytest.mark.parametrize(
    ("before", "after", "vanished"),
    [
        (Counters(0, 0, 0, 0), ACKED, 0),
        (ACKED, CLOSED, 0),
        (CLOSED, REMOVED, 1),
        (REMOVED, HELD, 0),
        (HELD, REMOVED_HELD, 3),
        (REMOVED_HELD, MOVED_HELD, 2),
        (MOVED_HELD, DEAD, 0),
        (DEAD, PURGED_HELD, 243),
        (BEFORE_EXPIRY, EXPIRED, 0),
        # A client that leaves while it takes is counted twice: in delivery is below zero.
        (Counters(391, 0, 1630, 30), Counters(475, -9, 1715, 30), 0),
    ],
)
def test_what_clients_do_is_told_from_what_others_do(before: Counters, after: Counters, vanished: int) -> None:
    account = Account()
    account.accept([before])
    assert account.vanished(after) == vanished


def test_a_figure_that_was_one_too_low_is_no_alarm() -> None:
    account = Account()
    for in_delivery in (10, 9, 10, 9):  # read a moment too late
        account.add_reading(Counters(90, in_delivery, 100, 0))
    assert account.vanished(Counters(90, 10, 100, 0)) == 0


def test_what_a_client_gave_back_hides_a_purge_for_a_few_looks_only() -> None:
    account = Account()
    account.add_reading(Counters(0, 1000, 1000, 0))
    for _ in range(agent.RECENT_READINGS):
        account.add_reading(Counters(0, 0, 1000, 0))  # it has gone
    assert account.vanished(Counters(3, 0, 1000, 0)) == 3


def test_what_a_browse_was_shown_hides_no_purge() -> None:
    account = Account()
    account.add_reading(Counters(0, 0, 0, 0))
    account.add_browse(300)
    assert account.vanished(Counters(5, 0, 300, 0)) == 5


steps = st.lists(st.tuples(st.sampled_from(["take", "ack", "leave"]), st.integers(1, 50)), max_size=40)


@given(steps)
def test_clients_alone_never_raise_an_alarm(steps: list[tuple[str, int]]) -> None:
    account, dequeued, held, dispatched = Account(), 0, 0, 0
    for what, count in steps:
        if what == "take":
            held, dispatched = held + count, dispatched + count
        elif what == "ack":
            held, dequeued = held - min(count, held), dequeued + min(count, held)
        else:
            held -= min(count, held)
        counters = Counters(dequeued, held, dispatched, 0)
        assert account.vanished(counters) == 0
        account.add_reading(counters)


def ids(count: int, first: int = 0) -> frozenset[str]:
    return frozenset(f"ID:{number}" for number in range(first, first + count))


def waits(waiting: PendingDeletions, count: int, first: int = 0) -> None:
    waiting.add(ids(count, first), decided(ids(count, first), "a test's"))


def test_no_batch_is_larger_than_a_call_may_be() -> None:
    waiting = PendingDeletions()
    waits(waiting, 2 * agent.MAX_BATCH + 1)
    sizes = []
    while (batch := waiting.due(0.0)) is not None:
        sizes.append(len(batch.ids))
        waiting.note_removed(batch, len(batch.ids), 0.0)
    assert sizes == [agent.MAX_BATCH, agent.MAX_BATCH, 1]


def test_what_never_arrives_asks_for_a_comparison_and_is_then_counted() -> None:
    waiting, now = PendingDeletions(), 0.0
    waits(waiting, 5)
    while not waiting.is_overdue:
        now += 10.0
        batch = waiting.due(now)
        assert batch is not None
        assert batch.tries < agent.MAX_TRIES
        waiting.note_removed(batch, 0, now)

    waiting.drop_absent(ids(3, 2))  # the others are on their way

    assert (waiting.absent, len(waiting), waiting.is_overdue) == (3, 2, False)


def test_a_call_that_failed_leaves_its_batch_the_next_one() -> None:
    waiting = PendingDeletions()
    waits(waiting, agent.MAX_BATCH + 3)
    assert waiting.due(0.0) is waiting.due(0.0) is not None


@given(st.lists(st.tuples(st.integers(1, 1200), st.integers(0, 600)), max_size=20))
def test_every_id_is_deleted_or_waits(steps: list[tuple[int, int]]) -> None:
    waiting, added, now = PendingDeletions(), 0, 0.0
    for fresh, removed in steps:
        waits(waiting, fresh, added)
        added += fresh
        now += 5.0
        if (batch := waiting.due(now)) is not None:
            waiting.note_removed(batch, removed, now)
    assert waiting.deleted + len(waiting) == added
