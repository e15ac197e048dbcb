"""A network in memory: ports, connections and requests without sockets, for a system whose time is simulated.

What asks waits as at a wire: for a listener that is frozen until it thaws, for one that swallows packets until its time
is over.
"""

from __future__ import annotations

import errno
import ipaddress
import itertools
import math
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dr_ctl.core.system import BackgroundTask, Condition, Stream, in_background, system
from dr_ctl_lab.twin.console import Asked, Console, Hung, Page
from dr_ctl_lab.twin.parts import Peer, Visitor

if TYPE_CHECKING:
    from dr_ctl_lab.twin.clock import Clock

LOOPBACK: Final = ("127.0.0.1", "localhost")
LATENCY_S: Final = 0.001  # there and back: a loop that asks again and again lets time pass
FIRST_PORT: Final = 20_000


class NotConnected(TimeoutError):
    """Nobody took the connection, and nobody refused it."""


class Network:
    def __init__(self) -> None:
        self._places: dict[int, tuple[NetworkListeners, str]] = {}
        self._numbers = itertools.count(FIRST_PORT)
        self._programs: dict[tuple[str, ...], dict[Path, Callable[[], int]]] = {}

    def program(self, words: Sequence[str], folder: Path) -> Callable[[], int] | None:
        return self._programs.get(tuple(words), {}).get(folder.resolve())

    def add_program(self, words: Sequence[str], folder: Path, program: Callable[[], int]) -> None:
        self._programs.setdefault(tuple(words), {})[folder.resolve()] = program

    def reserve(self, listeners: NetworkListeners, name: str) -> int:
        number = next(self._numbers)
        self._places[number] = listeners, name
        return number

    def give_back(self, port: int) -> None:
        del self._places[port]

    def connect(self, host: str, port: int, within_s: float) -> Stream:
        listeners, name = self._found(host, port, within_s)
        return listeners.connected(name, f"127.0.0.1:{next(self._numbers)}")

    def ask(self, host: str, port: int, asked: Asked, *, connect_s: float, answer_s: float) -> Page:
        """Raises OSError: NotConnected where no connection came about, TimeoutError where no answer comes in time."""
        listeners, _ = self._found(host, port, connect_s)
        answering = listeners.asked(asked)
        if not answering.wait(answer_s):
            raise TimeoutError(f"no answer within {answer_s:g} s")
        return answering.result()

    def _found(self, host: str, port: int, within_s: float) -> tuple[NetworkListeners, str]:
        """Who listens there, once the packet has arrived."""
        system().sleep(min(LATENCY_S, within_s))
        listeners, name = self._places.get(port, (None, "")) if host in LOOPBACK else (None, "")
        if host not in LOOPBACK and not _is_number(host):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if host not in LOOPBACK or (listeners is not None and listeners.swallows(name)):
            system().sleep(within_s)
            raise NotConnected(f"no connection within {within_s:g} s")
        if listeners is None or not listeners.is_open(name):
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return listeners, name


