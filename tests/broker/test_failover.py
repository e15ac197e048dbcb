"""A site is lost under load, the other serves, the lost one returns: bounds hold, and the return doubles nothing."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from dr_ctl.agents.monitor import recording
from dr_ctl.settings.loader import load
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.traffic import Load
from dr_ctl_lab.rehearsal import ANY_FIGURE
from tests.broker.driving import (
    Operator,
    accepting,
    changed_settings,
    killed_at,
    on_queue,
    recorded,
    send,
    send_as_client,
    state_of,
    until,
)

pytestmark = [pytest.mark.broker, pytest.mark.deep]

RATE = 200
OUTFLOW = "$ACTIVEMQ_ARTEMIS_MIRROR_paris"
EVERY_S = 0.2


@dataclass(frozen=True)
class Scene:
    """How a site is lost. `link` is how far it is behind at that moment: in step, 3 s behind, or cut before."""

    link: str = "in step"
    survivor_restarted: bool = False
    rate: int = RATE
    after: int = 3 * RATE
    work_ms: float = 1.0

    @classmethod
    def of_seed(cls, seed: int) -> Scene:
        chance = random.Random(seed)
        return cls(
            link=chance.choice(["in step", "3 s behind", "cut before"]),
            survivor_restarted=chance.random() < 0.3,
            rate=chance.choice([50, 200, 400]),
            after=chance.randrange(100, 1500),
            work_ms=chance.choice([0.0, 1.0, 4.0]),
        )

    def lose(self, lab: Lab, traffic: Load) -> None:
        """Let clients work for a while, then kill London under them."""
        traffic.wait_for(self.after)
        if self.link != "in step":
            lab.cut("london")
            traffic.wait_for(traffic.counts().sent + 3 * self.rate)
        if self.link == "3 s behind":
            behind = lab.admin("london").depth(OUTFLOW)
            lab.heal()
            until(lambda: lab.admin("london").depth(OUTFLOW) < behind, why="it ships again")
        lab.kill("london")


SCENES = [
    Scene(),
    Scene("3 s behind"),
    Scene("cut before"),
    Scene(survivor_restarted=True),
    *(pytest.param(Scene.of_seed(seed), marks=pytest.mark.chaos, id=f"seed {seed}") for seed in range(10)),
]


@pytest.mark.parametrize("scene", SCENES, ids=str)
def test_a_lost_site_is_replaced_and_taken_in_again(tmp_path: Path, scene: Scene) -> None:
    with Lab.up(tmp_path / "lab") as lab:
        settings = changed_settings(
            lab, tmp_path, lambda told: told.update(history={"path": str(tmp_path / "history")})
        )
        operator = Operator(lab, tmp_path / "state", settings)
        with lab.load(scene.rate, work_ms=scene.work_ms) as traffic:
            with recording(load(settings), every_s=EVERY_S):
                scene.lose(lab, traffic)
                until(lambda: operator.run("failover", "--to", "paris", "--dry-run").document["exit_code"] == 11)
            refused = operator.run("failover", "--to", "paris", "--yes")
            bounds = refused.document["data"]["bounds"]

            failed_over = operator.run("failover", "--to", "paris", "--yes", *accepting(refused))
            traffic.wait_for(traffic.counts().sent + 2 * scene.rate)
            lost = traffic.ledger.verdict(drained=False)
            if scene.survivor_restarted:
                lab.kill("paris")
                lab.start("paris")
                again = operator.run("failover", "--to", "paris", "--yes", *ANY_FIGURE)
                assert again.code == 0, again.document
                traffic.wait_for(traffic.counts().sent + scene.rate)
            before = traffic.ledger.verdict(drained=False)
            owed = operator.run("status").document["debts"]
            lab.heal()
            lab.start("london")
            failed_back = operator.run("failback", "--to", "london", "--yes")
            traffic.wait_for(traffic.counts().sent + scene.rate)
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
    assert set(verdict.duplicates) == set(before.duplicates), "doubled by the return"
    assert len(lost.duplicates) <= bounds["duplicates"]["at_most"]
    reconciled = [entry for entry in operator.journal() if (entry["step"] or "").endswith("-reconcile")][-1]["evidence"]
    assert reconciled["recovered"] <= bounds["lost"]["at_most"]
    assert reconciled["quarantined"] == {}
    assert debts == []


def test_a_frozen_site_is_not_taken_for_lost(lab: Lab, operator: Operator) -> None:
    before = state_of(lab)
    lab.freeze("london")
    try:
        ended = operator.run(
            "failover", "--to", "paris", "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown"
        )
    finally:
        lab.thaw("london")

    assert (ended.code, ended.document["outcome"]) == (12, "serving_site_alive")
    until(lambda: state_of(lab) == before, why="as before")


def test_a_lost_site_that_comes_back_open_is_closed_before_anything_else(lab: Lab, operator: Operator) -> None:
    send(lab, "london", "orders.in", 3)
    lab.wait_mirrored()
    until(lambda: lab.admin("paris").depth("orders.in") == 3)
    lab.kill("london")
    assert (
        operator.run(
            "failover", "--to", "paris", "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown"
        ).code
        == 0
    )

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
    assert (
        operator.run(
            "failover", "--to", "paris", "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown"
        ).code
        == 0
    )
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


@pytest.mark.parametrize(("of_failover", "of_failback"), [(1, 1), (2, 3)])
def test_a_failover_and_a_failback_that_are_killed_go_on_where_they_were(
    lab: Lab, operator: Operator, tmp_path: Path, of_failover: int, of_failback: int
) -> None:
    send(lab, "london", "orders.in", 3)
    lab.wait_mirrored()
    until(lambda: lab.admin("paris").depth("orders.in") == 3)
    before = state_of(lab)
    lab.cut("london")
    send_as_client(lab, "orders.in", 2)
    lab.kill("london")

    with recorded(lab, tmp_path / "recorded") as (settings, recorders):
        cut = Operator(lab, operator.state, settings)
        # What stands before London's console goes on accepting connections: nothing shows that it is down.
        presumed = (
            "--accept-loss",
            "unknown",
            "--accept-duplicates",
            "unknown",
            "--presume-down",
            "london",
            "--reason",
            "it was killed",
        )
        killed_at(cut, recorders, "paris", of_failover, "failover", "--to", "paris", "--yes", *presumed)
        failed_over = cut.run("resume", "--yes")
        lab.heal()
        lab.start("london")
        killed_at(cut, recorders, "paris", of_failback, "failback", "--to", "london", "--yes")
        failed_back = cut.run("resume", "--yes")

    assert failed_over.code == 0, failed_over.document
    assert failed_back.code == 0, failed_back.document
    assert failed_back.document["debts"] == []
    assert [lab.admin(site).depth("orders.in") for site in ("london", "paris")] == [5, 5]
    assert state_of(lab) == before
    assert operator.run("runs", "verify").code == 0
