"""The agent of one pair on brokers in memory: what it deletes, and above all what it does not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dr_ctl.topologies.brokersync.sync.accounts import Account
from dr_ctl.topologies.brokersync.sync.pair import LOST_S, Pair
from dr_ctl.topologies.brokersync.sync.queue import AT_MOST, Queue
from tests.topologies.brokersync.sync.fakes import Q, Sites


class Agent:
    """One agent, stepped for so long."""

    def __init__(self, sites: Sites, remembered: dict[str, object] | None = None) -> None:
        self.sites, self.reason = sites, None
        self.pair = Pair("orders-1", sites.primary, sites.standby, sites.clock, remembered or {})  # type: ignore[arg-type]

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

    Agent(sites).run()

    assert sites.copies == sites.held
    assert len(sites.held) == 6


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
    standby, browse = agent.pair._standby, agent.pair._standby.browse

    def purged_meanwhile(queue: str) -> object:
        told = browse(queue)
        sites.purge(30)
        standby.browse = browse  # type: ignore[method-assign]
        return told

    standby.browse = purged_meanwhile  # type: ignore[method-assign, assignment]
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
    standby, browse = agent.pair._standby, agent.pair._standby.browse

    def opened_meanwhile(queue: str) -> object:
        sites.standby_open = True
        return browse(queue)

    standby.browse = opened_meanwhile  # type: ignore[method-assign, assignment]
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

    assert (second.queue.seen.vanished, len(sites.copies)) == (40, 40)


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


def test_a_comparison_that_did_not_see_all_lets_nothing_go_that_waits(sites: Sites) -> None:
    queue = Queue("orders-1", Q, Account(allowed=2))
    queue.waiting.add(["ID:1", "ID:2"])

    queue.compared(sites.clock.now(), frozenset({"ID:2", "ID:3"}), "a browse ended early")
    assert (queue.seen.waiting, queue.seen.whole) == (3, False)

    queue.compared(sites.clock.now(), frozenset({"ID:2"}), "")
    assert (queue.seen.waiting, queue.seen.whole) == (1, True)


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
