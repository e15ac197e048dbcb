"""The agent on two real Classic brokers that copy to each other: killed, and late."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dr_ctl_lab.lab.kinds import BROKERSYNC
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, until
from tests.twin.subject import ClassicSubject

pytestmark = [pytest.mark.broker, pytest.mark.deep]

Q = "orders.in"


class Agent(Operator):
    lab: Lab

    def __init__(self, lab: Lab, state: Path) -> None:
        super().__init__(lab, state)
        self.sites = ClassicSubject(lab)

    def up(self) -> subprocess.Popen[str]:
        process = self.start("sync")
        until(lambda: self.standing().get("pid") == process.pid and self.standing()["queues"], why="the agent looks")
        return process

    def standing(self) -> dict[str, Any]:
        path = self.state / "sync.json"
        return json.loads(path.read_text()) if path.exists() else {}

    @property
    def row(self) -> dict[str, Any]:
        return dict(self.standing()["queues"][0])

    def lying(self) -> list[int]:
        return [self.sites.depth(site, Q) for site in ("london", "paris")]

    def come_to(self, london: int, paris: int, why: str = "copies are deleted", within_s: float = 30.0) -> None:
        until(lambda: self.lying() == [london, paris], why=why, within_s=within_s)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab.up(tmp_path_factory.mktemp("sync") / "lab", topology=BROKERSYNC, queues=(Q,)) as up:
        yield up


@pytest.fixture
def agent(shared: Lab, tmp_path: Path) -> Agent:
    agent = Agent(shared, tmp_path / "state")
    shared.open_clients("london")
    for site in ("london", "paris"):
        agent.sites.done(site, agent.sites.queue(site, Q), "purge()")
    assert agent.run("sync", "--go-on").code == 0  # the queues were purged
    return agent


def test_a_standby_loses_what_was_consumed_and_nothing_else_whatever_was_away(agent: Agent) -> None:
    agent.sites.fill("london", 50)
    agent.sites.take("london", 20)
    agent.up()  # late
    agent.come_to(30, 30)

    agent.sites.done("london", agent.sites.connector("london", "sync"), "stop()")
    until(lambda: "london" in agent.standing()["silent"], why="its announcements are cut off")
    agent.sites.take("london", 5)
    agent.sites.done("london", agent.sites.connector("london", "sync"), "start()")
    agent.come_to(25, 25)

    agent.lab.kill("paris")
    agent.sites.take("london", 5)
    until(lambda: "paris" in agent.standing()["silent"], why="it is said")
    agent.lab.start("paris")
    agent.come_to(20, 20, within_s=60)

    assert {*agent.sites.ids("paris", Q)} == {*agent.sites.ids("london", Q)}
    assert agent.standing()["phase"] == "running"
    second = agent.run("sync")
    assert (second.code, "an agent runs already" in second.told) == (13, True)


def test_killed_in_mid_traffic_and_started_again_it_leaves_no_residue_and_ends_with_its_site(agent: Agent) -> None:
    process = agent.up()

    with agent.lab.load(300, queues=[Q], producers=1, consumers=1) as load:
        load.wait_for(500)
        process.kill()
        process.wait(10)
        if agent.row["unproven"]:  # else the next agent holds
            assert agent.run("sync", "--go-on").code == 0
        consumed = load.wait_for(1000).consumed
        process = agent.up()
        load.wait_for(1500)
        assert load.stop().clean

    # Where the broker is slow, the counters leave some announcements in doubt: those copies stay, and are told.
    level = {"whole": True, "waiting": 0, "unconfirmed": 0, "vanished": 0}
    until(lambda: level.items() <= agent.row.items() and agent.lying() == [0, agent.row["unproven"]], why="all is told")
    left = agent.sites.ids("paris", Q)
    assert all(int(id_.rsplit(":", 1)[1]) > consumed for id_ in left)  # what no agent heard of is proven
    assert ("DR-AGENT-007" in [finding["id"] for finding in agent.standing()["findings"]]) == bool(left)
    assert agent.run("sync", "--settle", "--site", "paris", "--reason", "the load says so", "--yes").code == 0
    agent.come_to(0, 0, within_s=0)

    agent.lab.close_clients("london")

    assert process.wait(30) == 0
    assert (agent.standing()["phase"], "closed" in agent.standing()["why"]) == ("finished", True)
