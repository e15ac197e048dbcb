"""Two real brokers that BrokerSync joins: what their consoles deny, and what is read where there is none."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dr_ctl_lab.lab.classic.admin import ClassicAdmin
from dr_ctl_lab.lab.kinds import BROKERSYNC
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, changed_settings, end_all, until

pytestmark = [pytest.mark.broker, pytest.mark.deep]


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    end_all()


def test_a_policy_that_denies_what_steps_need_is_told_before_the_fence(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", topology=BROKERSYNC, options={"policy": "hardened"}) as lab:
        operator = Operator(lab, tmp_path / "state")
        ended = operator.run("swapover", "--to", "paris", "--yes")
        serving = operator.run("status").document["data"]["pairs"][0]["serving"]

    assert (ended.code, serving) == (10, "london"), ended.told
    for words in ("pause", "removeMatchingMessages", "jolokia-access.xml"):
        assert words in ended.told


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
