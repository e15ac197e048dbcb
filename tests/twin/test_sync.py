"""`dr-ctl sync` as a command, on simulated brokers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.agents.sync import Standing, SyncAgent
from dr_ctl.cli.app import run
from dr_ctl.core.system import beside, system
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.classic.brokersync.broker import BrokerSyncBroker
from dr_ctl_lab.twin.kinds import BROKERSYNC
from tests.conftest import Command, Ended
from tests.patience import time_now
from tests.twin.classic_subject import ORDERS, ClassicSubject
from tests.twin.subject import until

TOPOLOGY = BROKERSYNC


@pytest.fixture
def pair(twin: PlayedTwin) -> ClassicSubject:
    """Without the twin's own agent."""
    for broker in twin.brokers(BrokerSyncBroker):
        if broker.agent is not None:
            broker.agent.stop()
    return ClassicSubject(twin)


def follow(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, Any]]]:
    """Its exit code, and the documents that it wrote, a line each."""
    capsys.readouterr()
    code = run(["sync", *words, "--json"], time_now())
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def work(pair: ClassicSubject, sent: int, consumed: int) -> None:
    with pair.client("london") as client:
        for _ in range(sent):
            client.send(ORDERS)
        client.subscribe(ORDERS, **{"activemq.prefetchSize": "1"})
        for _ in range(consumed):
            client.confirmed("ACK", id=client.message().headers["ack"])
    until(lambda: pair.depth("paris", ORDERS) == sent)


