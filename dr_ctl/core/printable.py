"""Makes text safe to show: no control character of a name reaches a terminal, and no login of an address a text."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

# Controls, formats (the direction of writing among them), surrogates, and what ends a line or a paragraph.
_OBEYED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
NOT_KNOWN: Final = "not known"
_UNTOLD: Final = re.compile(r"(?<=://)[^/@\s]*(?=@)|(?<=[?;]).+")


def address(text: str) -> str:
    """The text of an address without a login in it, and without its parameters, which may hold a token."""
    return _UNTOLD.sub("***", text) if "://" in text else text


def if_known(value: object) -> str:
    """The text of a value that may not be known."""
    return NOT_KNOWN if value is None else str(value)


def line(text: str) -> str:
    """The text as one line: control characters become escapes, as in Python and in JSON."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(each) if unicodedata.category(each) in _OBEYED else each for each in text)


def page(lines: Iterable[str]) -> str:
    """Lines one below the other; a line break inside one of them is no new line."""
    return "\n".join(line(each) for each in lines)


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows under their heading, each column as wide as its widest cell; the last is as long as it is."""
    all_ = [heading, *([line(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*all_, strict=True)]
    widths[-1] = 0
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in all_)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
