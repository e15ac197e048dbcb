"""Protocols for the agent's questions to the two brokers of a pair: real ones in `primary.py` and `standby.py`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dr_ctl.core.errors import BrokerError
from dr_ctl.topologies.brokersync.sync.accounts import Counters
from dr_ctl.topologies.common.consumed import Consumed, Whole


@dataclass(frozen=True, slots=True)
class Count:
    """The depth of a queue, and how many messages came and left since its broker's start."""

    depth: int
    came: int
    left: int


@dataclass(frozen=True, slots=True)
class Glance:
    """A look at the serving broker: its start, whether a client's door is open, and by the name of each copied queue
    its counters, its count, and that of its copies that are not shipped yet."""

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
        """Whether any client's door is open there."""

    def counts(self) -> There: ...

    def remove(self, queue: str, consumed: Consumed) -> int:
        """Delete these copies; returns how many of them were there. Looks at the clients' doors just before: raises
        `Opened` where one is open. Raises `PolicyRefused` where the console's policy forbids it."""

    def listed(self, queue: str, before: Count | None) -> Listed: ...

    def unshipped(self, queue: str, before: Count | None) -> Listed:
        """Messages it did not ship when it served: the other site never got them."""

    def close(self) -> None: ...
