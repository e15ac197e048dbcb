"""Whether both sites hold the same messages, queue by queue. Pure: judges what was seen.

A queue that is absent at one side and empty at the other is equal. Messages under way explain a difference while
clients work; afterwards only an accepted difference is allowed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dr_ctl.settings.model import Queues
from dr_ctl.topologies.common.figures import total
from dr_ctl.topologies.common.rules import Counts, at_both
from dr_ctl.topologies.mirror.view import BrokerView

ORIGINS_UP_TO = 1000


@dataclass(frozen=True, slots=True)
class Difference(Counts):
    """A queue whose counts differ. `blocks` is false for kinds whose content may rightly differ."""

    blocks: bool
    absent: bool

    @property
    def size(self) -> int:
        return abs(self.more)


def differences(source: BrokerView, target: BrokerView, queues: Queues) -> list[Difference]:
    """Every selected queue whose counts differ, by name."""
    loose = source.differing | target.differing
    found = []
    for each, (here, there) in at_both(source, target, queues):
        if each.more:
            either = here if here is not None else there
            blocks = either is None or not {each.queue, either.address} & loose
            absent = here is None or there is None
            found.append(Difference(each.queue, each.source, each.target, blocks=blocks, absent=absent))
    return found


def under_way(source: BrokerView, target: BrokerView) -> int | None:
    """How many events are between the sites now; None where an outflow cannot be seen. A site without a link ships
    none."""
    return total(
        figure
        for view in (source, target)
        for figure in (0 if view.link.missing else view.link.to_ship, view.link.unapplied)
    )


def unexplained(source: BrokerView, target: BrokerView, queues: Queues, moved: Mapping[str, int]) -> list[Difference]:
    """Blocking differences larger than what is under way and what moved between the last two looks can explain.

    Two brokers are never looked at in the same instant: `moved` says how much a queue changed between two looks that
    were further apart than that.
    """
    between = under_way(source, target)
    return [
        each
        for each in differences(source, target, queues)
        if each.blocks and (between is None or each.size > between + moved.get(each.queue, 0))
    ]


def not_accepted(found: Sequence[Difference], accepted: Mapping[str, int]) -> list[Difference]:
    """Blocking differences that were not accepted at exactly their size."""
    return [each for each in found if each.blocks and accepted.get(each.queue) != each.size]
