"""What a shell offers when somebody presses tab: sites, runs, operations, exit codes and findings."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dr_ctl.cli.app import run
from tests.cli.conftest import Shell

Offered = Callable[[str], list[str]]


@pytest.fixture
def offered(dr_ctl: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Offered:
    """The words that bash gets for a line, the last of which is being typed."""
    (dr_ctl.folder / "dr-ctl.yaml").write_text("sites: {london: {}, paris: {}}\n", encoding="utf-8")
    monkeypatch.setenv("_DR_CTL_COMPLETE", "complete_bash")

    def words(line: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        with pytest.raises(SystemExit):
            run([])
        told = capsys.readouterr()
        assert told.err == ""
        return told.out.split()

    return words


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
        ("dr-ctl schema ru", ["runs", "runbook"]),
        ("dr-ctl schema runs l", ["list"]),
    ],
)
def test_names_are_completed(offered: Offered, line: str, words: list[str]) -> None:
    assert offered(line) == words


def test_the_settings_and_the_state_that_were_named_are_meant(dr_ctl: Shell, offered: Offered) -> None:
    (dr_ctl.folder / "other.yaml").write_text("sites: {ghent: {}, ostend: {}}\n", encoding="utf-8")
    for name in ("20261121T091512Z-swapover-paris-7f3a", "20261122T091512Z-failover-london-0001"):
        (dr_ctl.state / "runs" / name).mkdir(parents=True)

    assert offered("dr-ctl --config other.yaml swapover --to ") == ["ghent", "ostend"]
    assert offered("dr-ctl runs show 2") == [
        "20261122T091512Z-failover-london-0001",
        "20261121T091512Z-swapover-paris-7f3a",
    ]


def test_what_cannot_be_read_offers_nothing(dr_ctl: Shell, offered: Offered) -> None:
    (dr_ctl.folder / "dr-ctl.yaml").write_text("sites: {london: {}, paris: {}}\nbroken: [\n", encoding="utf-8")

    assert offered("dr-ctl swapover --to ") == []
    assert offered("dr-ctl runs show ") == []


def test_a_shell_gets_it_of_the_program_itself(offered: Offered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_WORDS", "dr-ctl fence p")
    monkeypatch.setenv("COMP_CWORD", "2")

    program = [Path(sys.executable).with_name("dr-ctl")]
    assert subprocess.run(program, capture_output=True, text=True, check=False).stdout.split() == ["paris"]
