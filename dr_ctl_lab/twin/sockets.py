"""The sockets of one broker.

A closed port stays bound and refuses, so that no other process can take it. One thread serves all ports.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from dr_ctl_lab.twin.pages import Pages, shut
from dr_ctl_lab.twin.parts import ConnectionHandler, Peer

if TYPE_CHECKING:
    from dr_ctl.core.system import Condition
    from dr_ctl_lab.twin.console import Console

LOOPBACK: Final = "127.0.0.1"
TICK_S: Final = 0.1
IDLE_S: Final = 2.0  # without a client; every other change wakes the loop
BACKLOG: Final = 128
MOST_FILLERS: Final = 8
CONSOLE: Final = "console"


class SocketListeners:
    """Implements `Listeners`."""

    def __init__(self, lock: Condition, name: str) -> None:
        self._lock = lock
        self._bound: dict[str, socket.socket] = {}
        self._ports: dict[str, int] = {}
        self._open: set[str] = set()
        self._on_connect: dict[str, Callable[[Peer, str], ConnectionHandler | None]] = {}
        self._clients: dict[socket.socket, _Client] = {}
        self._pages: Pages | None = None
        self._fillers: list[socket.socket] = []
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self.frozen = False
        self._has_ended = threading.Event()
        self._ticks = False
        self._thread = threading.Thread(target=self._run, name=f"listeners of {name}", daemon=True)

    def reserve(self, name: str, on_connect: Callable[[Peer, str], ConnectionHandler | None]) -> int:
        self._bound[name] = _bound(0)
        self._ports[name] = int(self._bound[name].getsockname()[1])
        self._on_connect[name] = on_connect
        return self._ports[name]

    def reserve_console(self, console: Console) -> int:
        self._pages = Pages(console)
        return self.reserve(CONSOLE, lambda *_: None)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        with self._lock:
            self._has_ended.set()
            self._wake_loop()
        self._thread.join()
        with self._lock:
            for sock in [*self._clients, *self._bound.values(), *self._fillers, self._wake, self._woken]:
                sock.close()
            self._selector.close()
        if self._pages is not None:
            self._pages.join()

    def open(self, name: str) -> None:
        if name not in self._open:
            self._open.add(name)
            self._bound[name].listen(BACKLOG)
            self._bound[name].setblocking(False)
            self._selector.register(self._bound[name], selectors.EVENT_READ, name)
            self._wake_loop()

    def close(self, name: str) -> None:
        if name not in self._open:
            return
        self._open.discard(name)
        listening = self._bound[name]
        self._selector.unregister(listening)
        self._bound[name] = _bound(self._ports[name])  # before the old socket is closed, so that the port is never free
        listening.close()
        for client in [client for client in self._clients.values() if client.listener == name]:
            client.close()
        if name == CONSOLE and self._pages is not None:
            self._pages.cut()

    def swallow(self) -> None:
        self.frozen = True
        for name in self._open:
            self._bound[name].listen(0)
            for _ in range(MOST_FILLERS):
                filler = socket.socket()
                filler.settimeout(0.05)
                self._fillers.append(filler)
                if filler.connect_ex((LOOPBACK, self._ports[name])) != 0:
                    break

    def thaw(self) -> None:
        for filler in self._fillers:
            filler.close()
        self._fillers.clear()
        for name in self._open:
            self._bound[name].listen(BACKLOG)
        self.frozen = False
        self._wake_loop()

    def _wake_loop(self) -> None:
        """Wake the loop, without waiting: the loop itself calls this, and a full pipe wakes it too."""
        with contextlib.suppress(OSError):
            self._wake.send(b"!")

    def _forget(self, sock: socket.socket) -> None:
        if self._clients.pop(sock, None) is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(sock)

    def _watch_writes(self, sock: socket.socket, *, on: bool) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if on else 0)
        if sock in self._clients:
            self._selector.modify(sock, events, sock)
            self._wake_loop()

    def _run(self) -> None:
        while not self._has_ended.is_set():
            ready = self._selector.select(TICK_S if self._ticks else IDLE_S)
            with self._lock:
                if self._has_ended.is_set():
                    return
                if not self.frozen:
                    self._serve([(key.fileobj, events) for key, events in ready])
                    continue
            # Without a wait, unread data at frozen sockets would make the loop spin.
            threading.Event().wait(TICK_S)

    def _serve(self, ready: list[tuple[object, int]]) -> None:
        for sock, events in ready:
            if not isinstance(sock, socket.socket) or sock.fileno() < 0:
                continue
            if sock is self._woken:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)
            elif sock in self._clients:
                client = self._clients[sock]
                if events & selectors.EVENT_READ:
                    client.read()
                if events & selectors.EVENT_WRITE and sock in self._clients:
                    client.flush()
            else:
                self._accept(sock)
        handlers = [client.handler for client in self._clients.values() if client.handler is not None]
        for handler in handlers:
            handler.tick()
        self._ticks = bool(handlers)

    def _accept(self, listener: socket.socket) -> None:
        name = next((name for name, sock in self._bound.items() if sock is listener and name in self._open), None)
        if name is None:
            return
        try:
            sock, address = listener.accept()
        except OSError:
            return  # the client has closed already
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if name == CONSOLE and self._pages is not None:
            self._pages.on_connect(sock, address)
            return
        sock.setblocking(False)
        client = self._clients[sock] = _Client(self, sock, f"{address[0]}:{address[1]}", self._ports[name], name)
        self._selector.register(sock, selectors.EVENT_READ, sock)
        client.handler = self._on_connect[name](client, name)


class _Client:
    """Implements `Peer`; unsent bytes are kept."""

    def __init__(
        self, listeners: SocketListeners, sock: socket.socket, remote: str, local_port: int, listener: str
    ) -> None:
        self._listeners, self._sock, self.listener = listeners, sock, listener
        self.remote, self.local_port = remote, local_port
        self.handler: ConnectionHandler | None = None
        self._out = b""

    def read(self) -> None:
        try:
            data = self._sock.recv(256 * 1024)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if self.handler is not None:
            self.handler.read(data)
        elif not data:
            self.close()

    def send(self, data: bytes) -> None:
        self._out += data
        self.flush()

    def flush(self) -> None:
        had_unsent = bool(self._out)
        try:
            while self._out:
                self._out = self._out[self._sock.send(self._out) :]
        except BlockingIOError:
            pass
        except OSError:
            self._out = b""  # the next read sees the end
        if had_unsent:
            self._listeners._watch_writes(self._sock, on=bool(self._out))  # noqa: SLF001 - a part of it

    def close(self) -> None:
        self._listeners._forget(self._sock)  # noqa: SLF001
        shut(self._sock)


def _bound(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind((LOOPBACK, port))
    return sock
