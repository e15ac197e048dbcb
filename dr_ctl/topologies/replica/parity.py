"""Whether both sites hold the same, queue by queue; a replica has every queue of its source. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dr_ctl.settings.model import Queues
from dr_ctl.topologies.common.evidence import total
from dr_ctl.topologies.common.queues import selected
from dr_ctl.topologies.replica.view import BrokerView


@dataclass(frozen=True, slots=True)
class Difference:
    queue: str
    source: int
    target: int

    @property
    def size(self) -> int:
        return abs(self.source - self.target)

    def told(self, source: str, target: str) -> str:
        return f"{self.queue}: {self.source} at {source}, {self.target} at {target}"


def differences(source: BrokerView, target: BrokerView, queues: Queues) -> list[Difference]:
    """Every selected queue whose counts differ; absent at one site and empty at the other is equal."""
    here, there = selected(source, queues), selected(target, queues)
    counts = [
        Difference(
            name,
            here[name].depth if name in here else 0,
            there[name].depth if name in there else 0,
        )
        for name in sorted(here.keys() | there.keys())
    ]
    return [each for each in counts if each.size]


def unexplained(source: BrokerView, target: BrokerView, queues: Queues, moved: Mapping[str, int]) -> list[Difference]:
    """Differences larger than what the replica lacks, and what moved between two looks."""
    between = total((source.link.to_ship, target.link.to_ship))
    return [
        each
        for each in differences(source, target, queues)
        if between is None or each.size > between + moved.get(each.queue, 0)
    ]


def not_accepted(found: list[Difference], accepted: Mapping[str, int]) -> list[Difference]:
    """Differences that were not accepted at exactly their size."""
    return [each for each in found if accepted.get(each.queue) != each.size]
