"""The console of a broker behind sockets: HTTP, one thread for each connection."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final

from dr_ctl_lab.twin.console import ConsoleConnection, HttpRequest, Reset

if TYPE_CHECKING:
    from dr_ctl_lab.twin.console import Console

_RESET: Final = struct.pack("ii", 1, 0)


class Pages:
    """Serves a console; `cut` ends every connection."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._served: dict[socket.socket, tuple[threading.Thread, ConsoleConnection]] = {}
        self._ending: list[threading.Thread] = []

    def on_connect(self, sock: socket.socket, address: object) -> None:
        connection = self._console.connect()
        name = f"console of {self._console.host.name}"
        thread = threading.Thread(target=self._serve, args=(sock, address, connection), name=name, daemon=True)
        with self._lock:
            self._served[sock] = thread, connection
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

    def _serve(self, sock: socket.socket, address: object, connection: ConsoleConnection) -> None:
        try:
            _Handler(sock, address, self._console, connection)
        except OSError:
            pass  # the client, or the broker, is gone
        finally:
            with self._lock:
                self._served.pop(sock, None)
            self._console.disconnect(connection)
            shut(sock)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet: in two, the second would wait for the first's acknowledgement

    def __init__(self, sock: socket.socket, address: Any, console: Console, connection: ConsoleConnection) -> None:
        self._console, self._sock, self._connection = console, sock, connection
        super().__init__(sock, address, console)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def _answer(self, body: bytes) -> None:
        request = HttpRequest(
            self.command, self.path, {name.lower(): text for name, text in self.headers.items()}, body
        )
        try:
            response = self._console.respond(request, self._connection)
        except Reset:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            raise
        self.send_response(response.status)
        for name, text in response.headers.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class calls it so
        """Log nothing: the host records requests."""


def shut(sock: socket.socket) -> None:
    """Close a socket in both directions, even while another thread reads from it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
