"""Typed access to the values of an answer, and to the parts of bean names. Names are compared by their parts, because
versions differ in the order of the keys."""

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from dr_ctl.jolokia.http import BadValue

T = TypeVar("T")
RUNTIME: Final = "java.lang:type=Runtime"
_ESCAPED: Final = {'"': '\\"', "*": "\\*", "?": "\\?", "\\": "\\\\", "\n": "\\n"}
_UNESCAPED: Final = {'"': '"', "*": "*", "?": "?", "\\": "\\", "n": "\n"}
_PART: Final = re.compile(r'([^=,:]+)=("(?:[^"\\]|\\.)*"|[^,"]*)(?:,|$)', re.DOTALL)
_FORBIDDEN: Final = "java.lang.SecurityException"
_RIGHTS: Final = (
    "In management.xml, give a role of this user list*, get* and is* under <default-access>, and * under the <match> "
    "of org.apache.activemq.artemis; then restart that broker."
)


class Fields:
    """The attributes of one bean, by name. A value of the wrong type raises `BadValue` with bean and attribute."""

    def __init__(self, bean: str, attributes: Any) -> None:
        if not isinstance(attributes, dict):
            raise BadValue(f"{bean}: expected attributes, got {_short(attributes)}")
        self._bean, self._attributes = bean, attributes

    def has(self, name: str) -> bool:
        """Say whether this version has the attribute."""
        return name in self._attributes and not _is_error(self._attributes[name])

    def number(self, name: str) -> int:
        return self._typed(name, int, "a whole number")

    def count(self, name: str) -> int:
        """Return a count; raises `BadValue` for a number below zero, which brokers sometimes give."""
        value = self.number(name)
        if value < 0:
            raise self._bad_value(name, "a count", value)
        return value

    def optional_number(self, name: str) -> int | None:
        return None if self._attributes.get(name) is None else self.number(name)

    def optional_share(self, name: str) -> float | None:
        """Return a number, or None if this version lacks the attribute."""
        value = self._attributes.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def flag(self, name: str) -> bool:
        return self._typed(name, bool, "true or false")

    def text(self, name: str) -> str:
        return self._typed(name, str, "a text")

    def optional_text(self, name: str) -> str | None:
        """Return a text, or None if it is null or this version lacks the attribute."""
        return None if self._attributes.get(name) is None else self.text(name)

    def any_text(self, name: str) -> str:
        """Return a text that a client may have chosen, even if it looks like an error; empty without one."""
        value = self._attributes.get(name)
        return value if isinstance(value, str) else ""

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; empty if this version lacks the attribute."""
        value = self._attributes.get(name)
        return tuple(str(item) for item in value) if isinstance(value, list) else ()

    def mapping(self, name: str) -> dict[str, str]:
        return {str(key): str(item) for key, item in self._typed(name, dict, "a mapping").items()}

    def _typed(self, name: str, kind: type[T], expected: str) -> T:
        value = self._attributes.get(name)
        if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool) or _is_error(value):
            raise self._bad_value(name, expected, value)
        return value

    def _bad_value(self, name: str, expected: str, value: Any) -> BadValue:
        if isinstance(value, dict) and str(value.get("error_type")) == _FORBIDDEN:
            return BadValue(f"{self._bean}: its management does not permit this user to read {name}", remedy=_RIGHTS)
        return BadValue(f"{self._bean}: {name} should be {expected}, but is {_short(value)}")


def _is_error(value: Any) -> bool:
    return (isinstance(value, dict) and value.get(".error") is True) or (
        isinstance(value, str) and value.startswith("ERROR:")
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "…"  # noqa: PLR2004


def quote(value: str) -> str:
    """Quote a value as `javax.management.ObjectName.quote` does."""
    return '"' + "".join(_ESCAPED.get(letter, letter) for letter in value) + '"'


def unquote(value: str) -> str:
    """Undo `quote`; a value that is not quoted stays as it is."""
    if not (value.startswith('"') and value.endswith('"') and len(value) > 1):
        return value
    if "\\" not in value:
        return value[1:-1]
    return re.sub(r"\\(.)", lambda match: _UNESCAPED.get(match[1], match[1]), value[1:-1], flags=re.DOTALL)


def parts(name: str) -> Mapping[str, str]:
    """Split a bean's name into its keys and unquoted values; raises ValueError for another text."""
    domain, colon, keys = name.partition(":")
    pairs = _PART.findall(keys)
    if not (domain and colon and pairs) or "".join(f"{key}={value}," for key, value in pairs)[:-1] != keys:
        raise ValueError(f"not the name of a bean: {name!r}")
    return {key: unquote(value) for key, value in pairs}
