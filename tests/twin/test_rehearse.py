"""A rehearsal on the brokers: a queue of dr-ctl's own goes the whole path, and business queues stay byte for byte."""

from typing import Any

import pytest

from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, FANOUT, MIRROR, SHARED_STORE
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.patience import impatient
from tests.twin.conftest import BOTH
from tests.twin.matrix import done, put
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
        if not name.startswith(("dr-ctl.", CANARY))
    }


def canaries(twin: PlayedTwin) -> list[Any]:
    brokers = [twin.host(site).broker for site in twin.sites]
    return [queue for broker in brokers for name, queue in broker.queues.items() if name.startswith(CANARY)]


def last_step(dr_ctl: Command, ended: Ended, verb: str) -> dict[str, Any]:
    steps = dr_ctl("runs", "show", ended.document["run"]).document["data"]["steps"]
    return next(each for each in reversed(steps) if each["step"].endswith(verb))


@BOTH
def test_messages_of_its_own_go_the_whole_path(
    twin: PlayedTwin, dr_ctl: Command, topology: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if topology == BROKERSYNC:
        impatient(monkeypatch, canary_s=1.0)
    put(twin, "london", "orders.in", 5)
    there = "paris/orders.in"  # wherever the link keeps them
    if topology != SHARED_STORE:
        until(lambda: sum(len(lying) for name, lying in business(twin).items() if name.startswith(there)) == 5)
    before = business(twin)

    ended = dr_ctl("rehearse", "--yes")

    told = {finding["id"]: finding for finding in ended.document["findings"]}
    if topology == BROKERSYNC:  # no composite queue copies the canary: that is told, and nothing is left
        assert (ended.code, "composite queue" in told["DR-REHEARSE-001"]["remedy"]) == (24, True)
    else:
        assert "10 message(s) went the whole path" in last_step(dr_ctl, done(ended), "canary")["text"]
        assert ("DR-REHEARSE-001" in told) is (topology in (BRIDGES, FANOUT, SHARED_STORE))
    if topology == CONTINUITY:  # a flow of the plugin stays: it is empty, and the next rehearsal takes it
        assert all(not [*queue.live()] for queue in canaries(twin))
        done(dr_ctl("rehearse", "--yes"))
    else:
        assert canaries(twin) == []
    assert business(twin) == before
    assert {each["serving"] for each in ended.document["data"]["pairs"]} == {"london"}


def test_a_link_that_is_cut_ends_the_rehearsal_and_leaves_nothing(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, canary_s=0.5)
    twin.cut()

    ended = dr_ctl("rehearse", "--yes")

    assert (ended.code, canaries(twin)) == (24, []), ended.document
    assert "not seen within 0.5 s" in ended.document["summary"]
    assert "london serves" in ended.document["summary"]


def test_what_a_killed_rehearsal_left_is_cleaned_and_where_nothing_is_that_is_well(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    done(dr_ctl("rehearse", "clean", "--yes"))
    put(twin, "london", CANARY, 3)
    twin.wait_mirrored()

    done(dr_ctl("rehearse", "clean", "--yes"))

    assert canaries(twin) == []


def test_a_rehearsal_needs_a_site_that_serves_and_one_that_waits_and_lets_nobody_in(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    dry = done(dr_ctl("rehearse", "--dry-run"))
    twin.kill("paris")

    ended = dr_ctl("rehearse", "--yes")

    [step] = [each for each in dry.document["data"]["plan"]["steps"] if each["verb"] == "canary"]
    assert ("no client gets into paris" in step["about"], twin.changes()) == (True, [])
    assert (ended.code, "from a site that serves to one that waits" in ended.document["summary"]) == (10, True)


@pytest.mark.broker
@pytest.mark.deep
@pytest.mark.parametrize("real", REAL, indirect=True)
def test_on_real_brokers(
    real: Lab, inside: Command, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    topology = request.node.callspec.params["real"]
    if topology == BROKERSYNC:
        impatient(monkeypatch, canary_s=3.0)
    monkeypatch.setenv("DR_CTL_CONFIG", str(real.settings_path))

    ended = inside("rehearse", "--yes")
    cleaned = done(inside("rehearse", "clean", "--yes"))

    told = {finding["id"] for finding in ended.document["findings"]}
    assert ended.code == (24 if topology == BROKERSYNC else 0), ended.document
    assert ("DR-REHEARSE-001" in told) is (topology not in (MIRROR, CONTINUITY))
    assert "DR-REHEARSE-002" not in told
    step = last_step(inside, cleaned, "")
    assert (step["event"], "no queue of a rehearsal is left" in step["text"]) == ("unneeded", True), step
