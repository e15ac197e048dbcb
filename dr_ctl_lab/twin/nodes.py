"""The nodes of one simulated broker: processes over one journal, of which one is active at most.

A takeover is the death of the active node and a start of another one: the journal is kept, changes of management to
listeners and links are lost. Only after a split two nodes are active, each with a broker of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from dr_ctl.core.errors import UsageError
from dr_ctl.core.system import in_background, system
from dr_ctl_lab.twin.host import CLUSTER, ROLES, Host
from dr_ctl_lab.twin.sockets import CONSOLE

if TYPE_CHECKING:
    from pathlib import Path

    from dr_ctl.core.system import BackgroundTask, Condition, Event
    from dr_ctl_lab.twin.broker import Broker
    from dr_ctl_lab.twin.clock import Clock
    from dr_ctl_lab.twin.kind import Kind

NAMES: Final = "abc"


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes of a broker. `replicates`: each node has its own journal, instead of a shared store. `fails_back`: the
    first node becomes active again when it returns. `listener`: for connections between nodes. `boots_open`: a start
    opens the clients' listener, so that a takeover serves. `gap_s`: how long no node is active during a fail-back.
    `console_s`: how much later than its listeners a Classic node's console opens."""

    nodes: int = 1
    replicates: bool = False
    fails_back: bool = True
    listener: str = CLUSTER
    boots_open: bool = True
    takeover_s: float = 5.0
    gap_s: float = 1.0
    console_s: float = 0.0


