"""A site is lost under load, the other serves, the lost one returns: bounds hold, and the return doubles nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from dr_ctl.agents.monitor import recording
from dr_ctl.lab.lab import Lab
from dr_ctl.settings.loader import load
from tests.broker.driving import Operator, changed_settings, on_queue, send, state_of, until

pytestmark = pytest.mark.broker

RATE = 200
EVERY_S = 0.2


@pytest.mark.parametrize("scene", ["in step", "link cut before", "survivor restarted"])
def test_a_lost_site_is_replaced_and_taken_in_again(tmp_path: Path, scene: str) -> None:
    with Lab.up(tmp_path / "lab") as lab:
        settings = changed_settings(
            lab, tmp_path, lambda told: told.update(history={"path": str(tmp_path / "history")})
        )
        operator = Operator(lab, tmp_path / "state", settings)
        with lab.load(RATE, work_ms=1) as traffic:
            with recording(load(settings), every_s=EVERY_S):
                traffic.wait_for(3 * RATE)
                if scene == "link cut before":
                    lab.cut("london")
                    traffic.wait_for(traffic.counts().sent + 2 * RATE)
                lab.kill("london")
                until(lambda: operator.run("failover", "--to", "paris", "--dry-run").document["exit_code"] == 11)
            refused = operator.run("failover", "--to", "paris", "--yes")
            bounds = refused.document["data"]["bounds"]

            failed_over = operator.run(
                "failover", "--to", "paris", "--yes", "--accept-loss", str(bounds["lost"]["at_most"])
            )
            traffic.wait_for(traffic.counts().sent + 2 * RATE)
            if scene == "survivor restarted":
                lab.kill("paris")
                lab.start("paris")
                again = operator.run("failover", "--to", "paris", "--yes", "--accept-loss", "unknown")
                assert again.code == 0, again.document
                traffic.wait_for(traffic.counts().sent + RATE)
            before = traffic.ledger.verdict(drained=False)
            owed = operator.run("status").document["debts"]
            lab.heal()
            lab.start("london")
            failed_back = operator.run("failback", "--to", "london", "--yes")
            traffic.wait_for(traffic.counts().sent + RATE)
            verdict = traffic.stop()
        debts = operator.run("status").document["debts"]

    assert (refused.code, refused.document["outcome"]) == (11, "loss_refused")
    assert failed_over.code == 0, failed_over.document
    assert {(debt["kind"], debt["site"]) for debt in owed} == {("fence", "london"), ("quarantine", "london")}
    assert failed_over.document["debts"] == owed
    assert failed_back.code == 0, failed_back.document
    assert failed_back.document["data"]["pairs"] == [{"name": "orders-1", "serving": "london"}]
    assert verdict.lost == ()
    assert verdict.drained
    assert set(verdict.consumed_twice) == set(before.consumed_twice), "doubled by the return"
    assert len(before.consumed_twice) <= bounds["twice"]["at_most"]
    recovered = [entry for entry in operator.journal() if (entry["step"] or "").endswith("-reconcile")][-1]
    assert recovered["evidence"]["recovered"] <= bounds["lost"]["at_most"]
    assert debts == []


def test_a_frozen_site_is_not_taken_for_lost(lab: Lab, operator: Operator) -> None:
    before = state_of(lab)
    lab.freeze("london")
    try:
        ended = operator.run("failover", "--to", "paris", "--yes", "--accept-loss", "unknown")
    finally:
        lab.thaw("london")

    assert (ended.code, ended.document["outcome"]) == (12, "serving_site_alive")
    until(lambda: state_of(lab) == before, why="as before")


def test_a_site_that_serves_is_not_failed_over(lab: Lab, operator: Operator) -> None:
    before = state_of(lab)

    ended = operator.run("failover", "--to", "paris", "--yes", "--accept-loss", "unknown")

    assert (ended.code, state_of(lab)) == (12, before)
    assert "dr-ctl swapover" in ended.told


def test_a_lost_site_that_comes_back_open_is_closed_before_anything_else(lab: Lab, operator: Operator) -> None:
    send(lab, "london", "orders.in", 3)
    lab.wait_mirrored()
    until(lambda: lab.admin("paris").depth("orders.in") == 3)
    lab.kill("london")
    assert operator.run("failover", "--to", "paris", "--yes", "--accept-loss", "unknown").code == 0

    lab.start("london")
    lab.open_clients("london")
    ended = operator.run("reinstate", "london", "--yes")

    assert ended.code == 0, ended.document
    assert "DR-RETURN-002" in ended.told
    assert ended.document["data"]["pairs"] == [{"name": "orders-1", "serving": "paris"}]
    assert ended.document["debts"] == []
    assert operator.run("reinstate", "london", "--yes").document["summary"].startswith("london is taken in already")
    assert [lab.admin(site).depth("orders.in") for site in ("london", "paris")] == [3, 3]


def test_what_nothing_explains_is_taken_out_and_kept(lab: Lab, operator: Operator) -> None:
    send(lab, "london", "orders.in", 3)
    lab.wait_mirrored()
    until(lambda: lab.admin("paris").depth("orders.in") == 3)
    lab.kill("london")
    assert operator.run("failover", "--to", "paris", "--yes", "--accept-loss", "unknown").code == 0
    lab.start("london")
    send(lab, "london", "orders.in", 2)
    on_queue(lab, "london", "$ACTIVEMQ_ARTEMIS_MIRROR_paris", "removeAllMessages()")  # they will never be shipped

    ended = operator.run("reinstate", "london", "--yes")
    status = operator.run("status")

    name = "dr-ctl.quarantine.london.orders.in"
    assert ended.code == 0, ended.document
    reconciled = [entry for entry in operator.journal() if (entry["step"] or "").endswith("-reconcile")][-1]["evidence"]
    assert reconciled["quarantined"] == {name: 2}
    assert len(reconciled["left_over_ids"]["orders.in"]["london"]) == 2
    assert [lab.admin(site).depth("orders.in") for site in ("london", "paris")] == [3, 3]
    assert lab.admin("london").depth(name) == 2
    assert name not in lab.admin("paris").depths()
    assert "DR-RECONCILE-002" in ended.told
    assert "DR-RECONCILE-003" in status.told
