"""`validate` finds nothing ready that it knows nothing of: no monitor, an old estimate, a price that nobody knows."""

from __future__ import annotations

import pytest

from dr_ctl.cli.app import run
from tests.cli.conftest import Shell
from tests.cli.installation import Installation
from tests.cli.test_stored_estimate import keep
from tests.looks import looked

OPERATIONS = ("swapover", "failover", "failback", "reinstate")


def test_where_no_monitor_has_ever_looked_that_and_the_unknown_price_are_warnings(
    dr_ctl: Shell, installation: Installation
) -> None:
    ended = dr_ctl("validate", "--json")

    warned = [(each["id"], each["text"]) for each in ended.document["findings"] if each["severity"] == "warning"]
    assert warned == [
        ("DR-LOSS-001", warned[0][1]),
        ("DR-MON-002", "no monitor has ever looked: what a failover would cost is not known"),
    ]
    assert "how much london takes with it is not known" in warned[0][1]
    assert (
        "if london is lost: refused without --accept-loss unknown --accept-duplicates unknown"
        in ended.document["summary"]
    )
    assert (ended.code, dr_ctl("validate", "--warn-exit", "--json").code) == (0, 30)


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


def test_that_no_estimate_is_stored_beside_a_monitor_is_told(dr_ctl: Shell, installation: Installation) -> None:
    looked(dr_ctl.folder)

    assert dr_ctl("validate", "--json").ids == ["DR-RPO-040"]


def test_the_price_stands_under_its_operation_for_a_person(dr_ctl: Shell, installation: Installation) -> None:
    lines = dr_ctl("validate").out.splitlines()

    assert lines[0] == "installation orders:"
    assert lines[lines.index("failover to paris:") + 1].startswith(" ! DR-LOSS-001  ")
    assert "no errors, 2 warnings" in lines


def test_each_operation_has_a_code_of_its_own_and_the_command_has_the_first_ones(
    dr_ctl: Shell, installation: Installation
) -> None:
    installation.london.broker.link.started = False

    ended = dr_ctl("validate", "--json")

    operations = ended.document["data"]["operations"]
    assert tuple(operations) == OPERATIONS
    assert {name: each["exit_code"] for name, each in operations.items()} == {
        "swapover": 10,
        "failover": 10,
        "failback": 0,  # it starts the link itself
        "reinstate": 0,
    }
    assert ended.code == operations["swapover"]["exit_code"]
    assert dr_ctl("validate", "--for", "reinstate", "--json").code == 0


def test_help_says_whose_the_exit_code_is(capsys: pytest.CaptureFixture[str]) -> None:
    run(["validate", "--help"])

    assert "The exit code is that of the first operation: of `swapover`" in " ".join(capsys.readouterr().out.split())
