"""A run sends what its plan says: every call that is planned for certain, and none that is not planned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES, CONTINUITY, MIRROR, SHARED_STORE
from tests.conftest import Command
from tests.twin.conftest import OTHERS

LOST = ("--accept-loss", "unknown", "--accept-duplicates", "unknown", "--presume-down", "london", "--reason", "dead")
OPERATIONS = (("swapover", "--to", "paris"), ("fence", "london"), ("failover", "--to", "paris"))


def without_stomp(twin: PlayedTwin) -> None:
    told = yaml.safe_load(twin.settings_path.read_text(encoding="utf-8"))
    for site in told["sites"].values():
        for broker in site["brokers"]:
            broker.pop("stomp", None)
    twin.settings_path.write_text(yaml.safe_dump(told), encoding="utf-8")


def call(row: dict[str, Any]) -> tuple[str, ...]:
    """Without its arguments: the moment stands in a debt's."""
    return tuple(row[key] for key in ("site", "pair", "goal", "thing", "about"))


def sent(run: Path) -> set[tuple[str, tuple[str, ...]]]:
    rows = [json.loads(line) for line in (run / "journal.jsonl").read_text(encoding="utf-8").splitlines()]
    return {(row["step"].partition("-")[2], call(row["call"])) for row in rows if row["kind"] == "intent"}


@pytest.mark.parametrize(
    ("topology", "stomp"),
    [*((each, True) for each in (MIRROR, *OTHERS)), *((each, False) for each in (MIRROR, BRIDGES, CONTINUITY))],
    ids=lambda each: each if isinstance(each, str) else "with stomp" if each else "without stomp",
)
@pytest.mark.parametrize("words", OPERATIONS, ids=lambda words: words[0])
def test_a_run_sends_what_its_plan_says(
    twin: PlayedTwin, dr_ctl: Command, topology: str, words: tuple[str, ...], *, stomp: bool, tmp_path: Path
) -> None:
    if not stomp:
        without_stomp(twin)
    if words[0] == "failover":
        twin.kill("london")
        words = (*words, *LOST)
    dry = dr_ctl(*words, "--dry-run")
    if topology == SHARED_STORE and words[0] == "failover":
        pytest.skip("the other broker takes the store by itself")
    assert dry.code == 0, dry.document
    steps = dry.document["data"]["plan"]["steps"]

    proven = [step["about"] for step in steps if "proven" in step["about"] or "greeting" in step["about"]]
    assert stomp or proven == []

    ended = dr_ctl(*words, "--yes")

    assert ended.code == 0, ended.document
    planned = {(step["verb"], call(each)) for step in steps for each in step["calls"]}
    certain = {(step["verb"], call(each)) for step in steps for each in step["calls"] if each["when"] is None}
    did = sent(tmp_path / "state" / "runs" / ended.document["run"])
    assert certain - did == set()
    assert did - planned == set()
