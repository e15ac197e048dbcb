"""What a browse shows of a message's properties, whatever the protocol of the client that sent it.

Clients of STOMP, MQTT and OpenWire send CORE messages, whose properties stand by their names; what the broker itself
writes it lets no client write. Of an AMQP message a browse prefixes each name by the section that it stands in: the
properties of its sender, what the broker wrote, and annotations, which anybody writes and a restart forgets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_PARTS: Final = ("StringProperties", "LongProperties", "IntProperties")
_SECTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "CORE": ("", ""),
    "AMQP": ("applicationProperties.", "extraProperties."),
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A message's number at its broker, and its properties by their plain names: those of its `sender`, and what the
    `broker` wrote. None where the row does not tell them apart."""

    number: int
    sender: Mapping[str, Any] | None
    broker: Mapping[str, Any] | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Shown:
        """Raises KeyError, TypeError, ValueError or AttributeError for what is no message."""
        number = int(str(row["messageID"]))
        sections = _SECTIONS.get(str(row.get("protocol")))
        if sections is None:
            return cls(number, None, None)
        named = {name: value for part in _PARTS for name, value in (row.get(part) or {}).items()}
        return cls(number, *(_in(named, section) for section in sections))


def _in(named: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    size = len(section)
    return {name[size:]: value for name, value in named.items() if name.startswith(section)}
