"""The plan of a disaster today: with its price, of every topology, and carried out by nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from dr_ctl_lab.played import PlayedTwin
from tests.conftest import Command
from tests.twin.conftest import BOTH
from tests.twin.test_check import looked

DISASTER = ("failover", "--to", "paris", "--as-if-lost", "london")


@BOTH
def test_the_plan_of_a_disaster_can_be_read_while_all_is_well(twin: PlayedTwin, dr_ctl: Command) -> None:
    looked(twin)

    ended = dr_ctl("plan", *DISASTER)

    assert ended.code == 0, ended.document["findings"]
    plan = ended.document["data"]["plan"]
    verbs = [step["verb"] for step in plan["steps"]]
    assert (plan["source"], plan["target"], plan["as_if_lost"]) == ("london", "paris", "london")
    assert verbs[-2:] == ["activate", "probe"]
    assert verbs.index("fence") < verbs.index("point-of-no-return") < verbs.index("activate")
    assert ended.document["data"]["bounds"]["lost"]["at_most"] is not None
    assert ended.document["data"]["role"] == "serving"
    assert "DR-PLAN-002" in [finding["id"] for finding in ended.document["findings"]]
    assert twin.changes() == []


@pytest.mark.usefixtures("twin")
def test_what_a_failover_would_be_refused_for_is_told_and_refuses_no_plan(dr_ctl: Command) -> None:
    ended = dr_ctl("plan", *DISASTER)  # nobody has recorded anything: the loss is not known

    [told] = [each for each in ended.document["findings"] if each["id"] == "DR-LOSS-001"]
    assert (ended.code, told["severity"]) == (0, "warning")
    assert told["text"].startswith("a failover would be refused for that: ")
    assert "--accept-loss unknown --accept-duplicates unknown" in told["remedy"]


def test_no_command_carries_it_out(twin: PlayedTwin, dr_ctl: Command, tmp_path: Path) -> None:
    looked(twin)
    plan = tmp_path / "disaster.json"
    assert dr_ctl("plan", *DISASTER, "--out", str(plan)).code == 0
    twin.kill("london")

    ended = dr_ctl("failover", "--to", "paris", "--yes", "--plan", str(plan))

    assert (ended.code, twin.changes()) == (2, [])
    assert "was made as if london was lost" in ended.document["summary"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("swapover", "--to", "paris", "--as-if-lost", "london"), "is for a failover to the other site"),
        (("failover", "--to", "paris", "--as-if-lost", "paris"), "is for a failover to the other site"),
        (("failover", "--to", "paris", "--as-if-lost", "rome"), "no site rome in the settings"),
    ],
)
@pytest.mark.usefixtures("twin")
def test_it_is_asked_of_a_failover_from_the_other_site(dr_ctl: Command, words: tuple[str, ...], why: str) -> None:
    ended = dr_ctl("plan", *words)

    assert (ended.code, why in ended.document["summary"]) == (2, True)


def test_a_site_that_could_not_take_over_is_told(twin: PlayedTwin, dr_ctl: Command) -> None:
    twin.kill("paris")

    ended = dr_ctl("plan", *DISASTER)

    assert ended.code == 10
    assert "a failover to paris is not possible" in ended.document["summary"]
