"""What lay at one site and not at the other, by queue, at the readings of both of the last seconds.

No more of it can be on its way than the outflow held. What is beyond that at every reading counts beside what the
outflow takes with it. Where it is also more than moved meanwhile, the link did not bring all that it should have, and
nobody can say how much: the figure is not known. Of a queue that no outflow serves it is: all that lies there alone is
lost, and what comes to it; and so it is of a queue whose content may rightly differ."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from dr_ctl.core.patterns import matches
from dr_ctl.rpo.bounds.direction import Direction
from dr_ctl.rpo.bounds.looks import Counts, Looks
from dr_ctl.rpo.core.columns import NA, SHARED, Ints
from dr_ctl.rpo.history.newest import US

LATELY_US: Final = 10 * US
LEAST: Final = 3
"""So many readings of both sites tell what stays."""
_ALL: Final = 1 << 60


@dataclass(frozen=True)
class Selected:
    """Which queues are compared: those that the settings name, and of them not by their count those that `differ`
    rightly, as dead letters of each site's own do."""

    include: Sequence[str] = ("#",)
    exclude: Sequence[str] = ()
    differ: Collection[str] = ()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and matches(self.include, name) and not matches(self.exclude, name)


@dataclass(frozen=True, slots=True)
class Apart:
    """A queue at the last reading of both sites. `lost` and `duplicates`: beyond what was on its way, at every reading
    lately; None where nobody can say why. `has_ids`: ids tell which copies at the other site are done."""

    name: str
    here: int
    there: int
    lost: int | None
    duplicates: int | None
    has_ids: bool

    def text(self, site: str, other: str) -> str:
        return f"{self.name}: {self.here} at {site}, {self.there} at {other}"


@dataclass(frozen=True)
class Comparison:
    """The queues of a pair that differ, by name; `us` is the last reading of both sites, None where there was none."""

    us: int | None
    queues: Mapping[str, Apart]

    @classmethod
    def of(cls, messages: Direction, acknowledgements: Direction, selected: Selected) -> Self:
        looks = messages.looks
        if not len(looks.met):
            return cls(None, {})
        us = looks.us[looks.whole[looks.met]]
        found = _Found(looks, looks.met[us >= us[-1] - LATELY_US], messages, acknowledgements, selected)
        return cls(int(us[-1]), {each.name: each for each in found.queues()})

    def lost(self, names: Collection[str] | None = None) -> tuple[int, int] | None:
        """Of some queues or all: beyond what was on its way, and all that lay here alone at the last reading."""
        return _total([(each.lost, each.here - each.there) for each in self._of(names)])

    def duplicates(self, names: Collection[str] | None = None) -> tuple[int, int] | None:
        """The same of what lay there alone."""
        return _total([(each.duplicates, 0 if each.has_ids else each.there - each.here) for each in self._of(names)])

    def _of(self, names: Collection[str] | None) -> Iterable[Apart]:
        return self.queues.values() if names is None else [self.queues[name] for name in names if name in self.queues]


NOTHING_COMPARED: Final = Comparison(None, {})


def _total(parts: Sequence[tuple[int | None, int]]) -> tuple[int, int] | None:
    beyond = [each for each, _ in parts]
    if None in beyond:
        return None
    return sum(each or 0 for each in beyond), sum(max(0, apart) for _, apart in parts)


@dataclass(frozen=True)
class _Found:
    looks: Looks
    places: Ints
    """Of the readings of both sites, among those that read queues."""
    messages: Direction
    acknowledgements: Direction
    selected: Selected

    def queues(self) -> Iterator[Apart]:
        looks = self.looks
        for name in sorted({*looks.queues.rows, *looks.staged.rows}):
            if name not in self.selected:
                continue
            here, there = (self._depths(counts, name) for counts in (looks.queues, looks.staged))
            if (here != there).any():
                lost = self._beyond(name, here - there, self._to_ship(name))
                ids = self.acknowledgements.outflow_of(name)
                # With ids of all queues shipped beside the messages of each, it keeps a copy of all that is done.
                has_ids = ids is not None and looks.outflows.names[ids] == ("acks", SHARED)
                duplicates = 0 if has_ids else self._beyond(name, there - here, self._acknowledged(name))
                yield Apart(name, int(here[-1]), int(there[-1]), lost, duplicates, has_ids)

    def _depths(self, counts: Counts, *names: str) -> Ints:
        """What lay there of these names; a queue that is absent where the site was read is empty there."""
        rows = [row for name in names for row in counts.rows.get(name, ())]
        depths: Ints = np.maximum(0, counts.depth[rows][:, self.places]).sum(axis=0)
        return depths

    def _to_ship(self, name: str) -> Ints | None:
        """What was on its way to the other site; None where nothing ships that queue."""
        row, looks = self.messages.outflow_of(name), self.looks
        # What the other site still had to ship is on its way back.
        back = self._depths(looks.back, name, SHARED)
        return None if row is None else self._of_outflow(looks.outflows.depth, row, _ALL) + back

    def _acknowledged(self, name: str) -> Ints | None:
        """What was on its way of what was done here; None where nothing ships that queue."""
        counts, row = self.looks.outflows, self.acknowledgements.outflow_of(name)
        if row is None:
            return None if self.messages.outflow_of(name) is None else np.full(len(self.places), _ALL)
        on_its_way = self._of_outflow(counts.depth, row, _ALL) + self._of_outflow(counts.pending, row, 0)
        left: Ints = np.maximum(on_its_way, self.acknowledgements.left.get(name, 0))
        return left + self._depths(self.looks.back, name, SHARED)

    def _of_outflow(self, grid: Ints, row: int, unread: int) -> Ints:
        values = grid[row, self.looks.whole[self.places]]
        return np.where(values == NA, unread, values)

    def _beyond(self, name: str, apart: Ints, on_its_way: Ints | None) -> int | None:
        """How much more lay there alone; None where nobody can say why."""
        if on_its_way is None:
            return max(0, int(apart[-1]))
        beyond = np.maximum(0, apart - on_its_way)
        if name in self.selected.differ:
            return int(beyond[-1])
        stays = len(self.places) >= LEAST and bool((beyond > self._moved(name)).all())
        return None if stays else int(beyond.min())

    def _moved(self, name: str) -> Ints:
        """How much the queue changed from the look before to the look after: two sites are never read in the same
        instant."""
        place, seen = self.looks.place.get(name), self.looks.seen
        if place is None:
            return np.zeros(len(self.places), np.int64)
        before, after = np.maximum(0, self.places - 1), np.minimum(len(seen.whole) - 1, self.places + 1)
        counted = seen.counted.values()
        moved: Ints = np.sum([each.high[place, after] - each.low[place, before] for each in counted], axis=0)
        return np.where(seen.era[seen.whole[before]] == seen.era[seen.whole[after]], moved, _ALL)
