"""Which beginnings of names mean exactly some queues and no other, so that one call can be of all of them. Pure."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Final

LEAST: Final = 50
"""Queues: for fewer, calls of each take a broker less time than the search through all of its names."""


def beginnings(
    wanted: Iterable[str], others: Iterable[str], may_begin: Callable[[str], bool]
) -> dict[str, Sequence[str]]:
    """The names by beginnings that no other name has: Names of `wanted` that are left out are too few, or too much like
    other names. `may_begin` says of a beginning whether a name that comes into being may have it."""
    other_names = sorted(others)
    found: dict[str, Sequence[str]] = {}
    groups: list[Sequence[str]] = [sorted(wanted)]
    while groups:
        names = groups.pop()
        if len(names) < LEAST:
            continue
        beginning = _common(names[0], names[-1])
        at = bisect_left(other_names, beginning)
        if may_begin(beginning) and not (at < len(other_names) and other_names[at].startswith(beginning)):
            found[beginning] = names
            continue
        by_letter: dict[str, list[str]] = {}
        for name in names:
            by_letter.setdefault(name[: len(beginning) + 1], []).append(name)
        by_letter.pop(beginning, None)  # the name that is nothing but the beginning
        groups += by_letter.values()
    return found


def _common(first: str, last: str) -> str:
    """The text that all of some sorted names begin with, seen from the first and the last."""
    length = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:length]
