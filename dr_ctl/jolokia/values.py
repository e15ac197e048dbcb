"""Values out of an answer, each checked for its type, and names of management beans: built, quoted, taken apart. Names
are compared by their parts, never as text: versions differ in the order of the keys."""

import re
from collections.abc import Mapping
from typing import Any, Final

from dr_ctl.jolokia.http import BadValue

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
    """The attributes of one bean, by name. Raises `BadValue` naming bean and attribute; `has` tells what was told."""

    def __init__(self, bean: str, attributes: Any) -> None:
        if not isinstance(attributes, dict):
            raise BadValue(f"{bean}: expected attributes, got {_short(attributes)}")
        self._bean, self._attributes = bean, attributes

    def has(self, name: str) -> bool:
        """Say whether the broker knows the attribute at all; older versions leave out what they lack."""
        return name in self._attributes and not _is_error(self._attributes[name])

    def number(self, name: str) -> int:
        value = self._attributes.get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._bad(name, "a whole number", value)
        return value

    def count(self, name: str) -> int:
        """A count. Brokers sometimes give a number below zero, which means that the count is not known."""
        value = self.number(name)
        if value < 0:
            raise self._bad(name, "a count", value)
        return value

    def optional_number(self, name: str) -> int | None:
        """A whole number, or None where the broker says null."""
        return None if self._attributes.get(name) is None else self.number(name)

    def optional_share(self, name: str) -> float | None:
        """A number, or None where the broker does not know the attribute."""
        value = self._attributes.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def flag(self, name: str) -> bool:
        value = self._attributes.get(name)
        if not isinstance(value, bool):
            raise self._bad(name, "true or false", value)
        return value

    def text(self, name: str) -> str:
        value = self._attributes.get(name)
        if not isinstance(value, str) or _is_error(value):
            raise self._bad(name, "a text", value)
        return value

    def optional_text(self, name: str) -> str | None:
        """A text, or None where the broker says null or does not know the attribute."""
        return None if self._attributes.get(name) is None else self.text(name)

    def any_text(self, name: str) -> str:
        """A text that anybody may have chosen: whatever it begins with, it is no error. Empty where there is none."""
        value = self._attributes.get(name)
        return value if isinstance(value, str) else ""

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; empty where the broker does not know the attribute."""
        value = self._attributes.get(name)
        return tuple(str(item) for item in value) if isinstance(value, list) else ()

    def mapping(self, name: str) -> dict[str, str]:
        value = self._attributes.get(name)
        if not isinstance(value, dict) or _is_error(value):
            raise self._bad(name, "a mapping", value)
        return {str(key): str(item) for key, item in value.items()}

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
