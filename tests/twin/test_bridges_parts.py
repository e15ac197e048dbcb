"""Some queues of a twin of diverts and bridges are moved or taken in; what becomes of those that nobody named."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
import yaml

from dr_ctl.core.model import ExitCode
from dr_ctl.core.system import beside, system
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.bridges.clients import work_off
from dr_ctl_lab.twin.kinds import BRIDGES
from tests.conftest import Command
from tests.jolokia.console import closed_port
from tests.twin.test_bridges import IDS, IN, OUT, at, put
from tests.twin.test_crashes import Died
from tests.twin.test_workloads import Death

BOTH_SITES = ("london", "paris")


@pytest.fixture
def topology() -> str:
    return BRIDGES


def open_at(twin: PlayedTwin, queue: str) -> list[str]:
    with twin.still():
        return [site for site in BOTH_SITES if at(twin, site).serves_queue(queue)]


def test_a_failback_of_some_queues_leaves_the_others_open_where_they_are(twin: PlayedTwin, dr_ctl: Command) -> None:
    assert dr_ctl("swapover", "--to", "paris", "--queues", OUT, "--yes").code == ExitCode.OK

    ended = dr_ctl("failback", "--to", "london", "--queues", OUT, "--yes")

    assert ended.code == ExitCode.OK, ended.document
    assert (open_at(twin, IN), open_at(twin, OUT)) == (["london"], ["london"])


def test_the_remedy_for_a_copy_that_takes_sends_closes_it_and_nothing_else(twin: PlayedTwin, dr_ctl: Command) -> None:
    def told() -> list[str]:
        findings = dr_ctl("status").document["findings"]
        return [each["remedy"] for each in findings if each["id"] == "DR-BRIDGE-013"]

    with twin.still():  # as a run leaves it that ended between the roles and the queue
        at(twin, "paris").security.remove(at(twin, "paris").queues[IN].address)
    [remedy] = told()

    ended = dr_ctl(*shlex.split(remedy.split("`")[1])[1:], "--yes")

    assert (ended.code, told()) == (ExitCode.OK, []), ended.document
    summary = f"clients of {IN} are kept out of paris; london goes on serving {IN}; {OUT}"
    assert ended.document["summary"] == summary
    assert (open_at(twin, IN), open_at(twin, OUT)) == (["london"], ["london"])
    assert at(twin, "paris").queues[IN].paused


@pytest.mark.parametrize("split", [False, True])
def test_one_queue_that_is_closed_while_its_site_serves_others_is_opened_by_an_unfence(
    twin: PlayedTwin, dr_ctl: Command, split: bool
) -> None:
    if split:
        assert dr_ctl("swapover", "--to", "paris", "--queues", OUT, "--yes").code == ExitCode.OK
    assert dr_ctl("fence", "london", "--queues", IN, "--yes").code == ExitCode.OK
    assert open_at(twin, IN) == []

    ended = dr_ctl("unfence", "london", "--queues", IN, "--yes")

    assert ended.code == ExitCode.OK, ended.document
    assert (open_at(twin, IN), open_at(twin, OUT)) == (["london"], ["paris" if split else "london"])


@pytest.mark.parametrize("command", [["status"], ["validate"]])
def test_a_queue_that_nobody_serves_is_told_with_the_command_that_opens_it(
    twin: PlayedTwin, dr_ctl: Command, command: list[str]
) -> None:
    assert "DR-UNIT-003" not in [each["id"] for each in dr_ctl(*command).document["findings"]]
    assert dr_ctl("fence", "london", "--queues", IN, "--yes").code == ExitCode.OK

    told = dr_ctl(*command).document

    [finding] = [each for each in told["findings"] if each["id"] == "DR-UNIT-003"]
    assert finding["text"] == "orders.in is open to clients at no site, while london serves others"
    typed = shlex.split(finding["remedy"].split("`")[1])[1:]
    assert (dr_ctl(*typed, "--yes").code, open_at(twin, IN)) == (ExitCode.OK, ["london"]), typed


@pytest.mark.parametrize("command", [["swapover", "--to", "paris"], ["swapover", "--to", "paris", "--queues", IN]])
def test_a_queue_whose_divert_is_gone_where_it_is_served_opens_at_no_second_site(
    twin: PlayedTwin, dr_ctl: Command, command: list[str]
) -> None:
    with twin.still():
        del at(twin, "london").diverts[f"divert.{IN}"]

    ended = dr_ctl(*command, "--yes")

    assert (ended.code, ended.document["run"]) == (ExitCode.PRECHECK_FAILED, None), ended.document
    assert [each["id"] for each in ended.document["findings"] if "no divert copies orders.in to paris" in each["text"]]
    with twin.still():
        assert not at(twin, "paris").serves_queue(IN)


def refuse_all_that_is_known(twin: PlayedTwin, site: str) -> None:
    """The settings name a port that refuses as console and greeting address of a site whose brokers live."""
    settings = yaml.safe_load(twin.settings_path.read_text(encoding="utf-8"))
    broker = settings["sites"][site]["brokers"][0]
    broker["jolokia"] = closed_port()
    broker["stomp"] = f"stomp://{urlsplit(broker['jolokia']).netloc}"
    twin.settings_path.write_text(json.dumps(settings), encoding="utf-8")


def test_a_site_whose_peer_has_one_bridge_left_is_not_taken_for_down(twin: PlayedTwin, dr_ctl: Command) -> None:
    refuse_all_that_is_known(twin, "london")
    with twin.still():
        at(twin, "paris").bridges[f"bridge.mirror.london.{OUT}"].stop()

    ended = dr_ctl("failover", "--to", "paris", "--accept-loss", "unknown", "--accept-duplicates", "unknown", "--yes")

    assert (ended.code, ended.document["run"]) == (ExitCode.PRECHECK_FAILED, None), ended.document
    assert open_at(twin, IN) == ["london"]


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


@pytest.mark.parametrize(
    ("worked", "steps"),
    [
        ("london", [["fence", "london"], ["activate", "paris"]]),
        ("paris", [["swapover", "--to", "paris"], ["fence", "paris"], ["unfence", "london"]]),
    ],
)
def test_no_site_is_opened_by_a_single_step_while_processed_ids_are_not_shipped(
    twin: PlayedTwin, dr_ctl: Command, worked: str, steps: list[list[str]]
) -> None:
    other = "paris" if worked == "london" else "london"
    *before, (last, _) = [*steps[:-1], steps[-1]]
    if worked == "paris":
        assert dr_ctl(*before.pop(0), "--yes").code == ExitCode.OK
    put(twin, IN, 20, worked)
    twin.wait_mirrored()
    with twin.still():
        at(twin, worked).bridges[f"bridge.mirror.{other}.{IDS}"].stop()
        work_off(at(twin, worked), IN)
    for step in before:
        assert dr_ctl(*step, "--yes").code == ExitCode.OK

    ended = dr_ctl(last, other, "--yes")

    assert ended.code == ExitCode.PRECHECK_FAILED, ended.document
    assert any("20 id(s) to ship" in each["text"] for each in ended.document["findings"]), ended.document
    assert open_at(twin, IN) == []


def test_a_move_of_one_queue_goes_on_while_reply_queues_of_other_clients_come_and_go(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    with replying(twin, "london"):
        codes = [dr_ctl("swapover", "--to", to, "--queues", OUT, "--yes").code for to in ("paris", "london") * 2]

    assert codes == [ExitCode.OK] * 4


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_killed_move_of_one_queue_is_gone_on_with_for_that_queue(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    put(twin, OUT, 2)
    with monkeypatch.context() as patch:
        Death(number, after=True).strike(patch)
        with pytest.raises(Died):
            dr_ctl("swapover", "--to", "paris", "--queues", OUT, "--yes")

    ended = dr_ctl("resume", "--yes")

    assert ended.code == ExitCode.OK, ended.document
    assert (open_at(twin, IN), open_at(twin, OUT)) == (["london"], ["paris"])
    assert twin.depth("paris", OUT) == 2


def test_a_move_of_one_queue_that_cannot_finish_is_escalated_beside_the_queues_that_are_served(
    twin: PlayedTwin, inside: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(twin, OUT, 2)
    twin.wait_mirrored()
    monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
    for call in range(1, 12):
        with monkeypatch.context() as patch:
            Death(call, after=True).strike(patch)
            with pytest.raises(Died):
                inside("swapover", "--to", "paris", "--queues", OUT, "--yes")
        if not at(twin, "london").security.may("app", "send", OUT):
            break  # it is fenced; before that it is quiesced, and lets clients in
        assert inside("abort", "--yes").code in (ExitCode.OK, ExitCode.REVERTED)

    ended = inside("escalate", "--accept-loss", "unknown", "--accept-duplicates", "unknown", "--yes")

    assert ended.code == ExitCode.OK, ended.document
    assert (open_at(twin, IN), open_at(twin, OUT)) == (["london"], ["paris"])


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
