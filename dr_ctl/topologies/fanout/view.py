"""A broker whose producers write to its peer too, as one reading has shown it. No link connects the two."""

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
        connectors = {producer.client: producer.protocol for producer in self.view.producers}
        return super().clients_elsewhere((*besides, *self.view.fanout.producers)) + [
            f"consumer of {consumer.queue}: {consumer.who} on connector {connectors[consumer.client]}"
            for consumer in self.view.consumers
            if consumer.queue in self.view.business and consumer.client in connectors
        ]


class FanoutLink(NoLink["BrokerView"]):
    tells_consumed = False

    def __init__(self, view: BrokerView) -> None:
        super().__init__(view)
        # With an id store, the peer's consumers get no processed message.
        self.redelivers = not view.has_id_store

    @property
    def counters(self) -> Iterable[Queue]:
        """Count only removed messages: producers work on while clients are out, and add to both sites."""
        return [replace(queue, depth=0, added=0) for queue in self.view.business.values()]

    @property
    def hears_peer(self) -> bool:
        """The peer's network connectors carry no messages here, but show that the peer lives."""
        return bool(self.view.bridges)

    @property
    def reserved(self) -> Collection[str]:
        return {*self.view.fanout.producers, *filter(None, [self.view.config.agent])}

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
        they were consumed here. With an id store the latter are no duplicates, because a failover removes them before
        clients get them. If the peer was not read, or not reinstated, all messages may be only here. No rate is
        computed across these two states, as across two starts of a broker."""
        view = self.view
        if not view.open:
            return
        unmatched = peer is None or view.unmatched
        start = f"{view.start} alone" if unmatched else view.start
        if view.has_id_store:
            yield Row(site=view.site, pair=view.pair, ts=at, kind="acks", name="*", start=start,
                      depth=0, added=0, removed=0)  # fmt: skip
        for name, queue in view.without_dead_letters.items():
            if not queue.depth_known:
                continue
            row = replace(queue.row(view, at), kind="mirror", delivering=0)
            if peer is None or unmatched:
                yield replace(row, start=start)
                continue
            lacks, duplicates = _count_differences(queue, peer.by_name.get(name), shared=True)
            if lacks is not None and duplicates is not None:
                yield replace(row, depth=lacks, added=0, removed=0)
                if not view.has_id_store:
                    left = queue.removed - duplicates
                    yield replace(row, kind="acks", depth=duplicates, added=queue.removed, removed=left)
                yield replace(row, kind="staged", depth=queue.depth - lacks + duplicates)

    def stake(self, peer: BrokerView | None) -> Stake:
        """Until a lost site is reinstated, no count shows that a message is at both sites."""
        shared = not (self.view.unmatched or (peer is not None and peer.unmatched))
        by_queue = {
            name: _count_differences(queue, peer.by_name.get(name) if peer is not None else None, shared=shared)
            for name, queue in self.view.without_dead_letters.items()
        }
        if self.view.has_id_store:
            by_queue = {name: (lacks, 0) for name, (lacks, _) in by_queue.items()}
        return Stake.of(by_queue)

    @property
    def residue(self) -> Residue | None:
        """Count no duplicates: only ids show which messages were consumed; a reinstatement compares them."""
        depths = [queue.depth for queue in self.view.without_dead_letters.values() if queue.depth_known]
        return Residue(sum(depths), 0) if self.view.queues else None


def _count_differences(local: Queue, peer: Queue | None, *, shared: bool) -> tuple[int | None, int | None]:
    """Count the messages that the peer lacks, and those that it has and that are no longer here. Unless `shared`, no
    message counts as being at both sites."""
    if not local.depth_known or (peer is not None and not peer.depth_known):
        return None, None
    depth = peer.depth if peer is not None else 0
    return (max(0, local.depth - depth), max(0, depth - local.depth)) if shared else (local.depth, depth)


@dataclass(frozen=True, slots=True)
class FanoutConfig:
    """The settings that only such brokers have: the connectors of producers, and the property with producers' ids.
    `stored`: the settings name an id store of its consumers; `unread` says why it was not read."""

    producers: tuple[str, ...] = ()
    id_header: str = ""
    stored: bool = False
    unread: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerView(ClassicBroker):
    """`counted` has the counters of this broker and its peer, read together, of queues that differ."""

    fanout: FanoutConfig = field(kw_only=True)
    counted: Mapping[str, Counted] = field(default_factory=dict, kw_only=True)

    @cached_property
    def link(self) -> FanoutLink:
        return FanoutLink(self)

    @property
    def fence(self) -> FanoutFence:
        return FanoutFence(self)

    @property
    def producers_listeners(self) -> tuple[Acceptor, ...]:
        return tuple(acceptor for acceptor in self.acceptors if acceptor.name in self.fanout.producers)

    @property
    def producers(self) -> list[Connection]:
        return [connection for connection in self.connections if connection.protocol in self.fanout.producers]

    @property
    def has_id_store(self) -> bool:
        return self.fanout.stored and self.fanout.unread is None

    @property
    def unmatched(self) -> bool:
        """Say whether the peer is known to lack newer messages, because it was lost and not reinstated."""
        return any(debt.kind is DebtKind.QUARANTINE for debt in debts_of(self.documents))
