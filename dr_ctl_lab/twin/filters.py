"""The filters that are asked of the brokers: comparisons with a text, a list of them, or the beginning of one, with a
number; IS NULL, IS NOT NULL; joined by AND, and those by OR."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

_TERM: Final = re.compile(
    r"""\s*(?:"(?P<quoted>[^"]+)"|(?P<plain>[A-Za-z_$][\w.$-]*))\s*
        (?:(?P<is>IS\s+(?P<not>NOT\s+)?NULL)|(?P<op>=|<>)\s*'(?P<text>(?:[^']|'')*)'
        |=\s*(?P<number>\d+)\s*
        |(?P<unlike>NOT\s+)?LIKE\s*'(?P<begins>[^'%_]*)%'
        |IN\s*\((?P<some>\s*'(?:[^']|'')*'\s*(?:,\s*'(?:[^']|'')*'\s*)*)\))\s*""",
    re.VERBOSE | re.IGNORECASE,
)

# Outside of quotes: an even number of them follows.
_AND, _OR = (re.compile(rf"\b{word}\b(?=(?:[^']*'[^']*')*[^']*$)", re.IGNORECASE) for word in ("AND", "OR"))
_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'")

Named = Callable[[str], str | None]


class BadFilter(ValueError):
    """The text is not a filter."""


def compiled(text: str | None) -> Callable[[Named], bool]:
    """Read a filter into a predicate over a function that looks properties up. Raises `BadFilter`."""
    if text is None or not text.strip():
        return lambda _: True
    ways = [[_TERM.fullmatch(term) for term in _AND.split(way)] for way in _OR.split(text)]
    if not all(term for way in ways for term in way):
        raise BadFilter(text)
    return lambda named: any(all(_holds(term, named) for term in way if term is not None) for way in ways)


def _holds(term: re.Match[str], named: Named) -> bool:
    value = named(term["quoted"] or term["plain"])
    if term["is"] is not None:
        return (value is None) is (term["not"] is None)
    if value is None:
        return False
    if term["number"] is not None:
        return value == term["number"]
    if term["some"] is not None:
        return value in _listed(term["some"])
    if term["begins"] is not None:
        return value.startswith(term["begins"]) is (term["unlike"] is None)
    same = value == term["text"].replace("''", "'")
    return same if term["op"] == "=" else not same


@lru_cache(maxsize=8)
def _listed(text: str) -> frozenset[str]:
    """The texts of a list, cached, because long lists are needed for each message."""
    return frozenset(match.replace("''", "'") for match in _QUOTED.findall(text))
