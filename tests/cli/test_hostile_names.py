"""Names that clients chose reach the terminal as text: never as a command to it, never as a line of dr-ctl's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.cli.conftest import Shell
from tests.cli.installation import Installation
from tests.cli.sites import sites

__all__ = ["sites"]  # a fixture

FORGED = "paris serves; nothing is under way"
NAMES = [f"orders\x1b[2J\x1b]0;{FORGED}\x07", f"a\n{FORGED}\nb", "\u202eni.sredro", "größe→.in"]
COMMANDS = [
    ["status"],
    ["validate"],
    ["plan", "swapover", "--to", "paris"],
    ["swapover", "--to", "paris", "--yes"],
    ["runs", "show"],
]


@pytest.fixture
def hostile(installation: Installation) -> Installation:
    """At London only, so that checks and plans name them, and paused by an administrator, so that status does."""
    for name in NAMES:
        installation.london.queue(name, paused=True)
    return installation


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_name_commands_the_terminal_or_forges_a_line(dr_ctl: Shell, hostile: Installation, words: list[str]) -> None:
    if words[0] == "runs":
        dr_ctl("swapover", "--to", "paris", "--yes")

    ended = dr_ctl(*words)

    shown = ended.out + ended.err
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert FORGED not in [each.strip() for each in shown.splitlines()]


def test_status_names_them_all_the_same(dr_ctl: Shell, hostile: Installation) -> None:
    ended = dr_ctl("status")

    assert r"a\npar" in ended.out
    assert r"\x1b[2J" in ended.out
    assert "größe→.in" in ended.out


def command(words: Sequence[str], shell: Shell, redirect: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with that redirection of its streams."""
    line = f'exec "$0" -m dr_ctl "$@" {redirect}'
    return subprocess.run(
        ["/bin/sh", "-c", line, sys.executable, *words],
        capture_output=True,
        encoding="latin-1",
        check=False,
        timeout=60,
        env={**os.environ, **more},
        cwd=shell.folder,
    )


@pytest.mark.wire
def test_a_stream_that_cannot_write_a_name_does_not_end_the_command(dr_ctl: Shell, hostile: Installation) -> None:
    text = command(["status"], dr_ctl, PYTHONIOENCODING="latin-1")
    told = command(["status", "--json"], dr_ctl, PYTHONIOENCODING="latin-1")

    assert (text.returncode, told.returncode) == (0, 0), text.stdout + text.stderr
    assert r"größe\u2192.in" in text.stdout
    assert "größe→.in" in json.dumps(json.loads(told.stdout), ensure_ascii=False)


@pytest.mark.wire
def test_progress_goes_nowhere_where_standard_error_is_closed(dr_ctl: Shell, installation: Installation) -> None:
    ended = command(["swapover", "--to", "paris", "--yes", "--json"], dr_ctl, "2>&-")

    assert json.loads(ended.stdout)["exit_code"] == ended.returncode == 0
    assert ended.stdout.count("\n") == 1
