"""After a failover that went well nothing cries wolf: who serves comes first, and no error is its own doing."""

from __future__ import annotations

import pytest

from dr_ctl.core.model import Health
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, FANOUT, MIRROR
from tests.conftest import Command

LOST = ("failover", "--to", "paris", "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown")


@pytest.mark.parametrize("topology", [MIRROR, CONTINUITY, BRIDGES, BROKERSYNC, FANOUT])
def test_what_the_failover_made_is_no_error(twin: PlayedTwin, dr_ctl: Command) -> None:
    twin.kill("london")
    ended = dr_ctl(*LOST)
    assert ended.code == 0, ended.told
    assert ended.document["summary"].startswith("failed over from london to paris; verified: paris serves; ")

    checked, validated, status = dr_ctl("check", "--within", "30s"), dr_ctl("validate"), dr_ctl("status")

    assert checked.code == Health.CRITICAL  # no failover is possible while the other site is away
    assert checked.document["summary"].startswith("CRITICAL - paris serves; failover impossible: london is down; ")
    assert "london/orders-1 is down" not in checked.document["summary"]
    assert "is not attached" not in checked.document["summary"]
    errors = [each for each in validated.document["findings"] if each["severity"] == "error"]
    assert errors == []
    kept_out = [each["text"] for each in status.document["debts"] if each["kind"] == "quarantine"]
    assert all("a restart of paris's broker" in text for text in kept_out), kept_out


def test_once_the_lost_site_is_back_the_door_that_keeps_it_out_is_no_error(twin: PlayedTwin, dr_ctl: Command) -> None:
    twin.kill("london")
    assert dr_ctl(*LOST).code == 0
    twin.start("london")

    validated = dr_ctl("validate")

    assert [each for each in validated.document["findings"] if each["severity"] == "error"] == []
    [door] = [each for each in validated.document["findings"] if each["id"] == "DR-DOOR-004"]
    assert (door["severity"], "`dr-ctl reinstate london` does" in door["remedy"]) == ("info", True)
