"""A client's connection that speaks STOMP: bytes in and out, whole frames, heart-beats. Families of brokers define the
meaning of frames."""

from __future__ import annotations

import socket
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from dr_ctl_lab.twin.broker import Broker
from dr_ctl_lab.twin.doors import Doors, shut
from dr_ctl_lab.twin.frames import Frame, cut_frame, frame
from dr_ctl_lab.twin.parts import Holding

TTL_S: Final = 60.0


class Line(ABC):
    """A connection. Runs in the broker's loop, under the twin's lock; unsent bytes wait."""

    def __init__(self, sock: socket.socket, acceptor: str, broker: Broker, doors: Doors) -> None:
        self.acceptor = acceptor
        self.broker, self._sock, self._doors = broker, sock, doors
        self.ident = uuid.uuid4().hex[:8]
        host, port = sock.getpeername()[:2]
        self.remote, self.local_port = f"{host}:{port}", int(sock.getsockname()[1])
        self.user = self.client = ""
        self.since_ms = broker.now_ms()
        self._in, self._out = b"", b""
        self._over = False
        self._beat_s: float | None = None
        self._ttl_s = TTL_S
        self._heard = self._said = broker.clock.now_s()
        broker.sessions[self.ident] = self

    @abstractmethod
    def holds(self) -> Sequence[Holding]:
        """Its subscriptions."""

    @abstractmethod
    def leave(self) -> None:
        """Give back what is in its hands."""

    @abstractmethod
    def _take(self, got: Frame) -> None:
        """Do what a frame says."""

    @abstractmethod
    def _fell_silent(self) -> None:
        """End the connection: the client was silent for longer than its heart-beat."""

    def read(self) -> None:
        try:
            data = self._sock.recv(256 * 1024)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.broker.hang_up(self)
            return
        self._heard = self.broker.clock.now_s()
        self._in += data
        while not self._over:
            got, self._in = cut_frame(self._in)
            if got is None:
                return
            self._take(got)

    def write(self) -> None:
        self._flush()

    def tick(self) -> None:
        now = self.broker.clock.now_s()
        if now - self._heard > self._ttl_s:
            self._fell_silent()
        elif self._beat_s is not None and now - self._said >= self._beat_s:
            self._send(b"\n")

    def cut(self) -> None:
        self._over = True
        self._doors.forget(self._sock)
        shut(self._sock)

    def refuse(self, text: str, *, body: bytes = b"", receipt: str | None = None) -> None:
        """Say ERROR and close, as the protocol wants it."""
        self._complain(text, body, receipt)
        self.broker.hang_up(self)

    def _complain(self, text: str, body: bytes, receipt: str | None) -> None:
        headers = [("message", text)]
        if body:
            headers += [("content-type", "text/plain"), ("content-length", str(len(body)))]
        if receipt is not None:
            headers.append(("receipt-id", receipt))
        self._send(frame("ERROR", headers, body))

    def _receipt(self, got: Frame) -> None:
        if (receipt := got.headers.get("receipt")) is not None:
            self._send(frame("RECEIPT", [("receipt-id", receipt)]))

    def _send(self, data: bytes) -> None:
        if not self._over:
            self._out += data
            self._said = self.broker.clock.now_s()
            self._flush()

    def _flush(self) -> None:
        waited = bool(self._out)
        try:
            while self._out:
                self._out = self._out[self._sock.send(self._out) :]
        except BlockingIOError:
            pass
        except OSError:
            self._out = b""  # the end is seen when it is read
        if waited:
            self._doors.wants_write(self._sock, more=bool(self._out))
