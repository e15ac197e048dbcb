"""Protocols for the agent's questions to the two brokers of a pair: real ones in `primary.py` and `standby.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dr_ctl.topologies.brokersync.sync.accounts import Counters


@dataclass(frozen=True, slots=True)
class Glance:
    """A look at the serving broker: its start, whether a client's door is open, counters of copied queues by name."""

    start: str
    is_open: bool
    queues: Mapping[str, Counters]


@dataclass(frozen=True, slots=True)
class Browsed:
    """The result of a browse. A browse that is not `whole` ended before the queue did: a lacking message may be there.
    `shown` are the messages that all browses made for it were given."""

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
        """Which of these ids the queue does not hold; unknown where the browse is not `whole`."""

    def unshipped(self, queue: str) -> Browsed:
        """The ids in the queue that holds its copies until they are shipped."""

    def deaf(self) -> None:
        """Stop following the queues: the agent must listen anew."""

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
        """Ids of messages it did not ship when it served: the other site never got them."""

    def close(self) -> None: ...
