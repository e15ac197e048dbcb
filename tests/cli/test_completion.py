"""What a shell offers when somebody presses tab: sites, runs, operations, exit codes and findings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS = "sites: {london: {}, paris: {}}\nbroken: [\n"


def offered(line: str, folder: Path, **more: str) -> list[str]:
    """The words that bash gets for a line, the last of which is being typed."""
    words = line.split(" ")
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("DR_CTL_")},
        "_DR_CTL_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "XDG_STATE_HOME": str(folder / "state"),
        **more,
    }
    program = [str(Path(sys.executable).with_name("dr-ctl"))]
    ended = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.stderr == ""
    return ended.stdout.split()


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "dr-ctl.yaml").write_text("sites: {london: {}, paris: {}}\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("dr-ctl swapover --to ", ["london", "paris"]),
        ("dr-ctl failover --presume-down p", ["paris"]),
        ("dr-ctl fence l", ["london"]),
        ("dr-ctl plan f", ["failover", "failback"]),
        ("dr-ctl explain rever", ["reverted"]),
        ("dr-ctl explain 2", ["2", "20", "21", "22", "23", "24"]),
        ("dr-ctl explain DR-ROLE-019", ["DR-ROLE-019"]),
    ],
)
def test_names_are_completed(here: Path, line: str, words: list[str]) -> None:
    assert offered(line, here) == words


def test_the_settings_and_the_state_that_were_named_are_meant(here: Path) -> None:
    (here / "other.yaml").write_text("sites: {ghent: {}, ostend: {}}\n", encoding="utf-8")
    for name in ("20261121T091512Z-swapover-paris-7f3a", "20261122T091512Z-failover-london-0001"):
        (here / "kept" / "runs" / name).mkdir(parents=True)

    assert offered("dr-ctl --config other.yaml swapover --to ", here) == ["ghent", "ostend"]
    assert offered("dr-ctl runs show 2", here, DR_CTL_STATE_DIR=str(here / "kept")) == [
        "20261122T091512Z-failover-london-0001",
        "20261121T091512Z-swapover-paris-7f3a",
    ]


def test_what_cannot_be_read_offers_nothing(here: Path) -> None:
    (here / "dr-ctl.yaml").write_text(SETTINGS, encoding="utf-8")

    assert offered("dr-ctl swapover --to ", here) == []
    assert offered("dr-ctl runs show ", here) == []
