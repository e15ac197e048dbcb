"""Names of management beans as the broker reads them: parts, patterns, canonical order. Independent of the client's
code, so that a mistake in one does not hide the same mistake in the other."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

_KEY: Final = re.compile(r'([^=,:]+)=("(?:[^"\\]|\\.)*"|[^,"]*)(,|$)', re.DOTALL)
# Answers are cached: a pattern goes through all names of a broker, and a twin may have a hundred brokers.
_ESCAPES: Final = {'"': '\\"', "*": "\\*", "?": "\\?", "\\": "\\\\", "\n": "\\n"}


@lru_cache(maxsize=65536)
def quoted(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(letter, letter) for letter in text) + '"'


@lru_cache(maxsize=65536)
def keys_of(name: str) -> Mapping[str, str]:
    """The keys and values of a name; `*` as a key allows further keys. ValueError where it is no name."""
    domain, _, properties = name.partition(":")
    if not (domain and properties):
        raise ValueError("Key properties cannot be empty")
    result: dict[str, str] = {"": domain}
    at = 0
    while at < len(properties):
        if properties[at:] == "*" or properties[at : at + 2] == "*,":
            result["*"] = "*"
            at += 2
            continue
        item = _KEY.match(properties, at)
        if item is None:
            raise ValueError(f"Key properties cannot be read: {properties[at:]}")
        result[item[1]] = item[2]
        at = item.end()
    return result


@lru_cache(maxsize=65536)
def is_pattern(name: str) -> bool:
    return any(re.search(r"(?<!\\)[*?]", value) for value in keys_of(name).values())


@lru_cache(maxsize=65536)
def matches(pattern: str, name: str) -> bool:
    """Say whether a pattern matches a full name."""
    wanted, items = keys_of(pattern), keys_of(name)
    keys = {key for key in wanted if key != "*"}
    if keys - set(items) or ("*" not in wanted and set(items) - keys):
        return False
    return all(_glob(wanted[key]).fullmatch(items[key]) for key in keys)


@lru_cache(maxsize=4096)
def _glob(text: str) -> re.Pattern[str]:
    pieces = re.findall(r"\\.|.", text, re.DOTALL)
    kinds = {"*": ".*", "?": "."}
    return re.compile("".join(kinds.get(piece) or re.escape(piece) for piece in pieces), re.DOTALL)


@lru_cache(maxsize=65536)
def canonical(name: str) -> str:
    """The name with its keys in alphabetical order, as in every answer to a pattern."""
    keys = keys_of(name)
    return f"{keys['']}:" + ",".join(f"{key}={keys[key]}" for key in sorted(keys) if key)
