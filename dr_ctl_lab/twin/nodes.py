"""The nodes of one simulated broker: processes over one journal, of which one is active at most.

A takeover is the death of the active node and a start at another one: what lies in the journal goes along, what
management did to listeners and links does not. Two nodes are active at once only after a split, each with a broker of
its own from then on.
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
    """How many nodes a broker has, and how long they take. `replicates`: each has a journal of its own, instead of a
    store that they share. `fails_back`: the first one is active again when it returns. `listener`: where the nodes
    meet. `boots_open`: a start opens the clients' listener, as it must where a takeover is to serve. `gap_s`: how long
    none is active within a fail-back. `console_s`: how much later than its listeners a Classic node's console is."""

    nodes: int = 1
    replicates: bool = False
    fails_back: bool = True
    listener: str = CLUSTER
    boots_open: bool = True
    takeover_s: float = 5.0
    gap_s: float = 1.0
    console_s: float = 0.0


class Nodes:
    """The nodes of the broker of one site and pair. Every method is called with the twin's lock held, but `end`.
    `is_in_sync`: what waits holds a copy of the journal. `on_split` leads a way from a copy to its peer."""

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
        self._make = partial(
            kind.broker,
            peer,
            site=site,
            pair=pair,
            changed=changed,
            users=users,
            clock=clock,
            roles={**ROLES, **kind.roles},
            home=home,
            places=tuple(host.acceptors for host in self.hosts),
        )
        self.broker = self._at(self.hosts[0])
        self._queues: Sequence[str] = ()
        self._timers: list[tuple[Event, BackgroundTask[None]]] = []
        self._is_over = False
        self._vacant_s = 0.0  # no node gets the journal before that moment
        for host in self.hosts:
            host.runs(self.broker)
            host.listen()

    @property
    def is_group(self) -> bool:
        return self.layout.nodes > 1

    @property
    def active(self) -> list[Host]:
        return [host for host in self.hosts if host.is_active]

    @property
    def brokers(self) -> list[Broker]:
        """One, but after a split."""
        return [self.broker, *(host.broker for host in self.hosts if host.broker is not self.broker)]

    @property
    def meet_apart(self) -> bool:
        """Say whether they have a listener of their own."""
        return self.is_group and self.kind.passive is not None and self.layout.listener == CLUSTER

    def _at(self, host: Host) -> Broker:
        return self._make(ports=host, name=host.name, acceptors=host.acceptors, console_port=host.console_port)

    def installed(self, queues: Sequence[str]) -> None:
        self._queues = queues
        self.broker.installed(queues)

    # the life of a node

    def came(self, host: Host) -> None:
        """A process is up."""
        if not self.is_group:
            self.broker.start()
            return
        self.elect()
        if not host.is_active:
            self._wait(host)
        if self.layout.fails_back and self.kind.passive is not None and host is self.hosts[0]:
            self.later(0.0, self._fail_back)

    def gone(self, *, was_active: bool) -> None:
        """A process is gone."""
        if was_active and self.is_group:
            self._free(self.layout.takeover_s)
        self._show()

    def elect(self) -> None:
        """Let a node that waits take over, where none is active and the time has come."""
        able = [host for host in self.hosts if host.running and not host.frozen and self._may_lead(host)]
        if able and not self.active and self.broker.clock.now_s() >= self._vacant_s:
            self._activate(able[0])

    def _may_lead(self, host: Host) -> bool:
        """Whoever gets a store that is shared; of those that replicate, the first, or one with all of the journal."""
        return not self.layout.replicates or self.is_in_sync or host is self.hosts[0]

    def _free(self, after_s: float) -> None:
        self._vacant_s = self.broker.clock.now_s() + after_s
        self.later(after_s, self.elect)

    def _activate(self, host: Host) -> None:
        broker = self.broker
        broker.ports, broker.name, broker.console_port = host, host.name, host.console_port
        broker.acceptors = host.acceptors
        broker.start()
        self._dated(broker, host)
        self._show()

    def _dated(self, broker: Broker, host: Host) -> None:
        broker.process_ms = host.process_ms
        if self.kind.passive is not None:
            broker.start_ms = host.instance_ms

    def _wait(self, host: Host) -> None:
        """A primary that waits for the lock of its store has no console, and neither has a Classic slave."""
        if self.kind.passive is not None and (self.layout.replicates or host is not self.hosts[0]):
            host.open(CONSOLE)
        self._show()

    def _fail_back(self) -> None:
        """The active node gives way to the first one, and waits in its process."""
        first, active = self.hosts[0], self.active
        if first.running and active and first not in active:
            active[0].step_down()
            self._wait(active[0])
            self._free(self.layout.gap_s)

    def split(self) -> None:
        """Another node becomes active beside the one that is, with a copy of its journal."""
        waiting = [host for host in self.hosts if host.running and not host.is_active]
        if not (self.layout.replicates and waiting and self.active):
            raise UsageError("two nodes are active only where one replicates to another that runs")
        host = waiting[0]
        copy = self._at(host)
        copy.node = self.broker.node
        copy.installed(self._queues)
        copy.inherit(self.broker)
        host.runs(copy)
        self.is_in_sync = False
        copy.start()
        self._dated(copy, host)
        self.on_split(copy)
        self._show()

    def closed(self, listener: str) -> None:
        """Management has closed a listener. Where the nodes replicate over it, they lose each other."""
        if self.is_group and self.layout.replicates and listener == self.layout.listener:
            self.later(self.layout.takeover_s, self._lose_each_other)

    def _lose_each_other(self) -> None:
        if len(self.active) == 1 and not self.active[0].acceptors[self.layout.listener].started and self.is_in_sync:
            self.split()

    def _show(self) -> None:
        if self.is_group:
            for broker in self.brokers:
                broker.grouped(self)

    # time

    def later(self, after_s: float, do: Callable[[], None]) -> None:
        """Do it after a while, unless the twin ends before."""
        if self._is_over:
            return
        given_up, outside_s = system().event(), self.broker.clock.outside_s(after_s)

        def wait() -> None:
            if not given_up.wait(outside_s):
                with self.broker.lock:
                    do()

        self._timers.append((given_up, in_background(wait, f"time of {self.broker.name}")))

    def end(self) -> None:
        """Take everything down; the ports are free afterwards."""
        self._is_over = True
        while self._timers:
            given_up, work = self._timers.pop()
            given_up.set()
            work.result()
        for host in self.hosts:
            host.end()
        for broker in self.brokers:
            broker.ended()
