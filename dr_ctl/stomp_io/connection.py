"""A STOMP session on an own connection: messages go through the protocol of stomp.py, and every wait is bounded.

stomp.py's own sessions bound no wait: the end of a TLS session waits for the peer's part of it for ever. Not for use by
two threads at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dr_ctl.core.clock import growing_s
from dr_ctl.core.errors import BrokerError
from dr_ctl.stomp_io.frames import HEART_BEAT, Frame, FrameReader, NotStomp

# Only after `frames`, which sets what keeps stomp.py from looking this machine's name up.
from stomp.protocol import Protocol12  # isort: skip
from stomp.transport import BaseTransport  # isort: skip

if TYPE_CHECKING:
    from collections.abc import Callable

    from dr_ctl.core.system import Stream
    from dr_ctl.stomp_io.address import Address

SEND_TIMEOUT_S = 2.0


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
