"""Where clients have no door that greets, a plan names no proof by a greeting, and the run makes none. That runs do
what their plans say is judged wherever the record is played."""

import json
from pathlib import Path

import pytest
import yaml

from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES, CONTINUITY, MIRROR
from tests.conftest import Command
from tests.record.truth import as_planned
from tests.twin.matrix import ACCEPTED, done

WORD = ("--presume-down", "london", "--reason", "dead")


@pytest.mark.parametrize("topology", [MIRROR, BRIDGES, CONTINUITY])
@pytest.mark.parametrize("words", [("swapover", "--to", "paris"), ("failover", "--to", "paris", *ACCEPTED, *WORD)])
def test_a_run_sends_what_its_plan_says_also_where_nobody_greets(
    twin: PlayedTwin, dr_ctl: Command, words: tuple[str, ...], tmp_path: Path
) -> None:
    told = yaml.safe_load(twin.settings_path.read_text(encoding="utf-8"))
    for site in told["sites"].values():
        for broker in site["brokers"]:
            del broker["stomp"]
    twin.settings_path.write_text(json.dumps(told), encoding="utf-8")
    if words[0] == "failover":
        twin.kill("london")
    plan = done(dr_ctl(*words, "--dry-run")).document["data"]["plan"]

    ended = done(dr_ctl(*words, "--yes"))

    assert [step for step in plan["steps"] if "proven" in step["about"] or "greeting" in step["about"]] == []
    as_planned(plan, tmp_path / "state" / "runs" / ended.document["run"])
