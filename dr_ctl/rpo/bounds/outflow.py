"""What one outflow takes with it at most: what lay in it at a look, and what may have come since.

    lost    messages that lay there and were in no client's hands yet, and those that were sent since
    twice   acknowledgements that lay there, and what clients acknowledged since

Two looks tell of it, and the smaller sum holds. The last look at the outflow is nearer to the end, but of a mixed one
it does not say what of it are messages; the last one that read the queues too does. Between the two the outflow grew
by messages and by acknowledgements: no more messages can have come than the queues' pace allows, so the rest
acknowledged, and what was acknowledged is not lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from dr_ctl.rpo.bounds.looks import Looks
from dr_ctl.rpo.bounds.pace import Pace
from dr_ctl.rpo.bounds.things import Counter, Thing
from dr_ctl.rpo.series.columns import NA

UNEXPLAINED: Final = 0.01
"""Counters are not read at quite the same instant: so small a share of some minutes is no other queue."""


@dataclass(frozen=True, slots=True)
class Part:
    """At most so many: `there` at the look at `us`, and `since` then."""

    there: int
    since: int
    us: int

    @property
    def at_most(self) -> int:
        return self.there + self.since


@dataclass(frozen=True)
class Outflow:
    """One outflow of a pair, with the queues that it serves; `left`: of acknowledgements, those that were lost before
    and whose messages lie at the other site."""

    kind: str
    number: int
    looked: Thing
    queues: Mapping[str, Thing]
    looks: Looks
    end_us: int
    left: int = 0

    @property
    def is_mixed(self) -> bool:
        return self.kind == "mixed"

    @cached_property
    def pace(self) -> Pace | None:
        return self.looked.pace("added")

    @cached_property
    def lost(self) -> Part | None:
        found = [self._near(self._unconsumed()), self._far(self._unconsumed_then, "added")]
        return _least(found)

    @cached_property
    def twice(self) -> Part | None:
        found = [self._near(self._unacknowledged()), self._far(self._unacknowledged_then, "acked")]
        return _least(found)

    @property
    def age_us(self) -> int | None:
        """How long ago the oldest that it takes with it was sent, at most: what was put in up to the cut is shipped."""
        place = self.looks.place(self.number, self.looked.last_us)
        cut_us = NA if place is None else int(self.looks.flows.sends.cut_us[place])
        return None if cut_us == NA else self.end_us - cut_us

    def _near(self, there: int) -> Part | None:
        """From its last look on, at its own pace."""
        us = self.looked.last_us
        since = since_of([self.pace], self.end_us - us)
        return None if since is None else Part(there, since, us)

    def _far(self, there: int | None, counter: Counter) -> Part | None:
        """From the last look at the queues on, at theirs: where they tell of all that goes in."""
        if there is None or self._full_us is None or not self._is_explained(counter):
            return None
        # Without a pace of its own nothing is known, whatever the queues say.
        paces = [self.pace, *(each.pace(counter) for each in self.queues.values())]
        since = None if self.pace is None else since_of(paces[1:], self.end_us - self._full_us)
        return None if since is None else Part(there, since, self._full_us)

    @cached_property
    def _full_us(self) -> int | None:
        """The last look at it that read a queue too."""
        known = [each.last_us for each in self.queues.values() if self.looked.depth_at(each.last_us) is not None]
        return max(known, default=None)

    @cached_property
    def _put(self) -> int | None:
        """What was put in after that look, up to the last one."""
        return None if self._full_us is None else self.looked.grown("added", self._full_us, self.looked.last_us)

    def _unconsumed(self) -> int:
        """At its last look: no more than lay in it, than it had then and what was put in, than lay in the queues."""
        found = [int(self.looked.depth[-1])]
        if self._unconsumed_then is not None and self._put is not None:
            found.append(self._unconsumed_then + self._put)
        if (in_queues := self._in_queues) is not None:
            found.append(in_queues)
        return min(found)

    @cached_property
    def _in_queues(self) -> int | None:
        """What lay in the queues at its last look. Only told where what goes in comes evenly: a burst of messages
        would pass for acknowledgements."""
        if not self.is_mixed or not self._put or not self._is_explained("added") or self.pace is None:
            return None
        held = [each.depth_at(self._full_us or 0) for each in self.queues.values()]
        paces = [each.pace("added") for each in self.queues.values()]
        sent = since_of(paces, self.looked.last_us - (self._full_us or 0))
        if sent is None or None in held or not self.pace.is_even:
            return None
        sent = min(self._put, sent + math.ceil(self.pace.burst))
        strange = math.ceil(UNEXPLAINED * self._put) if self._unexplained else 0
        return max(0, sum(each or 0 for each in held) + 2 * (sent + strange) - self._put)

    @cached_property
    def _unconsumed_then(self) -> int | None:
        """At the look at the queues: of each no more than was sent to it since the cut, and than lay in it; and all
        that no queue tells of."""
        place = None if self._full_us is None else self.looks.place(self.number, self._full_us)
        if place is None:
            return None
        depth = self.looked.depth_at(self._full_us or 0) or 0
        base = self.looks.base(place)
        last = self.looks.found.last
        if base is None or not last.queues[0][self.number]:
            return depth
        put = int(self.looks.flows.sends.added[place] - self.looks.flows.sends.added[base])
        strange = put - float(self.looks.found.told[base + 1 : place + 1].sum())
        return min(depth, int(last.loss[0][self.number]) + max(0, math.ceil(strange - 1e-6)))

    def _unacknowledged(self) -> int:
        found = [int(self.looked.depth[-1])]
        if self.is_mixed and self._unacknowledged_then is not None and self._put is not None:
            found.append(self._unacknowledged_then + self._put)
        return max(min(found), self.left)

    @cached_property
    def _unacknowledged_then(self) -> int | None:
        """At the look at the queues: no more than was acknowledged since the cut, or what no queue tells of."""
        if self._full_us is None:
            return None
        depth = self.looked.depth_at(self._full_us) or 0
        place = self.looks.place(self.number, self._full_us) if self.is_mixed else None
        base = None if place is None else self.looks.base(place)
        if base is None:
            return max(depth, self.left)
        base_us = int(self.looks.flows.us[base])
        put = self.looked.grown("added", base_us, self._full_us)
        if put is None:
            return depth
        acked, sent = (self._told(counter, base_us) for counter in ("acked", "added"))
        return min(depth, acked + max(0, put - acked - sent))

    def _told(self, counter: Counter, from_us: int) -> int:
        """By the queues' counters, up to the last look at them."""
        return sum(each.grown(counter, from_us, self._full_us or 0) or 0 for each in self.queues.values())

    def _is_explained(self, counter: Counter) -> bool:
        """Whether the queues tell of all but 1 % of what was put in during the last minutes. Where they do not,
        something else feeds it (a queue that is not read); where nothing was put in there is nothing to tell by."""
        share = self._unexplained_of(("added", "acked") if self.is_mixed else (counter,))
        return share is not None and share <= UNEXPLAINED

    @property
    def _unexplained(self) -> float:
        return max(0.0, self._unexplained_of(("added", "acked")) or 0.0)

    def _unexplained_of(self, counters: Iterable[Counter]) -> float | None:
        if self._full_us is None or not self.queues:
            return None
        read = np.concatenate([each.us for each in self.queues.values()])
        mine = (self.looked.era == self.looked.era[-1]) & np.isin(self.looked.us, read)
        from_us = int(self.looked.us[np.argmax(mine)])
        put = self.looked.grown("added", from_us, self._full_us)
        return 1 - sum(self._told(each, from_us) for each in counters) / put if put else None


def since_of(paces: Iterable[Pace | None], us: int) -> int | None:
    """What came in so long a time at most; None without a pace, or where time ran backwards."""
    if us <= 0:
        return 0 if us == 0 else None
    total = 0
    for pace in paces:
        if pace is None:
            return None
        total += pace.most(us)
    return total


def _least(found: Iterable[Part | None]) -> Part | None:
    """Two bounds of the same: the smaller one that is known."""
    return min((each for each in found if each is not None), key=lambda each: each.at_most, default=None)
