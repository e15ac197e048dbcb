"""How people write and read values: durations (`20ms`, `5s`, `1m`, `2h`, `30d`), patterns of queue names (dotted words,
of which `*` is any one and `#` any number), YAML, and text that is safe to show: no control character of a name reaches
a terminal, and no login of an address a text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Sequence
from functools import lru_cache
from shlex import quote
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import yaml

# Controls, formats (the direction of writing among them), surrogates, and what ends a line or a paragraph.
_OBEYED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
NOT_KNOWN: Final = "not known"
_UNTOLD: Final = re.compile(r"(?<=://)[^/@\s]*(?=@)|(?<=[?;]).+")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST_S: Final = 36_525 * 86_400.0
_PATTERN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


def address(text: str) -> str:
    """Remove the login from an address, and its parameters, which may hold a token."""
    return _UNTOLD.sub("***", text) if "://" in text else text


def if_known(value: object) -> str:
    return NOT_KNOWN if value is None else str(value)


def line(text: str) -> str:
    """Make one line of a text: control characters become escapes, as in Python and in JSON."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter.encode("unicode_escape", "surrogatepass").decode("ascii")
        if unicodedata.category(letter) in _OBEYED
        else letter
        for letter in text
    )


def shell_command(words: Iterable[str]) -> str:
    """Quote words for one line of any POSIX shell: `printf` makes control characters, except line ends at the end."""
    return " ".join(quote(word) if line(word) == word else f'"$(printf %b {quote(_octal(word))})"' for word in words)


def _octal(word: str) -> str:
    escaped = word.replace("\\", r"\\").replace("\n", r"\n")
    return "".join(f"\\0{ord(letter):03o}" if letter < " " else letter for letter in escaped)


def page(lines: Iterable[str]) -> str:
    """Join lines; a line break inside one of them makes no new line."""
    return "\n".join(line(text) for text in lines)


def table(heading: Sequence[str], rows: Iterable[Sequence[str]], numbers: Container[int] = ()) -> str:
    """Put rows under their heading, each column as wide as its widest cell; columns of `numbers` are right-aligned."""
    all_ = [heading, *([line(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*all_, strict=True)]
    just = [str.rjust if place in numbers else str.ljust for place in range(len(widths))]
    return "\n".join(
        "  ".join(of(cell, wide) for of, cell, wide in zip(just, row, widths, strict=True)).rstrip() for row in all_
    )


def seconds(text: object) -> float:
    """Turn a duration into seconds; raises ValueError with the remedy for anything else, a bare number included."""
    match = _PATTERN.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write a number with its unit, as in 20ms, 5s, 1m, 2h or 30d")
    if (value_s := float(match.group(1)) * _UNITS[match.group(2)]) > _LONGEST_S:
        raise ValueError(f"{text!r} is longer than a hundred years")
    return value_s


def duration(value_s: float) -> str:
    """Write seconds for people, in the unit that suits."""
    if value_s < 1:
        return f"{value_s * 1000:.0f} ms"
    if value_s < 60:  # noqa: PLR2004
        return f"{value_s:.2f} s" if value_s < 10 else f"{value_s:.0f} s"  # noqa: PLR2004
    minutes, rest = divmod(round(value_s), 60)
    if minutes < 60:  # noqa: PLR2004
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def pattern_regex(pattern: str) -> str:
    """Turn a queue pattern into an anchored regular expression, for the queue's name with a dot put in front.

    Python and Java read it alike. Words are separated by dots; `*` is one word, `#` any number of words, none
    included: `orders.#` is also `orders`.
    """
    # A word brings the dot before it, so that a `#` of no words has no dot either. A name may have empty words, which
    # `#` must match too.
    words = {"#": r"(?:\.[^.]*)*", "*": r"\.[^.]+"}
    return "^" + "".join(words.get(word, r"\." + re.escape(word)) for word in pattern.split(".")) + "$"


def matches(patterns: Sequence[str], queue: str) -> bool:
    return any(_compiled(pattern).search(f".{queue}") for pattern in patterns)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern_regex(pattern))


def composed(text: str) -> yaml.Node | None:
    """Parse YAML into nodes that know their lines; returns None for an empty text. Python's parser reads again any text
    that libyaml refuses, because its messages are the same everywhere. Raises YAMLError and RecursionError."""
    import yaml  # noqa: PLC0415 - only who reads a file by hand pays for it

    try:
        return yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return yaml.compose(text, Loader=yaml.SafeLoader)
