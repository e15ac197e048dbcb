"""A broker whose producers write to its peer too, as one reading has shown it. No link joins the two."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Final

from dr_ctl.engine.debts import DebtKind
from dr_ctl.rpo.history.row import Row
from dr_ctl.topologies.classic.broker import ClassicBroker, Connectors
from dr_ctl.topologies.common.calls import debts_of
from dr_ctl.topologies.common.view import Acceptor, Connection, NoLink, Queue, Residue
from dr_ctl.topologies.fanout.counting import Counted
from dr_ctl.topologies.topology import LinkSnapshot, Stake

COPY: Final = "copy"  # the queue
IDS: Final = "ids"


class FanoutFence(Connectors):
    view: BrokerView

    def clients_elsewhere(self, besides: Collection[str] = ()) -> list[str]:
        """Find clients at connectors that a fence leaves open, and consumers among the producers."""
        where = {producer.client: producer.protocol for producer in self.view.producers}
        return super().clients_elsewhere((*besides, *self.view.own.producers)) + [
            f"consumer of {consumer.queue}: {consumer.who} on connector {where[consumer.client]}"
            for consumer in self.view.consumers
            if consumer.queue in self.view.business and consumer.client in where
        ]


class FanoutLink(NoLink["BrokerView"]):
    tells_consumed = False

    def __init__(self, view: BrokerView) -> None:
        super().__init__(view)
        # A store tells the peer's consumers what is done, so that they get no message again.
        self.redelivers = not view.tells_done

    @property
    def counters(self) -> Iterable[Queue]:
        """Count only what left the queues: producers go on while clients are out, and add to both sites."""
        return [replace(queue, depth=0, added=0) for queue in self.view.business.values()]

    @property
    def hears_peer(self) -> bool:
        """The peer's network connectors carry no messages here, but show that the peer lives."""
        return bool(self.view.bridges)

    @property
    def reserved(self) -> Collection[str]:
        return {*self.view.own.producers, *filter(None, [self.view.config.agent])}

    def to_snapshot(self, _before: BrokerView | None, _took_s: float) -> LinkSnapshot:
        view = self.view
        listeners = ", ".join(
            f"{listener.name} {'open' if listener.started else 'closed'}" for listener in view.producers_listeners
        )
        line = f"producers write to both sites: {len(view.producers)} connected here ({listeners or 'no connector'})"
        return LinkSnapshot(
            view.site, view.pair, None, None, None, None, None, None, (line,), {"producers": len(view.producers)}
        )

    def rows(self, peer: BrokerView | None, at: datetime) -> Iterator[Row]:
        """Record for a serving site the messages that its peer lacks, and the messages that its peer still has although
        they were consumed here. With a store of ids the latter are no duplicates, as a failover removes them before
        anybody gets them. Beside a peer that was not read, or not taken in again, all messages here may lie here alone.
        Figures of the two states never make one rate, like figures of two starts of a broker."""
        view = self.view
        if not view.open:
            return
        unmatched = peer is None or view.unmatched
        start = f"{view.start} alone" if unmatched else view.start
        if view.tells_done:
            yield Row(site=view.site, pair=view.pair, ts=at, kind="acks", name="*", start=start,
                      depth=0, added=0, removed=0)  # fmt: skip
        for name, queue in view.without_dead_letters.items():
            if not queue.depth_known:
                continue
            row = replace(queue.row(view, at), kind="mirror", delivering=0)
            if peer is None or unmatched:
                yield replace(row, start=start)
                continue
            lacks, duplicates = _apart(queue, peer.by_name.get(name), shared=True)
            if lacks is not None and duplicates is not None:
                yield replace(row, depth=lacks, added=0, removed=0)
                if not view.tells_done:
                    left = queue.removed - duplicates
                    yield replace(row, kind="acks", depth=duplicates, added=queue.removed, removed=left)
                yield replace(row, kind="staged", depth=queue.depth - lacks + duplicates)

    def stake(self, peer: BrokerView | None) -> Stake:
        """While a lost site is not taken in again, no count shows that a message lies at both sites."""
        shared = not (self.view.unmatched or (peer is not None and peer.unmatched))
        by_queue = {
            name: _apart(queue, peer.by_name.get(name) if peer is not None else None, shared=shared)
            for name, queue in self.view.without_dead_letters.items()
        }
        if self.view.tells_done:
            by_queue = {name: (lacks, 0) for name, (lacks, _) in by_queue.items()}
        return Stake.of(by_queue)

    @property
    def residue(self) -> Residue | None:
        """Tell no duplicates: ids alone show which messages were consumed elsewhere, and the return compares them."""
        depths = [queue.depth for queue in self.view.without_dead_letters.values() if queue.depth_known]
        return Residue(sum(depths), 0) if self.view.queues else None


def _apart(local: Queue, peer: Queue | None, *, shared: bool) -> tuple[int | None, int | None]:
    """Count the messages that the peer lacks, and those that it has and that are not here any more. No message lies at
    both sites unless they are `shared`."""
    if not local.depth_known or (peer is not None and not peer.depth_known):
        return None, None
    depth = peer.depth if peer is not None else 0
    return (max(0, local.depth - depth), max(0, depth - local.depth)) if shared else (local.depth, depth)


@dataclass(frozen=True, slots=True)
class FanoutConfig:
    """The settings that only such brokers have: the connectors of producers, and the property by which these name a
    message. A broker is `stored` if the settings name a store of ids of its consumers;
    `unread` says why the store was not read."""

    producers: tuple[str, ...] = ()
    id_header: str = ""
    stored: bool = False
    unread: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerView(ClassicBroker):
    """`counted`: counters of this broker and its peer as read together, of queues that do not hold the same at both."""

    own: FanoutConfig = field(kw_only=True)
    counted: Mapping[str, Counted] = field(default_factory=dict, kw_only=True)

    @cached_property
    def link(self) -> FanoutLink:
        return FanoutLink(self)

    @property
    def fence(self) -> FanoutFence:
        return FanoutFence(self)

    @property
    def producers_listeners(self) -> tuple[Acceptor, ...]:
        return tuple(acceptor for acceptor in self.acceptors if acceptor.name in self.own.producers)

    @property
    def producers(self) -> list[Connection]:
        return [connection for connection in self.connections if connection.protocol in self.own.producers]

    @property
    def tells_done(self) -> bool:
        return self.own.stored and self.own.unread is None

    @property
    def unmatched(self) -> bool:
        """Say whether the peer is known to lack newer messages, because it was lost and not taken in again."""
        return any(debt.kind is DebtKind.QUARANTINE for debt in debts_of(self.documents))
