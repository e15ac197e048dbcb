"""Which queues a run can compare by id in its time, and which it has compared. Pure."""

from dataclasses import dataclass, field
from typing import Final

from dr_ctl.engine.ports import Move
from dr_ctl.topologies.brokersync import parity
from dr_ctl.topologies.brokersync.listing import takes_s
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.common.rules import Rules

SHARE: Final = 0.5
"""Of a drain's time, for listings; copies are to be shipped in it, too."""
_Counts = tuple[str, int, int]


@dataclass(slots=True)
class Compared:
    """Queues that lay alike at both sites, by id, with their counters then: where nothing came or left since, both
    sites need not be listed again."""

    _alike: dict[tuple[str, str], tuple[_Counts, _Counts]] = field(default_factory=dict)

    def note(self, source: BrokerView, target: BrokerView, queue: str, removed: int) -> None:
        """Both views are from before the listing; so many copies were removed at the target after it."""
        self._alike[source.pair, queue] = _counts(source, queue), _counts(target, queue, removed)

    def alike(self, source: BrokerView, target: BrokerView, queue: str) -> bool:
        return self._alike.get((source.pair, queue)) == (_counts(source, queue), _counts(target, queue))


def _counts(view: BrokerView, queue: str, removed: int = 0) -> _Counts:
    found = view.named.get(queue)
    return (view.start, found.added, found.removed + removed) if found is not None else (view.start, 0, 0)


def too_deep(rules: Rules, source: BrokerView, target: BrokerView, move: Move) -> frozenset[str]:
    """The queues whose listings would take longer than the run has, the deepest of them first left out."""
    left_s, found = rules.within(move) * SHARE, set[str]()
    for each in sorted(parity.counts(source, target, rules.queues), key=lambda each: max(each.source, each.target)):
        left_s -= max(takes_s(source, each.source), takes_s(target, each.target))
        if left_s < 0 and each.queue in source.copying:
            found.add(each.queue)
    return frozenset(found)
