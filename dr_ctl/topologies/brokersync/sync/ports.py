"""What the agent asks of the two brokers of a pair, as protocols: real ones in `primary.py` and `standby.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dr_ctl.topologies.brokersync.sync.accounts import Counters


@dataclass(frozen=True, slots=True)
class Glance:
    """One look at the serving broker: which start of it, whether any client's door is open, and its queues that are
    copied, by name."""

    start: str
    is_open: bool
    queues: Mapping[str, Counters]


@dataclass(frozen=True, slots=True)
class Browsed:
    """What a browse showed. One that is not `whole` ended before the queue did: what it lacks may be there. `shown` are
    the messages that all browses made for it were given."""

    ids: frozenset[str]
    whole: bool
    shown: int = 0


class Primary(Protocol):
    """The serving broker. Every method raises `BrokerError`."""

    def glance(self) -> Glance: ...

    def listen(self, queues: Sequence[str]) -> Sequence[str]:
        """Follow what these queues announce as consumed; returns those that are followed anew, of which some may have
        been missed before."""

    def heard(self, within_s: float) -> Sequence[tuple[str, str]]:
        """Queue and id of each message that was announced, as they come."""

    def missing_from(self, queue: str, ids: frozenset[str]) -> Browsed:
        """Which of these ids the queue does not hold; not `whole`: it cannot be told."""

    def unshipped(self, queue: str) -> Browsed:
        """The ids in the queue that holds its copies until they are shipped."""

    def deaf(self) -> None:
        """Let go of what is listened on: it will have to be opened anew."""

    def close(self) -> None: ...


class Standby(Protocol):
    """The waiting broker. Every method raises `BrokerError`."""

    @property
    def refused(self) -> str | None:
        """Why its management does not delete, once it has said so."""

    def is_open(self) -> bool:
        """Whether any client's door is open there."""

    def remove(self, queue: str, ids: Sequence[str]) -> int:
        """Delete the copies with these ids; how many of them were there."""

    def browse(self, queue: str) -> Browsed: ...

    def unshipped(self, queue: str) -> Browsed:
        """The ids of what it has not shipped itself, from when it served: none of these ever came to the other."""

    def close(self) -> None: ...
