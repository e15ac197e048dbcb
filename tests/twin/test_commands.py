"""The whole command line on a twin: what the story of tests/stories leaves out, judged by the ledger and the dump."""

from __future__ import annotations

from pathlib import Path

import pytest

from dr_ctl.agents.monitor import recording
from dr_ctl.core.clock import growing_s
from dr_ctl.settings.loader import load
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.rehearsal import ANY_FIGURE
from dr_ctl_lab.twin.continuity.broker import ContinuityBroker
from dr_ctl_lab.twin.faults import Fault, FaultKind, When
from dr_ctl_lab.twin.kinds import BRIDGES, CONTINUITY, MIRROR, SHARED_STORE
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.patience import impatient
from tests.twin.conftest import OTHERS
from tests.twin.matrix import scene, serving
from tests.twin.subject import until

RATE = 300
LEFT = 200


def ok(ended: Ended) -> bool:
    return ended.code == 0 or bool(pytest.fail(f"{ended.code}: {ended.document}"))


@pytest.mark.parametrize("topology", [CONTINUITY])
def test_acknowledgements_that_the_plugin_loses_double_nothing(twin: PlayedTwin, dr_ctl: Command) -> None:
    for broker in twin.brokers(ContinuityBroker):
        broker.ack_loss = 0.2
    with twin.load(RATE, work_ms=1) as traffic:
        # They get lost where those of several flows come at once, as after a link that hung.
        twin.cut("london", "hang")
        traffic.wait_for(200)
        twin.heal()
        moved = dr_ctl("swapover", "--to", "paris", "--yes")
        traffic.wait_for(traffic.counts().sent + 50)
        verdict = traffic.stop()

    assert ok(moved)
    removed = [each for each in twin.changes() if each.operation.startswith("removeMessages(")]
    assert any("orders.in.in.mirror" in each.bean or "orders.out.in.mirror" in each.bean for each in removed)
    assert verdict.clean
    assert (verdict.lost, verdict.duplicates) == ((), ())


@pytest.mark.parametrize("topology", [CONTINUITY])
def test_a_failover_brings_no_more_twice_than_it_said_however_many_acknowledgements_were_lost(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    for broker in twin.brokers(ContinuityBroker):
        broker.ack_loss = 0.9
    [paris] = [broker for broker in twin.brokers(ContinuityBroker) if broker.site == "paris"]
    with twin.load(RATE, work_ms=1) as traffic:
        # Acknowledgements get lost where those of several flows come at once, as after a link that hung.
        twin.cut("london", "hang")
        traffic.wait_for(traffic.counts().sent + LEFT + LEFT // 2)
        twin.heal()
        # What was lost by then is in no outflow, and nobody looked.
        until(lambda: sum(len(each.in_mirror.messages) for each in paris.flows.values()) > LEFT, within_s=30)
        with recording(load(twin.settings_path), every_s=0.2):
            traffic.wait_for(traffic.counts().sent + 300)
            twin.kill("london")
            moved = dr_ctl("failover", "--to", "paris", "--yes", *ANY_FIGURE)
        traffic.wait_for(traffic.counts().sent + 100)
        verdict = traffic.stop()

    assert ok(moved)
    at_most = moved.document["data"]["bounds"]["duplicates"]["at_most"]
    assert at_most is not None, moved.document
    assert LEFT <= len(verdict.duplicates) <= at_most, at_most
    assert "DR-RPO-022" in [each["id"] for each in moved.document["findings"]]


@pytest.mark.parametrize(
    ("site", "fault"),
    [
        ("paris", Fault(FaultKind.ERROR, When(operation="start", bean="acceptors"), times=None)),
        ("paris", Fault(FaultKind.UNANSWERED, When(operation="start", bean="acceptors"))),
        ("london", Fault(FaultKind.RESET, When(operation="stop", bean="acceptors"))),
        ("london", Fault(FaultKind.UNANSWERED, When(operation="stop", bean="acceptors"))),
        ("london", Fault(FaultKind.IDLE, When(operation="stop", bean="acceptors"), times=None)),
        ("london", Fault(FaultKind.PAGE, When(operation="pause"))),
        ("london", Fault(FaultKind.DIES_AFTER, When(operation="pause"), back_after_s=0.2)),
        ("paris", Fault(FaultKind.CLOCK, When(changing=True), seconds=5)),
    ],
    ids=lambda told: f"{told.when.operation} {told.kind.value}" if isinstance(told, Fault) else told,
)
def test_whatever_a_call_meets_never_do_both_sites_serve_and_the_end_is_said(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, site: str, fault: Fault
) -> None:
    impatient(monkeypatch, fence_s=1.0, activate_s=1.0)
    before = scene(twin)
    twin.host(site).faults.add(fault)

    ended = dr_ctl("swapover", "--to", "paris", "--yes")
    twin.host(site).faults.clear()

    served = serving(twin)
    match ended.code:
        case 0:
            assert served == ("paris",)
        case 20:
            assert served == ("london",)
            if fault.kind is not FaultKind.DIES_AFTER:
                assert scene(twin) == before
        case _:
            assert ended.code in (21, 22, 23), ended.document
            assert len(served) <= 1
            assert ended.document["summary"]


@pytest.mark.parametrize(
    "topology",
    # One store has one lock, which one broker holds.
    [MIRROR, *(pytest.param(each, marks=pytest.mark.deep) for each in OTHERS if each != SHARED_STORE)],
)
def test_several_pairs_move_together(
    tmp_path: Path, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, topology: str
) -> None:
    pairs = ("orders-1", "orders-2")
    with PlayedTwin.up(tmp_path / "two", pairs=pairs, topology=topology) as two:
        monkeypatch.setenv("DR_CTL_CONFIG", str(two.settings_path))
        with two.load(100, pair="orders-1") as first, two.load(100, pair="orders-2") as second:
            second.wait_for(20)
            told = dr_ctl("status").document
            moved = dr_ctl("swapover", "--to", "paris", "--yes")
            second.wait_for(second.counts().sent + 20)
            verdicts = [traffic.stop() for traffic in (first, second)]

    units = two.queues if topology == BRIDGES else pairs
    assert told["data"]["pairs"] == [{"name": name, "serving": "london"} for name in units]
    assert ok(moved)
    assert [pair["serving"] for pair in moved.document["data"]["pairs"]] == ["paris", "paris"]
    assert all(verdict.clean for verdict in verdicts)


def test_a_site_in_a_black_hole_adds_no_more_than_it_is_given(
    tmp_path: Path, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five seconds over all looks, beside what the same command takes where the site is seen to be down."""
    words = ("failover", "--to", "paris", "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown")
    took_s = {}
    for how in ("down", "swallowed"):
        with PlayedTwin.up(tmp_path / how) as twin:
            monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
            monkeypatch.setenv("DR_CTL_STATE_DIR", str(tmp_path / f"state of {how}"))
            if how == "down":
                twin.kill("london")
            else:
                twin.swallow("london")
                twin.cut()
                refused = dr_ctl(*words)
            began = growing_s()
            ended = dr_ctl(*words, "--presume-down", "london", "--reason", "its rack is dark")
            took_s[how] = growing_s() - began

            assert ended.code == 0, ended.document
            assert [debt["kind"] for debt in ended.document["debts"]] == ["fence", "quarantine"]
            assert "paris" in serving(twin)

    assert (refused.code, refused.document["findings"][0]["id"]) == (10, "DR-ALIVE-002")
    assert took_s["swallowed"] - took_s["down"] < 5 + 1, took_s