def test_it_deletes_what_was_consumed_and_says_so(
    pair: ClassicSubject, dr_ctl: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    work(pair, 10, 4)

    code, (*lines, last) = follow(capsys, "--for", "2s")

    assert (code, last["outcome"], last["data"]["deleted"], last["data"]["left"]) == (0, "ok", 4, 0)
    assert lines[0]["primary"] == "london"
    assert set(pair.ids("paris")) == set(pair.ids("london"))


def test_a_purge_is_held_until_a_person_says_go_on(
    pair: ClassicSubject, dr_ctl: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    work(pair, 10, 0)
    assert follow(capsys, "--for", "1s")[0] == 0
    pair.done("london", pair.queue("london", ORDERS), "purge()")

    _, (*lines, last) = follow(capsys, "--for", "2s")

    assert [each["id"] for each in last["findings"]] == ["DR-AGENT-001"]
    assert lines[-1]["phase"] == "held"
    assert pair.depth("paris", ORDERS) == 10
    assert json.loads((tmp_path / "state" / "sync.json").read_text())["phase"] == "finished"

    assert dr_ctl("sync", "--go-on").code == 0
    assert follow(capsys, "--for", "2s")[1][-1]["data"]["deleted"] == 10
    assert pair.depth("paris", ORDERS) == 0


class Beside:
    """Something that happens beside the agent, once it has compared both sites."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
        stepped, self.done = SyncAgent.step, False

        def step(agent: SyncAgent) -> Standing:
            standing = stepped(agent)
            queues = standing.kept.queues
            if not self.done and queues and all(each.compared is not None for each in queues):
                self.done = True
                act()
            return standing

        monkeypatch.setattr(SyncAgent, "step", step)


def test_the_copies_stay_where_the_serving_broker_came_back_without_its_store(
    pair: ClassicSubject,
    twin: PlayedTwin,
    dr_ctl: Command,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work(pair, 10, 0)

    def store_is_lost() -> None:
        twin.kill("london")
        for queue in twin.host("london").broker.queues.values():
            queue.messages.clear()
            queue.by_origin.clear()
        twin.start("london")
        pair.stage.open_clients("london")

    Beside(monkeypatch, store_is_lost)

    _, (*lines, last) = follow(capsys, "--for", "6s")

    assert pair.depth("paris", ORDERS) == 10
    assert lines[-1]["phase"] == "held"
    assert [each["id"] for each in last["findings"]] == ["DR-AGENT-001"]
    assert "failover --to paris" in last["findings"][0]["remedy"]


def test_the_copies_stay_where_a_queue_was_removed_and_made_again(
    pair: ClassicSubject, dr_ctl: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    work(pair, 10, 0)

    def queue_is_made_again() -> None:
        pair.done("london", pair.server("london"), "removeQueue(java.lang.String)", ORDERS)
        with pair.client("london") as client:
            client.send(ORDERS)
        until(lambda: pair.depth("paris", ORDERS) == 11)

    with monkeypatch.context() as once:
        Beside(once, queue_is_made_again)
        follow(capsys, "--for", "3s")
    _, (*lines, _) = follow(capsys, "--for", "2s")  # another agent compares both sites, unless the first did

    assert pair.depth("paris", ORDERS) == 11
    assert lines[-1]["phase"] == "held"
    assert "10 message(s)" in lines[-1]["why"]


def test_copies_of_messages_in_an_open_transaction_stay(
    pair: ClassicSubject, dr_ctl: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    work(pair, 30, 5)
    with pair.client("london") as client:
        client.subscribe(ORDERS, **{"activemq.prefetchSize": "20"})
        client.confirmed("BEGIN", transaction="t")
        for _ in range(20):
            client.confirmed("ACK", id=client.message().headers["ack"], transaction="t")

        _, (*_, last) = follow(capsys, "--for", "3s")
        assert pair.depth("paris", ORDERS) == 30
        assert "25 copies" in next(each["text"] for each in last["findings"] if each["id"] == "DR-AGENT-007")
        assert last["data"]["queues"][0]["whole"] is False

        client.confirmed("ABORT", transaction="t")

    follow(capsys, "--for", "3s")

    assert set(pair.ids("paris")) == set(pair.ids("london"))
    assert pair.depth("paris", ORDERS) == 25


def of(ended: Ended, id_: str) -> list[str]:
    return [each["text"] for each in ended.document["findings"] if each["id"] == id_]


def test_a_hold_stops_a_swapover_that_would_remove_copies(
    pair: ClassicSubject, dr_ctl: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    work(pair, 10, 4)
    assert dr_ctl("sync", "--hold", "keep the copies").code == 0

    asked, tried, done = (
        dr_ctl(*words, "--to", "paris") for words in (("validate",), ("swapover", "--dry-run"), ("swapover", "--yes"))
    )

    assert [each.code for each in (asked, tried, done)] == [10, 10, 10]
    assert all("keep the copies" in text for each in (tried, done) for text in of(each, "DR-SYNC-004"))
    assert pair.depth("paris", ORDERS) == 10

    left = dr_ctl("swapover", "--to", "paris", "--yes", "--accept-difference", f"{ORDERS}=4")

    assert (left.code, pair.depth("paris", ORDERS)) == (0, 10)
    assert "4 message(s)" in of(left, "DR-SYNC-005")[0]


def test_a_swapover_without_an_agent_removes_what_was_consumed(pair: ClassicSubject, dr_ctl: Command) -> None:
    work(pair, 10, 4)

    assert dr_ctl("swapover", "--to", "paris", "--yes").code == 0
    assert pair.depth("paris", ORDERS) == 6


def failed_over(pair: ClassicSubject, twin: PlayedTwin, dr_ctl: Command) -> None:
    """Paris has taken over and copies nothing back, clients have sent 7 there, and London is back with open doors."""
    twin.kill("london")
    assert (
        dr_ctl("failover", "--to", "paris", "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown").code
        == 0
    )
    with pair.client("paris") as client:
        for _ in range(7):
            client.send(ORDERS)
    twin.start("london")
    pair.stage.open_clients("london")


def one_way(twin: PlayedTwin) -> None:
    """Paris copies nothing to London."""
    with twin.still():
        paris = twin.host("paris").broker
        assert isinstance(paris, BrokerSyncBroker)
        paris.composites.pop(ORDERS)
        paris.queues.pop(f"{ORDERS}.to-london", None)


def test_an_agent_of_a_lost_site_that_is_back_soon_deletes_nothing_at_the_other(
    pair: ClassicSubject,
    twin: PlayedTwin,
    dr_ctl: Command,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one_way(twin)
    work(pair, 10, 0)
    Beside(monkeypatch, lambda: failed_over(pair, twin, dr_ctl))

    _, (*_, last) = follow(capsys, "--for", "40s")

    assert pair.depth("paris", ORDERS) == 17
    assert "lets clients in too" in last["summary"]


def test_an_agent_works_for_no_lost_site_while_the_other_is_silent(
    pair: ClassicSubject, twin: PlayedTwin, dr_ctl: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    one_way(twin)
    work(pair, 10, 4)
    failed_over(pair, twin, dr_ctl)
    twin.freeze("paris")

    def thaw() -> None:
        system().sleep(6.0)
        twin.thaw("paris")

    thawing = beside(thaw, "thaw")

    _, (*_, last) = follow(capsys, "--for", "12s")

    thawing.result()
    assert pair.depth("paris", ORDERS) == 17
    assert [each["id"] for each in last["findings"]] == ["DR-AGENT-005"]


def test_a_person_holds_it(pair: ClassicSubject, dr_ctl: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert dr_ctl("sync", "--hold", "a purge to come").code == 0
    work(pair, 10, 4)

    _, lines = follow(capsys, "--for", "1s")

    assert "a purge to come" in lines[0]["why"]
    assert pair.depth("paris", ORDERS) == 10


def test_it_ends_once_its_site_is_fenced(
    pair: ClassicSubject, dr_ctl: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped = SyncAgent.step
    monkeypatch.setattr(SyncAgent, "step", lambda agent: (pair.stage.close_clients("london"), stepped(agent))[1])

    code, lines = follow(capsys)

    assert code == 0
    assert "closed" in lines[-1]["summary"]


def wrong_password(twin: PlayedTwin, at: str, whose: str) -> None:
    """The file that the settings name holds a wrong password: of the agent's door, or of the site's console."""
    (twin.settings_path.parent / "secrets" / f"{at}-orders-1{whose}").write_text("not this one")


@pytest.mark.parametrize(("at", "whose"), [("london", ".agent"), ("paris", ".agent"), ("london", ""), ("paris", "")])
def test_a_refused_login_ends_it_as_wrong_settings_do(
    pair: ClassicSubject, twin: PlayedTwin, dr_ctl: Command, capsys: pytest.CaptureFixture[str], at: str, whose: str
) -> None:
    work(pair, 3, 1)
    wrong_password(twin, at, whose)

    code, (*_, last) = follow(capsys, "--for", "5s")

    assert (code, [each["id"] for each in last["findings"]]) == (2, ["DR-AGENT-009"])
    assert "refused" in last["summary"]
    assert pair.depth("paris", ORDERS) == 3


LOOKS = (("status",), ("validate",), ("swapover", "--to", "paris", "--dry-run"))


def test_every_look_says_that_the_agent_is_gone_or_held_and_what_it_said(
    pair: ClassicSubject, dr_ctl: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    work(pair, 10, 0)
    follow(capsys, "--for", "1s")
    pair.done("london", pair.queue("london", ORDERS), "purge()")
    follow(capsys, "--for", "2s")
    path = tmp_path / "state" / "sync.json"
    killed = json.loads(path.read_text()) | {"phase": "held", "at": "2026-11-23T00:00:00.000Z"}
    path.write_text(json.dumps(killed))

    for each in LOOKS:
        ended = dr_ctl(*each)
        gone, held = of(ended, "DR-AGENT-008")
        assert "is gone since 2026-11-23" in gone
        assert "10 message(s) left" in held
        assert "10 message(s) left" in of(ended, "DR-AGENT-001")[0]


def test_no_look_complains_of_an_agent_that_works(
    pair: ClassicSubject, dr_ctl: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    work(pair, 3, 0)
    told: list[Ended] = []
    Beside(monkeypatch, lambda: told.extend(dr_ctl(*each) for each in LOOKS))

    follow(capsys, "--for", "3s")

    assert [of(each, "DR-AGENT-008") for each in told] == [[], [], []]
