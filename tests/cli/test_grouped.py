"""Findings for people: by what they are of, as wide as the terminal, with nothing cut, counted at the end."""

from __future__ import annotations

import pytest

from dr_ctl.application.result import Group
from dr_ctl.cli.grouped import groups_text, wrapped
from dr_ctl.core.model import Finding, Severity
from dr_ctl.engine.ports import Check

LONG = " ".join(f"word{number}" for number in range(60))
NAME = "orders." + "x" * 90
GROUPS = [
    Group("installation orders", [Finding("DR-X-001", Severity.WARNING, LONG, f"do {LONG}")]),
    Group("london/orders-1", [], [Check("the link is started", "london/orders-1", LONG)]),
    Group("paris"),
    Group("swapover to paris", [Finding("DR-X-002", Severity.ERROR, f"queue {NAME} differs", more=("and more",))]),
]


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_lines_are_as_wide_as_the_terminal_and_no_word_is_lost(columns: int) -> None:
    text = groups_text(GROUPS, columns)

    assert all(len(line) <= columns or NAME in line for line in text.splitlines())
    assert text.split() == groups_text(GROUPS, None).split()


def test_where_there_is_no_terminal_a_finding_is_one_line() -> None:
    lines = groups_text(GROUPS, None).splitlines()

    assert f" ! DR-X-001  {LONG}" in lines
    assert f"!! DR-X-002  queue {NAME} differs" in lines


def test_groups_without_anything_are_left_out_and_the_rest_is_counted() -> None:
    text = groups_text(GROUPS, None)

    assert [line for line in text.splitlines() if line.endswith(":")] == [
        "installation orders:",
        "london/orders-1:",
        "swapover to paris:",
    ]
    assert text.endswith("\n1 check: 1 holds\n1 error, 1 warning")


def test_control_characters_of_names_reach_no_terminal() -> None:
    assert wrapped("a\x1b[31m b", 80) == "a\\x1b[31m b"
