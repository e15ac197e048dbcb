"""Whether the waiting site holds the serving site's messages, queue by queue and by count. Pure.

Other messages there were consumed at the serving site, or are on their way to it: ids tell which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dr_ctl.settings.model import Queues
from dr_ctl.topologies.common.queues import selected
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.fanout.view import BrokerView


@dataclass(frozen=True, slots=True)
class Counts:
    """How many messages of one queue lie at both sites."""

    queue: str
    source: int
    target: int

    def told(self, source: str, target: str) -> str:
        return f"{self.queue}: {self.source} at {source}, {self.target} at {target}"

    @property
    def more(self) -> int:
        """How many more messages lie at the target."""
        return self.target - self.source


def counts(source: BrokerView, target: BrokerView, queues: Queues) -> list[Counts]:
    """Count every selected queue of clients, by name; dead letters are left out, because every broker fills its own."""
    here, there = selected(source, queues), selected(target, queues)
    found = []
    for name in sorted(here.keys() | there.keys()):
        both = here.get(name), there.get(name)
        if not any(each is not None and each.dead_letter_address is not None for each in both):
            found.append(Counts(name, *(each.depth if each is not None else 0 for each in both)))
    return found


def lacking(source: BrokerView, target: BrokerView, queues: Queues, moved: Mapping[str, int]) -> list[Counts]:
    """Queues of which the target holds fewer, by more than what moved between two looks can explain."""
    counted = counts(source, target, queues)
    return [each for each in counted if each.source - each.target > moved.get(each.queue, 0)]


def untold(source: BrokerView, target: BrokerView, moved: Mapping[str, int]) -> list[Counts]:
    """Queues of which the target holds more than the counters of both sites prove to be consumed, so that
    some may come twice. No queue counts where consumers write down what they have done."""
    if source.own.stored:
        return []
    return [
        each
        for each in counts(source, target, Queues())
        if each.more > moved.get(each.queue, 0)
        and not _proven(source.named.get(each.queue), target.named.get(each.queue), moved.get(each.queue, 0))
    ]


def _proven(here: Queue | None, there: Queue | None, moved: int) -> bool:
    """Say whether both queues' counters cover all that ever lay there, and as many messages came to both."""
    if here is None or there is None:
        return False
    cover = all(abs(each.depth - each.added + each.removed) <= moved for each in (here, there))
    consumed = here.acked - there.removed + moved
    return cover and abs(here.added - there.added) <= moved and there.depth - here.depth <= consumed
