"""Variations of a load's messages, chosen by the message's number."""

from collections.abc import Collection
from enum import Enum
from typing import Final

from dr_ctl_lab.lab.clients.client import Traits

LARGE: Final = 150_000  # bytes: an Artemis broker stores it outside of its journal
DELAY_MS: Final = 300
TTL_MS: Final = 3_600_000
GROUPS: Final = 3
PARTS: Final = ("a", "b")


class Variation(Enum):
    """A variation; one of so many messages has it."""

    GROUPED = 4
    EXPIRING = 5  # it expires after an hour
    URGENT = 7
    DELAYED = 9
    LARGE = 40


def traits_of(number: int, variations: Collection[Variation]) -> Traits:
    has = {item: item in variations and number % item.value == 0 for item in Variation}
    return Traits(
        part=PARTS[number % len(PARTS)],
        group=f"group-{number % GROUPS}" if has[Variation.GROUPED] else "",
        delay_ms=DELAY_MS if has[Variation.DELAYED] else 0,
        ttl_ms=TTL_MS if has[Variation.EXPIRING] else 0,
        urgent=has[Variation.URGENT],
    )


def size_of(number: int, usual: int, variations: Collection[Variation]) -> int:
    return LARGE if Variation.LARGE in variations and number % Variation.LARGE.value == 0 else usual
