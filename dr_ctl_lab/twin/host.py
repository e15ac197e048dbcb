"""The machine of one simulated broker: the broker, its ports, its console, and what can be done to it from outside."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dr_ctl.core.system import beside, system
from dr_ctl_lab.twin.broker import Broker
from dr_ctl_lab.twin.clock import Clock
from dr_ctl_lab.twin.console import ADMIN, Console
from dr_ctl_lab.twin.faults import Faults
from dr_ctl_lab.twin.jolokia import Management, Request
from dr_ctl_lab.twin.kind import Kind
from dr_ctl_lab.twin.listeners import listeners
from dr_ctl_lab.twin.parts import Peer, Visitor
from dr_ctl_lab.twin.security import APPS
from dr_ctl_lab.twin.sockets import CONSOLE, LOOPBACK

if TYPE_CHECKING:
    from dr_ctl.core.system import Condition, Event, Work

AMQP: Final = b"AMQP\x00\x01\x00\x00"  # as a broker answers whoever begins so
APP: Final = "app"
ROLES: Final = {ADMIN: "amq", APP: APPS}


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
    """A broker and everything around it. Ports stay the same over its deaths."""

    def __init__(
        self,
        site: str,
        pair: str,
        name: str,
        peer: str,
        *,
        kind: Kind,
        changed: Condition,
        users: dict[str, str],
        clock: Clock,
        home: Path,
    ) -> None:
        self.changes: list[Change] = []
        self.faults = Faults()
        self.sick = False
        self._listeners = listeners(changed, clock, name)
        self._console = Console(self)
        self._session = kind.session
        self._timers: list[tuple[Event, Work[None]]] = []
        acceptors = {
            listener.name: replace(listener, port=self._listeners.reserve(listener.name, self._welcome))
            for listener in kind.listeners
        }
        self.broker: Broker = kind.broker(
            peer,
            site=site,
            pair=pair,
            name=name,
            changed=changed,
            acceptors=acceptors,
            ports=self,
            console_port=self._listeners.reserve_console(self._console),
            users=users,
            clock=clock,
            roles={**ROLES, **kind.roles},
            home=home,
        )
        beans = partial(kind.beans, self.broker)
        policy = None if kind.policy is None else partial(kind.policy, self.broker)
        self.management = Management(beans, kind.dialect, self.broker.version, self.broker.node, policy)
        self._listeners.start()

    @property
    def jolokia(self) -> str:
        return f"http://{LOOPBACK}:{self.broker.console_port}{self.management.dialect.path}"

    @property
    def stomp(self) -> tuple[str, int]:
        return LOOPBACK, self.broker.acceptors[self.broker.clients_listener].port

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

    def start(self) -> None:
        with self.broker.lock:
            self.sick = False
            self._listeners.frozen = False
            self.broker.start()

    def die(self, *, back_after_s: float | None = None) -> None:
        """End at once, as by SIGKILL; ports refuse when this returns."""
        with self.broker.lock:
            self._listeners.frozen = False
            self.broker.kill()
        if back_after_s is not None:
            given_up, after_s = system().event(), self.broker.clock.outside_s(back_after_s)
            back = beside(lambda: None if given_up.wait(after_s) else self.start(), f"{self.broker.name} comes back")
            self._timers.append((given_up, back))

    def freeze(self) -> None:
        """Freeze the broker: ports accept, but get no answer."""
        with self.broker.lock:
            self.broker.frozen = self._listeners.frozen = True
            self.broker.changed.notify_all()

    def swallow(self) -> None:
        """Packets to it go nowhere: connections are neither accepted nor refused."""
        with self.broker.lock:
            self.broker.frozen = True
            self._listeners.swallow()
            self.broker.changed.notify_all()

    def thaw(self) -> None:
        """The end of either."""
        with self.broker.lock:
            self.broker.frozen = False
            self.broker.thawed()
            self._listeners.thaw()
            self.broker.changed.notify_all()

    def end(self) -> None:
        """Take everything down; the ports are free afterwards."""
        for given_up, back in self._timers:
            given_up.set()
            back.result()
        self.die()
        self._listeners.end()
        self.broker.ended()

    # called by the broker and its console

    def open(self, name: str) -> None:
        self._listeners.open(name)

    def close(self, name: str) -> None:
        self._listeners.close(name)
        if name == CONSOLE:
            self._console.cut()

    def note(self, request: Request, status: int) -> None:
        broker = self.broker
        change = Change(broker.site, broker.pair, request.bean, request.operation, request.arguments, status)
        self.changes.append(change)

    def _welcome(self, peer: Peer, listener: str) -> Visitor | None:
        speaks = self.broker.acceptors[listener].protocols
        if "STOMP" in speaks:
            return self._session(peer, listener, self.broker)
        if "AMQP" in speaks:
            peer.send(AMQP)
        return None
