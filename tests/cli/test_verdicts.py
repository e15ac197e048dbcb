"""`validate`: a verdict is what the command would answer now; what was not read is never ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import Shell
from tests.cli.installation import Installation


def verdicts(dr_ctl: Shell, *words: str) -> dict[str, Any]:
    told: dict[str, Any] = dr_ctl("validate", *words, "--json").document["data"]["operations"]
    return told


def as_it_is(installation: Installation) -> None:
    """London serves, Paris waits."""


def closed(installation: Installation) -> None:
    installation.london.keep_out()


def moved(installation: Installation) -> None:
    installation.london.keep_out()
    installation.paris.let_in()


def both(installation: Installation) -> None:
    installation.paris.let_in()


def stopped(installation: Installation) -> None:
    installation.london.broker.link.started = False


def killed(installation: Installation) -> None:
    installation.twin.kill("london")


@pytest.mark.parametrize("to", ["london", "paris"])
@pytest.mark.parametrize("situation", [as_it_is, closed, moved, both, stopped, killed])
def test_a_dry_run_with_what_it_needs_answers_what_the_verdict_says(
    dr_ctl: Shell, installation: Installation, situation: Callable[[Installation], None], to: str
) -> None:
    situation(installation)

    for name, told in verdicts(dr_ctl, "--to", to).items():
        site = [to] if name == "reinstate" else ["--to", to]
        needs = [word.replace("TEXT", "it is gone") for need in told["needs"] for word in need.split(" ")]
        ended = dr_ctl(name, *site, *needs, "--dry-run", "--json")
        waits = "not attached" in told["verdict"]  # the checks do not refuse that: the run would wait, and give up
        priced = told["verdict"].startswith("refused without --")  # who owns the limit may say those words
        is_well = told["exit_code"] == 0 or waits or priced
        assert (ended.code == 0) is is_well, (name, told, ended.document["summary"])
        assert ("ready" in told["verdict"].split(" ")[:1][0]) <= (told["exit_code"] == 0)


def test_every_check_has_a_name_a_verdict_its_evidence_and_its_age(dr_ctl: Shell, installation: Installation) -> None:
    ended = dr_ctl("validate", "--verbose", "--json")
    text = dr_ctl("validate", "--verbose").out

    checks = ended.document["data"]["checks"]
    assert len({each["name"] for each in checks}) >= 40
    assert {each["verdict"] for each in checks} <= {"holds", "warns", "fails", "not read"}
    assert all(each["evidence"] and each["age_s"] >= 0 for each in checks if each["verdict"] != "not read")
    assert all(f"{each['verdict']:<8}  {each['name']} (" in text for each in checks)
    assert f"{len(checks)} checks: " in text
    assert dr_ctl("--verbose", "validate", "--json").document["data"].keys() == ended.document["data"].keys()


def test_what_was_not_read_is_said_and_never_ready(dr_ctl: Shell, installation: Installation, nobody: str) -> None:
    dr_ctl.settings(nobody, installation.urls["paris"])

    told = dr_ctl("validate", "--verbose", "--json").document["data"]

    of_london = [each for each in told["checks"] if each["where"] == "london/orders-1"]
    assert len(of_london) > 20
    assert {(each["verdict"], each["evidence"], each["age_s"]) for each in of_london} == {("not read", None, None)}
    assert "ready" not in {told["operations"][name]["verdict"] for name in ("swapover", "failback", "reinstate")}


def test_what_fails_names_its_finding(dr_ctl: Shell, installation: Installation) -> None:
    installation.london.broker.link.started = False

    checks = dr_ctl("validate", "--verbose", "--json").document["data"]["checks"]

    [link] = [each for each in checks if each["findings"] == ["DR-LINK-003"]]
    assert (link["where"], link["name"], link["verdict"]) == ("london/orders-1", "the link is started", "fails")
