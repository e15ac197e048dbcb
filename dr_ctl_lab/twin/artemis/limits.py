"""What keeps clients from working at a broker whose listeners are open: its disk, its memory, its addresses."""

from dataclasses import dataclass, field
from typing import Final

ROOMY: Final = 1 << 30
_NEVER: Final = -1


@dataclass(frozen=True, slots=True)
class AddressSettings:
    """The most bytes that lie at an address, and what becomes of more."""

    most: int = _NEVER
    policy: str = "PAGE"


@dataclass
class Limits:
    """The figures of one broker, as a test sets them; no limit is reached until it does. Of addresses those are named
    that have settings of their own, are paused, or blocked by management."""

    disk_used: float = 0.1
    max_disk: int = 90
    memory: int = ROOMY
    settings: dict[str, AddressSettings] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    blocked: set[str] = field(default_factory=set)

    @property
    def disk_is_full(self) -> bool:
        return self.disk_used * 100 > self.max_disk

    def of(self, address: str) -> AddressSettings:
        return self.settings.get(address, AddressSettings())
