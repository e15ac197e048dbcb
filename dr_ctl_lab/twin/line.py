"""A client's connection that speaks STOMP: whole frames, heart-beats. Families of brokers define the
meaning of frames."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from dr_ctl_lab.twin.broker import Broker
from dr_ctl_lab.twin.frames import Frame, cut_frame, frame
from dr_ctl_lab.twin.parts import Holding, Peer

TTL_S: Final = 60.0


class Line(ABC):
    """Implements `Visitor`."""

    def __init__(self, peer: Peer, acceptor: str, broker: Broker) -> None:
        self.acceptor = acceptor
        self.broker, self._peer = broker, peer
        self.ident = uuid.uuid4().hex[:8]
        self.remote, self.local_port = peer.remote, peer.local_port
        self.user = self.client = ""
        self.since_ms = broker.now_ms()
        self._in = b""
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

    def read(self, data: bytes) -> None:
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

    def tick(self) -> None:
        now = self.broker.clock.now_s()
        if now - self._heard >= self._ttl_s:
            self._fell_silent()
        elif self._beat_s is not None and now - self._said >= self._beat_s:
            self._send(b"\n")

    def due_s(self) -> float:
        beats_s = [] if self._beat_s is None else [self._said + self._beat_s]
        return min([self._heard + self._ttl_s, *beats_s])

    def cut(self) -> None:
        self._over = True
        self._peer.close()

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
            self._peer.send(data)
            self._said = self.broker.clock.now_s()
