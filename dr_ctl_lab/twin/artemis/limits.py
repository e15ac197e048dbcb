"""Limits that keep clients from working: disk, memory, and settings of addresses."""

from dataclasses import dataclass, field
from typing import Final

NO_LIMIT: Final = 1 << 30
_UNLIMITED: Final = -1


@dataclass(frozen=True, slots=True)
class AddressSettings:
    """The size limit of an address, and the policy when it is full."""

    max_bytes: int = _UNLIMITED
    policy: str = "PAGE"


@dataclass
class Limits:
    """The figures of one broker, as a test sets them; by default no limit is reached. `settings`, `paused` and
    `blocked` are by address."""

    disk_used: float = 0.1
    max_disk: int = 90
    memory: int = NO_LIMIT
    settings: dict[str, AddressSettings] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    blocked: set[str] = field(default_factory=set)

    @property
    def disk_is_full(self) -> bool:
        return self.disk_used * 100 > self.max_disk

    def settings_of(self, address: str) -> AddressSettings:
        return self.settings.get(address, AddressSettings())
