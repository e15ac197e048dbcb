"""`dr-ctl sync` as a command, on simulated brokers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.agents.sync import SyncAgent
from dr_ctl.cli.app import run
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.classic.brokersync.broker import BrokerSyncBroker
from dr_ctl_lab.twin.kinds import BROKERSYNC, MIRROR
from tests.conftest import Command
from tests.patience import time_now
from tests.twin.classic_subject import ORDERS, ClassicSubject
from tests.twin.subject import until


@pytest.fixture
def topology() -> str:
    return BROKERSYNC


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


def test_a_person_holds_it(pair: ClassicSubject, dr_ctl: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert dr_ctl("sync", "--hold", "a purge to come").code == 0
    work(pair, 10, 4)

    _, lines = follow(capsys, "--for", "1s")

    assert "a purge to come" in lines[0]["why"]
    assert pair.depth("paris", ORDERS) == 10


def test_it_is_not_started_where_nobody_serves(pair: ClassicSubject, dr_ctl: Command) -> None:
    pair.stage.close_clients("london")

    ended = dr_ctl("sync")

    assert (ended.code, [each["id"] for each in ended.document["findings"]]) == (10, ["DR-AGENT-004"])


def test_words_that_contradict_each_other_are_refused(pair: ClassicSubject, dr_ctl: Command) -> None:
    assert dr_ctl("sync", "--hold", "why", "--go-on").code == 2


def test_it_ends_once_its_site_is_fenced(
    pair: ClassicSubject, dr_ctl: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped = SyncAgent.step
    monkeypatch.setattr(SyncAgent, "step", lambda agent: (pair.stage.close_clients("london"), stepped(agent))[1])

    code, lines = follow(capsys)

    assert code == 0
    assert "closed" in lines[-1]["summary"]


class TestOfAnotherTopology:
    @pytest.fixture
    def topology(self) -> str:
        return MIRROR

    def test_there_is_none(self, twin: PlayedTwin, dr_ctl: Command) -> None:
        ended = dr_ctl("sync")

        assert ended.code == 2
        assert "nothing has to be deleted" in ended.told
