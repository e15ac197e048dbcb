"""Whether the waiting site holds what the serving one does, queue by queue. Pure: judges what was seen.

Other messages there are copies of consumed ones: no lack, and removed by id before the site opens.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dr_ctl.engine.ports import Move
from dr_ctl.settings.model import Queues
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.common import rules
from dr_ctl.topologies.common.rules import Rules

DEEP: Final = 1000
"""A browse counts as a dispatch of each message that it shows, as for a client: small queues are left to the console,
which leaves no trace."""
BY_STOMP_S: Final = 0.0002  # a message; 40 000 of 500 bytes took 1.7 s
BY_CONSOLE_S: Final = 0.001  # 40 000 took 20 s
SHARE: Final = 0.5
"""Of a drain's time, for listings; copies are to be shipped in it, too."""


@dataclass(frozen=True, slots=True)
class Counts(rules.Counts):
    """Beside it how many copies are to be shipped."""

    to_ship: int

    @property
    def lacks(self) -> int:
        """How many the target has not and will not get."""
        return max(0, self.source - self.target - self.to_ship)


def counts(source: BrokerView, target: BrokerView, queues: Queues) -> list[Counts]:
    """Every selected queue of clients, by name; dead letters are left out, because every broker fills its own."""
    return [
        Counts(counts.queue, counts.source, counts.target, copies.depth if copies is not None else 0)
        for counts, either in rules.at_both(source, target, queues)
        for copies in (source.copying.get(counts.queue),)
        if not any(queue is not None and queue.dead_letter_address is not None for queue in either)
    ]


def lacking(source: BrokerView, target: BrokerView, queues: Queues, traffic: Mapping[str, int]) -> list[Counts]:
    """Queues whose lack is larger than what moved between two readings can explain."""
    return [counted for counted in counts(source, target, queues) if counted.lacks > traffic.get(counted.queue, 0)]


def differing(source: BrokerView, target: BrokerView, queues: Queues) -> list[Counts]:
    """Queues whose counts differ, once nothing is under way."""
    return [counted for counted in counts(source, target, queues) if counted.source != counted.target]


def unproven(
    source: BrokerView, target: BrokerView, queues: Queues, traffic: Mapping[str, int]
) -> list[tuple[Counts, int, str]]:
    """Queues of which the target holds more copies than the source's counters cover, and than moved between two
    readings; how many lie there alone, and why they may not be removed."""
    differences = []
    for counted in counts(source, target, queues):
        copies = counted.target + counted.to_ship - counted.source
        sure = copies - traffic.get(counted.queue, 0)
        if counted.queue in source.copying and sure > 0 and (why := source.why_kept(counted.queue, sure)) is not None:
            differences.append((counted, copies, why))
    return differences


def takes_s(view: BrokerView, depth: int) -> float:
    """How long a listing of so many messages may take."""
    return depth * (BY_STOMP_S if depth > DEEP and view.own.agent is not None else BY_CONSOLE_S)


def too_deep(rules: Rules, source: BrokerView, target: BrokerView, move: Move) -> frozenset[str]:
    """The queues whose listings would take longer than the run has, the deepest of them first left out."""
    left_s, deep = rules.within(move) * SHARE, set[str]()
    for counted in sorted(counts(source, target, rules.queues), key=lambda counts: max(counts.source, counts.target)):
        left_s -= max(takes_s(source, counted.source), takes_s(target, counted.target))
        if left_s < 0 and counted.queue in source.copying:
            deep.add(counted.queue)
    return frozenset(deep)
