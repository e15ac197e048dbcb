"""The most that one outflow can lose: its contents at a look, and later additions.

    lost    messages that lay there and were in no client's hands yet, and those that were sent since
    twice   acknowledgements that lay there, and what clients acknowledged since

Two looks give a sum each, and the smaller sum holds. The last look at the outflow is nearer to the end, but does not
tell messages from acknowledgements in a mixed outflow; the last look that read the queues too does. Between the two
looks the outflow grew by both kinds. The queues' pace limits the messages, so the rest are acknowledgements, and an
acknowledged message is not lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from dr_ctl.rpo.bounds.looks import Looks
from dr_ctl.rpo.bounds.pace import Pace, burst_between
from dr_ctl.rpo.bounds.received import Arrived
from dr_ctl.rpo.bounds.things import Counter, Thing
from dr_ctl.rpo.series.columns import NA, Ints

UNEXPLAINED: Final = 0.01
"""Counters are not read at quite the same instant: so small a share of some minutes is no other queue."""
NEARLY: Final = 0.9
"""Looks come a little early and late."""
EVEN_S: Final = 1.0
"""What is put in comes evenly where no burst of it is larger than what comes in so long a time."""


@dataclass(frozen=True, slots=True)
class Part:
    """At most so many: `there` at the look at `us`, and `since` then (at `rate` a second, and at once what is more),
    less what the survivor `received` since."""

    there: int
    since: int
    us: int
    rate: float
    received: int = 0

    @property
    def at_most(self) -> int:
        return self.there + self.since - self.received


@dataclass(frozen=True)
class Outflow:
    """An outflow of a pair, with the queues that it serves. `left` counts acknowledgements lost earlier, whose messages
    lie at the other site."""

    kind: str
    number: int
    looked: Thing
    queues: Mapping[str, Thing]
    looks: Looks
    end_us: int
    received: Callable[[Mapping[str, Thing], int], Arrived]
    left: int = 0

    @property
    def is_mixed(self) -> bool:
        return self.kind == "mixed"

    @cached_property
    def pace(self) -> Pace | None:
        return self.looked.pace("added")

    @cached_property
    def lost(self) -> Part | None:
        sums = self._parts(self._since_then(int(self.looked.depth[-1]), self._unconsumed_then), "added")
        return _least([*sums, self._far(self._unconsumed_then, "added"), self._in_queues(), self._less_received()])

    @cached_property
    def twice(self) -> Part | None:
        there = int(self.looked.depth[-1])
        there = self._since_then(there, self._unacknowledged_then) if self.is_mixed else there
        return _least([*self._parts(max(there, self.left), "acked"), self._far(self._unacknowledged_then, "acked")])

    @property
    def age_us(self) -> int | None:
        """Greatest possible age of the oldest lost message: every message put in up to the cut is shipped."""
        place = self.looks.place(self.number, self.looked.last_us)
        cut_us = NA if place is None else int(self.looks.flows.sends.cut_us[place])
        return None if cut_us == NA else self.end_us - cut_us

    def _since_then(self, there: int, then: int | None) -> int:
        """No more than lay in it, and than it had at the look at the queues and what was put in after that."""
        return there if then is None or self.put is None else min(there, then + self.put)

    def _parts(self, there: int, counter: Counter) -> list[Part | None]:
        """From its last look on, at its own pace, and at that of the queues."""
        us = self.looked.last_us
        most = since_of([self.pace], self.end_us - us)
        own = None if most is None or self.pace is None else Part(there, most, us, self.pace.rate)
        return [own, self._from(there, us, self._came(counter, us), counter)]

    def _far(self, then: int | None, counter: Counter) -> Part | None:
        """From the last look at the queues on, at their pace."""
        us = self.full_us
        return None if us is None or then is None else self._from(then, us, self._came(counter, us), counter)

    def _from(self, there: int, us: int, came: int | None, counter: Counter) -> Part | None:
        rate = sum(pace.rate for pace in self._paces(counter) if pace is not None)
        return None if came is None else Part(there, came, us, rate)

    def _in_queues(self) -> Part | None:
        """The sum from its last look on, by the queues' depths: messages there before, and messages sent and not
        acknowledged. Additions beyond the queues' pace must be acknowledgements. (A burst before that look is among the
        additions; missing acknowledgements during the burst count once, with the later messages.)"""
        us, then_us = self.looked.last_us, self.full_us
        came = self._came("added", us)
        if not self.is_mixed or not self.put or then_us is None or came is None:
            return None
        held = [each.depth_at(then_us) for each in self.queues.values()]
        sent = self._steady("added", us - then_us)
        if sent is None or None in held:
            return None
        strange = math.ceil(self._unexplained * self.put)
        there = sum(each or 0 for each in held) + 2 * (min(sent, self.put) + strange) - self.put
        return self._from(max(0, there), us, came, "added")

    def _less_received(self) -> Part | None:
        """The sum from the last look at the queues on: messages not shipped then, and not received since."""
        place = None if self.full_us is None else self.looks.place(self.number, self.full_us)
        if place is None or self.full_us is None:
            return None
        arrived = self.received(self.queues, self.full_us)
        part = self._far(max(arrived.behind, self._unshipped_then(place)), "added")
        return None if part is None else replace(part, received=min(part.at_most, arrived.count))

    def _unshipped_then(self, place: int) -> int:
        """At the look at the queues: no more than lay in it, than was sent since the cut and what no queue tells of."""
        depth, base = int(self.looks.flows.sends.depth[place]), self.looks.base(place)
        if base is None:
            return depth
        sent = self.counted("added", int(self.looks.flows.us[base]))
        return min(depth, sent + self._strange(base, place))

    def _came(self, counter: Counter, from_us: int) -> int | None:
        """The most messages (or acknowledgements) from a look to the end, by the queues' pace and a burst of additions.

        Looks at queues are rare, so their pace knows no bursts; looks at additions are frequent. Additions must come
        evenly, because a burst of messages without acknowledgements would exceed the bound. The answer is None where
        the queues do not explain all additions, or the outflow has no pace.
        """
        is_past = self.end_us >= self.looked.last_us  # times of a clock that is behind are not believed
        if not is_past or self._even is None or self.pace is None or not self._is_explained(counter):
            return None
        took_us = self.end_us - from_us
        steady = self._steady(counter, took_us)
        return None if steady is None else steady + (self.burst if took_us else 0)

    def _steady(self, counter: Counter, us: int) -> int | None:
        return since_of(self._paces(counter), us)

    def _paces(self, counter: Counter) -> list[Pace | None]:
        return [each.pace(counter) for each in self.queues.values()]

    @cached_property
    def _even(self) -> Pace | None:
        """The outflow's pace over the time between looks at the queues. None with too few such looks, or without
        evenness."""
        read = self.looked.us[np.isin(self.looked.us, self.read)]
        if len(read) < 2:  # noqa: PLR2004 - one interval
            return None
        pace = self.looked.pace("added", int(NEARLY * float(np.median(np.diff(read)))))
        return pace if pace is not None and pace.burst <= pace.rate * EVEN_S else None

    @cached_property
    def burst(self) -> int:
        """The most that was put in at once, above the rate from one look at the queues to the next."""
        return burst_between(self.read, self.looked.us, self.looked.added, self.looked.era)

    @cached_property
    def read(self) -> Ints:
        """When its queues were read."""
        return np.unique(np.concatenate([each.us for each in self.queues.values()] or [np.zeros(0, np.int64)]))

    @cached_property
    def full_us(self) -> int | None:
        """The last look at it that read a queue too."""
        known = [each.last_us for each in self.queues.values() if self.looked.depth_at(each.last_us) is not None]
        return max(known, default=None)

    @cached_property
    def put(self) -> int | None:
        """The additions after that look, up to the last look."""
        return None if self.full_us is None else self.looked.grown("added", self.full_us, self.looked.last_us)

    @cached_property
    def _unconsumed_then(self) -> int | None:
        """At the look at the queues: of each no more than was sent to it since the cut, and than lay in it; and all
        that no queue tells of."""
        place = None if self.full_us is None else self.looks.place(self.number, self.full_us)
        if place is None:
            return None
        depth = self.looked.depth_at(self.full_us or 0) or 0
        base = self.looks.base(place)
        last = self.looks.envelope.last
        if base is None or not last.queues[0][self.number]:
            return depth
        return min(depth, int(last.loss[0][self.number]) + self._strange(base, place))

    def _strange(self, base: int, place: int) -> int:
        """Additions between two looks that no queue explains."""
        put = int(self.looks.flows.sends.added[place] - self.looks.flows.sends.added[base])
        return max(0, math.ceil(put - float(self.looks.envelope.told[base + 1 : place + 1].sum()) - 1e-6))

    @cached_property
    def _unacknowledged_then(self) -> int | None:
        """At the look at the queues: no more than was acknowledged since the cut, or what no queue tells of."""
        if self.full_us is None:
            return None
        depth = self.looked.depth_at(self.full_us) or 0
        place = self.looks.place(self.number, self.full_us) if self.is_mixed else None
        base = None if place is None else self.looks.base(place)
        if base is None:
            return max(depth, self.left)
        base_us = int(self.looks.flows.us[base])
        put = self.looked.grown("added", base_us, self.full_us)
        if put is None:
            return depth
        acked, sent = (self.counted(counter, base_us) for counter in ("acked", "added"))
        return min(depth, acked + max(0, put - acked - sent))

    def counted(self, counter: Counter, from_us: int) -> int:
        """By the queues' counters, up to the last look at them."""
        return sum(each.grown(counter, from_us, self.full_us or 0) or 0 for each in self.queues.values())

    def _is_explained(self, counter: Counter) -> bool:
        """Whether the queues tell of all but 1 % of what was put in during the last minutes. Where they do not,
        something else feeds it (a queue that is not read); where nothing was put in there is nothing to tell by."""
        share = self._unexplained_of(("added", "acked") if self.is_mixed else (counter,))
        return share is not None and share <= UNEXPLAINED

    @property
    def _unexplained(self) -> float:
        return max(0.0, self._unexplained_of(("added", "acked")) or 0.0)

    def _unexplained_of(self, counters: Iterable[Counter]) -> float | None:
        if self.full_us is None or not self.queues:
            return None
        whole = (self.looked.era == self.looked.era[-1]) & np.isin(self.looked.us, self.read)
        from_us = int(self.looked.us[np.argmax(whole)])
        put = self.looked.grown("added", from_us, self.full_us)
        return 1 - sum(self.counted(each, from_us) for each in counters) / put if put else None


def since_of(paces: Iterable[Pace | None], us: int) -> int | None:
    """The most additions in that time. None without a pace, or where time ran backwards."""
    if us <= 0:
        return 0 if us == 0 else None
    total = 0
    for pace in paces:
        if pace is None:
            return None
        total += pace.most(us)
    return total


def _least(parts: Iterable[Part | None]) -> Part | None:
    """Bounds of the same: the smallest one that is known."""
    return min((each for each in parts if each is not None), key=lambda each: each.at_most, default=None)
