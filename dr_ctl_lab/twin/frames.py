"""Reading and writing STOMP frames, with escapes, as the brokers do."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_ESCAPES: Final = {"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"}
_UNESCAPED: Final = {"\\\\": "\\", "\\r": "\r", "\\n": "\n", "\\c": ":"}


def frame(command: str, headers: list[tuple[str, str]], body: bytes = b"") -> bytes:
    """Write a frame as the broker does: CONNECTED is not escaped."""
    escaped = str if command == "CONNECTED" else _escaped
    lines = [command, *(f"{escaped(name)}:{escaped(text)}" for name, text in headers)]
    return "\n".join(lines).encode() + b"\n\n" + body + b"\0\n"


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(letter, letter) for letter in text)


@dataclass(frozen=True, slots=True)
class Frame:
    """A received frame."""

    command: str
    headers: Mapping[str, str]
    body: bytes


def cut_frame(data: bytes) -> tuple[Frame | None, bytes]:
    """Take the first frame off; None until the frame is whole."""
    data = data.lstrip(b"\r\n")
    head, end, tail = data.partition(b"\n\n")
    if not end:
        return None, data
    command, *lines = head.decode(errors="replace").replace("\r", "").split("\n")
    headers: dict[str, str] = {}
    for stomp_connection in lines:
        name, _, text = stomp_connection.partition(":")
        if command not in ("CONNECT", "STOMP"):
            name, text = plain(name), plain(text)
        headers.setdefault(name, text)
    length = headers.get("content-length", "")
    size = int(length) if length.isdecimal() else tail.find(b"\0")
    if size < 0 or len(tail) <= size:
        return None, data
    return Frame(command, headers, tail[:size]), tail[size + 1 :]


def plain(text: str) -> str:
    """A header without its escapes."""
    return re.sub(r"\\[\\rnc]", lambda match: _UNESCAPED[match[0]], text)