class Nodes:
    """The nodes of the broker of one site and pair. All methods but `end` are called with the twin's lock held.
    `is_in_sync`: passive nodes have a copy of the journal. `on_split` links the copied broker to its peer."""

    def __init__(
        self,
        site: str,
        pair: str,
        name: str,
        peer: str,
        *,
        layout: Layout,
        kind: Kind,
        changed: Condition,
        users: dict[str, str],
        clock: Clock,
        home: Path,
    ) -> None:
        self.layout, self.kind = layout, kind
        self.is_in_sync = layout.replicates
        self.on_split: Callable[[Broker], None] = lambda _: None
        self.hosts = tuple(
            Host(
                self,
                node,
                f"{name}.{node}" if number and kind.passive is not None else name,
                kind=kind,
                changed=changed,
                clock=clock,
            )
            for number, node in enumerate(NAMES[: layout.nodes])
        )
        self._new_broker = partial(
            kind.broker,
            peer,
            site=site,
            pair=pair,
            changed=changed,
            users=users,
            clock=clock,
            roles={**ROLES, **kind.roles},
            home=home,
            node_acceptors=tuple(host.acceptors for host in self.hosts),
        )
        self.broker = self._make_broker(self.hosts[0])
        self._queues: Sequence[str] = ()
        self._timers: list[tuple[Event, BackgroundTask[None]]] = []
        self._has_ended = False
        self._vacant_until_s = 0.0  # no node becomes active before that time
        for host in self.hosts:
            host.set_broker(self.broker)
            host.listen()

    @property
    def is_group(self) -> bool:
        return self.layout.nodes > 1

    @property
    def active(self) -> list[Host]:
        return [host for host in self.hosts if host.is_active]

    @property
    def brokers(self) -> list[Broker]:
        """One broker, or two after a split."""
        return [self.broker, *(host.broker for host in self.hosts if host.broker is not self.broker)]

    @property
    def has_cluster_listener(self) -> bool:
        """Say whether the nodes have a listener of their own."""
        return self.is_group and self.kind.passive is not None and self.layout.listener == CLUSTER

    def _make_broker(self, host: Host) -> Broker:
        return self._new_broker(ports=host, name=host.name, acceptors=host.acceptors, console_port=host.console_port)

    def install(self, queues: Sequence[str]) -> None:
        self._queues = queues
        self.broker.install(queues)

    # the life of a node

    def process_started(self, host: Host) -> None:
        """Called when a process has started."""
        if not self.is_group:
            self.broker.start()
            return
        self.elect()
        if not host.is_active:
            self._become_passive(host)
        if self.layout.fails_back and self.kind.passive is not None and host is self.hosts[0]:
            self.call_later(0.0, self._fail_back)

    def process_ended(self, *, was_active: bool) -> None:
        """Called when a process has ended."""
        if was_active and self.is_group:
            self._vacate(self.layout.takeover_s)
        self._tell_brokers()

    def elect(self) -> None:
        """Activate a passive node, where none is active and the takeover time is over."""
        candidates = [host for host in self.hosts if host.running and not host.frozen and self._may_lead(host)]
        if candidates and not self.active and self.broker.clock.now_s() >= self._vacant_until_s:
            self._activate(candidates[0])

    def _may_lead(self, host: Host) -> bool:
        """Any node of a shared store; with replication the first node, or one with the whole journal."""
        return not self.layout.replicates or self.is_in_sync or host is self.hosts[0]

    def _vacate(self, after_s: float) -> None:
        self._vacant_until_s = self.broker.clock.now_s() + after_s
        self.call_later(after_s, self.elect)

    def _activate(self, host: Host) -> None:
        broker = self.broker
        broker.ports, broker.name, broker.console_port = host, host.name, host.console_port
        broker.acceptors = host.acceptors
        broker.start()
        self._set_start_times(broker, host)
        self._tell_brokers()

    def _set_start_times(self, broker: Broker, host: Host) -> None:
        broker.process_ms = host.process_ms
        if self.kind.passive is not None:
            broker.start_ms = host.instance_ms

    def _become_passive(self, host: Host) -> None:
        """Open the console; a primary that waits for its store's lock, and a Classic slave, have none."""
        if self.kind.passive is not None and (self.layout.replicates or host is not self.hosts[0]):
            host.open(CONSOLE)
        self._tell_brokers()

    def _fail_back(self) -> None:
        """Let the first node take over again; the active one becomes passive."""
        first, active = self.hosts[0], self.active
        if first.running and active and first not in active:
            active[0].step_down()
            self._become_passive(active[0])
            self._vacate(self.layout.gap_s)

    def split(self) -> None:
        """Activate a second node, with a copy of the journal."""
        waiting = [host for host in self.hosts if host.running and not host.is_active]
        if not (self.layout.replicates and waiting and self.active):
            raise UsageError("two nodes are active only where one replicates to another that runs")
        host = waiting[0]
        copy = self._make_broker(host)
        copy.node = self.broker.node
        copy.install(self._queues)
        copy.copy_journal(self.broker)
        host.set_broker(copy)
        self.is_in_sync = False
        copy.start()
        self._set_start_times(copy, host)
        self.on_split(copy)
        self._tell_brokers()

    def listener_closed(self, listener: str) -> None:
        """Called when management has closed a listener; nodes that replicate over it split."""
        if self.is_group and self.layout.replicates and listener == self.layout.listener:
            self.call_later(self.layout.takeover_s, self._lose_each_other)

    def _lose_each_other(self) -> None:
        if len(self.active) == 1 and not self.active[0].acceptors[self.layout.listener].started and self.is_in_sync:
            self.split()

    def _tell_brokers(self) -> None:
        if self.is_group:
            for broker in self.brokers:
                broker.on_nodes_changed(self)

    # time

    def call_later(self, after_s: float, action: Callable[[], None]) -> None:
        """Call `action` after `after_s`, unless the twin ends before."""
        if self._has_ended:
            return
        cancelled, outside_s = system().event(), self.broker.clock.outside_s(after_s)

        def wait() -> None:
            if not cancelled.wait(outside_s):
                with self.broker.lock:
                    action()

        self._timers.append((cancelled, in_background(wait, f"time of {self.broker.name}")))

    def end(self) -> None:
        """Take everything down; the ports are free afterwards."""
        self._has_ended = True
        while self._timers:
            cancelled, work = self._timers.pop()
            cancelled.set()
            work.result()
        for host in self.hosts:
            host.end()
        for broker in self.brokers:
            broker.release()
