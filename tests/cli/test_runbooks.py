"""The runbooks in force: those that came with dr-ctl, or the installation's own; lint tells everything in one pass."""

from __future__ import annotations

from pathlib import Path

import pytest

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


@pytest.fixture
def own(dr_ctl: Shell, nobody: str) -> Path:
    """A folder of runbooks of the installation's own."""
    dr_ctl.settings(nobody, nobody, runbooks="./books")
    folder = dr_ctl.folder / "books"
    folder.mkdir()
    (folder / "swapover.yaml").write_text(OWN, encoding="utf-8")
    return folder


def test_a_file_that_is_no_text_is_not_shown(dr_ctl: Shell, own: Path) -> None:
    (own / "failover.yaml").write_bytes(b"\xff\xfe")

    ended = dr_ctl("runbook", "show", "failover", "--json")

    assert (ended.code, ended.document["outcome"]) == (2, "usage")
    assert "failover.yaml" in ended.document["summary"]


def test_an_empty_folder_has_no_runbook_to_run(dr_ctl: Shell, own: Path) -> None:
    (own / "swapover.yaml").unlink()

    ended = dr_ctl("swapover", "--to", "paris", "--yes", "--json")

    assert (ended.code, ended.document["summary"]) == (2, f"no runbook for swapover in {own}")
    assert dr_ctl("runbook", "list", "--json").document["data"]["runbooks"] == []
