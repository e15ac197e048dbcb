"""The machine of one node of a simulated broker: process, ports, console, and faults from outside."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from dr_ctl_lab.twin.clock import Clock
from dr_ctl_lab.twin.console import ADMIN, Console
from dr_ctl_lab.twin.faults import Faults
from dr_ctl_lab.twin.jolokia import Management, Request
from dr_ctl_lab.twin.kind import Kind
from dr_ctl_lab.twin.listeners import listeners
from dr_ctl_lab.twin.parts import Acceptor, ConnectionHandler, Peer
from dr_ctl_lab.twin.security import APPS
from dr_ctl_lab.twin.sockets import CONSOLE, LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dr_ctl.core.system import Condition
    from dr_ctl_lab.twin.bean import Bean
    from dr_ctl_lab.twin.broker import Broker
    from dr_ctl_lab.twin.nodes import Nodes

AMQP: Final = b"AMQP\x00\x01\x00\x00"  # a broker's answer to this AMQP header
APP: Final = "app"
ROLES: Final = {ADMIN: "amq", APP: APPS}
CLUSTER: Final = "cluster"  # the listener of the nodes among themselves


@dataclass(frozen=True, slots=True)
class Change:
    """A request for a change, and the status of its answer."""

    site: str
    pair: str
    bean: str
    operation: str
    arguments: tuple[Any, ...]
    status: int


class Host:
    """The process of one node. `broker` is the broker that it runs while the node is active. Ports stay the same over
    restarts."""

    broker: Broker
    management: Management

    def __init__(self, nodes: Nodes, node: str, name: str, *, kind: Kind, changed: Condition, clock: Clock) -> None:
        self.nodes, self.node, self.name, self.kind = nodes, node, name, kind
        self.changes: list[Change] = []
        self.faults = Faults()
        self.sick = False
        self.running = False
        self.process_ms = self.instance_ms = self.pending_acks = 0
        self._listeners = listeners(changed, clock, name)
        self._console = Console(self)
        self._session = kind.session
        cluster_acceptors = (Acceptor(CLUSTER, "CORE", opens_at_boot=True),) if nodes.has_cluster_listener else ()
        boots_open = nodes.is_group and nodes.layout.boots_open and not kind.activates
        self.acceptors = {
            listener.name: replace(
                listener,
                port=self._listeners.reserve(listener.name, self._on_connect),
                opens_at_boot=listener.opens_at_boot or boots_open,
            )
            for listener in (*kind.listeners, *cluster_acceptors)
        }
        self.console_port = self._listeners.reserve_console(self._console)

    def set_broker(self, broker: Broker) -> None:
        """Set the broker that this node runs while it is active."""
        self.broker, kind = broker, self.kind
        policy = None if kind.policy is None else partial(kind.policy, broker)
        self.management = Management(self._beans, kind.dialect, broker.version, broker.node, policy)

    def _beans(self) -> Iterator[Bean]:
        passive = self.kind.passive
        return self.kind.beans(self.broker) if self.is_active or passive is None else passive(self.broker, self)

    @property
    def is_active(self) -> bool:
        return self.broker.alive and self.broker.ports is self

    @property
    def frozen(self) -> bool:
        return self._listeners.frozen

    @property
    def jolokia(self) -> str:
        return f"http://{LOOPBACK}:{self.console_port}{self.management.dialect.path}"

    @property
    def stomp(self) -> tuple[str, int]:
        return LOOPBACK, self.acceptors[self.broker.clients_listener].port

    @property
    def secret(self) -> str:
        """The file with the admin's password, as the settings name it."""
        return f"secrets/{self.broker.site}-{self.broker.pair}"

    @property
    def admin(self) -> tuple[str, str]:
        return ADMIN, self.broker.users[ADMIN]

    @property
    def app(self) -> tuple[str, str]:
        return APP, self.broker.users[APP]

    # events from outside

    def listen(self) -> None:
        """Start serving the ports; each refuses connections until it is opened."""
        self._listeners.start()

    def start(self) -> None:
        with self.broker.lock:
            self.sick = False
            self._listeners.frozen = False
            if not self.running or not self.nodes.is_group:
                self.running, self.pending_acks = True, 0
                self.process_ms = self.instance_ms = max(self.broker.now_ms(), self.process_ms + 1)
                self.nodes.process_started(self)

    def die(self, *, back_after_s: float | None = None) -> None:
        """End at once, as by SIGKILL. The ports refuse when this returns."""
        with self.broker.lock:
            self.exit()
        if back_after_s is not None:
            self.nodes.call_later(back_after_s, self.start)

    def step_down(self) -> None:
        """Stop the broker; the process stays, as a passive node."""
        self.broker.kill()
        self.instance_ms = max(self.broker.now_ms(), self.instance_ms + 1)

    def freeze(self) -> None:
        """Freeze the broker: ports accept, but get no answer."""
        with self.broker.lock:
            self._listeners.frozen = True
            self._mark_frozen()

    def swallow(self) -> None:
        """Drop packets: connections are neither accepted nor refused."""
        with self.broker.lock:
            self._listeners.swallow()
            self._mark_frozen()

    def _mark_frozen(self) -> None:
        if self.is_active:
            self.broker.frozen = True
        self.broker.changed.notify_all()

    def thaw(self) -> None:
        """End a freeze or a swallow."""
        with self.broker.lock:
            if self.is_active:
                self.broker.frozen = False
                self.broker.on_thaw()
            self._listeners.thaw()
            self.nodes.elect()
            self.broker.changed.notify_all()

    def end(self) -> None:
        """Take everything down; the ports are free afterwards."""
        self.die()
        self._listeners.end()

    # called by the broker and its console

    def open(self, name: str) -> None:
        if name == CONSOLE and (delay_s := self.nodes.layout.console_s):
            self.nodes.call_later(delay_s, lambda: self._listeners.open(name) if self.is_active else None)
        else:
            self._listeners.open(name)

    def close(self, name: str) -> None:
        self._listeners.close(name)
        if name == CONSOLE:
            self._console.cut()
        elif self.is_active:
            self.nodes.listener_closed(name)

    def exit(self) -> None:
        was_active = self.is_active
        self.running = self._listeners.frozen = False
        if was_active or not self.nodes.is_group:
            self.broker.kill()
        self.close(CONSOLE)
        self.nodes.process_ended(was_active=was_active)

    def record_change(self, request: Request, status: int) -> None:
        broker = self.broker
        change = Change(broker.site, broker.pair, request.bean, request.operation, request.arguments, status)
        self.changes.append(change)

    def _on_connect(self, peer: Peer, listener: str) -> ConnectionHandler | None:
        speaks = self.broker.acceptors[listener].protocols
        if "STOMP" in speaks:
            return self._session(peer, listener, self.broker)
        if "AMQP" in speaks:
            peer.send(AMQP)
        return None
