"""`validate` finds nothing ready that it knows nothing of: no monitor, an old estimate, a price that nobody knows."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Shell
from tests.cli.installation import Installation
from tests.cli.test_stored_estimate import keep
from tests.looks import looked


def test_a_failover_is_ready_where_a_monitor_looks_and_its_price_is_allowed(
    dr_ctl: Shell, installation: Installation
) -> None:
    looked(dr_ctl.folder)
    keep(dr_ctl)

    ended = dr_ctl("validate", "--for", "failover", "--json")

    assert ended.document["summary"] == "failover to paris: refused while london serves; if london is lost: ready"
    assert [each for each in ended.document["findings"] if each["severity"] == "warning"] == []


@pytest.mark.parametrize(("minutes", "is_told"), [(10, False), (18, True), (92 * 24 * 60, True)])
def test_an_estimate_that_a_run_would_not_take_is_told_as_old(
    dr_ctl: Shell, installation: Installation, minutes: float, is_told: bool
) -> None:
    looked(dr_ctl.folder)
    keep(dr_ctl, minutes_ago=minutes)

    ended = dr_ctl("validate", "--verbose", "--json")

    [check] = [each for each in ended.document["data"]["checks"] if each["name"] == "an estimate is stored, and fresh"]
    assert ("DR-RPO-018" in ended.ids) is is_told
    assert check["verdict"] == ("warns" if is_told else "holds")
