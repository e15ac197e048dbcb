"""The runbooks in force: those that came with dr-ctl, or the installation's own; lint tells everything in one pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from dr_ctl.engine.runbook import shipped
from tests.cli.conftest import Shell

OWN = """\
runbook: swapover
about: Ours, with a patient quiesce.
steps:
  - observe: both
  - check: swapover
  - quiesce: {site: serving, within: 90s}
  - fence: serving
  - drain: {to: target}
  - verify: {to: target}
  - point-of-no-return: {}
  - activate: target
  - probe: target
"""
UNSAFE = """\
runbook: swapover
about: In a hurry.
steps:
  - check: swapover
  - activate: target
  - fence: serving
  - quiesce: {site: serving, within: soon}
  - teleport: target
"""


@pytest.fixture
def own(dr_ctl: Shell, nobody: str) -> Path:
    """A folder of runbooks of the installation's own."""
    dr_ctl.settings(nobody, nobody, runbooks="./books")
    folder = dr_ctl.folder / "books"
    folder.mkdir()
    (folder / "swapover.yaml").write_text(OWN, encoding="utf-8")
    return folder


def test_without_settings_those_that_came_with_the_tool_are_shown(dr_ctl: Shell) -> None:
    shown = dr_ctl("runbook", "show", "swapover")

    text = (shipped() / "swapover.yaml").read_text(encoding="utf-8")
    assert (shown.code, shown.out) == (0, f"{text}\n{shipped() / 'swapover.yaml'}\n")
    listed = dr_ctl("runbook", "list", "--json").document["data"]["runbooks"]
    assert [each["name"] for each in listed] == ["failback", "failover", "swapover"]


def test_settings_without_a_folder_change_nothing_about_that(dr_ctl: Shell, nobody: str) -> None:
    assert dr_ctl("runbook", "show", "swapover", "--json").document["summary"] == str(shipped() / "swapover.yaml")


def test_the_installations_own_are_shown_in_their_place(dr_ctl: Shell, own: Path) -> None:
    shown = dr_ctl("runbook", "show", "swapover", "--json")

    assert shown.document["data"] == {"name": "swapover", "text": OWN}
    assert dr_ctl("runbook", "list", "--json").document["data"]["runbooks"] == [
        {"name": "swapover", "about": "Ours, with a patient quiesce."}
    ]


def test_a_runbook_that_is_not_in_force_is_not_shown(dr_ctl: Shell, own: Path) -> None:
    (dr_ctl.folder / "outside.yaml").write_text(OWN, encoding="utf-8")

    for name in ("failover", "../outside", "swapover.yaml", ""):
        ended = dr_ctl("runbook", "show", name, "--json")
        assert (ended.code, ended.document["findings"][0]["remedy"]) == (2, "There is swapover.")


def test_lint_passes_what_is_good(dr_ctl: Shell, own: Path) -> None:
    ended = dr_ctl("runbook", "lint", "--json")

    assert (ended.code, ended.document["summary"], ended.document["findings"]) == (0, "1 runbook(s), 0 error(s)", [])
    assert ended.document["data"]["files"] == [str(own / "swapover.yaml")]


def test_lint_tells_everything_that_is_wrong_by_line(dr_ctl: Shell, own: Path) -> None:
    (own / "swapover.yaml").write_text(UNSAFE, encoding="utf-8")

    ended = dr_ctl("runbook", "lint", "--json")

    found = [(each["id"], each["text"]) for each in ended.document["findings"]]
    assert (ended.code, ended.document["outcome"]) == (10, "precheck_failed")
    assert [text for _, text in found if text.startswith("swapover.yaml:8: unknown verb 'teleport'")]
    assert [text for _, text in found if text.startswith("swapover.yaml:7: quiesce: within: 'soon' is not a duration")]
    assert ("DR-BOOK-003", "swapover.yaml:5: activate stands before fence: two sites would serve at the same time") in (
        found
    )
    lines = [int(text.split(":")[1]) for _, text in found]
    assert lines == sorted(lines)


def test_lint_checks_the_files_it_is_given_and_no_others(dr_ctl: Shell, own: Path) -> None:
    (own / "bad.yaml").write_text(UNSAFE, encoding="utf-8")

    assert dr_ctl("runbook", "lint", str(own / "swapover.yaml")).code == 0
    assert dr_ctl("runbook", "lint", str(own / "swapover.yaml"), str(own / "bad.yaml")).code == 10
    assert dr_ctl("runbook", "lint", str(own / "missing.yaml")).code == 10


@pytest.mark.parametrize("content", [b"steps: [", b"\xff\xfe", b"- 1", b""])
def test_a_file_that_is_no_runbook_is_told_and_hides_no_other(dr_ctl: Shell, own: Path, content: bytes) -> None:
    (own / "failover.yaml").write_bytes(content)

    listed = dr_ctl("runbook", "list", "--json")
    linted = dr_ctl("runbook", "lint", "--json")

    assert [row["name"] for row in listed.document["data"]["runbooks"]] == ["failover", "swapover"]
    assert listed.document["data"]["runbooks"][0]["about"] == "has 1 finding(s): see runbook lint"
    assert (linted.code, linted.document["summary"]) == (10, "2 runbook(s), 1 error(s)")


def test_a_file_that_is_no_text_is_not_shown(dr_ctl: Shell, own: Path) -> None:
    (own / "failover.yaml").write_bytes(b"\xff\xfe")

    ended = dr_ctl("runbook", "show", "failover", "--json")

    assert (ended.code, ended.document["outcome"]) == (2, "usage")
    assert "failover.yaml" in ended.document["summary"]


def test_an_unsafe_runbook_is_never_run(dr_ctl: Shell, own: Path) -> None:
    (own / "swapover.yaml").write_text(UNSAFE, encoding="utf-8")

    for words in (["plan", "swapover", "--to", "paris"], ["swapover", "--to", "paris", "--yes"], ["validate"]):
        ended = dr_ctl(*words, "--json")
        assert (ended.code, ended.document["run"]) == (2, None)
        assert "two sites would serve at the same time" in ended.document["findings"][0]["text"]


def test_an_empty_folder_has_no_runbook_to_run(dr_ctl: Shell, own: Path) -> None:
    (own / "swapover.yaml").unlink()

    ended = dr_ctl("swapover", "--to", "paris", "--yes", "--json")

    assert (ended.code, ended.document["summary"]) == (2, f"no runbook for swapover in {own}")
    assert dr_ctl("runbook", "list", "--json").document["data"]["runbooks"] == []
