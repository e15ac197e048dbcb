"""A network in memory: ports, connections and requests without sockets, for a system whose time is simulated.

A client waits as on a real network: at a frozen listener until it thaws, at one that swallows packets until its own
time limit.
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
from dr_ctl_lab.twin.console import Console, HttpRequest, HttpResponse, NoResponse
from dr_ctl_lab.twin.parts import ConnectionHandler, Peer

if TYPE_CHECKING:
    from dr_ctl_lab.twin.clock import Clock

LOOPBACK: Final = ("127.0.0.1", "localhost")
LATENCY_S: Final = 0.001  # of each connection, so that simulated time passes in a loop that retries
FIRST_PORT: Final = 20_000


class NotConnected(TimeoutError):
    """The connection was neither accepted nor refused in time."""


class Network:
    def __init__(self) -> None:
        self._listeners: dict[int, tuple[NetworkListeners, str]] = {}
        self._numbers = itertools.count(FIRST_PORT)
        self._programs: dict[tuple[str, ...], dict[Path, Callable[[], int]]] = {}

    def program(self, words: Sequence[str], folder: Path) -> Callable[[], int] | None:
        return self._programs.get(tuple(words), {}).get(folder.resolve())

    def add_program(self, words: Sequence[str], folder: Path, program: Callable[[], int]) -> None:
        self._programs.setdefault(tuple(words), {})[folder.resolve()] = program

    def reserve(self, listeners: NetworkListeners, name: str) -> int:
        number = next(self._numbers)
        self._listeners[number] = listeners, name
        return number

    def give_back(self, port: int) -> None:
        del self._listeners[port]

    def connect(self, host: str, port: int, within_s: float) -> Stream:
        listeners, name = self._listener_at(host, port, within_s)
        return listeners.connected(name, f"127.0.0.1:{next(self._numbers)}")

    def send(self, host: str, port: int, request: HttpRequest, *, connect_s: float, answer_s: float) -> HttpResponse:
        """Raises OSError: NotConnected where no connection came about, TimeoutError where no answer comes in time."""
        listeners, _ = self._listener_at(host, port, connect_s)
        answering = listeners.request(request)
        if not answering.wait(answer_s):
            raise TimeoutError(f"no answer within {answer_s:g} s")
        return answering.result()

    def _listener_at(self, host: str, port: int, within_s: float) -> tuple[NetworkListeners, str]:
        """The listeners of a port, and the listener's name, after the latency."""
        system().sleep(min(LATENCY_S, within_s))
        listeners, name = self._listeners.get(port, (None, "")) if host in LOOPBACK else (None, "")
        if host not in LOOPBACK and not _is_number(host):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if host not in LOOPBACK or (listeners is not None and listeners.swallows(name)):
            system().sleep(within_s)
            raise NotConnected(f"no connection within {within_s:g} s")
        if listeners is None or not listeners.is_open(name):
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return listeners, name


