"""A STOMP session on an own connection: messages go through the protocol of stomp.py, and every wait is bounded. Bytes
become STOMP 1.2 frames, which are those of stomp.py, as they come in whatever pieces.

stomp.py's own sessions bound no wait: the end of a TLS session waits for the peer's part of it for ever. Not for use by
two threads at once.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.system import Stream, growing_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from dr_ctl.stomp_io.address import Address

# Without this the import looks this machine's own name up, which blocks where the name server is gone.
os.environ.setdefault("STOMP_SKIP_HOSTNAME_SCAN", "1")

from stomp.protocol import Protocol12
from stomp.transport import BaseTransport
from stomp.utils import Frame, parse_frame

__all__ = ["HEART_BEAT", "Connection", "ConnectionLost", "Frame", "FrameReader", "NotStomp", "SaidError", "said"]

HEART_BEAT = b"\n"
LARGEST_HEAD = 256 * 1024
SEND_TIMEOUT_S = 2.0


class NotStomp(ValueError):
    """The bytes received are no STOMP frame."""


class FrameReader:
    """Cuts a stream of bytes into frames; heart-beats between them are dropped."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        """Take what came, return the frames that are whole now. NotStomp where it cannot be a frame."""
        unread, at, frames = self._rest + data, 0, []
        while (end := _end(unread, at := _begin(unread, at))) is not None:
            frame = parse_frame(unread[at:end])
            if frame is None:
                raise NotStomp("a frame without a command")
            frames.append(frame)
            at = end + 1
        self._rest = unread[at:]
        return frames


def _begin(data: bytes, at: int) -> int:
    """Where the next frame begins."""
    while data[at : at + 1] in (b"\r", b"\n"):
        at += 1
    return at


def _end(data: bytes, at: int) -> int | None:
    """The position of the closing NUL of the frame that begins at `at`, or None while more bytes must come."""
    if at >= len(data):
        return None
    if not data[at : at + 1].isalpha():
        raise NotStomp(f"not a STOMP frame: {data[at : at + 20]!r}")
    bare = data.find(b"\n\n", at)
    # Search the head only: the body may be long.
    with_return = data.find(b"\n\r\n", at, bare if bare >= 0 else len(data))
    head_end = with_return if with_return >= 0 else bare
    if head_end < 0:
        if len(data) - at > LARGEST_HEAD or data.find(b"\0", at) >= 0:
            raise NotStomp("headers without an end")
        return None
    body = head_end + (3 if head_end == with_return else 2)
    length = _content_length(data[at:head_end])
    if length is None:
        end = data.find(b"\0", body)
        return end if end >= 0 else None
    return body + length if len(data) > body + length else None


def _content_length(head: bytes) -> int | None:
    at = head.find(b"\ncontent-length:")
    if at < 0:
        return None
    value = head[at + 1 :].split(b"\n", 1)[0].split(b":", 1)[1].strip()
    if not value.isdigit():
        raise NotStomp(f"content-length {value!r}")
    return int(value)


class ConnectionLost(BrokerError):
    """The connection is gone; messages sent without a receipt are in doubt."""


class SaidError(ConnectionLost):
    """The broker answered ERROR with a reason: the request had no effect."""


class _Writer(BaseTransport):  # type: ignore[misc] # stomp.py has no types
    """Where stomp.py's protocol writes its frames: a connection that is somebody else's."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        super().__init__()
        self._put = put

    def send(self, encoded_frame: bytes) -> None:
        self._put(encoded_frame)


class Connection:
    """An open STOMP session; `stomp` sends. Every method, and each of `stomp`, raises ConnectionLost once the broker is
    gone or has said ERROR."""

    def __init__(self, address: Address, stream: Stream, reader: FrameReader, waiting: list[Frame]) -> None:
        self.address = address
        self._stream = stream
        self._reader = reader
        self._waiting = waiting
        self._heard = self._said = growing_s()
        # Without a content-length: brokers then make a text message of a body.
        self.stomp = Protocol12(_Writer(self._put), auto_content_length=False)

    def receive(self, timeout_s: float) -> list[Frame]:
        """Return what has come, at the latest after the time; an empty list is not an end."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            return waiting
        try:
            data = self._stream.receive(timeout_s)
        except OSError as error:
            raise ConnectionLost(f"{self.address}: {error}") from error
        if data is None:
            return []
        if not data:
            raise ConnectionLost(f"{self.address}: closed by the broker")
        self._heard = growing_s()
        try:
            frames = self._reader.feed(data)
        except NotStomp as error:
            raise ConnectionLost(f"{self.address}: {error}") from error
        for frame in frames:
            if frame.cmd == "ERROR":
                raise SaidError(f"{self.address}: {said(frame)}")
        return frames

    def beat(self, *, every_s: float, silent_s: float) -> None:
        """Keep the session: say something when quiet for `every_s`, lose it when the broker was for `silent_s`."""
        now = growing_s()
        if now - self._heard > silent_s:
            raise ConnectionLost(f"{self.address}: silent for {now - self._heard:.1f} s")
        if now - self._said > every_s:
            self._put(HEART_BEAT)

    def close(self, *, politely: bool = True) -> None:
        """End the session; never raises. Politely: with a DISCONNECT, so that the broker tidies up at once."""
        try:
            if politely:
                self._put(b"DISCONNECT\n\n\0", 0.2)
        except ConnectionLost:
            pass  # already what is wanted
        finally:
            self._stream.close()

    def _put(self, data: bytes, timeout_s: float = SEND_TIMEOUT_S) -> None:
        try:
            self._stream.send(data, timeout_s)
        except OSError as error:
            raise ConnectionLost(f"{self.address}: {error}") from error
        self._said = growing_s()


def said(frame: Frame) -> str:
    """Put what an ERROR frame says in one line."""
    text = frame.headers.get("message") or (frame.body or b"").decode(errors="replace")
    return " ".join(text.split())[:300] or "ERROR without a word"
