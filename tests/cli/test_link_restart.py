"""`link restart`: the link of one site stopped and started as a run of its own; clients stay where they are."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Shell
from tests.cli.installation import Installation
from tests.patience import impatient


def restart(dr_ctl: Shell, *words: str) -> tuple[int, dict[str, object]]:
    ended = dr_ctl("link", "restart", *words, "--yes", "--json")
    return ended.code, ended.document


@pytest.mark.parametrize("stopped", [True, False])
def test_the_link_is_started_and_seen_to_attach(dr_ctl: Shell, installation: Installation, stopped: bool) -> None:
    before = installation.settable
    with installation.twin.still():
        installation.london.broker.link.started = not stopped

    code, told = restart(dr_ctl, "london")

    assert (code, told["summary"]) == (0, "the link of london is attached; london is serving, paris is standby")
    assert installation.settable == before
    assert "-link-restart-london-" in str(told["run"])
    assert dr_ctl("runs", "verify", "--json").code == 0
    operations = [each.partition("(")[0] for each in installation.changes]
    assert operations == ["startBrokerConnection"] if stopped else ["stopBrokerConnection", "startBrokerConnection"]


def test_one_that_cannot_attach_says_why_and_is_left_started(
    dr_ctl: Shell, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, link_attach_s=0.3)
    before = installation.settable
    installation.twin.cut("london")

    code, told = restart(dr_ctl, "london")

    findings = told["findings"]
    assert isinstance(findings, list)
    assert (code, installation.settable) == (20, before)
    assert "DR-LINK-008" in [each["id"] for each in findings]
    assert "london serves as before" in str(told["summary"])


def test_it_is_planned_and_asked_for_like_any_other(dr_ctl: Shell, installation: Installation) -> None:
    dry, alone = dr_ctl("link", "restart", "london", "--dry-run"), dr_ctl("link", "restart", "london")

    assert dry.code == 0
    assert dry.out.startswith("link restart london\n")
    assert "stop link paris at london" in dry.out
    assert (alone.code, installation.changes) == (14, [])


def test_a_site_that_does_not_answer_is_refused(dr_ctl: Shell, installation: Installation, nobody: str) -> None:
    dr_ctl.settings(nobody, installation.urls["paris"])

    code, told = restart(dr_ctl, "london")

    assert (code, told["findings"][0]["id"]) == (10, "DR-ROLE-009")  # type: ignore[index]


def test_a_topology_without_such_a_link_refuses_with_the_reason(dr_ctl: Shell, nobody: str) -> None:
    dr_ctl.settings(nobody, nobody, topology="artemis-continuity")
    text = (dr_ctl.folder / "dr-ctl.yaml").read_text(encoding="utf-8")
    (dr_ctl.folder / "dr-ctl.yaml").write_text(text.replace("      mirror:\n      - mirror\n", ""), encoding="utf-8")

    code, told = restart(dr_ctl, "london")

    assert code == 2
    assert "artemis-continuity has nothing" in str(told["summary"])
