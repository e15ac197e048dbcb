"""A real HTTP server on a free port that answers as told, and keeps what it was asked."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Console

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append(json.loads(body))
        self.server.headers.append(dict(self.headers))
        self.server.peers.add(self.client_address)
        self.server.reply(self)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class calls it so
        """Keep the tests' output clean."""


class Console(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, reply: Reply) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.reply = reply
        self.asked: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.peers: set[object] = set()
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/console/jolokia"

    def handle_error(self, *_: Any) -> None:
        """A client that hung up is what some tests are about."""


@contextlib.contextmanager
def console(reply: Reply) -> Iterator[Console]:
    server = Console(reply)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}/console/jolokia"


def send(status: int, body: str | bytes, headers: Mapping[str, str] | None = None) -> Reply:
    """A whole answer with these bytes."""
    result = body.encode() if isinstance(body, str) else body

    def reply(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in ({"Content-Length": str(len(result))} | dict(headers or {})).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(result)

    return reply


def answers(*told: object) -> Reply:
    """What Jolokia sends: a list with one answer for each question."""
    return send(200, json.dumps(list(told)), {"Content-Type": "application/json"})


def value(options: object) -> dict[str, object]:
    return {"status": 200, "value": options}


def chunked(*parts: bytes) -> Reply:
    """An answer in pieces, whole."""

    def reply(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in (*parts, b""):
            handler.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")

    return reply


def silence(handler: Handler) -> None:
    handler.server.over.wait(10)
    handler.close_connection = True


def begin_and_stop(body: bytes, then: Callable[[Handler], None]) -> Reply:
    """The head of a longer answer, some of its body, and then what `then` does."""

    def reply(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        handler.wfile.write(body)
        handler.wfile.flush()
        then(handler)

    return reply


def hang_up(handler: Handler) -> None:
    handler.close_connection = True


def reset(handler: Handler) -> None:
    """End the connection as a crash or a firewall does: the peer gets a reset, not an end."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True


def trickle(handler: Handler) -> None:
    """One byte at a time, always in time for the next read, without an end."""
    with contextlib.suppress(OSError):
        while not handler.server.over.wait(0.02):
            handler.wfile.write(b" ")
