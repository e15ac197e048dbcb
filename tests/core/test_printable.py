"""What may reach a terminal: one line stays one, and nothing in it is obeyed."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_ctl.core.printable import line, page


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders.in", "orders.in"),
        ("größe → 3 €", "größe → 3 €"),
        ("\x1b[2J\x1b]0;paris serves\x07", r"\x1b[2J\x1b]0;paris serves\x07"),
        ("orders\nparis serves\r\n", r"orders\nparis serves\r\n"),
        ("a\x85b\u2028c\u2029d", r"a\x85b\u2028c\u2029d"),
        ("\u202eni.sredro", r"\u202eni.sredro"),
        ("half \ud800 of a letter", r"half \ud800 of a letter"),
        ("\x9b2J", r"\x9b2J"),
    ],
)
def test_what_a_terminal_would_obey_stands_there_as_its_escape(text: str, shown: str) -> None:
    assert line(text) == shown


@given(st.text(st.characters()))
def test_a_line_stays_one_and_can_be_written(text: str) -> None:
    shown = line(text)

    assert len(shown.splitlines()) <= 1
    assert shown.encode("utf-8").decode("utf-8") == shown
    assert not [each for each in shown if unicodedata.category(each).startswith("C") and each.isascii()]


def test_a_break_inside_a_line_of_a_page_is_no_new_line() -> None:
    assert page(["one\ntwo", "three"]) == "one\\ntwo\nthree"
