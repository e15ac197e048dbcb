"""The agent's loop: who holds it, what it writes down, what somebody else reads of that."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError

import pytest
from prometheus_client import generate_latest

from dr_ctl.agents.exposing import UNKNOWN, Board, Metric, Shown, exposing, registry_of
from dr_ctl.agents.sync import Phase, SyncAgent
from dr_ctl.core.clock import SystemClock
from dr_ctl.core.errors import UsageError
from dr_ctl.engine.notes import BY_AGENT, Notes
from dr_ctl.engine.runs import Locked, Runs
from dr_ctl.topologies.topology import Kept, QueueKept

CLOCK = SystemClock()


class Keeper:
    """Implements `Keeper`: says what it is told to."""

    def __init__(self) -> None:
        self.kept = Kept([QueueKept("orders-1", "orders.in", deleted=7)])
        self.gone_on = 0

    def step(self, held: Callable[[], str | None]) -> Kept:
        return self.kept

    def go_on(self) -> None:
        self.gone_on += 1
        self.kept = Kept([QueueKept("orders-1", "orders.in")])

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def keeper() -> Keeper:
    return Keeper()


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path / "state")


@pytest.fixture
def agent(keeper: Keeper, notes: Notes) -> SyncAgent:
    notes.state.mkdir()
    return SyncAgent(keeper, Runs(notes.state, CLOCK), notes, CLOCK, {"primary": "london", "standby": "paris"})


VANISHED = Kept([QueueKept("orders-1", "orders.in", vanished=3)])


def test_it_writes_down_how_it_stands(agent: SyncAgent, notes: Notes) -> None:
    agent.step()

    told = notes.read()
    assert (told["phase"], told["primary"], told["queues"][0]["deleted"]) == ("running", "london", 7)


def test_an_open_run_holds_it_until_it_has_ended(agent: SyncAgent, notes: Notes) -> None:
    run = Runs(notes.state, CLOCK).create("swapover", "paris")
    run.journal.touch()

    assert (agent.step().phase, notes.read()["held_by"]) == (Phase.HELD, run.name)
    assert agent.held() is not None

    run.result.touch()
    assert (agent.step().phase, agent.held()) == (Phase.RUNNING, None)


def test_its_own_hold_tells_what_the_later_looks_found(agent: SyncAgent, keeper: Keeper, notes: Notes) -> None:
    keeper.kept = VANISHED
    agent.step()
    first = notes.hold()

    keeper.kept = Kept([QueueKept("orders-1", "orders.in", vanished=42)])
    agent.step()

    hold = notes.hold()
    assert hold is not None
    assert first is not None
    assert (hold.by, hold.since, hold.reason[:13]) == (BY_AGENT, first.since, "42 message(s)")


def test_a_persons_hold_stays_as_it_is(agent: SyncAgent, keeper: Keeper, notes: Notes) -> None:
    notes.put_hold("an operator", "a purge to come", CLOCK.now())
    keeper.kept = VANISHED

    agent.step()

    hold = notes.hold()
    assert hold is not None
    assert (hold.by, hold.reason) == ("an operator", "a purge to come")


def test_a_person_holds_it(agent: SyncAgent, notes: Notes) -> None:
    notes.put_hold("an operator", "a purge", CLOCK.now())

    assert "a purge" in str(agent.held())
    assert agent.step().phase is Phase.HELD


def test_what_vanished_holds_it_also_after_its_death(agent: SyncAgent, keeper: Keeper, notes: Notes) -> None:
    keeper.kept = VANISHED
    agent.step()

    hold = notes.hold()
    assert hold is not None
    assert (hold.by, "3 message(s)" in hold.reason) == (BY_AGENT, True)
    assert agent.step().phase is Phase.HELD


def test_it_goes_on_once_where_somebody_answers_for_it(agent: SyncAgent, keeper: Keeper, notes: Notes) -> None:
    keeper.kept = VANISHED
    agent.step()

    notes.go_on(CLOCK.now())

    assert [agent.step().phase for _ in range(2)] == [Phase.RUNNING, Phase.RUNNING]
    assert keeper.gone_on == 1


def test_a_hold_of_its_own_of_the_same_moment_does_not_outlive_the_word(agent: SyncAgent, notes: Notes) -> None:
    notes.go_on(CLOCK.now())
    notes.put_hold(BY_AGENT, "3 message(s)", CLOCK.now())

    assert agent.step().phase is Phase.RUNNING


def test_a_hold_that_comes_after_the_word_counts(agent: SyncAgent, notes: Notes) -> None:
    notes.go_on(CLOCK.now())
    notes.put_hold("an operator", "another purge", CLOCK.now())

    assert agent.step().phase is Phase.HELD


def test_a_hold_that_cannot_be_read_holds(agent: SyncAgent, notes: Notes) -> None:
    (notes.state / "sync-hold.json").write_text("{")

    assert agent.step().phase is Phase.HELD


def test_its_end_is_written_down(agent: SyncAgent, keeper: Keeper, notes: Notes) -> None:
    keeper.kept = Kept(over="london is lost")

    assert agent.step().phase is Phase.FINISHED
    assert (notes.read()["phase"], notes.read()["why"]) == ("finished", "london is lost")


def test_there_is_one_agent_for_a_state(notes: Notes) -> None:
    with notes.only_agent(), pytest.raises(Locked), notes.only_agent():
        pass
    with notes.only_agent():
        pass


def test_figures_are_in_the_format_of_prometheus() -> None:
    board = Board()
    board.shown = Shown(
        True,
        {},
        [
            Metric("dr_ctl_sync_deleted_total", "copies deleted", 7, (("queue", 'say "hi"'),)),
            Metric("dr_ctl_sync_held", "1 while held", UNKNOWN),
            Metric("dr_ctl_sync_deleted_total", "copies deleted", 1_000_001, (("queue", "b"),)),
        ],
    )

    assert generate_latest(registry_of(board)).decode().splitlines() == [
        "# HELP dr_ctl_sync_deleted_total copies deleted",
        "# TYPE dr_ctl_sync_deleted_total counter",
        'dr_ctl_sync_deleted_total{queue="say \\"hi\\""} 7.0',
        'dr_ctl_sync_deleted_total{queue="b"} 1.000001e+06',
        "# HELP dr_ctl_sync_held 1 while held",
        "# TYPE dr_ctl_sync_held gauge",
        "dr_ctl_sync_held NaN",
    ]


def test_figures_and_health_are_served(free_port: int) -> None:
    with exposing(f"127.0.0.1:{free_port}") as board:
        with pytest.raises(HTTPError) as refused:
            _get(free_port, "/health")
        assert refused.value.code == 503
        refused.value.close()

        board.shown = Shown(well=True, health={"phase": "running"}, metrics=[Metric("one", "a figure", 1)])

        assert json.loads(_get(free_port, "/health")) == {"phase": "running"}
        assert json.loads(_get(free_port, "/ready")) == {"phase": "running"}
        assert "one 1.0" in _get(free_port, "/metrics")
        head = urllib.request.Request(f"http://127.0.0.1:{free_port}/metrics", method="HEAD")
        with urllib.request.urlopen(head, timeout=5) as answer:
            assert (answer.status, answer.read()) == (200, b"")

        for shown in (
            Shown(well=True, health={}, metrics=[], ready=False),
            Shown(well=True, health={}, metrics=[], good_for_s=0.0),
        ):
            board.shown = shown
            with pytest.raises(HTTPError) as refused:
                _get(free_port, "/ready")
            assert (refused.value.code, _get(free_port, "/health")) == (503, "{}")
            refused.value.close()


@pytest.mark.parametrize("address", ["9410", "127.0.0.1:", "127.0.0.1:many"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(UsageError), exposing(address):
        pass


def _get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return str(answer.read().decode())


@pytest.fixture
def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])
