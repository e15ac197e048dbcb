"""What a failover may cost beside what is accepted: loss, and what comes twice."""

from __future__ import annotations

import json
import shlex

import pytest
import yaml

from dr_ctl.core.model import ExitCode
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import MIRROR
from tests.conftest import Command
from tests.twin.matrix import serving


@pytest.fixture
def topology() -> str:
    return MIRROR


def limited(twin: PlayedTwin, **objectives: object) -> None:
    settings = yaml.safe_load(twin.settings_path.read_text(encoding="utf-8"))
    settings["objectives"] = {"loss": {"messages": 0}, **objectives}
    twin.settings_path.write_text(json.dumps(settings), encoding="utf-8")


LOST = ("failover", "--to", "paris", "--accept-loss", "unknown")


def test_without_a_limit_what_comes_twice_is_told_and_refuses_nothing(twin: PlayedTwin, dr_ctl: Command) -> None:
    limited(twin)
    twin.kill("london")

    ended = dr_ctl(*LOST, "--yes")

    assert (ended.code, serving(twin)) == (ExitCode.OK, ("paris",)), ended.document
    assert ended.document["data"]["bounds"]["twice"]["at_most"] is None


@pytest.mark.parametrize("accepted", [(), ("--accept-twice", "5")])
def test_what_is_not_known_is_above_every_limit_but_a_persons_word(
    twin: PlayedTwin, dr_ctl: Command, accepted: tuple[str, ...]
) -> None:
    limited(twin, **({} if accepted else {"twice": {"messages": 1000}}))
    twin.kill("london")

    refused = dr_ctl(*LOST, *accepted, "--yes")

    assert (refused.code, serving(twin), refused.document["run"]) == (ExitCode.LOSS_REFUSED, (), None)
    [finding] = [each for each in refused.document["findings"] if each["id"] == "DR-LOSS-005"]
    assert finding["text"].startswith("how many messages come twice is not known")
    told = finding["remedy"].rpartition("add ")[2].rstrip(".")
    assert told == "--accept-twice unknown"

    ended = dr_ctl(*LOST, *shlex.split(told), "--yes")

    assert (ended.code, serving(twin)) == (ExitCode.OK, ("paris",)), ended.document


def test_validate_says_what_a_failover_would_need(twin: PlayedTwin, dr_ctl: Command) -> None:
    limited(twin, twice={"messages": 1000})
    twin.kill("london")

    told = dr_ctl("validate", "--for", "failover", "--to", "paris")

    assert "ready, with --accept-loss unknown --accept-twice unknown" in json.dumps(told.document), told.document


def test_it_is_a_number_or_unknown(twin: PlayedTwin, dr_ctl: Command) -> None:
    ended = dr_ctl(*LOST, "--accept-twice", "few", "--yes")

    assert (ended.code, "--accept-twice few: not a number" in ended.told) == (ExitCode.USAGE, True)
    assert serving(twin) == ("london",)
