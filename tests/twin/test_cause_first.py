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


THROTTLED = "The console throttles logins"  # after the first one that it refused
ANSWERS = (
    (("status",), ExitCode.OK),
    (("validate",), ExitCode.UNKNOWN),
    (("swapover", "--to", "paris", "--yes"), ExitCode.PRECHECK_FAILED),
)


def make(twin: PlayedTwin, mistake: Callable[[Broker], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a mistake about London into the settings."""
    monkeypatch.setenv("LONDON_PASSWORD_EMPTY", "")
    settings = yaml.safe_load(twin.settings_path.read_text(encoding="utf-8"))
    mistake(settings["sites"]["london"]["brokers"][0])
    twin.settings_path.write_text(json.dumps(settings), encoding="utf-8")


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
    make(twin, mistake, monkeypatch)
    for words, code in ANSWERS:
        ended = dr_ctl(*words)

        assert ended.code == code, ended.document
        findings = ended.document["findings"]
        assert [each for each in findings if "failover" in each["remedy"] or "--presume-down" in each["remedy"]] == []
        assert any(
            each["id"] == "DR-ROLE-019" and (says in each["text"] or THROTTLED in each["remedy"]) for each in findings
        )


def test_check_names_the_reason_and_does_not_say_that_nobody_serves(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(twin, unset, monkeypatch)

    ended = dr_ctl("check", "--within", "30s")

    assert (ended.code, ended.document["outcome"]) == (3, "unknown")
    assert "london was not read, and may serve: the environment variable" in ended.document["summary"]
    assert "no site serves" not in ended.document["summary"]


def test_who_knows_that_the_site_is_lost_may_still_say_so(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(twin, nameless, monkeypatch)
    twin.kill("london")
    known = (
        "--presume-down",
        "london",
        "--reason",
        "the hall burnt down",
        "--accept-loss",
        "unknown",
        "--accept-duplicates",
        "unknown",
    )

    assert dr_ctl("failover", "--to", "paris", *known, "--yes").code == ExitCode.OK


def test_an_empty_password_is_never_tried(twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers lock accounts out."""
    monkeypatch.setenv("LONDON_PASSWORD_EMPTY", "")
    settings = yaml.safe_load(twin.settings_path.read_text(encoding="utf-8"))
    empty(settings["sites"]["london"]["brokers"][0])
    twin.settings_path.write_text(json.dumps(settings), encoding="utf-8")

    told = dr_ctl("status").document["findings"]

    assert not [each for each in told if "was refused" in each["text"]]
