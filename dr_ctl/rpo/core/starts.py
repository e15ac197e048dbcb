"""The text that identifies one start of a broker; with each start all counters begin anew."""

from collections.abc import Iterable
from typing import Final

_PARTS: Final = 3  # of the start of a node among several


def node_of(start: str) -> str:
    """The node that is active by the text of a start; empty where the broker has a single one."""
    return start.partition("/")[0] if "/" in start else ""


def same_start(one: str | None, other: str | None) -> bool:
    """Return whether two texts are of one start of a broker. That of a node among several has the moment at which it
    became active, in steps, and two processes may read neighbouring steps."""
    if one == other or one is None or other is None:
        return one == other
    was, now = one.split("/"), other.split("/")
    if not len(was) == len(now) == _PARTS or (was[0], was[2]) != (now[0], now[2]):
        return False
    return was[1].isdecimal() and now[1].isdecimal() and abs(int(was[1]) - int(now[1])) == 1


def first_texts(starts: Iterable[str]) -> dict[str, str]:
    """Map each text to the first text of the same start."""
    firsts: dict[str, str] = {}
    before = ""
    for start in sorted(starts, key=lambda text: (text.split("/")[::2], len(text), text)):
        firsts[start] = firsts[before] if before and same_start(before, start) else start
        before = start
    return firsts
