"""Whether the waiting site holds what the serving one does, queue by queue. Pure: judges what was seen.

Other messages there are copies of consumed ones: no lack, and removed by id before the site opens.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dr_ctl.settings.model import Queues
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.common import rules


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
        Counts(each.queue, each.source, each.target, copies.depth if copies is not None else 0)
        for each, either in rules.at_both(source, target, queues)
        for copies in (source.copying.get(each.queue),)
        if not any(queue is not None and queue.dead_letter_address is not None for queue in either)
    ]


def lacking(source: BrokerView, target: BrokerView, queues: Queues, moved: Mapping[str, int]) -> list[Counts]:
    """Queues whose lack is larger than what moved between two looks can explain."""
    return [each for each in counts(source, target, queues) if each.lacks > moved.get(each.queue, 0)]


def differing(source: BrokerView, target: BrokerView, queues: Queues) -> list[Counts]:
    """Queues whose counts differ, once nothing is under way."""
    return [each for each in counts(source, target, queues) if each.source != each.target]


def unproven(
    source: BrokerView, target: BrokerView, queues: Queues, moved: Mapping[str, int]
) -> list[tuple[Counts, int, str]]:
    """Queues of which the target holds more copies than the source's counters cover, and than moved between two looks;
    how many lie there alone, and why they may not be removed."""
    found = []
    for each in counts(source, target, queues):
        copies = each.target + each.to_ship - each.source
        sure = copies - moved.get(each.queue, 0)
        if each.queue in source.copying and sure > 0 and (why := source.why_kept(each.queue, sure)) is not None:
            found.append((each, copies, why))
    return found
