"""Names that clients chose reach the terminal as text: never as a command to it, never as a line of dr-ctl's own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cli.conftest import Shell
from tests.cli.installation import Installation

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
    assert words != ["status"] or all(each in shown for each in (r"a\npar", r"\x1b[2J", "größe→.in"))


@pytest.mark.wire
@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize(("more", "shown"), [((), r"größe\u2192.in"), (("--json",), r"gr\u00f6\u00dfe\u2192.in")])
def test_a_stream_that_cannot_write_a_name_does_not_end_the_command(more: tuple[str, ...], shown: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    words = [sys.executable, "-m", "dr_ctl", "status", *more]

    text = subprocess.run(words, capture_output=True, encoding="latin-1", check=False, timeout=60, env=environment)

    assert (text.returncode, shown in text.stdout) == (0, True), text.stdout + text.stderr
