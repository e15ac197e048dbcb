"""A mistake in the settings or on this machine is told as one, and never answered with a failover."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from dr_ctl.core.model import ExitCode
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import MIRROR
from tests.conftest import Command

Broker = dict[str, Any]


@pytest.fixture
def topology() -> str:
    return MIRROR


def unset(broker: Broker) -> None:
    broker["password"] = {"env": "LONDON_PASSWORD_THAT_NOBODY_SET"}


def empty(broker: Broker) -> None:
    broker["password"] = {"env": "LONDON_PASSWORD_EMPTY"}


def wrong(broker: Broker) -> None:
    broker["password"] = {"plain": "no such password"}


def elsewhere(broker: Broker) -> None:
    broker["jolokia"] = broker["jolokia"].replace("/console/jolokia", "/nothing/here")


def nameless(broker: Broker) -> None:
    broker["jolokia"] = "http://no-such-host.invalid:8161/console/jolokia"


def misnamed(broker: Broker) -> None:
    broker["clients"] = ["client"]


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (unset, "LONDON_PASSWORD_THAT_NOBODY_SET is not set"),
        (empty, "the password is empty: the environment variable LONDON_PASSWORD_EMPTY"),
        (wrong, "the login of admin was refused"),
        (elsewhere, "/nothing/here"),
        (nameless, "its name cannot be resolved"),
        (misnamed, "whether it serves cannot be told from what its settings name"),
    ],
)
def test_no_failover_is_offered_where_the_reason_lies_here(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, mistake: Callable[[Broker], None], says: str
) -> None:
    monkeypatch.setenv("LONDON_PASSWORD_EMPTY", "")
    settings = yaml.safe_load(twin.settings_path.read_text(encoding="utf-8"))
    mistake(settings["sites"]["london"]["brokers"][0])
    twin.settings_path.write_text(json.dumps(settings), encoding="utf-8")

    ended = dr_ctl("status")

    assert ended.code == ExitCode.OK
    findings = ended.document["findings"]
    assert [each["id"] for each in findings if "failover" in each["text"] + each["remedy"]] == []
    assert any(each["id"] == "DR-ROLE-019" and says in each["text"] for each in findings), findings


def test_an_empty_password_is_never_tried(twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers lock accounts out."""
    monkeypatch.setenv("LONDON_PASSWORD_EMPTY", "")
    settings = yaml.safe_load(twin.settings_path.read_text(encoding="utf-8"))
    empty(settings["sites"]["london"]["brokers"][0])
    twin.settings_path.write_text(json.dumps(settings), encoding="utf-8")

    told = dr_ctl("status").document["findings"]

    assert not [each for each in told if "was refused" in each["text"]]
