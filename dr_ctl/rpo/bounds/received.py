"""Messages that the link put into the survivor's queues while the survivor waited."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from dr_ctl.core.model import Role
from dr_ctl.rpo.bounds.looks import Looks
from dr_ctl.rpo.bounds.things import Thing
from dr_ctl.rpo.history.newest import Recent


@dataclass(frozen=True, slots=True)
class Arrived:
    """At least `count` messages arrived since a look, at which the survivor was `behind` by so many. The sites are not
    read at the same instant, so the smallest lag of the looks counts."""

    count: int = 0
    behind: int = 0


@dataclass(frozen=True, slots=True)
class Received:
    """By pair and queue what was looked at there; `roles` by look. Clients that are served there send too: only looks
    between which it did nothing but wait tell of the link."""

    queues: Mapping[tuple[str, str], Thing]
    roles: Sequence[tuple[int, str]]

    @classmethod
    def of(cls, survivor: Recent) -> Self:
        looks = Looks.of(survivor)
        things = {} if looks is None else looks.things
        queues = {(pair, name): thing for (pair, kind, name), thing in things.items() if kind == "queue"}
        return cls(queues, survivor.roles)

    def since(self, pair: str, queues: Mapping[str, Thing], from_us: int) -> Arrived:
        """Arrivals since that look; none unless that look saw the survivor wait."""
        after = [each for each in self.roles if each[0] >= from_us]
        waiting = [us for us, _ in itertools.takewhile(lambda each: each[1] == Role.STANDBY.value, after)]
        if not waiting or waiting[0] != from_us:
            return Arrived()
        arrivals = [
            _arrived(queue, self.queues[pair, name], from_us, waiting[-1])
            for name, queue in queues.items()
            if (pair, name) in self.queues
        ]
        return Arrived(sum(each.count for each in arrivals), sum(each.behind for each in arrivals))


def _arrived(sent: Thing, there: Thing, from_us: int, to_us: int) -> Arrived:
    last = int(np.searchsorted(there.us, to_us, "right")) - 1
    count = there.grown("added", from_us, int(there.us[last])) if last >= 0 else None
    _, here_at, there_at = np.intersect1d(sent.us, there.us, return_indices=True)
    lag = sent.added[here_at] - there.added[there_at]
    at = np.flatnonzero(sent.us[here_at] == from_us)
    if not count or not len(at):
        return Arrived()
    same = (sent.era[here_at] == sent.era[here_at[at]]) & (there.era[there_at] == there.era[there_at[at]])
    return Arrived(count, int(lag[at[0]] - lag[same].min()))
