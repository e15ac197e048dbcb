"""The agent of one pair on brokers in memory: what it deletes, and above all what it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dr_ctl.topologies.brokersync.sync.accounts import SURE, Account, Counters
from dr_ctl.topologies.brokersync.sync.pair import LOST_S, Pair
from dr_ctl.topologies.brokersync.sync.ports import Count, Glance, Listed, There
from dr_ctl.topologies.brokersync.sync.queue import AT_MOST, Queue
from dr_ctl.topologies.common.consumed import Consumed, Whole
from tests.topologies.brokersync.sync.fakes import Q, Sites, Time


class Agent:
    """One agent, stepped for so long."""

    def __init__(self, sites: Sites, remembered: dict[str, object] | None = None, **noted: dict[str, int]) -> None:
        self.sites, self.reason = sites, None
        self.pair = Pair("orders-1", sites.primary, sites.standby, sites.clock, remembered or {}, lambda _: noted)  # type: ignore[arg-type]
        self.noted = noted

    reason: str | None

    def run(self, seconds: float = 2.0) -> Agent:
        until = self.sites.clock.at + seconds
        while self.sites.clock.at < until and self.pair.over is None:
            before = self.sites.clock.at
            self.pair.step(lambda: self.reason)
            self.sites.clock.at += 0.01 if self.sites.clock.at == before else 0.0
        return self

    @property
    def queue(self) -> Queue:
        return self.pair.queues[Q]


@pytest.fixture
def sites() -> Sites:
    return Sites()


@pytest.fixture
def agent(sites: Sites) -> Agent:
    return Agent(sites).run()


def test_what_clients_consumed_is_deleted_by_its_id(sites: Sites, agent: Agent) -> None:
    sites.send(100)
    sites.consume(40)

    agent.run()

    assert sites.copies == sites.held
    assert agent.queue.seen.deleted == 40


def test_what_one_browse_leaves_out_is_looked_for_again(sites: Sites) -> None:
    sites.send(10)
    sites.consume(4)
    sites.on_the_way_to_a_client = sites.held[:2]

    agent = Agent(sites).run()
    assert (len(sites.copies), agent.queue.seen.unproven, agent.queue.seen.whole) == (10, 6, False)
    agent.run(15.0)

    assert (len(sites.copies), sites.copies) == (6, sites.held)
    assert (agent.queue.seen.unproven, agent.queue.seen.whole) == (0, True)


def test_copies_of_messages_in_an_open_transaction_stay(sites: Sites) -> None:
    sites.send(100)
    sites.consume(10)
    sites.in_a_transaction = sites.held[:20]

    agent = Agent(sites).run(30.0)
    assert (len(sites.copies), agent.queue.seen.unproven) == (100, 30)
    sites.in_a_transaction.clear()  # an abort
    agent.run(15.0)

    assert (len(sites.copies), sites.copies) == (90, sites.held)


def test_a_queue_that_is_too_busy_to_be_listed_is_compared_once_it_is_quiet(sites: Sites) -> None:
    sites.send(100)
    sites.consume(40)
    sites.busy = True
    agent = Agent(sites).run(25.0)
    assert (len(sites.copies), agent.queue.seen.unproven, agent.queue.seen.vanished) == (100, 40, 0)

    sites.busy = False
    agent.run(15.0)

    assert (agent.queue.seen.unproven, sites.copies) == (0, sites.held)


def test_what_the_waiting_site_did_not_ship_when_it_served_is_no_copy(sites: Sites) -> None:
    sites.send(10)
    sites.copies += ["ID:old-1", "ID:old-2"]
    sites.not_shipped_back = ["ID:old-1", "ID:old-2"]
    sites.consume(4)

    Agent(sites).run()

    assert sites.copies == [*sites.held, "ID:old-1", "ID:old-2"]


def test_what_was_consumed_before_it_came_is_found(sites: Sites) -> None:
    sites.send(100)
    sites.consume(40)

    Agent(sites).run()

    assert sites.copies == sites.held


def test_a_copy_that_comes_after_its_message_was_consumed_is_waited_for(sites: Sites, agent: Agent) -> None:
    sites.ships = False
    sites.send(10)
    sites.consume(4)
    agent.run()
    assert agent.queue.seen.waiting == 4

    sites.ships = True
    sites.ship()
    agent.run(5.0)

    assert sites.copies == sites.held
    assert agent.queue.seen.waiting == 0


def test_consumed_unheard_while_the_copy_was_on_its_way_is_found(sites: Sites) -> None:
    sites.ships = False
    sites.send(10)
    sites.consume(4)  # nobody follows yet
    agent = Agent(sites).run()

    sites.ships = True
    sites.ship()
    agent.run(5.0)

    assert sites.copies == sites.held


@pytest.mark.parametrize("count", [1, 7, 100])
def test_what_an_operator_took_away_is_never_deleted(sites: Sites, agent: Agent, count: int) -> None:
    sites.send(100)
    agent.run()

    sites.purge(count)
    agent.run()
    sites.give_back(100)  # the counters fall again
    sites.send(50)
    sites.consume(min(10, 150 - count))
    agent.run(30.0)

    assert agent.queue.seen.vanished == count
    assert len(sites.copies) == 150


def test_a_purge_while_it_is_held_is_seen_and_survives_the_hold(sites: Sites, agent: Agent) -> None:
    sites.send(100)
    agent.run()
    agent.reason = "the run is open"
    agent.run()

    sites.purge()
    agent.run()
    agent.reason = None
    agent.run(30.0)

    assert (agent.queue.seen.vanished, len(sites.copies)) == (100, 100)


def test_a_purge_while_both_sites_are_compared_is_seen(sites: Sites) -> None:
    sites.send(100)
    agent = Agent(sites)
    standby, listed = agent.pair._standby, agent.pair._standby.listed

    def purged_meanwhile(queue: str, before: Count | None) -> object:
        told = listed(queue, before)
        sites.purge(30)
        standby.listed = listed  # type: ignore[method-assign]
        return told

    standby.listed = purged_meanwhile  # type: ignore[method-assign, assignment]
    agent.run(30.0)

    assert (agent.queue.seen.vanished, len(sites.copies)) == (30, 100)


def test_what_vanished_between_two_agents_is_seen_by_the_second(sites: Sites, agent: Agent) -> None:
    sites.send(100)
    agent.run()
    remembered = agent.pair.remembers()
    agent.pair.close()
    sites.purge(20)

    second = Agent(sites, remembered).run(30.0)  # type: ignore[arg-type]

    assert (second.queue.seen.vanished, len(sites.copies)) == (20, 100)


def test_what_a_run_did_while_it_held_the_agent_is_counted_once(sites: Sites, agent: Agent) -> None:
    """A run deletes copies by the counters, and is shown messages: neither proves anything of other copies."""
    agent.noted |= {"shown": {Q: 3}, "deleted": {Q: 5}}
    agent.run()

    assert (agent.queue.account.shown, agent.queue.account.spent) == (3, 5)

    remembered = agent.pair.remembers()
    second = Agent(sites, remembered, **agent.noted).run()  # type: ignore[arg-type]
    assert (second.queue.account.shown, second.queue.account.spent) == (3, 5)

    agent.noted |= {"deleted": {Q: 6}}
    third = Agent(sites, remembered, **agent.noted).run()  # type: ignore[arg-type]
    assert (third.queue.account.shown, third.queue.account.spent) == (3, 6)


def test_what_was_deleted_while_the_site_waited_is_no_alarm(sites: Sites) -> None:
    sites.send(100)
    sites.copies = sites.held[20:]
    sites.purge(20)  # by the agent of the other direction, before this site served

    agent = Agent(sites).run()

    assert agent.queue.seen.vanished == 0
    assert sites.copies == sites.held


def test_what_somebody_answers_for_is_deleted(sites: Sites, agent: Agent) -> None:
    sites.send(100)
    agent.run()
    sites.purge(20)
    agent.run()

    agent.pair.go_on()
    agent.run(10.0)

    assert sites.copies == sites.held
    assert agent.queue.seen.vanished == 0


def test_nothing_is_deleted_while_it_is_held_and_everything_after(sites: Sites, agent: Agent) -> None:
    sites.send(100)
    agent.run()
    agent.reason = "a person said so"
    sites.consume(30)
    agent.run(10.0)
    assert len(sites.copies) == 100

    agent.reason = None
    agent.run(10.0)

    assert sites.copies == sites.held


def test_a_browse_that_ended_early_deletes_nothing(sites: Sites) -> None:
    sites.send(1000)
    sites.consume(100)
    sites.page = 400

    agent = Agent(sites).run(30.0)

    assert len(sites.copies) == 1000
    assert (agent.queue.seen.whole, "maxBrowsePageSize" in agent.queue.seen.why_not) == (False, True)


def test_it_ends_where_the_clients_doors_are_closed_after_the_last_ones(sites: Sites, agent: Agent) -> None:
    sites.send(100)
    agent.run()
    sites.consume(30)
    sites.is_open = False

    agent.run()

    assert "closed" in str(agent.pair.over)
    assert sites.copies == sites.held


def test_a_run_that_closes_the_doors_deletes_the_rest_itself(sites: Sites, agent: Agent) -> None:
    sites.send(100)
    agent.run()
    agent.reason = "the run is open"
    sites.consume(30)
    sites.is_open = False

    agent.run()

    assert agent.pair.over is not None
    assert len(sites.copies) == 100


def test_it_ends_where_the_serving_site_is_lost_for_good(sites: Sites, agent: Agent) -> None:
    sites.primary_gone = True

    agent.run(LOST_S + 5)

    assert "has not answered" in str(agent.pair.over)


def test_a_short_silence_is_made_up_for(sites: Sites, agent: Agent) -> None:
    sites.send(100)
    agent.run()
    sites.primary_gone = True
    agent.run(2.0)
    sites.consume(30)  # announced to nobody
    sites.primary_gone = False

    agent.run(20.0)

    assert agent.pair.over is None
    assert sites.copies == sites.held


def test_a_serving_broker_that_started_anew_counts_from_zero(sites: Sites, agent: Agent) -> None:
    sites.send(100)
    sites.consume(10)
    agent.run()
    sites.start, sites.dequeued, sites.dispatched = "second", 0, 0

    sites.consume(5)
    agent.run(20.0)

    assert agent.queue.seen.vanished == 0
    assert sites.copies == sites.held


def test_nothing_is_deleted_at_a_site_that_lets_clients_in_and_the_agent_ends(sites: Sites, agent: Agent) -> None:
    sites.send(100)
    agent.run()
    sites.primary.deaf()
    sites.consume(30)
    sites.standby_open = True

    agent.run(5.0)

    assert "lets clients in too" in str(agent.pair.over)
    assert len(sites.copies) == 100


def test_a_site_that_lets_clients_in_while_both_are_compared_keeps_all(sites: Sites) -> None:
    sites.send(100)
    sites.consume(30)
    agent = Agent(sites)
    standby, listed = agent.pair._standby, agent.pair._standby.listed

    def opened_meanwhile(queue: str, before: Count | None) -> object:
        sites.standby_open = True
        return listed(queue, before)

    standby.listed = opened_meanwhile  # type: ignore[method-assign, assignment]
    agent.run(5.0)

    assert len(sites.copies) == 100


def came_back(sites: Sites) -> None:
    sites.start, sites.dequeued, sites.dispatched = "second", 0, 0


def test_no_copy_is_deleted_for_a_serving_broker_that_came_back_without_its_store(sites: Sites, agent: Agent) -> None:
    sites.send(100)
    sites.consume(60)
    agent.run()
    came_back(sites)
    sites.held.clear()

    agent.run(20.0)
    sites.send(50)
    sites.consume(50)
    agent.run(20.0)

    assert (agent.queue.seen.vanished, len(sites.copies)) == (40, 90)


def test_what_was_consumed_unheard_before_a_new_start_stays_until_a_person_says_so(sites: Sites, agent: Agent) -> None:
    sites.send(100)
    agent.run()
    sites.primary.deaf()
    sites.consume(30)
    came_back(sites)
    sites.consume(10)

    agent.run(30.0)
    assert (agent.queue.seen.vanished, len(sites.copies)) == (30, 100)
    agent.pair.go_on()
    agent.run(10.0)

    assert (agent.queue.seen.vanished, sites.copies) == (0, sites.held)


def test_a_purge_and_what_was_consumed_before_it_are_told_apart_by_no_number(sites: Sites) -> None:
    sites.send(100)
    sites.consume(30)
    sites.purge(20)  # before any agent looked: its counters cover 30 of 50

    agent = Agent(sites).run(30.0)

    assert (agent.queue.seen.vanished, len(sites.copies)) == (20, 100)


def test_what_came_without_its_store_before_the_agent_did_is_not_deleted(sites: Sites) -> None:
    sites.send(40)
    came_back(sites)
    sites.held.clear()
    sites.send(100)
    sites.consume(90)

    agent = Agent(sites).run(20.0)

    assert (agent.queue.seen.vanished, len(sites.copies)) == (40, 140)


def test_no_copy_is_deleted_for_a_queue_that_was_made_again(sites: Sites, agent: Agent) -> None:
    sites.send(100)
    sites.consume(60)
    agent.run()
    sites.held.clear()  # not announced
    sites.dequeued = sites.dispatched = 0
    sites.send(10)
    sites.consume(10)
    agent.run()

    second = Agent(sites, agent.pair.remembers()).run(20.0)  # type: ignore[arg-type]

    assert (second.queue.seen.vanished, len(sites.copies)) == (40, 50)


def test_what_counters_had_confirmed_before_a_restart_is_deleted_after_it(sites: Sites, agent: Agent) -> None:
    sites.send(100)
    agent.run()
    sites.standby_gone = True
    sites.consume(30)
    agent.run()
    came_back(sites)
    agent.run()

    sites.standby_gone = False
    sites.consume(5)
    agent.run(20.0)

    assert sites.copies == sites.held
    assert agent.queue.seen.vanished == 0


def test_what_a_person_answers_for_needs_no_counter_and_takes_none_from_what_follows(
    sites: Sites, agent: Agent
) -> None:
    sites.send(100)
    agent.run()
    came_back(sites)
    sites.held = sites.held[40:]
    agent.run(5.0)
    assert agent.queue.seen.vanished == 40

    agent.pair.go_on()
    agent.run(10.0)
    sites.consume(10)
    agent.sites.primary.deaf()  # consumed unheard: found by a comparison
    agent.run(20.0)

    assert (agent.queue.seen.vanished, sites.copies) == (0, sites.held)


def test_a_waiting_site_that_was_away_is_cleaned_when_it_is_back(sites: Sites, agent: Agent) -> None:
    sites.send(100)
    agent.run()
    sites.standby_gone = True
    sites.consume(30)
    agent.run(10.0)
    assert agent.pair.standby_silent is not None

    sites.standby_gone = False
    agent.run(20.0)

    assert agent.pair.standby_silent is None
    assert sites.copies == sites.held


def test_doors_that_open_after_the_look_keep_all(sites: Sites) -> None:
    sites.send(100)
    sites.consume(30)
    agent = Agent(sites)
    standby, remove = agent.pair._standby, agent.pair._standby.remove

    def opened_meanwhile(queue: str, consumed: Consumed) -> int:
        sites.standby_open = True
        return remove(queue, consumed)

    standby.remove = opened_meanwhile  # type: ignore[method-assign]
    agent.run(5.0)

    assert "lets clients in too" in str(agent.pair.over)
    assert len(sites.copies) == 100


def test_where_the_policy_forbids_deletion_nothing_goes_until_it_allows_it(sites: Sites, agent: Agent) -> None:
    sites.forbids = True
    sites.send(100)
    sites.consume(30)
    agent.run(5.0)
    assert "forbidden" in str(agent.pair.refused)
    assert (len(sites.copies), agent.queue.seen.waiting, agent.pair.standby_silent) == (100, 30, None)

    sites.forbids = False
    agent.run(15.0)

    assert agent.pair.refused is None
    assert sites.copies == sites.held


def test_what_is_announced_to_nobody_is_told_and_found_by_comparisons(sites: Sites, agent: Agent) -> None:
    sites.announces = False
    sites.send(40)
    sites.consume(30)

    agent.run(8.0)

    assert agent.queue.seen.unheard == 30
    assert sites.copies == sites.held
    sites.announces = True
    sites.consume(5)
    agent.run(8.0)
    assert (agent.queue.seen.unheard, sites.copies) == (0, sites.held)


@pytest.mark.parametrize(("given_back", "wait_s", "purged"), [(50, 2.5, 50), (1000, 1.8, 999), (1000, 2.5, 500)])
def test_a_purge_soon_after_a_client_gave_messages_back_deletes_no_copy(
    sites: Sites, agent: Agent, given_back: int, wait_s: float, purged: int
) -> None:
    sites.send(1000)
    agent.run(15.0)

    sites.give_back(given_back)
    agent.run(wait_s)
    sites.purge(purged)
    agent.run(30.0)

    assert len(sites.copies) == 1000
    seen = agent.queue.seen
    assert seen.vanished or seen.unproven == purged


def test_a_purge_beside_clients_that_give_back_all_the_time_deletes_no_copy(sites: Sites, agent: Agent) -> None:
    sites.send(1000)
    for _ in range(20):
        sites.give_back(5)
        agent.run(1.0)

    sites.purge(40)
    for _ in range(20):
        sites.give_back(5)
        agent.run(1.0)

    assert len(sites.copies) == 1000


def test_what_no_look_could_tell_goes_by_a_persons_word(sites: Sites, agent: Agent) -> None:
    sites.send(1000)
    agent.run(15.0)
    sites.give_back(50)
    agent.run(2.5)
    sites.purge(50)
    agent.run(10.0)
    assert agent.queue.seen.unproven == 50

    agent.pair.go_on()
    agent.run(10.0)

    assert (agent.queue.seen.unproven, sites.copies) == (0, sites.held)


def test_a_connection_that_was_cut_is_made_anew(sites: Sites, agent: Agent) -> None:
    sites.send(100)
    agent.run()
    sites.primary.deaf()
    sites.consume(30)

    agent.run(LOST_S + 5)

    assert agent.pair.over is None
    assert sites.copies == sites.held


def test_memory_is_bounded_and_what_was_let_go_is_found_again() -> None:
    queue = Queue("orders-1", Q, Account())
    queue.to_compare = False

    for number in range(AT_MOST + 1):
        queue.hear(f"ID:{number}")

    assert (len(queue.announced), queue.to_compare) == (0, True)


acts = st.lists(st.tuples(st.sampled_from(["send", "consume", "give back", "hold", "run"]), st.integers(1, 30)))


@settings(max_examples=150)
@given(acts)
def test_whatever_clients_do_no_live_copy_is_lost_and_none_is_left(
    acts: list[tuple[str, int]],
) -> None:
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

    clock: Time
    names: list[str]
    looks: int = 0
    listings: int = 0
    removed: int = 0
    followed: bool = False

    def glance(self) -> Glance:
        self.looks += 1
        consumed, one = Counters(1, 0, 1, 0), Count(1, 2, 1)
        return Glance(
            "first", True, dict.fromkeys(self.names, consumed), dict.fromkeys(self.names, one),
            dict.fromkeys(self.names, Count(0, 2, 2)),
        )  # fmt: skip

    def counts(self) -> There:
        return There(dict.fromkeys(self.names, Count(2, 2, 0)), {})

    def listed(self, queue: str, before: Count | None) -> Listed:
        """A listing takes its time."""
        self.listings += 1
        self.clock.at += 0.01
        ids = frozenset({f"{queue}:1", f"{queue}:2"} if before is not None else {f"{queue}:2"})
        return Listed(ids, Whole(queue, ids, len(ids), len(ids)))

    def unshipped(self, queue: str, before: Count | None) -> Listed:
        return Listed(frozenset(), Whole(queue, frozenset(), 0, 0))

    def listen(self, queues: Sequence[str]) -> Sequence[str]:
        fresh, self.followed = not self.followed, True
        return queues if fresh else []

    def heard(self, within_s: float) -> Sequence[tuple[str, str]]:
        self.clock.at += within_s
        return []

    def is_open(self) -> bool:
        return False

    def remove(self, queue: str, consumed: Consumed) -> int:
        self.removed += len(consumed.ids)
        return len(consumed.ids)

    def deaf(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("queues", [100, 1000])
def test_many_queues_are_compared_in_small_portions_and_each_once(queues: int) -> None:
    many = Many(Time(), [f"q.{number}" for number in range(queues)])
    pair = Pair("orders-1", many, many, many.clock, {})
    longest = 0.0

    while many.removed < queues and many.clock.at < 1000.0 + queues:
        at = many.clock.at
        pair.step(lambda: None)
        longest = max(longest, many.clock.at - at)

    assert many.listings == 2 * queues
    assert many.looks <= 2 * SURE + 2 * queues * 0.01 / 0.3 * 2
    assert longest < 1.0
