"""What the agent reads of the two brokers of a pair, and what a comparison of both shows. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.topologies.brokersync.sync.accounts import Counters
from dr_ctl.topologies.common.consumed import Whole

RAISE: Final = "compared again soon; where it always is so, raise maxBrowsePageSize above its depth there"


@dataclass(frozen=True, slots=True)
class Count:
    """The depth of a queue, and how many messages came and left since its broker's start."""

    depth: int
    came: int
    left: int


@dataclass(frozen=True, slots=True)
class Glance:
    """A look at the serving broker: its start, whether a client's listener is open, and by the name of each copied
    queue its counters, its count, and that of its copies that are not shipped yet."""

    start: str
    is_open: bool
    queues: Mapping[str, Counters]
    counts: Mapping[str, Count]
    to_ship: Mapping[str, Count]


@dataclass(frozen=True, slots=True)
class There:
    """Counts at the waiting broker, by the name of a queue: its copies, and what it did not ship when it served."""

    copies: Mapping[str, Count]
    unshipped: Mapping[str, Count]


@dataclass(frozen=True, slots=True)
class Listed:
    """The ids that a browse showed. `whole` is None where the browse may have left out a message, and `why_not` says
    why. `shown` are the messages that all browses made for it were given."""

    ids: frozenset[str]
    whole: Whole | None
    shown: int = 0
    why_not: str = ""


class Opened(BrokerError):
    """The waiting site lets clients in: which of both sites serves cannot be told, so nothing is deleted there."""


NOTHING: Final = Count(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Copies that were shown, and what the serving site's queue was listed as, None where there is no copy to conclude
    anything of. Where any of the listings may have left out a message, `why_not` says why: nothing follows from it."""

    copies: frozenset[str]
    here: Listed | None
    why_not: str

    @property
    def lacking(self) -> frozenset[str]:
        return self.copies - self.here.ids if self.here is not None else self.copies
