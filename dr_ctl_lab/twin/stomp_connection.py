"""The broker's end of a STOMP connection: frames and heart-beats. Each family of brokers defines its commands."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from dr_ctl_lab.twin.broker import Broker
from dr_ctl_lab.twin.frames import Frame, cut_frame, frame
from dr_ctl_lab.twin.parts import Peer, Subscription

TTL_S: Final = 60.0


class StompConnection(ABC):
    """Implements `ConnectionHandler`."""

    def __init__(self, peer: Peer, acceptor: str, broker: Broker) -> None:
        self.acceptor = acceptor
        self.broker, self._peer = broker, peer
        self.ident = uuid.uuid4().hex[:8]
        self.remote, self.local_port = peer.remote, peer.local_port
        self.user = self.client = ""
        self.since_ms = broker.now_ms()
        self._buffer = b""
        self._has_ended = False
        self._beat_s: float | None = None
        self._ttl_s = TTL_S
        self._received_s = self._sent_s = broker.clock.now_s()
        broker.sessions[self.ident] = self

    @abstractmethod
    def subscriptions(self) -> Sequence[Subscription]: ...

    @abstractmethod
    def leave(self) -> None:
        """Return unacknowledged messages to their queues."""

    @abstractmethod
    def _on_frame(self, received: Frame) -> None:
        """Execute a frame."""

    @abstractmethod
    def _on_silence(self) -> None:
        """End the connection of a client that was silent for longer than its heart-beat."""

    def read(self, data: bytes) -> None:
        if not data:
            self.broker.disconnect(self)
            return
        self._received_s = self.broker.clock.now_s()
        self._buffer += data
        while not self._has_ended:
            received, self._buffer = cut_frame(self._buffer)
            if received is None:
                return
            self._on_frame(received)

    def tick(self) -> None:
        now_s = self.broker.clock.now_s()
        if now_s - self._received_s >= self._ttl_s:
            self._on_silence()
        elif self._beat_s is not None and now_s - self._sent_s >= self._beat_s:
            self._send(b"\n")

    def due_s(self) -> float:
        beats_s = [] if self._beat_s is None else [self._sent_s + self._beat_s]
        return min([self._received_s + self._ttl_s, *beats_s])

    def cut(self) -> None:
        self._has_ended = True
        self._peer.close()

    def refuse(self, text: str, *, body: bytes = b"", receipt: str | None = None) -> None:
        """Send ERROR and close, as the protocol demands."""
        self._send_error(text, body, receipt)
        self.broker.disconnect(self)

    def _send_error(self, text: str, body: bytes, receipt: str | None) -> None:
        headers = [("message", text)]
        if body:
            headers += [("content-type", "text/plain"), ("content-length", str(len(body)))]
        if receipt is not None:
            headers.append(("receipt-id", receipt))
        self._send(frame("ERROR", headers, body))

    def _send_receipt(self, received: Frame) -> None:
        if (receipt := received.headers.get("receipt")) is not None:
            self._send(frame("RECEIPT", [("receipt-id", receipt)]))

    def _send(self, data: bytes) -> None:
        if not self._has_ended:
            self._peer.send(data)
            self._sent_s = self.broker.clock.now_s()
