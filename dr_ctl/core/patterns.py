"""Patterns of queue names: dotted words, of which `*` is any one and `#` any number."""

import re
from collections.abc import Sequence
from functools import lru_cache


def pattern_regex(pattern: str) -> str:
    """Turn a queue pattern into an anchored regular expression, for the queue's name with a dot put in front.

    Python and Java read it alike. Words are separated by dots; `*` is one word, `#` any number of words, none
    included: `orders.#` is also `orders`.
    """
    # Each word brings the dot before it, so that a `#` of no words has no dot either. A name may have empty words:
    # `#` must miss none.
    words = {"#": r"(?:\.[^.]*)*", "*": r"\.[^.]+"}
    return "^" + "".join(words.get(word, r"\." + re.escape(word)) for word in pattern.split(".")) + "$"


def matches(patterns: Sequence[str], queue: str) -> bool:
    return any(_compiled(pattern).search(f".{queue}") for pattern in patterns)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern_regex(pattern))
