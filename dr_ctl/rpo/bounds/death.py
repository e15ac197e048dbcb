"""When a lost site can have served at the latest, and how that is known."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from dr_ctl.core.clock import stamp
from dr_ctl.core.model import Role
from dr_ctl.rpo.history.newest import US, Recent
from dr_ctl.rpo.history.row import moment

STALE_US: Final = 30 * US
"""So far apart at most looks are that saw a site down for it to be taken to have been so in between."""


class How(Enum):
    """How the moment is known after which nothing more can have been put in."""

    DOWN = "it was seen down"
    WORD = "its service had ended, by the operator's word"
    OPEN = "it was not yet seen down"
    UNWATCHED = "it is seen down, and nobody had looked before"


@dataclass(frozen=True, slots=True)
class Death:
    """The latest moment at which the site can have served. `unwatched`: a time after it was first seen down in which
    nobody looked, so that it may have been back."""

    us: int
    how: How
    unwatched: tuple[int, int] | None = None

    @property
    def text(self) -> str:
        return f"{stamp(moment(self.us))}, when {self.how.value}"

    @property
    def grows(self) -> bool:
        """Whether who asks later gets a later moment."""
        return self.how in (How.OPEN, How.UNWATCHED)

    def or_earlier(self, word_us: int, seen: Recent) -> Death:
        """The operator's moment, if earlier. Only the time after the last look is shortened; counts already read
        stay."""
        return Death(max(word_us, last_read_us(seen)), How.WORD) if word_us < self.us else self


def latest(seen: Recent, now_us: int, *, is_down: bool) -> Death:
    """The first look of the unbroken run that saw the site down up to now; without such a run, now.

    A look that was not down, or too long without any, and the run begins anew: the site may have been back. `is_down`:
    who asks sees it down now."""
    read_us = last_read_us(seen)
    downs = seen.saw(Role.DOWN)
    others = [moments[-1] for role, moments in seen.roles.items() if role != Role.DOWN.value and len(moments)]
    run = downs[downs > max([read_us, *others])]
    edges = np.append(run, now_us)
    gaps = np.flatnonzero(np.diff(edges) > STALE_US)
    first = int(gaps[-1]) + 1 if len(gaps) else 0
    unwatched = (int(edges[first - 1]), int(edges[first])) if first else None
    if first < len(run):
        return Death(int(run[first]), How.DOWN, unwatched)
    is_watched = now_us - max([0, *others, *downs[-1:]]) <= STALE_US
    return Death(now_us, How.OPEN if not is_down else How.DOWN if is_watched else How.UNWATCHED, unwatched)


def last_read_us(seen: Recent) -> int:
    """When an outflow of the site was last read."""
    return max((last for _, last in seen.spans.values()), default=0)
