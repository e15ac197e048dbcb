"""A rehearsal on the brokers: a queue of dr-ctl's own goes the whole path, and business queues stay byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, FANOUT, MIRROR, SHARED_STORE
from tests.conftest import Command
from tests.patience import impatient
from tests.twin.conftest import BOTH
from tests.twin.matrix import put
from tests.twin.subject import until
from tests.twin.test_init import REAL, real

__all__ = ("real",)  # a fixture

CANARY = "rehearsal.dr-ctl.london"


def business(twin: PlayedTwin) -> dict[str, Any]:
    """Everything that lies in queues which are not dr-ctl's own."""
    return {
        f"{site}/{name}": [(message.number, message.body) for message in queue.live()]
        for site in twin.sites
        for name, queue in twin.host(site).broker.queues.items()
        if not name.startswith("dr-ctl.") and not name.startswith(CANARY)
    }


def arrived(twin: PlayedTwin) -> int:
    """How many messages of `orders.in` lie at Paris, wherever the link keeps them."""
    return sum(len(lying) for name, lying in business(twin).items() if name.startswith("paris/orders.in"))


def canaries(twin: PlayedTwin) -> list[Any]:
    brokers = [twin.host(site).broker for site in twin.sites]
    return [queue for broker in brokers for name, queue in broker.queues.items() if name.startswith(CANARY)]


@BOTH
def test_messages_of_its_own_go_the_whole_path(
    twin: PlayedTwin, dr_ctl: Command, topology: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if topology == BROKERSYNC:
        impatient(monkeypatch, canary_s=1.0)
    put(twin, "london", "orders.in", 5)
    until(lambda: topology == SHARED_STORE or arrived(twin) == 5)
    before = business(twin)

    ended = dr_ctl("rehearse", "--yes")

    told = {finding["id"]: finding for finding in ended.document["findings"]}
    if topology == BROKERSYNC:  # no composite queue copies the canary: that is told, and nothing is left
        assert (ended.code, "composite queue" in told["DR-REHEARSE-001"]["remedy"]) == (24, True)
    else:
        assert ended.code == 0, ended.document
        assert ("DR-REHEARSE-001" in told) is (topology in (BRIDGES, FANOUT, SHARED_STORE))
    if topology == CONTINUITY:  # a flow of the plugin stays: it is empty, and the next rehearsal takes it
        assert all(not [*queue.live()] for queue in canaries(twin))
        assert dr_ctl("rehearse", "--yes").code == 0
    else:
        assert canaries(twin) == []
    assert business(twin) == before
    assert ended.document["data"]["pairs"] == [{"name": unit, "serving": "london"} for unit in units(ended)]


def units(ended: Any) -> list[str]:
    return [each["name"] for each in ended.document["data"]["pairs"]]


@pytest.mark.parametrize("topology", [MIRROR, CONTINUITY])
def test_each_part_of_the_path_is_timed(twin: PlayedTwin, dr_ctl: Command) -> None:
    ended = dr_ctl("rehearse", "--yes")

    assert ended.code == 0, ended.document
    shown = dr_ctl("runs", "show", ended.document["run"])
    [step] = [
        each
        for each in shown.document["data"]["steps"]
        if each["step"].endswith("canary") and each["event"] == "succeeded"
    ]
    assert "10 message(s) went the whole path" in step["text"]
    del twin


def test_a_link_that_is_cut_ends_the_rehearsal_and_leaves_nothing(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, canary_s=0.5)
    twin.cut()

    ended = dr_ctl("rehearse", "--yes")

    assert (ended.code, canaries(twin)) == (24, []), ended.document
    assert "not seen within 0.5 s" in ended.document["summary"]
    assert "london serves" in ended.document["summary"]


@pytest.mark.usefixtures("twin")
def test_nothing_to_clean_is_well(dr_ctl: Command) -> None:
    assert dr_ctl("rehearse", "clean", "--yes").code == 0


def test_what_a_killed_rehearsal_left_is_cleaned(twin: PlayedTwin, dr_ctl: Command) -> None:
    put(twin, "london", CANARY, 3)
    twin.wait_mirrored()

    ended = dr_ctl("rehearse", "clean", "--yes")

    assert (ended.code, canaries(twin)) == (0, []), ended.document


def test_a_rehearsal_needs_a_site_that_serves_and_one_that_waits(twin: PlayedTwin, dr_ctl: Command) -> None:
    twin.kill("paris")

    ended = dr_ctl("rehearse", "--yes")

    assert (ended.code, "from a site that serves to one that waits" in ended.document["summary"]) == (10, True)


def test_a_waiting_site_that_lets_clients_in_is_no_rehearsal(twin: PlayedTwin, dr_ctl: Command) -> None:
    ended = dr_ctl("rehearse", "--dry-run")

    [step] = [each for each in ended.document["data"]["plan"]["steps"] if each["verb"] == "canary"]
    assert ended.code == 0
    assert "no client gets into paris" in step["about"]
    assert twin.changes() == []


@pytest.mark.broker
@pytest.mark.deep
@pytest.mark.parametrize("real", REAL, indirect=True)
def test_on_real_brokers(
    real: Lab, inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    topology = request.node.callspec.params["real"]
    if topology == BROKERSYNC:
        impatient(monkeypatch, canary_s=3.0)
    monkeypatch.setenv("DR_CTL_CONFIG", str(real.settings_path))

    ended = inside("rehearse", "--yes")

    told = {finding["id"]: finding for finding in ended.document["findings"]}
    assert ended.code == (24 if topology == BROKERSYNC else 0), ended.document
    assert ("DR-REHEARSE-001" in told) is (topology in (BRIDGES, BROKERSYNC, FANOUT, SHARED_STORE))
    assert "DR-REHEARSE-002" not in told
    cleaned = inside("rehearse", "clean", "--yes")
    shown = inside("runs", "show", cleaned.document["run"])
    assert (cleaned.code, "no queue of a rehearsal is left" in shown.document["data"]["steps"][-1]["text"]) == (0, True)
    assert shown.document["data"]["steps"][-1]["event"] == "unneeded", shown.document["data"]["steps"][-1]
