"""Typed access to the values of an answer, and to the parts of bean names. Names are compared by their parts, never as
text: versions differ in the order of the keys."""

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
        """Say whether the broker knows the attribute at all; older versions leave out what they lack."""
        return name in self._attributes and not _is_error(self._attributes[name])

    def number(self, name: str) -> int:
        return self._typed(name, int, "a whole number")

    def count(self, name: str) -> int:
        """Return a count. A number below zero, which brokers sometimes give, means that the count is not known."""
        value = self.number(name)
        if value < 0:
            raise self._bad(name, "a count", value)
        return value

    def optional_number(self, name: str) -> int | None:
        return None if self._attributes.get(name) is None else self.number(name)

    def optional_share(self, name: str) -> float | None:
        """Return a number, or None where the broker does not know the attribute."""
        value = self._attributes.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def flag(self, name: str) -> bool:
        return self._typed(name, bool, "true or false")

    def text(self, name: str) -> str:
        return self._typed(name, str, "a text")

    def optional_text(self, name: str) -> str | None:
        """Return a text, or None where the broker says null or does not know the attribute."""
        return None if self._attributes.get(name) is None else self.text(name)

    def any_text(self, name: str) -> str:
        """Return a text that clients may have chosen, which is no error however it begins; empty without one."""
        value = self._attributes.get(name)
        return value if isinstance(value, str) else ""

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; empty where the broker does not know the attribute."""
        value = self._attributes.get(name)
        return tuple(str(item) for item in value) if isinstance(value, list) else ()

    def mapping(self, name: str) -> dict[str, str]:
        return {str(key): str(item) for key, item in self._typed(name, dict, "a mapping").items()}

    def _typed(self, name: str, kind: type[T], wanted: str) -> T:
        value = self._attributes.get(name)
        if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool) or _is_error(value):
            raise self._bad(name, wanted, value)
        return value

    def _bad(self, name: str, wanted: str, got: Any) -> BadValue:
        if isinstance(got, dict) and str(got.get("error_type")) == _FORBIDDEN:
            return BadValue(f"{self._bean}: its management lets this user not read {name}", remedy=_RIGHTS)
        return BadValue(f"{self._bean}: {name} should be {wanted}, but is {_short(got)}")


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
    """Take a bean's name apart into its keys, values unquoted; raises ValueError if it is not a name."""
    domain, colon, keys = name.partition(":")
    pairs = _PART.findall(keys)
    if not (domain and colon and pairs) or "".join(f"{key}={value}," for key, value in pairs)[:-1] != keys:
        raise ValueError(f"not the name of a bean: {name!r}")
    return {key: unquote(value) for key, value in pairs}
