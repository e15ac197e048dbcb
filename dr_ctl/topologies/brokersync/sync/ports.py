"""The agent's questions to the two brokers of a pair, and the comparison of both: real ones stand in `brokers.py`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from dr_ctl.core.errors import BrokerError
from dr_ctl.topologies.brokersync.sync.accounts import Counters
from dr_ctl.topologies.common.consumed import Consumed, Whole

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


class Primary(Protocol):
    """The serving broker. Every method raises `BrokerError`."""

    def glance(self) -> Glance: ...

    def listen(self, queues: Sequence[str]) -> Sequence[str]:
        """Follow what these queues announce as consumed; returns those that are followed anew, of which some may have
        been missed before."""

    def heard(self, within_s: float) -> Sequence[tuple[str, str]]:
        """Queue and id of each message that was announced, as they come."""

    def listed(self, queue: str, before: Count | None) -> Listed:
        """Its messages; `before` was read not long ago, None asks for it now."""

    def unshipped(self, queue: str, before: Count | None) -> Listed:
        """The queue that holds its copies until they are shipped."""

    def deaf(self) -> None:
        """Stop following the queues: the agent must listen anew."""

    def close(self) -> None: ...


class Standby(Protocol):
    """The waiting broker. Every method raises `BrokerError`."""

    def is_open(self) -> bool:
        """Whether any client's listener is open there."""

    def counts(self) -> There: ...

    def remove(self, queue: str, consumed: Consumed) -> int:
        """Delete these copies; returns how many of them were there. Looks at the clients' listeners just before: raises
        `Opened` where one is open. Raises `PolicyRefused` where the console's policy forbids it."""

    def listed(self, queue: str, before: Count | None) -> Listed: ...

    def unshipped(self, queue: str, before: Count | None) -> Listed:
        """Messages it did not ship when it served: the other site never got them."""

    def close(self) -> None: ...


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


def compared(primary: Primary, standby: Standby, queue: str, before: Glance, there: There) -> Comparison:
    """Call it while what is consumed is followed, after a look at the serving site and then one at the waiting site.
    Raises `BrokerError`.

    In this order: a copy is on its way, then at the waiting site; its message leaves the serving site last. A message
    consumed before that look therefore shows in one of the first two places. Messages that the waiting site did not
    ship when it served are no copies. A count is as good as a listing where it says that nothing lies there, as long
    as it was read in that order."""
    way = primary.unshipped(queue, before.to_ship.get(queue, NOTHING))
    own = standby.unshipped(queue, there.unshipped.get(queue, NOTHING))
    copied = standby.listed(queue, there.copies.get(queue, NOTHING) if not way.ids else None)
    copies = (way.ids | copied.ids) - own.ids
    here = primary.listed(queue, None) if copies else None
    cut = [each.why_not for each in (way, own, copied, here) if each is not None and each.whole is None]
    return Comparison(copies, here, f"{'; '.join(cut)}; {RAISE}" if cut else "")
