"""One line and a code for a monitoring system, once a debt is forgotten."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dr_ctl.application import health
from dr_ctl_lab.played import PlayedTwin
from tests.conftest import Command

CHECK = ("check", "--within", "30s")


def test_a_debt_is_a_warning_and_a_forgotten_one_is_critical(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin.kill("london")
    assert (
        dr_ctl("failover", "--to", "paris", "--accept-loss", "unknown", "--accept-duplicates", "unknown", "--yes").code
        == 0
    )
    twin.start("london")

    owed = dr_ctl(*CHECK).document["data"]["problems"]
    monkeypatch.setattr(health, "OVERDUE", timedelta(0))
    late = dr_ctl(*CHECK).document["data"]["problems"]

    assert {each["health"] for each in owed if each["text"].startswith("owed since")} == {"warning"}, owed
    assert {each["health"] for each in late if each["text"].startswith("overdue since")} == {"critical"}, late
