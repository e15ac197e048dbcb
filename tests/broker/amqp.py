"""A client that speaks AMQP 1.0 by hand, as far as a session: enough for a broker to list it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from dr_ctl.stomp_io.address import Login

_NULL = b"\x40"
_WINDOW = b"\x70\x00\x00\x00\x64"


def _text(value: str, kind: int = 0xA1) -> bytes:
    told = value.encode()
    return bytes([kind, len(told)]) + told


def _frame(kind: int, number: int, *fields: bytes) -> bytes:
    """A performative of that number; `kind` is 1 of SASL, else 0."""
    listed = b"".join(fields)
    body = bytes([0x00, 0x53, number, 0xC0, len(listed) + 1, len(fields)]) + listed
    return (8 + len(body)).to_bytes(4, "big") + bytes([2, kind, 0, 0]) + body


@contextmanager
def amqp_client(port: int, login: Login, container: str) -> Iterator[None]:
    """Be connected there, under that container id."""
    plain = f"\0{login.user}\0{login.password}"
    opening = _frame(0, 0x10, _text(container)) + _frame(0, 0x11, _NULL, b"\x43", _WINDOW, _WINDOW)
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        for sent, awaited in (
            (b"AMQP\x03\x01\x00\x00", b"PLAIN"),
            (_frame(1, 0x41, _text("PLAIN", 0xA3), _text(plain, 0xA0)), b"\x00\x53\x44"),
            (b"AMQP\x00\x01\x00\x00" + opening, b"\x00\x53\x11"),
        ):
            sock.sendall(sent)
            heard = b""
            while awaited not in heard:
                more = sock.recv(4096)
                assert more, f"the broker hung up after {heard!r}"
                heard += more
        yield