def network() -> Network | None:
    """That of the system which this process runs on, where it has one of its own."""
    wires: object = system().wires
    return wires if isinstance(wires, Network) else None


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class NetworkListeners:
    """Implements `Listeners`."""

    def __init__(self, network: Network, changed: Condition, clock: Clock, name: str) -> None:
        self._network, self._changed, self._clock, self._name = network, changed, clock, name
        self._ports: dict[str, int] = {}
        self._welcome: dict[str, Callable[[Peer, str], Visitor | None]] = {}
        self._console: Console | None = None
        self._open: set[str] = set()
        self._callers: list[_Caller] = []
        self._swallows = False
        self.frozen = False
        self._over = False
        self._stirring, self._next_s = system().condition(), math.inf
        self._ticking: BackgroundTask[None] | None = None

    def reserve(self, name: str, welcome: Callable[[Peer, str], Visitor | None]) -> int:
        self._ports[name] = self._network.reserve(self, name)
        self._welcome[name] = welcome
        return self._ports[name]

    def reserve_console(self, console: Console) -> int:
        self._console = console
        return self.reserve("console", lambda *_: None)

    def start(self) -> None:
        self._ticking = in_background(self._tick, f"ticks of {self._name}")

    def end(self) -> None:
        with self._stirring:
            self._over = True
            self._stirring.notify_all()
        if self._ticking is not None:
            self._ticking.result()
        for name, port in self._ports.items():
            self.close(name)
            self._network.give_back(port)

    def open(self, name: str) -> None:
        self._open.add(name)

    def close(self, name: str) -> None:
        self._open.discard(name)
        for caller in [caller for caller in self._callers if caller.listener == name]:
            caller.close()

    def swallow(self) -> None:
        self.frozen = self._swallows = True

    def thaw(self) -> None:
        self.frozen = self._swallows = False
        for caller in list(self._callers):
            caller.go_on()

    # what comes from the network

    def is_open(self, name: str) -> bool:
        return name in self._open

    def swallows(self, name: str) -> bool:
        return self._swallows and name in self._open

    def connected(self, name: str, remote: str) -> Stream:
        with self._changed:
            caller = _Caller(self, name, remote, self._ports[name])
            self._callers.append(caller)
            caller.go_on()
        return caller.stream

    def asked(self, asked: Asked) -> BackgroundTask[Page]:
        """The console at work on a request, whether or not somebody still waits for its answer."""
        assert self._console is not None
        console, visit = self._console, self._console.visited()

        def serve() -> Page:
            try:
                page = console.respond(asked, visit)
                if not visit.live:
                    raise Hung
            finally:
                console.left(visit)
            return page

        return in_background(serve, f"console of {self._name}")

    def welcomed(self, caller: _Caller) -> Visitor | None:
        return self._welcome[caller.listener](caller, caller.listener)

    def forget(self, caller: _Caller) -> None:
        if caller in self._callers:
            self._callers.remove(caller)

    def stirred(self, visitor: Visitor) -> None:
        """Something was read, so that time may bring something sooner."""
        if visitor.due_s() < self._next_s:
            with self._stirring:
                self._stirring.notify_all()

    def _tick(self) -> None:
        with self._stirring:
            while not self._over:
                with self._changed:
                    self._ticked()
                wait_s = max(0.0, self._next_s - self._clock.now_s())
                self._stirring.wait(None if math.isinf(wait_s) else wait_s)

    def _ticked(self) -> None:
        visitors = [] if self.frozen else [caller.visitor for caller in self._callers if caller.visitor is not None]
        for visitor in visitors:
            if visitor.due_s() <= self._clock.now_s():
                visitor.tick()
        self._next_s = min((visitor.due_s() for visitor in visitors), default=math.inf)


@dataclass(eq=False)
class _Caller:
    """Implements `Peer`. What comes while the listener is frozen waits."""

    _listeners: NetworkListeners
    listener: str
    remote: str
    local_port: int
    visitor: Visitor | None = None
    _is_welcomed: bool = False
    _waiting: bytes = b""
    _has_left: bool = False

    def __post_init__(self) -> None:
        self.stream = _Stream(self)

    def send(self, data: bytes) -> None:
        self.stream.came(data)

    def close(self) -> None:
        self._listeners.forget(self)
        self.stream.is_over()

    def came(self, data: bytes) -> None:
        self._waiting += data
        self.go_on()

    def left(self) -> None:
        self._has_left = True
        self.go_on()

    def go_on(self) -> None:
        if self._listeners.frozen:
            return
        if not self._is_welcomed:
            self._is_welcomed = True
            self.visitor = self._listeners.welcomed(self)
        data, self._waiting = self._waiting, b""
        if self.visitor is None:
            if self._has_left:
                self.close()
            return
        if data:
            self.visitor.read(data)
        if self._has_left and not self.stream.ended:
            self.visitor.read(b"")
        self._listeners.stirred(self.visitor)


class _Stream:
    """Implements `Stream`: the client's end."""

    def __init__(self, caller: _Caller) -> None:
        self._caller = caller
        self._changed = system().condition()
        self._in = b""
        self.ended = False

    def send(self, data: bytes, within_s: float) -> None:
        """What is sent to an end that has closed is lost, as on a wire."""
        del within_s
        if not self.ended:
            self._caller.came(data)

    def receive(self, within_s: float) -> bytes | None:
        with self._changed:
            if within_s > 0:
                self._changed.wait_for(lambda: bool(self._in) or self.ended, within_s)
            data, self._in = self._in, b""
            return data if data or self.ended else None

    def close(self) -> None:
        if not self.ended:
            self._caller.left()

    # by the other end

    def came(self, data: bytes) -> None:
        with self._changed:
            self._in += data
            self._changed.notify_all()

    def is_over(self) -> None:
        with self._changed:
            self.ended = True
            self._changed.notify_all()