def network() -> Network | None:
    """The network of the simulated system, where this process runs on one."""
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
        self._on_connect: dict[str, Callable[[Peer, str], ConnectionHandler | None]] = {}
        self._console: Console | None = None
        self._open: set[str] = set()
        self._clients: list[_Client] = []
        self._swallows = False
        self.frozen = False
        self._has_ended = False
        self._wakeup, self._next_s = system().condition(), math.inf
        self._ticking: BackgroundTask[None] | None = None

    def reserve(self, name: str, on_connect: Callable[[Peer, str], ConnectionHandler | None]) -> int:
        self._ports[name] = self._network.reserve(self, name)
        self._on_connect[name] = on_connect
        return self._ports[name]

    def reserve_console(self, console: Console) -> int:
        self._console = console
        return self.reserve("console", lambda *_: None)

    def start(self) -> None:
        self._ticking = in_background(self._tick, f"ticks of {self._name}")

    def end(self) -> None:
        with self._wakeup:
            self._has_ended = True
            self._wakeup.notify_all()
        if self._ticking is not None:
            self._ticking.result()
        for name, port in self._ports.items():
            self.close(name)
            self._network.give_back(port)

    def open(self, name: str) -> None:
        self._open.add(name)

    def close(self, name: str) -> None:
        self._open.discard(name)
        for client in [client for client in self._clients if client.listener == name]:
            client.close()

    def swallow(self) -> None:
        self.frozen = self._swallows = True

    def thaw(self) -> None:
        self.frozen = self._swallows = False
        for client in list(self._clients):
            client.process()

    # called by the network

    def is_open(self, name: str) -> bool:
        return name in self._open

    def swallows(self, name: str) -> bool:
        return self._swallows and name in self._open

    def connected(self, name: str, remote: str) -> Stream:
        with self._changed:
            client = _Client(self, name, remote, self._ports[name])
            self._clients.append(client)
            client.process()
        return client.stream

    def request(self, request: HttpRequest) -> BackgroundTask[HttpResponse]:
        """Let the console answer, even where the client no longer waits."""
        assert self._console is not None
        console, connection = self._console, self._console.connect()

        def serve() -> HttpResponse:
            try:
                page = console.respond(request, connection)
                if not connection.live:
                    raise NoResponse
            finally:
                console.disconnect(connection)
            return page

        return in_background(serve, f"console of {self._name}")

    def handler_of(self, client: _Client) -> ConnectionHandler | None:
        return self._on_connect[client.listener](client, client.listener)

    def forget(self, client: _Client) -> None:
        if client in self._clients:
            self._clients.remove(client)

    def wake_if_earlier(self, handler: ConnectionHandler) -> None:
        """Wake the ticking where a handler is due earlier than planned."""
        if handler.due_s() < self._next_s:
            with self._wakeup:
                self._wakeup.notify_all()

    def _tick(self) -> None:
        with self._wakeup:
            while not self._has_ended:
                with self._changed:
                    self._ticked()
                wait_s = max(0.0, self._next_s - self._clock.now_s())
                self._wakeup.wait(None if math.isinf(wait_s) else wait_s)

    def _ticked(self) -> None:
        handlers = [] if self.frozen else [client.handler for client in self._clients if client.handler is not None]
        for handler in handlers:
            if handler.due_s() <= self._clock.now_s():
                handler.tick()
        self._next_s = min((handler.due_s() for handler in handlers), default=math.inf)


@dataclass(eq=False)
class _Client:
    """Implements `Peer`. Bytes that arrive while the listener is frozen are kept."""

    _listeners: NetworkListeners
    listener: str
    remote: str
    local_port: int
    handler: ConnectionHandler | None = None
    _is_welcomed: bool = False
    _waiting: bytes = b""
    _input_ended: bool = False

    def __post_init__(self) -> None:
        self.stream = _Stream(self)

    def send(self, data: bytes) -> None:
        self.stream.deliver(data)

    def close(self) -> None:
        self._listeners.forget(self)
        self.stream.end()

    def receive(self, data: bytes) -> None:
        self._waiting += data
        self.process()

    def end_of_input(self) -> None:
        self._input_ended = True
        self.process()

    def process(self) -> None:
        if self._listeners.frozen:
            return
        if not self._is_welcomed:
            self._is_welcomed = True
            self.handler = self._listeners.handler_of(self)
        data, self._waiting = self._waiting, b""
        if self.handler is None:
            if self._input_ended:
                self.close()
            return
        if data:
            self.handler.read(data)
        if self._input_ended and not self.stream.ended:
            self.handler.read(b"")
        self._listeners.wake_if_earlier(self.handler)


class _Stream:
    """Implements `Stream`: the client's end."""

    def __init__(self, client: _Client) -> None:
        self._client = client
        self._changed = system().condition()
        self._buffer = b""
        self.ended = False

    def send(self, data: bytes, within_s: float) -> None:
        """Send; bytes to a closed peer are lost, as on a real network."""
        del within_s
        if not self.ended:
            self._client.receive(data)

    def receive(self, within_s: float) -> bytes | None:
        with self._changed:
            if within_s > 0:
                self._changed.wait_for(lambda: bool(self._buffer) or self.ended, within_s)
            data, self._buffer = self._buffer, b""
            return data if data or self.ended else None

    def close(self) -> None:
        if not self.ended:
            self._client.end_of_input()

    # called by the broker's end

    def deliver(self, data: bytes) -> None:
        with self._changed:
            self._buffer += data
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self.ended = True
            self._changed.notify_all()
