"""Names of management beans: building, quoting, taking apart. Names are compared by their parts, never as text:
versions differ in the order of the keys."""

import re
from collections.abc import Mapping
from typing import Final

RUNTIME: Final = "java.lang:type=Runtime"
_ESCAPED: Final = {'"': '\\"', "*": "\\*", "?": "\\?", "\\": "\\\\", "\n": "\\n"}
_UNESCAPED: Final = {'"': '"', "*": "*", "?": "?", "\\": "\\", "n": "\n"}
_PART: Final = re.compile(r'([^=,:]+)=("(?:[^"\\]|\\.)*"|[^,"]*)(?:,|$)', re.DOTALL)


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
