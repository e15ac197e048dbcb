"""One STOMP frame as bytes, as a broker or a client of a test writes it."""

from __future__ import annotations

from collections.abc import Mapping

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
