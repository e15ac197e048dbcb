"""The product against what the continuity plugin does by itself: late commands, late confirmations, deleted copies."""

from __future__ import annotations

import threading

import pytest

from dr_ctl.cli.twins import PlayedTwin
from dr_ctl.topologies.continuity import driver, verifying
from dr_ctl.twin.continuity.broker import ContinuityBroker
from dr_ctl.twin.kinds import CONTINUITY
from tests.twin.conftest import Command
from tests.twin.matrix import ACCEPTED, done, put, serving
from tests.twin.plugin_subject import DEACTIVATE, PluginSubject
from tests.twin.subject import until


@pytest.fixture
def topology() -> str:
    return CONTINUITY


def plugin(twin: PlayedTwin, site: str) -> ContinuityBroker:
    broker = twin.host(site).broker
    assert isinstance(broker, ContinuityBroker)
    return broker


@pytest.mark.parametrize("rounds", [1, pytest.param(4, marks=pytest.mark.chaos)])
def test_commands_of_an_outage_activate_nobody(twin: PlayedTwin, dr_ctl: Command, rounds: int) -> None:
    """A site that activates itself whenever its peer says that it is there, and a peer that says so again and again."""
    twin.activate_on_start()
    lost, left = "london", "paris"
    for _ in range(rounds):
        twin.kill(lost)
        done(dr_ctl("failover", "--to", left, "--yes", *ACCEPTED))
        twin.kill(left)
        twin.start(left)
        done(dr_ctl("failover", "--to", left, "--yes", *ACCEPTED))
        assert len(plugin(twin, left).service.out.messages) > 1
        twin.start(lost)

        done(dr_ctl("reinstate", lost, "--yes"))

        assert serving(twin) == (left,)
        assert plugin(twin, left).serves
        assert not plugin(twin, lost).service.activated
        lost, left = left, lost


def test_a_command_that_comes_late_is_found_and_its_effect_taken_back(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "WATCH_S", 1.0)

    def tell() -> None:
        until(lambda: plugin(twin, "paris").serves)
        with twin.still():
            plugin(twin, "london").service.tell("deactivate-site")

    late = threading.Thread(target=tell)
    late.start()
    ended = dr_ctl("swapover", "--to", "paris", "--yes")
    late.join()

    done(ended)
    assert plugin(twin, "paris").serves
    assert serving(twin) == ("paris",)
    activations = [each for each in twin.changes() if each.operation.startswith("activateSite(")]
    assert [each.site for each in activations] == ["paris", "paris"]


@pytest.mark.chaos
@pytest.mark.parametrize("late_s", [0.5, 1.5])
def test_confirmations_that_come_late_are_waited_for(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, late_s: float
) -> None:
    monkeypatch.setattr(verifying.Verifying, "least_window_s", 2.2)
    monkeypatch.setattr(driver, "WATCH_S", 3.0)
    twin.confirm_late(late_s)
    with twin.load(100, work_ms=1) as traffic:
        traffic.wait_for(50)
        moved = dr_ctl("swapover", "--to", "paris", "--yes")
        traffic.wait_for(traffic.counts().sent + 50)
        verdict = traffic.stop()

    done(moved)
    assert verdict.clean
    assert (verdict.lost, verdict.consumed_twice) == ((), ())


def test_a_copy_that_the_plugin_deleted_refuses_the_move_and_is_named(twin: PlayedTwin, dr_ctl: Command) -> None:
    put(twin, "london", "orders.in", 3)
    pair = PluginSubject(twin)
    with pair.client("london") as client:
        client.subscribe("orders.in")
        held = client.message()
        client.confirmed("DISCONNECT")
    pair.staged("orders.in", 2)

    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert ended.code == 20, ended.document
    [finding] = [each for each in ended.document["findings"] if each["id"] == "DR-CONT-013"]
    assert held.headers["_AMQ_DUPL_ID"] in finding["text"]
    assert serving(twin) == ("london",)
    assert pair.depths_at("london", "orders.in") == [3]


def test_both_sites_inactive_is_said_and_activate_repairs_it(twin: PlayedTwin, dr_ctl: Command) -> None:
    pair = PluginSubject(twin)
    pair.execute("london", pair.service("london"), DEACTIVATE)
    assert dr_ctl("status").document["summary"] == "no site serves"

    done(dr_ctl("activate", "london", "--yes"))

    assert plugin(twin, "london").serves
    assert dr_ctl("status").document["summary"] == "london serves"
