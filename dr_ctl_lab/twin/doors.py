"""The sockets of one broker: a port for each acceptor and one for the console, kept for as long as the twin lives.

A closed port stays bound and refuses, so that nobody else can take it meanwhile. A single thread listens to all ports.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable
from typing import Final, Protocol

LOOPBACK: Final = "127.0.0.1"
TICK_S: Final = 0.1
IDLE_S: Final = 2.0  # where no client is there to be ticked; whatever else happens sounds
BACKLOG: Final = 128
MOST_FILLERS: Final = 8


class Visitor(Protocol):
    """A connection that came in, served by the loop."""

    def read(self) -> None: ...

    def write(self) -> None: ...

    def tick(self) -> None: ...


Welcome = Callable[[socket.socket, str], Visitor | None]


class Doors:
    """Everything but `run` is called with the twin's lock held; `welcome` says what becomes of a connection."""

    def __init__(self, lock: threading.RLock, name: str) -> None:
        self._lock = lock
        self._bound: dict[str, socket.socket] = {}
        self._ports: dict[str, int] = {}
        self._open: set[str] = set()
        self._welcome: dict[str, Welcome] = {}
        self._visitors: dict[socket.socket, tuple[str, Visitor | None]] = {}
        self._fillers: list[socket.socket] = []
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self.frozen = False
        self._over = threading.Event()
        self._ticks = False
        self._thread = threading.Thread(target=self._run, name=f"doors of {name}", daemon=True)

    def reserve(self, name: str, welcome: Welcome) -> int:
        """Take a free port for a door, which refuses until opened."""
        self._bound[name] = _bound(0)
        self._ports[name] = int(self._bound[name].getsockname()[1])
        self._welcome[name] = welcome
        return self._ports[name]

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Close everything; the ports are free afterwards."""
        with self._lock:
            self._over.set()
            self.sound()
        self._thread.join()
        with self._lock:
            for sock in [*self._visitors, *self._bound.values(), *self._fillers, self._wake, self._woken]:
                sock.close()
            self._selector.close()

    def open(self, name: str) -> None:
        if name not in self._open:
            self._open.add(name)
            self._bound[name].listen(BACKLOG)
            self._bound[name].setblocking(False)
            self._selector.register(self._bound[name], selectors.EVENT_READ, name)
            self.sound()

    def close(self, name: str) -> None:
        """Refuse from now on, and cut those that nobody else cuts."""
        if name not in self._open:
            return
        self._open.discard(name)
        listening = self._bound[name]
        self._selector.unregister(listening)
        self._bound[name] = _bound(self._ports[name])  # before the other is closed: nobody else gets the port
        listening.close()
        for sock in [each for each, (door, visitor) in self._visitors.items() if door == name]:
            self.forget(sock)
            shut(sock)

    def forget(self, sock: socket.socket) -> None:
        """Forget a connection; the owner closes the socket."""
        if self._visitors.pop(sock, None) is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(sock)

    def wants_write(self, sock: socket.socket, *, more: bool) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if more else 0)
        if sock in self._visitors:
            self._selector.modify(sock, events, sock)
            self.sound()

    def sound(self) -> None:
        """Wake the loop, without waiting: the loop itself calls this, and a full pipe wakes it too."""
        with contextlib.suppress(OSError):
            self._wake.send(b"!")

    def swallow(self) -> None:
        """From now on connections are neither accepted nor refused: the packets go nowhere."""
        self.frozen = True
        for name in self._open:
            self._bound[name].listen(0)
            for _ in range(MOST_FILLERS):
                filler = socket.socket()
                filler.settimeout(0.05)
                self._fillers.append(filler)
                if filler.connect_ex((LOOPBACK, self._ports[name])) != 0:
                    break

    def spit_out(self) -> None:
        """The end of `swallow`."""
        for filler in self._fillers:
            filler.close()
        self._fillers.clear()
        for name in self._open:
            self._bound[name].listen(BACKLOG)
        self.frozen = False
        self.sound()

    def _run(self) -> None:
        while not self._over.is_set():
            ready = self._selector.select(TICK_S if self._ticks else IDLE_S)
            with self._lock:
                if self._over.is_set():
                    return
                if not self.frozen:
                    self._serve([(key.fileobj, events) for key, events in ready])
                    continue
            # Waiting data at frozen sockets must not make the loop spin.
            threading.Event().wait(TICK_S)

    def _serve(self, ready: list[tuple[object, int]]) -> None:
        for sock, events in ready:
            if not isinstance(sock, socket.socket) or sock.fileno() < 0:
                continue
            if sock is self._woken:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)
            elif sock in self._visitors:
                visitor = self._visitors[sock][1]
                if visitor is None:
                    self._drain(sock)
                    continue
                if events & selectors.EVENT_READ:
                    visitor.read()
                if events & selectors.EVENT_WRITE and sock in self._visitors:
                    visitor.write()
            else:
                self._accept(sock)
        clients = [visitor for _, visitor in self._visitors.values() if visitor is not None]
        for visitor in clients:
            visitor.tick()
        self._ticks = bool(clients)

    def _accept(self, listener: socket.socket) -> None:
        name = next((name for name, sock in self._bound.items() if sock is listener and name in self._open), None)
        if name is None:
            return
        try:
            sock, _ = listener.accept()
        except OSError:
            return  # gone again before it was let in
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        visitor = self._welcome[name](sock, name)
        if visitor is not None or name != "console":
            sock.setblocking(False)
            self._visitors[sock] = (name, visitor)
            self._selector.register(sock, selectors.EVENT_READ, sock)

    def _drain(self, sock: socket.socket) -> None:
        """A connection that nobody serves: read until it ends."""
        try:
            if sock.recv(4096):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self.forget(sock)
        sock.close()


def _bound(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind((LOOPBACK, port))
    return sock


def shut(sock: socket.socket) -> None:
    """Close a socket for both sides at once, whoever reads from it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
