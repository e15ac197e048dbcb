"""Filters (selectors) of the brokers: comparisons with a text, a list, a beginning or a number; IS NULL, IS NOT NULL;
joined by AND and OR."""

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

# Outside of quotes: an even number of quotes follows.
_AND, _OR = (re.compile(rf"\b{word}\b(?=(?:[^']*'[^']*')*[^']*$)", re.IGNORECASE) for word in ("AND", "OR"))
_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'")

ValueOf = Callable[[str], str | None]


class BadFilter(ValueError):
    """The text is not a filter."""


def compiled(text: str | None) -> Callable[[ValueOf], bool]:
    """Compile a filter to a predicate, which gets a function from a property's name to its value. Raises
    `BadFilter`."""
    if text is None or not text.strip():
        return lambda _: True
    alternatives = [[_TERM.fullmatch(term) for term in _AND.split(alternative)] for alternative in _OR.split(text)]
    if not all(term for alternative in alternatives for term in alternative):
        raise BadFilter(text)
    return lambda value_of: any(
        all(_is_true(term, value_of) for term in alternative if term is not None) for alternative in alternatives
    )


def _is_true(term: re.Match[str], value_of: ValueOf) -> bool:
    value = value_of(term["quoted"] or term["plain"])
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
    is_equal = value == term["text"].replace("''", "'")
    return is_equal if term["op"] == "=" else not is_equal


@lru_cache(maxsize=8)
def _listed(text: str) -> frozenset[str]:
    """The texts of a list; cached, because each message is compared with long lists."""
    return frozenset(match.replace("''", "'") for match in _QUOTED.findall(text))
