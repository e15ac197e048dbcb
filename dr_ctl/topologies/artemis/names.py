"""The names of dr-ctl's own documents on a broker, told apart from all else that lies there. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

OWN: Final = "dr-ctl."


def numbered(documents: Mapping[str, str], kind: str) -> list[tuple[int, str]]:
    """Documents of one kind, by number. The site in the name is what other settings may call this one."""
    name = re.compile(rf"dr-ctl\.{re.escape(kind)}\.[^.]+\.(\d+)")
    found = [(name.fullmatch(each), text) for each, text in documents.items()]
    return sorted((int(match[1]), text) for match, text in found if match is not None)
