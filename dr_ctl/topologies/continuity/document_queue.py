"""How brokers of the plugin's versions keep documents: in a filter, on an address that the plugin leaves alone. Pure.

A durable queue on any other address would become a flow of its own, at both sites.
"""

import re
from dataclasses import dataclass
from typing import Final

from dr_ctl.jolokia.beans import parts
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.artemis.document_queue import CREATE_FILTERED, UPDATE_FILTERED, Operation
from dr_ctl.topologies.common.names import OWN

_WORD: Final = "dr_ctl_says"
_HELD: Final = re.compile(rf"{_WORD} = '(.*)'", re.DOTALL)


@dataclass(frozen=True, slots=True)
class InFilter:
    """`prefix` is the plugin's own for its commands: addresses that contain it carry no flow."""

    prefix: str
    attributes: tuple[str, ...] = ("Name", "Filter")

    def create(self, name: str, text: str, *, kind: str | None = None) -> Operation:
        address = f"{kind or name}.{self.prefix}"
        return CREATE_FILTERED, (address, "ANYCAST", name, _filter(text), True, 0, False, True)

    def update(self, name: str, text: str, *, kind: str) -> Operation:
        del kind
        return UPDATE_FILTERED, (name, "ANYCAST", _filter(text), 0, False, False, *(None,) * 6)

    def probe(self, name: str) -> Operation:
        # The queue is not durable: a queue that is not durable never becomes a flow, whatever its address.
        return CREATE_FILTERED, (name, "ANYCAST", name, None, False, -1, False, True)

    def keep(self, name: str) -> Operation:
        """A durable queue for messages that are kept out of the way, and are shipped to nobody."""
        return CREATE_FILTERED, (f"{name}.{self.prefix}", "ANYCAST", name, None, True, -1, False, True)

    def canary(self, name: str) -> Operation:
        """A durable queue as clients have them: the plugin makes a flow of it, at both sites."""
        return CREATE_FILTERED, (name, "ANYCAST", name, None, True, -1, False, True)

    def text(self, fields: Fields) -> str:
        found = _HELD.fullmatch(fields.any_text("Filter"))
        return found[1].replace("''", "'") if found is not None else ""

    def is_own(self, bean: str, fields: Fields) -> bool:
        """A client that sends or receives makes a queue with its name as address, and without our filter."""
        address = parts(bean)["address"]
        named = address.startswith(OWN) and address.endswith(f".{self.prefix}")
        return named and _HELD.fullmatch(fields.any_text("Filter")) is not None


def _filter(text: str) -> str:
    return f"{_WORD} = '{text.replace(chr(39), chr(39) * 2)}'"
