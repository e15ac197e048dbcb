"""A broker of a BrokerSync pair as one reading has shown it, with its copy queues and its network connector."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from dr_ctl.core.model import Json, total
from dr_ctl.core.notation import duration
from dr_ctl.rpo.history.row import Row
from dr_ctl.topologies.classic.broker import ClassicBroker, Network
from dr_ctl.topologies.common import snapshot
from dr_ctl.topologies.common.view import Link, Queue, ReplicationScope, Residue, count_text
from dr_ctl.topologies.topology import LinkSnapshot, Stake, drain_s

QUEUE = "{queue}"
AGENT = "dr-ctl-sync-"  # the client ids of the agent start with this


class SyncLink(Link["BrokerView"]):
    rehearsal_setup = "Add a composite queue for {} to activemq.xml, as for the other queues."
    tells_consumed = False
    unapplied = 0
    """The agent removes copies at the broker itself, so no acknowledgement waits to be applied."""
    records_changes = True
    """Copies stay in their queue until they are shipped, also while the connector is stopped. A check reports a site
    that has no copy queues."""

    def __init__(self, view: BrokerView) -> None:
        super().__init__(view)
        self.listeners = self.only_listener(lambda acceptor: "OPENWIRE" in acceptor.protocols)
        self.to_ship = total(queue.known_depth for queue in view.copy_queues.values())
        self.shipped = {name: queue.removed for name, queue in view.copy_queues.items()}
        if view.network is not None:
            # A connector ships if it is connected, and consumes each copy queue that has messages.
            consumed = all(queue.consumers for queue in view.copy_queues.values() if queue.depth)
            self.attached = view.network.to is not None and consumed
            self.links_started = {view.network.name: view.network.to is not None}
        elif view.copy_queues:
            self.attached = False

    def carries(self, _queue: str) -> ReplicationScope:
        """The peer gets messages only: the agent deletes copies of consumed messages, possibly later."""
        return ReplicationScope.MESSAGES

    def unsettled(self) -> Iterator[str]:
        for name, copies in self.view.copy_queues.items():
            if copies.depth:
                yield f"{self.view.site}: {copies.depth} to ship of {name}"

    @property
    def reserved(self) -> Collection[str]:
        return {*super().reserved, *filter(None, [self.view.config.agent])}

    def to_snapshot(self, before: BrokerView | None, took_s: float) -> LinkSnapshot:
        view = self.view
        rate, name = self.rate(before, took_s), view.network.name if view.network is not None else None
        line = self._line(drain_s(self.to_ship, rate))
        queues: Json = {queue: copies.depth for queue, copies in view.copy_queues.items()}
        figures = (self.attached, self.attached, self.to_ship, self.unapplied, rate)
        return LinkSnapshot(view.site, view.pair, name, *figures, (line,), {"queues": queues})

    def _line(self, drain_time_s: float | None) -> str:
        view = self.view
        if view.network is None:
            return "no network connector to the other site: nothing is copied there"
        state = f"connected to {view.network.to}" if view.network.to is not None else "not connected"
        time = f", {duration(drain_time_s)} to drain" if drain_time_s is not None else ""
        return f"network connector {view.network.name} {state}; {count_text(self.to_ship)} message(s) to ship{time}"

    @property
    def _flows(self) -> Mapping[str, Queue | None]:
        """Return each queue of clients with its copy queue, if it has one, without dead letters."""
        view = self.view
        names = dict.fromkeys((*view.copy_queues, *view.without_dead_letters))
        return {name: view.copy_queues.get(name) for name in names}

    def _count_differences(self, name: str, peer: BrokerView | None) -> tuple[int | None, int | None]:
        """Count the messages that the peer lacks, and the messages that it has or will get and that are no longer here.
        If the peer was not read, messages without a copy count as missing. A figure is None if a queue was not
        counted."""
        copies, queue = self.view.copy_queues.get(name), self.view.by_name.get(name)
        peer_queue = peer.by_name.get(name) if peer is not None else None
        to_ship, local, remote = (row.depth if row is not None else 0 for row in (copies, queue, peer_queue))
        unread = [row for row in (copies, queue, peer_queue) if row is not None and not row.depth_known]
        if peer is None and copies not in unread:
            missing = to_ship if copies is not None else local
            return None if unread else missing, 0 if copies is None else None
        return (None, None) if unread else (max(to_ship, local - remote), max(0, to_ship - local + remote))

    def rows(self, peer: BrokerView | None, at: datetime) -> Iterator[Row]:
        """Record by queue the messages that the peer lacks. While this site serves, record also the consumed messages
        whose copies are not removed at the peer yet, and the depth there."""
        view = self.view
        for name, copies in self._flows.items():
            local, other = view.by_name.get(name), peer.by_name.get(name) if peer is not None else None
            missing, count = self._count_differences(name, peer)
            missing = missing if view.open or copies is None else copies.depth
            if missing is None:
                continue
            if copies is not None:
                yield replace(copies.row(view, at), kind="mirror", name=name, depth=missing, link=self.attached)
            elif view.open and local is not None:
                row = replace(local.row(view, at), delivering=None, link=self.attached)
                yield replace(row, kind="mirror", depth=missing)
                yield replace(row, kind="acks", depth=count, added=0, removed=0)
            if copies is None or not view.open or count is None or local is None or other is None:
                continue
            row = replace(local.row(view, at), delivering=None, added=None, removed=None)
            yield replace(row, kind="staged", depth=other.depth)
            yield replace(row, kind="acks", depth=count, added=local.removed, removed=other.removed, link=self.attached)

    def stake(self, peer: BrokerView | None) -> Stake:
        return Stake.of({name: self._count_differences(name, peer) for name in self._flows})

    @property
    def residue(self) -> Residue | None:
        """Count no duplicates: only ids show which messages were consumed there, and a reinstatement compares them."""
        return Residue(self.to_ship, 0) if self.to_ship is not None else None


@dataclass(frozen=True, slots=True)
class SyncConfig:
    """The settings that only such brokers have: its own and its peer's copy queues."""

    copies: str = QUEUE
    arrives: str = QUEUE


@dataclass(frozen=True, slots=True)
class BrokerView(ClassicBroker):
    """A broker as it answered. `consumed` counts by queue the messages that clients consumed here since the start and
    whose copies are not deleted yet. `held` says who or what forbids the deletion of copies."""

    sync: SyncConfig = field(kw_only=True)
    consumed: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    held: str | None = field(default=None, kw_only=True)

    @cached_property
    def link(self) -> SyncLink:
        return SyncLink(self)

    @property
    def copied_queues(self) -> list[Queue]:
        return [self.by_name[name] for name in self.copy_queues if name in self.by_name]

    def arrival_queue(self, queue: str) -> str:
        return self.sync.arrives.replace(QUEUE, queue)

    @property
    def network(self) -> Network | None:
        """The network connector to the peer: the one that the settings name, or the only one."""
        if self.config.link is not None:
            return next((network for network in self.networks if network.name == self.config.link), None)
        return self.networks[0] if len(self.networks) == 1 else None

    def why_kept(self, queue: str, copies: int) -> str | None:
        if self.held is not None:
            return f"nothing may be deleted: held by {self.held}"
        if (consumed := self.consumed.get(queue, 0)) < copies:
            return f"clients of {self.site} consumed at most {consumed} since its broker started"
        return None


SyncSnapshot = snapshot.Snapshot[BrokerView]
