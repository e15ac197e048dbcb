"""A service on two real brokers that BrokerSync joins, beside its agent: moved, lost, taken in again. The ledger of
message ids judges."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pytest

from dr_ctl.agents.monitor import recording
from dr_ctl.settings.loader import load
from dr_ctl_lab.lab.classic.admin import ClassicAdmin
from dr_ctl_lab.lab.kinds import BROKERSYNC
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.ledger import Counts, Verdict
from dr_ctl_lab.lab.traffic import Load
from tests.broker.driving import Ended, Operator, accepting, changed_settings, until
from tests.topologies.brokersync.real import Agents

pytestmark = [pytest.mark.broker, pytest.mark.deep]

RATE = 300
EVERY_S = 0.5


def left(lab: Lab) -> dict[str, int]:
    """All messages that lie anywhere, but dead letters."""
    return {
        f"{site}/{name}": count
        for site in ("london", "paris")
        for name, count in lab.admin(site).depths().items()
        if count
    }


def test_it_moves_there_and_back_five_times_and_nothing_is_lost_doubled_or_left(
    sync_lab: Lab, operator: Operator
) -> None:
    out = []
    with Agents(operator), sync_lab.load(RATE) as traffic:
        for move in range(10):
            traffic.wait_for(traffic.counts().sent + RATE, within_s=60)
            ended = operator.run("swapover", "--to", ("paris", "london")[move % 2], "--yes")
            assert ended.code == 0, ended.told
            out.append(ended.document["data"]["outage_s"])
        verdict = traffic.stop(drain_s=60)
        print(f"clients were out for {[f'{each:.2f}' for each in out]} s, median {median(out):.2f} s")
        print(verdict.as_json())

        assert verdict.drained
        assert (verdict.lost, verdict.duplicates, verdict.redelivered) == ((), (), ())
        until(lambda: left(sync_lab) == {}, why="no copy of what was consumed is left")


def test_a_lost_site_is_replaced_within_its_price_and_its_return_doubles_nothing(
    sync_lab: Lab, operator: Operator
) -> None:
    # Clients that keep up leave nothing to lose.
    with Agents(operator), sync_lab.load(RATE, work_ms=20.0) as traffic:
        refused, moved = lose(sync_lab, operator, traffic)
        traffic.wait_for(traffic.counts().sent + RATE, within_s=60)
        lost = came_to_rest(sync_lab, traffic)
        sync_lab.start("london")
        traffic.resume_producing()
        returned = operator.run("failback", "--to", "london", "--yes")
        traffic.wait_for(traffic.counts().sent + RATE, within_s=60)
        verdict = traffic.stop(drain_s=60)
    bounds = refused.document["data"]["bounds"]
    # What a client had worked on and could not acknowledge comes again, wherever it is served then.
    duplicates, again = {*lost.duplicates}, {*verdict.duplicates}
    print(
        f"lost {len(lost.lost)} of at most {bounds['lost']}, twice {len(duplicates)} of at most {bounds['duplicates']}"
    )
    print(f"the return doubled {len(again - duplicates)}; {returned.document['data']}")

    assert (refused.code, moved.code, returned.code) == (11, 0, 0), (moved.told, returned.told)
    assert 0 < len(lost.lost) <= bounds["lost"]["at_most"]
    assert len(duplicates) <= bounds["duplicates"]["at_most"]
    assert verdict.drained
    assert verdict.lost == ()
    assert again == duplicates
    assert operator.run("status").document["debts"] == []


def lose(lab: Lab, operator: Operator, traffic: Load) -> tuple[Ended, Ended]:
    """Hold up for three seconds what London ships, and kill it; the failover that is refused for its price, and the one
    that accepts it."""
    failover = ("failover", "--to", "paris", "--yes")
    with recording(load(operator.settings), every_s=EVERY_S):
        traffic.wait_for(3 * RATE, within_s=60)
        ClassicAdmin(lab.site("london")).stop_link("paris")
        traffic.wait_for(traffic.counts().sent + 3 * RATE, within_s=60)
        lab.kill("london")
        until(lambda: "down" in operator.run("status").told, why="london is seen down")
    refused = operator.run(*failover)
    return refused, operator.run(*failover, *accepting(refused))


def came_to_rest(lab: Lab, traffic: Load) -> Verdict:
    """What became of all messages once nothing lies any more in the queues of the site that serves."""
    traffic.pause_producing()

    def idle(counts: Counts) -> bool:
        return counts.received == counts.consumed + counts.ack_in_doubt and lab.target().left(lab.queues) == 0

    traffic.wait_until(idle, within_s=60, what="the queues are empty")
    return traffic.ledger.verdict()


@pytest.mark.parametrize(("policy", "words"), [("hardened", "pause"), ("hardened", "removeMatchingMessages")])
def test_a_policy_that_denies_what_a_step_needs_is_told_before_the_fence(
    tmp_path: Path, policy: str, words: str
) -> None:
    with Lab.up(tmp_path / "lab", topology=BROKERSYNC, options={"policy": policy}) as lab:
        operator = Operator(lab, tmp_path / "state")
        with lab.load(50) as traffic:
            traffic.wait_for(100)
            ended = operator.run("swapover", "--to", "paris", "--yes")
            verdict = traffic.stop(drain_s=30)

        assert ended.code == 10, ended.told
        assert words in ended.told
        assert "jolokia-access.xml" in ended.told
        assert verdict.clean
        assert operator.run("status").document["data"]["pairs"][0]["serving"] == "london"


def test_copies_in_one_direction_move_one_way_and_say_what_the_way_back_needs(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", topology=BROKERSYNC, options={"one_way": "london"}) as lab:
        operator = Operator(lab, tmp_path / "state")
        with lab.load(100, work_ms=20.0) as traffic:
            traffic.wait_for(200)
            there = operator.run("swapover", "--to", "paris", "--yes")
            traffic.wait_for(traffic.counts().sent + 100)
            back = operator.run("swapover", "--to", "london", "--yes")
            verdict = traffic.stop(drain_s=60)

        assert there.code == 0, there.told
        assert "DR-SYNC-003" in [each["id"] for each in there.document["findings"]]
        assert (back.code, "DR-SYNC-001" in back.told) == (10, True), back.told
        assert verdict.drained
        assert (verdict.lost, verdict.duplicates) == ((), ())


def test_without_management_its_figures_are_told_and_nothing_is_moved(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", topology=BROKERSYNC) as lab:
        told = changed_settings(lab, tmp_path / "bare", without_jolokia)
        operator, bare = Operator(lab, tmp_path / "state"), Operator(lab, tmp_path / "bare" / "state", told)
        ClassicAdmin(lab.site("london")).stop_link("paris")
        with lab.load(100, work_ms=50.0) as traffic:
            traffic.wait_for(200)
            traffic.pause_producing()
            until(lambda: status(operator) == status(bare), why="both readers say the same")
            seen = status(bare)
            refused = bare.run("swapover", "--to", "paris", "--yes")

    assert seen["sites"] == {"london": "serving", "paris": "standby"}
    assert seen["to_ship"]["orders.in"] > 0
    assert (refused.code, "DR-POLICY-003" in refused.told) == (10, True), refused.told


def without_jolokia(told: dict[str, Any]) -> None:
    for site in told["sites"].values():
        for broker in site["brokers"]:
            del broker["jolokia"]


def status(operator: Operator) -> dict[str, Any]:
    """Roles, and what is to be shipped by queue."""
    told = operator.run("status").document["data"]
    link = next(each for each in told["links"] if each["from"] == "london")
    return {"sites": {name: each["role"] for name, each in told["sites"].items()}, "to_ship": link["queues"]}
