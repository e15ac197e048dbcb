"""Two Classic brokers in memory, as the agent sees them: counters, announcements, copies on their way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dr_ctl.core.errors import BrokerError
from dr_ctl.jolokia.http import PolicyRefused
from dr_ctl.topologies.brokersync.sync.queue import Count, Counters, IsOpen, Listing, ServingReading, StandbyReading
from dr_ctl.topologies.common.consumed import CompleteListing, Consumed
from tests.clocks import Ticking

Q = "orders.in"


@dataclass
class Sites:
    """What lies where; implements `Primary` by `primary` and `Standby` by `standby`."""

    clock: Ticking = field(default_factory=Ticking)
    held: list[str] = field(default_factory=list)
    on_their_way: list[str] = field(default_factory=list)
    copies: list[str] = field(default_factory=list)
    on_the_way_to_a_client: list[str] = field(default_factory=list)  # the next browse leaves these out
    in_a_transaction: list[str] = field(default_factory=list)  # acknowledged, and not committed
    busy: bool = False  # messages come and leave while a listing is made
    not_shipped_back: list[str] = field(default_factory=list)
    announced: list[tuple[str, str]] = field(default_factory=list)
    ships: bool = True
    sent: int = 0
    dequeued: int = 0
    dispatched: int = 0
    start: str = "first"
    is_open: bool = True
    standby_open: bool = False
    page: int = 1_000_000
    primary_gone: bool = False
    standby_gone: bool = False
    announces: bool = True
    forbids: bool = False
    _listening: bool = False

    def send(self, count: int) -> list[str]:
        fresh = [f"ID:{self.sent + number}" for number in range(count)]
        self.sent += count
        self.held += fresh
        self.on_their_way += fresh
        self.ship()
        return fresh

    def ship(self) -> None:
        if self.ships:
            self.copies += self.on_their_way
            self.on_their_way.clear()

    def consume(self, count: int) -> None:
        """By a client: what leaves was dispatched before."""
        self.dispatched += count
        self._leave(count)

    def purge(self, count: int | None = None) -> None:
        """By an operator: it is announced all the same."""
        self._leave(len(self.held) if count is None else count)

    def give_back(self, count: int) -> None:
        """A client leaves that held so many."""
        self.dispatched += count

    def _leave(self, count: int) -> None:
        gone, self.held = self.held[:count], self.held[count:]
        self.dequeued += count
        self.announced += [(Q, name) for name in gone] if self._listening and self.announces else []

    def snapshot(self, shown: Sequence[str], depth: int) -> Listing:
        ids = frozenset(shown)
        if self.busy or len(ids) != depth:
            return Listing(ids, None, len(shown), "raise maxBrowsePageSize")
        return Listing(ids, CompleteListing(Q, ids, depth, depth), len(shown))

    @property
    def primary(self) -> FakePrimary:
        return FakePrimary(self)

    @property
    def standby(self) -> FakeStandby:
        return FakeStandby(self)


@dataclass
class FakePrimary:
    """Implements `Primary`."""

    sites: Sites

    def _ask(self) -> None:
        if self.sites.primary_gone:
            self.unsubscribe()
            raise BrokerError("the serving broker is gone")

    def read(self) -> ServingReading:
        self._ask()
        sites = self.sites
        return ServingReading(
            sites.start,
            sites.is_open,
            {Q: Counters(sites.dequeued, 0, sites.dispatched, 0)},
            {Q: Count(len(sites.on_their_way), 0)},
        )

    def subscribe(self, queues: Sequence[str]) -> Sequence[str]:
        self._ask()
        if self.sites._listening:
            return []
        self.sites._listening = True
        return list(queues)

    def receive(self, within_s: float) -> Sequence[tuple[str, str]]:
        self._ask()
        if not self.sites._listening:
            raise BrokerError("no queue is subscribed")
        result = list(self.sites.announced)
        self.sites.announced.clear()
        if not result:
            self.sites.clock.sleep(within_s)
        return result

    def list_queue(self, queue: str, before: Count | None) -> Listing:
        self._ask()
        sites = self.sites
        hidden = {*sites.in_a_transaction, *sites.on_the_way_to_a_client}
        sites.on_the_way_to_a_client.clear()
        shown = [message for message in sites.held if message not in hidden][: sites.page]
        sites.dispatched += len(shown)  # a browse is a dispatch to the broker
        return sites.snapshot(shown, len(sites.held))

    def unshipped(self, queue: str, before: Count | None) -> Listing:
        self._ask()
        return self.sites.snapshot(self.sites.on_their_way, len(self.sites.on_their_way))

    def unsubscribe(self) -> None:
        self.sites._listening = False
        self.sites.announced.clear()

    def close(self) -> None:
        self.unsubscribe()


@dataclass
class FakeStandby:
    """Implements `Standby`."""

    sites: Sites

    def _ask(self) -> None:
        if self.sites.standby_gone:
            raise BrokerError("the standby's broker is gone")

    def is_open(self) -> bool:
        self._ask()
        return self.sites.standby_open

    def read_counts(self) -> StandbyReading:
        self._ask()
        return StandbyReading({Q: Count(len(self.sites.copies), 0)}, {Q: Count(len(self.sites.not_shipped_back), 0)})

    def remove(self, queue: str, consumed: Consumed) -> int:
        self._ask()
        if self.sites.standby_open:
            raise IsOpen("the standby lets clients in")
        if self.sites.forbids:
            raise PolicyRefused("Operation removeMatchingMessages forbidden")
        if queue != Q:
            return 0
        before = len(self.sites.copies)
        self.sites.copies = [copy for copy in self.sites.copies if copy not in consumed.ids]
        return before - len(self.sites.copies)

    def list_queue(self, queue: str, before: Count | None, *, grows: bool) -> Listing:
        self._ask()
        assert grows
        return self.sites.snapshot(self.sites.copies[: self.sites.page], len(self.sites.copies))

    def unshipped(self, queue: str, before: Count | None) -> Listing:
        self._ask()
        return self.sites.snapshot(self.sites.not_shipped_back, len(self.sites.not_shipped_back))

    def close(self) -> None:
        """Nothing stays open."""
