"""The picture of a run in the README is what the commands print: each of its lines, in order, whatever the figures."""

from __future__ import annotations

import re
from pathlib import Path

from tests.twin.test_drills import Person, person

__all__ = ["person"]  # a fixture

README = Path(__file__).parents[2] / "README.md"
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def plain(line: str) -> str:
    """A line without its figures, and without the space that sets it apart from others."""
    return NUMBER.sub("N", line).strip()


def test_each_line_of_the_picture_is_printed_in_that_order(person: Person) -> None:
    shown = README.read_text("utf-8").partition("```text\n")[2].partition("```")[0]
    commands = [part.splitlines() for part in shown.split("$ dr-ctl ")[1:]]

    assert len(commands) == 3
    for words, *lines in commands:
        ended = person.types(words)
        printed = iter([plain(line) for line in (ended.err + ended.out).splitlines()])

        assert ended.code == 0, words
        assert [line for line in map(plain, lines) if line and line not in printed] == [], words
