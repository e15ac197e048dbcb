"""What the survivor received while it waited: messages that the link put into its queues."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from dr_ctl.core.model import Role
from dr_ctl.rpo.bounds.looks import Looks
from dr_ctl.rpo.bounds.things import Thing
from dr_ctl.rpo.history.newest import Recent


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

    def since(self, pair: str, names: Iterable[str], from_us: int) -> int:
        """At least so many since that look; none where that look did not see it wait."""
        after = [each for each in self.roles if each[0] >= from_us]
        waiting = [us for us, _ in itertools.takewhile(lambda each: each[1] == Role.STANDBY.value, after)]
        if not waiting or waiting[0] != from_us:
            return 0
        found = 0
        for name in names:
            queue = self.queues.get((pair, name))
            at = 0 if queue is None else int(np.searchsorted(queue.us, waiting[-1], "right"))
            if queue is not None and at:
                found += queue.grown("added", from_us, int(queue.us[at - 1])) or 0
        return found
