"""The agent on two real Classic brokers that copy to each other: killed, held, misled, late."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.clock import SystemClock
from dr_ctl.engine.runs import Runs
from dr_ctl.stomp_io.connection import Connection
from dr_ctl.stomp_io.knock import knock
from dr_ctl_lab.lab.classic.admin import ClassicAdmin
from dr_ctl_lab.lab.kinds import BROKERSYNC
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, end_all, until
from tests.twin.classic_subject import ClassicSubject

pytestmark = [pytest.mark.broker, pytest.mark.deep]

Q = "orders.in"


def admin(lab: Lab, site: str) -> ClassicAdmin:
    return ClassicAdmin(lab.site(site))


def depths(lab: Lab) -> tuple[int, int]:
    return admin(lab, "london").depth(Q), admin(lab, "paris").depth(Q)


def alike(lab: Lab, count: int) -> bool:
    return depths(lab) == (count, count)


def send(lab: Lab, count: int) -> None:
    site = lab.site("london")
    _, connection = knock(site.stomp, site.app, None, timeout_s=5)
    assert connection is not None
    for number in range(count):
        more = {"receipt": "last"} if number == count - 1 else {}
        connection.stomp.send(f"/queue/{Q}", f"order {number}", headers={"persistent": "true", **more})
    until(lambda: any(frame.cmd == "RECEIPT" for frame in connection.receive(0.1)))
    connection.close()


def consume(lab: Lab, count: int) -> None:
    """Each acknowledgement confirmed."""
    site = lab.site("london")
    _, connection = knock(site.stomp, site.app, None, timeout_s=5)
    assert connection is not None
    connection.stomp.subscribe(f"/queue/{Q}", "taking", "client-individual", {"activemq.prefetchSize": "10"})
    left, confirmed = count, 0
    while confirmed < count:
        for frame in connection.receive(5.0):
            confirmed += frame.cmd == "RECEIPT"
            if frame.cmd == "MESSAGE" and left:
                connection.stomp.ack(frame.headers["ack"], receipt="acked")
                left -= 1
    connection.close()


class Agent(Operator):
    """An operator that has the agent run, and reads what it writes down."""

    def up(self) -> Any:
        process = self.start("sync")
        until(lambda: self.standing().get("pid") == process.pid and self.standing()["queues"], why="the agent looks")
        return process

    def standing(self) -> dict[str, Any]:
        path = self.state / "sync.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def queue(self) -> dict[str, Any]:
        (told,) = self.standing()["queues"]
        return told

    def compared_again(self) -> None:
        before = self.standing()["at"]
        until(lambda: (self.queue()["compared"] or "") > before, why="both sites are compared")

    def stays(self, lab: Lab, copies: int, looks: int = 5) -> None:
        """So many copies are left, over that many looks of the agent."""
        for _ in range(looks):
            at = self.standing()["at"]
            until(lambda at=at: self.standing()["at"] > at, why="the agent writes")
        assert admin(lab, "paris").depth(Q) == copies


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab.up(tmp_path_factory.mktemp("sync") / "lab", topology=BROKERSYNC, queues=(Q,)) as up:
        yield up


@pytest.fixture
def lab(shared: Lab) -> Lab:
    shared.open_clients("london")
    for site in ("london", "paris"):
        admin(shared, site).purge(Q)
    return shared


@pytest.fixture
def agent(lab: Lab, tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(lab, tmp_path / "state")
    assert agent.run("sync", "--go-on").code == 0  # the queues were purged
    yield agent
    end_all()


def test_a_standby_loses_what_was_consumed_and_nothing_else(lab: Lab, agent: Agent) -> None:
    agent.up()

    send(lab, 500)
    consume(lab, 200)

    until(lambda: alike(lab, 300), why="200 copies are deleted")
    until(lambda: agent.queue()["deleted"] == 200)
    assert set(admin(lab, "paris").ids(Q)) == set(admin(lab, "london").ids(Q))
    assert agent.standing()["phase"] == "running"


def test_killed_in_mid_traffic_and_started_again_it_leaves_no_residue(lab: Lab, agent: Agent) -> None:
    process = agent.up()

    with lab.load(300, queues=[Q], producers=1, consumers=1) as load:
        load.wait_for(500)
        process.kill()
        process.wait(10)
        load.wait_for(1000)
        agent.up()
        load.wait_for(1500)
        verdict = load.stop()

    assert verdict.clean
    until(lambda: alike(lab, 0), why="nothing is left")


def test_a_late_agent_deletes_what_was_consumed_before_it_came(lab: Lab, agent: Agent) -> None:
    send(lab, 3000)
    until(lambda: alike(lab, 3000))
    consume(lab, 2500)

    agent.up()

    until(lambda: alike(lab, 500), why="2500 copies are deleted")
    until(lambda: agent.queue()["whole"] is True)


def test_copies_still_on_their_way_are_deleted_once_they_arrive(lab: Lab, agent: Agent) -> None:
    admin(lab, "london").stop_link("paris")
    try:
        send(lab, 50)
        consume(lab, 20)
        agent.up()

        until(lambda: agent.queue()["waiting"] == 20, why="they are waited for")
    finally:
        admin(lab, "london").start_link("paris")

    until(lambda: alike(lab, 30), why="20 copies came and were deleted")


def test_a_purge_under_a_run_deletes_no_copy(lab: Lab, agent: Agent) -> None:
    agent.up()
    send(lab, 100)
    until(lambda: alike(lab, 100))
    run = Runs(agent.state, SystemClock()).create("swapover", "paris")
    run.journal.touch()
    until(lambda: agent.standing()["held_by"] == run.name, why="the run holds it")

    admin(lab, "london").purge(Q)
    until(lambda: agent.queue()["vanished"] == 100, why="it is seen")
    run.result.touch()

    until(lambda: agent.standing()["held_by"] is None)
    agent.stays(lab, 100)
    assert agent.standing()["phase"] == "held"
    assert [each["id"] for each in agent.standing()["findings"]] == ["DR-AGENT-001"]

    assert agent.run("sync", "--go-on").code == 0
    until(lambda: alike(lab, 0), why="somebody answered for it")


def test_what_was_moved_by_hand_holds_it_by_itself(lab: Lab, agent: Agent) -> None:
    agent.up()
    send(lab, 100)
    until(lambda: alike(lab, 100))

    admin(lab, "london").move(Q, "put.aside", most=7)

    until(lambda: agent.standing()["phase"] == "held", why="7 left by no client")
    consume(lab, 3)
    agent.stays(lab, 100)
    assert agent.queue()["vanished"] == 7


def test_what_vanished_while_no_agent_ran_is_not_deleted(lab: Lab, agent: Agent) -> None:
    first = agent.up()
    send(lab, 100)
    until(lambda: alike(lab, 100))
    first.send_signal(signal.SIGTERM)
    assert first.wait(10) == 0

    admin(lab, "london").purge(Q)
    agent.up()

    until(lambda: agent.standing()["phase"] == "held", why="100 left by no client")
    agent.stays(lab, 100)


def test_a_person_holds_it_and_lets_it_go_on(lab: Lab, agent: Agent) -> None:
    agent.up()
    send(lab, 20)
    until(lambda: alike(lab, 20))

    assert agent.run("sync", "--hold", "cleaning up").code == 0
    until(lambda: agent.standing()["phase"] == "held")
    consume(lab, 5)
    agent.stays(lab, 20)

    assert agent.run("sync", "--go-on").code == 0
    until(lambda: alike(lab, 15))


def test_it_ends_when_its_site_is_fenced(lab: Lab, agent: Agent) -> None:
    process = agent.up()

    lab.close_clients("london")

    assert process.wait(30) == 0
    assert agent.standing()["phase"] == "finished"
    assert "closed" in agent.standing()["why"]


def test_a_second_agent_is_refused(lab: Lab, agent: Agent) -> None:
    agent.up()

    second = agent.run("sync")

    assert second.code == 13
    assert "an agent runs already" in second.told


def test_without_a_serving_site_there_is_nothing_to_follow(lab: Lab, agent: Agent) -> None:
    lab.close_clients("london")

    ended = agent.run("sync")

    assert (ended.code, ended.document["findings"][0]["id"]) == (10, "DR-AGENT-004")


def test_announcements_that_were_cut_off_are_made_up_for(lab: Lab, agent: Agent) -> None:
    agent.up()
    send(lab, 50)
    until(lambda: alike(lab, 50))

    admin(lab, "london").close_clients("sync")
    until(lambda: "london" in agent.standing()["silent"], why="it is said")
    consume(lab, 20)
    admin(lab, "london").open_clients("sync")

    until(lambda: alike(lab, 30), why="20 copies are deleted")
    assert agent.standing()["phase"] == "running"


def test_a_standby_that_was_away_is_clean_when_it_is_back(lab: Lab, agent: Agent) -> None:
    agent.up()
    send(lab, 100)
    until(lambda: alike(lab, 100))
    lab.kill("paris")

    consume(lab, 40)
    until(lambda: "paris" in agent.standing()["silent"], why="it is said")
    lab.start("paris")

    until(lambda: alike(lab, 60), within_s=60, why="40 copies are deleted")


def test_the_copies_stay_where_the_serving_broker_came_back_without_its_store(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", topology=BROKERSYNC, queues=(Q,)) as lab:
        agent = Agent(lab, tmp_path / "state")
        first = agent.up()
        send(lab, 100)
        consume(lab, 30)
        until(lambda: alike(lab, 70), why="30 copies are deleted")
        first.send_signal(signal.SIGTERM)
        assert first.wait(10) == 0

        lab.kill("london")
        shutil.rmtree(lab.instance("london") / "data" / "kahadb")
        lab.start("london")
        lab.open_clients("london")
        send(lab, 20)
        consume(lab, 10)
        agent.up()

        until(lambda: agent.standing()["phase"] == "held", why="no counter covers 70 copies")
        agent.stays(lab, 90)
        assert agent.queue()["vanished"] == 70
        assert [each["id"] for each in agent.standing()["findings"]] == ["DR-AGENT-001"]
        end_all()


def test_a_person_keeps_aside_what_nothing_proves_and_puts_it_back(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", topology=BROKERSYNC, queues=(Q,)) as lab:
        operator = Operator(lab, tmp_path / "state")
        settle = ("sync", "--settle", "--site", "paris")
        send(lab, 50)
        until(lambda: alike(lab, 50))

        admin(lab, "london").move(Q, "ActiveMQ.DLQ", most=10)
        alone = sorted({*admin(lab, "paris").ids(Q)} - {*admin(lab, "london").ids(Q)})
        shown = operator.run(*settle, "--dry-run").document["data"]["queues"]
        aside = operator.run(*settle, "--yes", "--reason", "CHG-1: looked at each")

        assert [each["ids"] for each in shown] == [alone]
        assert (len(alone), aside.code, depths(lab)) == (10, 0, (40, 40))
        assert "--put-back" in operator.run("status").told

        taker = acknowledges_in_a_transaction(lab, 15)
        hidden = operator.run(*settle, "--dry-run").document["data"]["queues"]
        taker.close()
        until(lambda: len(admin(lab, "london").ids(Q)) == 40, why="the broker has rolled it back")

        assert [(each["ids"], "shows 25 of them" in each["why_not"]) for each in hidden] == [([], True)]

        moved = operator.run("swapover", "--to", "paris", "--yes")
        back = operator.run(*settle, "--put-back", "--yes", "--reason", "CHG-1: never done")

        assert (moved.code, back.code, depths(lab)) == (0, 0, (40, 50)), (moved.told, back.told)
        assert {*alone} < {*admin(lab, "paris").ids(Q)}
        end_all()


def acknowledges_in_a_transaction(lab: Lab, count: int) -> Connection:
    """A client that has acknowledged so many messages, and has not ended its transaction: no browse shows these."""
    site = lab.site("london")
    _, connection = knock(site.stomp, site.app, None, timeout_s=5)
    assert connection is not None
    connection.stomp.begin("open")
    connection.stomp.subscribe(f"/queue/{Q}", "taking", "client-individual", {"activemq.prefetchSize": "1"})
    confirmed = taken = 0
    while confirmed < count:
        for frame in connection.receive(5.0):
            confirmed += frame.cmd == "RECEIPT"
            if frame.cmd == "MESSAGE" and taken < count:
                connection.stomp.ack(frame.headers["ack"], transaction="open", receipt=f"acked-{taken}")
                taken += 1
    return connection


def test_copies_of_messages_in_an_open_transaction_stay(lab: Lab, agent: Agent) -> None:
    send(lab, 100)
    until(lambda: alike(lab, 100))
    subject = ClassicSubject(lab)
    with subject.client("london") as held:
        held.subscribe(Q, **{"activemq.prefetchSize": "20"})
        held.connection.stomp.send_frame("BEGIN", {"transaction": "t1"}, "")
        hidden = set()
        for _ in range(20):
            message = held.message()
            hidden.add(message.headers["message-id"])
            held.confirmed("ACK", id=message.headers["ack"], transaction="t1")
        assert not hidden & set(subject.ids("london", Q)), "no listing shows them"

        with lab.load(300, queues=[Q], producers=1, consumers=0) as load:
            load.wait_for(300)
            agent.up()
            agent.compared_again()
            agent.compared_again()
            load.stop()
        subject.settled()
        agent.compared_again()
        assert (agent.queue()["unproven"], agent.queue()["whole"]) == (20, False)
        assert hidden <= set(subject.ids("paris", Q))

        held.connection.stomp.send_frame("ABORT", {"transaction": "t1"}, "")

    until(lambda: hidden <= set(subject.ids("london", Q)), why="the abort brings them back")
    until(lambda: agent.queue()["whole"] is True, why="all is shown again")
    assert hidden <= set(subject.ids("paris", Q))
    assert set(subject.ids("paris", Q)) == set(subject.ids("london", Q))
    assert (agent.queue()["deleted"], agent.queue()["unproven"]) == (0, 0)


@pytest.mark.parametrize("policy", ["hardened"])
def test_where_the_console_may_not_delete_nothing_is_taken_and_given_back(tmp_path: Path, policy: str) -> None:
    with Lab.up(tmp_path / "lab", topology=BROKERSYNC, queues=(Q,), options={"policy": policy}) as lab:
        agent = Agent(lab, tmp_path / "state")
        agent.up()
        subject = ClassicSubject(lab)

        send(lab, 150)
        consume(lab, 50)

        until(lambda: agent.queue()["waiting"] == 50, why="50 copies wait")
        agent.stays(lab, 150)
        assert agent.queue()["whole"] is False
        (finding,) = agent.standing()["findings"]
        assert finding["id"] == "DR-AGENT-003"
        assert "<operation>removeMatchingMessages</operation>" in finding["remedy"]
        rows = subject.done("paris", subject.queue("paris", Q), "browse()")
        assert [row["JMSRedelivered"] for row in rows] == [False] * 150
        end_all()
