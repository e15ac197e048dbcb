"""The filters that are asked of the brokers: comparisons with a text, a list of them, or the beginning of one; IS NULL,
IS NOT NULL; joined by AND."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_TERM: Final = re.compile(
    r"""\s*(?:"(?P<quoted>[^"]+)"|(?P<plain>[A-Za-z_$][\w.$-]*))\s*
        (?:(?P<is>IS\s+(?P<not>NOT\s+)?NULL)|(?P<op>=|<>)\s*'(?P<text>(?:[^']|'')*)'
        |(?P<unlike>NOT\s+)?LIKE\s*'(?P<begins>[^'%_]*)%'
        |IN\s*\((?P<some>\s*'(?:[^']|'')*'\s*(?:,\s*'(?:[^']|'')*'\s*)*)\))\s*""",
    re.VERBOSE | re.IGNORECASE,
)

_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'")

Named = Callable[[str], str | None]


class BadFilter(ValueError):
    """What was told is no filter."""


def compiled(text: str | None) -> Callable[[Named], bool]:
    """Read a filter; what it gives takes a way to look a property up. `BadFilter` where it cannot be read."""
    if text is None or not text.strip():
        return lambda _: True
    terms = [_TERM.fullmatch(term) for term in re.split(r"\bAND\b", text, flags=re.IGNORECASE)]
    if not all(terms):
        raise BadFilter(text)
    return lambda named: all(_holds(term, named) for term in terms if term is not None)


def _holds(term: re.Match[str], named: Named) -> bool:
    value = named(term["quoted"] or term["plain"])
    if term["is"] is not None:
        return (value is None) is (term["not"] is None)
    if value is None:
        return False
    if term["some"] is not None:
        return value in [each.replace("''", "'") for each in _QUOTED.findall(term["some"])]
    if term["begins"] is not None:
        return value.startswith(term["begins"]) is (term["unlike"] is None)
    same = value == term["text"].replace("''", "'")
    return same if term["op"] == "=" else not same
