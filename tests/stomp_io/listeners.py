"""Small STOMP servers on loopback that open, refuse, stay silent or talk nonsense, and the frames that they write."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dr_ctl.stomp_io.address import Address
from dr_ctl.stomp_io.client import Frame, FrameReader, NotStomp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ESCAPES = str.maketrans({"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"})


def encode(command: str, headers: Mapping[str, str], body: str = "") -> bytes:
    """Write one frame. The body goes as text (no content-length): brokers then make a text message of it."""
    if "\0" in body:
        raise ValueError("a text body cannot hold a NUL")
    # CONNECT is the one frame whose headers are not escaped: a 1.0 server could not read them.
    escapes = {} if command == "CONNECT" else _ESCAPES
    head = [f"{name.translate(escapes)}:{value.translate(escapes)}" for name, value in headers.items()]
    lines = [command, *head, "", body]
    return "\n".join(lines).encode() + b"\0"


Answer = list[bytes] | None
CONNECTED = encode("CONNECTED", {"version": "1.2", "server": "listener/1"})


@contextlib.contextmanager
def listener(
    answer: Callable[[Frame], Answer], *, port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[Address]:
    """Serve every connection with `answer`: what to send for each frame that came; None hangs up."""
    listener = socket.create_server(("127.0.0.1", port))
    threads: list[threading.Thread] = []
    socks: list[socket.socket] = []

    def secured(sock: socket.socket) -> socket.socket:
        return tls.wrap_socket(sock, server_side=True) if tls is not None else sock

    def serve(sock: socket.socket) -> None:
        reader = FrameReader()
        with sock, contextlib.suppress(OSError, NotStomp), secured(sock) as talk:
            while data := talk.recv(65536):
                for frame in reader.feed(data):
                    replies = answer(frame)
                    if replies is None:
                        return
                    talk.sendall(b"".join(replies))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                socks.append(sock)
                threads.append(threading.Thread(target=serve, args=(sock,), daemon=True))
                threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield Address("127.0.0.1", listener.getsockname()[1], tls=tls is not None)
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for sock in socks:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in (accepting, *threads):
            thread.join(timeout=5)


def closed_port() -> Address:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return Address("127.0.0.1", listener.getsockname()[1])
