"""The agent's loop: who holds it, what it writes down, what somebody else reads of that."""

import json
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from dr_ctl.agents.exposing import Metric, Shown, exposing
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


PERSON, OWN = ("an operator", "a purge to come"), (BY_AGENT, "3 message(s)")


@pytest.mark.parametrize(
    ("acts", "phase", "by"),
    [
        ([PERSON], Phase.HELD, PERSON),
        ([PERSON, VANISHED], Phase.HELD, PERSON),
        ([VANISHED], Phase.HELD, OWN),
        # Its own hold tells what the later looks found.
        ([VANISHED, Kept([QueueKept("orders-1", "orders.in", vanished=42)])], Phase.HELD, (BY_AGENT, "42 message(s)")),
        # One of the same moment does not outlive a person's word; a person's that comes after it counts.
        (["word", OWN], Phase.RUNNING, None),
        (["word", PERSON], Phase.HELD, PERSON),
        (["unreadable"], Phase.HELD, ("somebody", "cannot be read")),
    ],
)
def test_a_hold_holds_it_until_somebody_answers_for_it(
    agent: SyncAgent, keeper: Keeper, notes: Notes, acts: list[Any], phase: Phase, by: tuple[str, str] | None
) -> None:
    for act in acts:
        if isinstance(act, Kept):
            keeper.kept = act
            agent.step()
        elif isinstance(act, tuple):
            notes.put_hold(*act, CLOCK.now())
        elif act == "word":
            notes.go_on(CLOCK.now())
        else:
            (notes.state / "sync-hold.json").write_text("{")

    assert agent.step().phase is phase
    assert (agent.held() is None) is (phase is Phase.RUNNING)
    hold = notes.hold()
    if by is not None:
        assert hold is not None
        assert (hold.by, by[1] in hold.reason) == (by[0], True), hold


def test_it_goes_on_once_where_somebody_answers_for_it(agent: SyncAgent, keeper: Keeper, notes: Notes) -> None:
    keeper.kept = VANISHED
    agent.step()

    notes.go_on(CLOCK.now())

    assert [agent.step().phase for _ in range(2)] == [Phase.RUNNING, Phase.RUNNING]
    assert keeper.gone_on == 1


def test_its_end_is_written_down(agent: SyncAgent, keeper: Keeper, notes: Notes) -> None:
    keeper.kept = Kept(over="london is lost")

    assert agent.step().phase is Phase.FINISHED
    assert (notes.read()["phase"], notes.read()["why"]) == ("finished", "london is lost")


def test_there_is_one_agent_for_a_state(notes: Notes) -> None:
    with notes.only_agent(), pytest.raises(Locked), notes.only_agent():
        pass
    with notes.only_agent():
        pass


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
