"""Some queues of a twin of diverts and bridges are moved or taken in; what becomes of those that nobody named."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from dr_ctl.cli.app import run
from dr_ctl.core.model import ExitCode
from dr_ctl.core.system import beside, system
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES
from tests.conftest import Command
from tests.jolokia.console import closed_port
from tests.patience import time_now
from tests.twin.test_bridges import IN, OUT, at, put

BOTH_SITES = ("london", "paris")


@pytest.fixture
def topology() -> str:
    return BRIDGES


def open_at(twin: PlayedTwin, queue: str) -> list[str]:
    with twin.still():
        return [site for site in BOTH_SITES if at(twin, site).serves_queue(queue)]


def refuse_all_that_is_known(twin: PlayedTwin, site: str) -> None:
    """The settings name a port that refuses as console and greeting address of a site whose brokers live."""
    settings = yaml.safe_load(twin.settings_path.read_text(encoding="utf-8"))
    broker = settings["sites"][site]["brokers"][0]
    broker["jolokia"] = closed_port()
    broker["stomp"] = f"stomp://{urlsplit(broker['jolokia']).netloc}"
    twin.settings_path.write_text(json.dumps(settings), encoding="utf-8")


def test_a_site_that_still_ships_is_not_taken_for_down(twin: PlayedTwin, dr_ctl: Command) -> None:
    """Every bridge of the survivor is stopped, so that it hears its peer by what arrives alone."""
    refuse_all_that_is_known(twin, "london")
    with twin.still():
        at(twin, "paris").stop_bridges()

    with sending(twin, "london", IN):
        ended = dr_ctl(
            "failover", "--to", "paris", "--accept-loss", "unknown", "--accept-duplicates", "unknown", "--yes"
        )

    assert (ended.code, ended.document["run"]) == (ExitCode.PRECHECK_FAILED, None), ended.document
    assert open_at(twin, IN) == ["london"]


@contextmanager
def sending(twin: PlayedTwin, site: str, queue: str) -> Iterator[None]:
    """A client sends all the time."""
    over = system().event()

    def send() -> None:
        while not over.wait(0.01):
            put(twin, queue, 1, site)

    client = beside(send, "client")
    try:
        yield
    finally:
        over.set()
        client.result()


def test_a_move_of_one_queue_goes_on_while_reply_queues_of_other_clients_come_and_go(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    with replying(twin, "london"):
        codes = [dr_ctl("swapover", "--to", to, "--queues", OUT, "--yes").code for to in ("paris", "london") * 2]

    assert codes == [ExitCode.OK] * 4


@contextmanager
def replying(twin: PlayedTwin, site: str) -> Iterator[None]:
    """Clients make temporary queues for replies, and leave them, all the time."""
    over = system().event()

    def reply() -> None:
        number, broker = 0, at(twin, site)
        while not over.is_set():
            number += 1
            name = f"reply.{number}"
            with twin.still():
                broker.create_queue(
                    {"name": name, "address": name, "routing-type": "ANYCAST", "durable": False, "temporary": True}
                )
            over.wait(0.05)
            with twin.still():
                broker.destroy_queue(name)

    client = beside(reply, "client")
    try:
        yield
    finally:
        over.set()
        client.result()


ODD = "rest & retour"


def test_a_command_that_names_a_queue_with_a_blank_is_quoted(
    tmp_path: Path, inside: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PlayedTwin.up(tmp_path / "odd", topology=BRIDGES, queues=(ODD, OUT)) as twin:
        monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
        with twin.still():
            at(twin, "paris").security.remove(ODD)

        [remedy] = [each["remedy"] for each in inside("validate").document["findings"] if "fence" in each["remedy"]]
        typed = shlex.split(remedy.split("`")[1])[1:]

        assert typed == ["fence", "paris", "--queues", ODD]
        assert inside(*typed, "--yes").code == ExitCode.OK
        assert inside("swapover", "--to", "paris", "--queues", ODD, "--yes").code == ExitCode.OK


@pytest.mark.parametrize("command", ["swapover", "fence"])
def test_the_help_says_that_queues_can_be_named_by_a_pattern(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    run([command, "--help"], time_now())

    assert "a name, or a pattern as in Artemis" in " ".join(capsys.readouterr().out.split())
