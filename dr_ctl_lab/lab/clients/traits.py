"""Which messages of a load are odd, and in which way: the same for the same number."""

from collections.abc import Collection
from enum import Enum
from typing import Final

from dr_ctl_lab.lab.clients.client import Traits

LARGE: Final = 150_000  # bytes: above what an Artemis broker keeps in its journal
DELAY_MS: Final = 300
LASTS_MS: Final = 3_600_000
GROUPS: Final = 3
PARTS: Final = ("a", "b")


class Odd(Enum):
    """One message of so many is so."""

    GROUPED = 4
    LASTING = 5  # it would expire, in an hour
    URGENT = 7
    DELAYED = 9
    LARGE = 40


def of(number: int, odd: Collection[Odd]) -> Traits:
    is_so = {item: item in odd and number % item.value == 0 for item in Odd}
    return Traits(
        part=PARTS[number % len(PARTS)],
        group=f"group-{number % GROUPS}" if is_so[Odd.GROUPED] else "",
        delay_ms=DELAY_MS if is_so[Odd.DELAYED] else 0,
        lasts_ms=LASTS_MS if is_so[Odd.LASTING] else 0,
        urgent=is_so[Odd.URGENT],
    )


def size(number: int, usual: int, odd: Collection[Odd]) -> int:
    return LARGE if Odd.LARGE in odd and number % Odd.LARGE.value == 0 else usual
