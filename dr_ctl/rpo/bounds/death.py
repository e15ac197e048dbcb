"""When a lost site can have died at the latest, and how that is known."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dr_ctl.core.clock import stamp
from dr_ctl.core.model import Role
from dr_ctl.rpo.history.newest import OUTFLOWS, US, Recent
from dr_ctl.rpo.history.row import moment

STALE_US: Final = 30 * US
"""How long ago a look may lie for the site to be taken to have been so ever since."""


class How(Enum):
    """How the moment is known at which nothing more can have been put in."""

    DOWN = "it was seen down"
    WORD = "its service had ended, by the operator's word"
    OPEN = "it was not yet seen down"


@dataclass(frozen=True, slots=True)
class Death:
    """The latest moment at which the site can have died."""

    us: int
    how: How

    @property
    def text(self) -> str:
        return f"{stamp(moment(self.us))}, when {self.how.value}"

    def or_earlier(self, word_us: int, seen: Recent) -> Death:
        """The operator's moment, if earlier. Only the time after the last look is shortened; counts already read
        stay."""
        return Death(max(word_us, _last_read_us(seen)), How.WORD) if word_us < self.us else self


def latest(seen: Recent, now_us: int, *, is_down: bool) -> Death:
    """The first look of the unbroken run that saw the site down up to now; without such a run, now.

    A look that was not down, or too long without any, and the run begins anew: the site may have been back.
    """
    read_us = _last_read_us(seen)
    downs = itertools.takewhile(lambda each: each[1] == Role.DOWN.value, reversed(seen.roles))
    first_us = now_us
    for us in (us for us, _ in downs if us > read_us):
        if first_us - us > STALE_US:
            break
        first_us = us
    if first_us < now_us:
        return Death(first_us, How.DOWN)
    return Death(now_us, How.DOWN if is_down else How.OPEN)


def _last_read_us(seen: Recent) -> int:
    """When an outflow of the site was last read."""
    return max((looks[-1].us for key, looks in seen.counts.items() if key[1] in OUTFLOWS and looks), default=0)
