"""The console of a broker behind sockets: HTTP, each connection in a thread of its own."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final

from dr_ctl_lab.twin.console import Asked, Reset, Visit

if TYPE_CHECKING:
    from dr_ctl_lab.twin.console import Console

_RESET: Final = struct.pack("ii", 1, 0)


class Pages:
    """Serves a console; `cut` ends every connection."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._served: dict[socket.socket, tuple[threading.Thread, Visit]] = {}
        self._ending: list[threading.Thread] = []

    def welcome(self, sock: socket.socket, address: object) -> None:
        visit = self._console.visited()
        name = f"console of {self._console.host.name}"
        thread = threading.Thread(target=self._serve, args=(sock, address, visit), name=name, daemon=True)
        with self._lock:
            self._served[sock] = thread, visit
        thread.start()

    def cut(self) -> None:
        with self._lock:
            served, self._served = self._served, {}
            self._ending = [item for item in self._ending if item.is_alive()]
            self._ending += [thread for thread, _ in served.values()]
        for sock in served:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        for thread in self._ending:
            thread.join()

    def _serve(self, sock: socket.socket, address: object, visit: Visit) -> None:
        try:
            _Handler(sock, address, self._console, visit)
        except OSError:
            pass  # the client, or the broker, is gone
        finally:
            with self._lock:
                self._served.pop(sock, None)
            self._console.left(visit)
            shut(sock)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet: two would wait for each other

    def __init__(self, sock: socket.socket, address: Any, console: Console, visit: Visit) -> None:
        self._console, self._sock, self._visit = console, sock, visit
        super().__init__(sock, address, console)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def _answer(self, body: bytes) -> None:
        asked = Asked(self.command, self.path, {name.lower(): text for name, text in self.headers.items()}, body)
        try:
            page = self._console.respond(asked, self._visit)
        except Reset:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            raise
        self.send_response(page.status)
        for name, text in page.headers.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class calls it so
        """Log nothing: the host records requests."""


def shut(sock: socket.socket) -> None:
    """Close a socket for both sides at once, whoever reads from it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
