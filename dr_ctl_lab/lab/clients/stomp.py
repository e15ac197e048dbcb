"""A client of STOMP."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from dr_ctl.stomp_io.client import Connection, Frame
from dr_ctl_lab.lab.clients.client import (
    ID_HEADER,
    PART,
    SILENT_S,
    WINDOW_BYTES,
    Confirmed,
    Outgoing,
    Received,
    Traits,
    address_of,
    ident_in,
    is_subscription,
)
from dr_ctl_lab.lab.dialect import Dialect

BEAT_S: Final = 4.0
HEART_BEATS: Final = {"heart-beat": "10000,1000"}
URGENT: Final = "8"


class StompClient:
    """Implements `Client`."""

    def __init__(self, connection: Connection, dialect: Dialect) -> None:
        self.connection, self._dialect = connection, dialect
        self._queues: list[str] = []

    def subscribe(
        self, queues: Sequence[str], *, confirm: str | None = None, window_bytes: int = WINDOW_BYTES, selector: str = ""
    ) -> None:
        for queue in queues:
            headers = {**self._dialect.subscribing(window_bytes), **({"selector": selector} if selector else {})}
            headers |= {"subscription-type": "MULTICAST"} if is_subscription(queue) else {}
            headers |= {"receipt": confirm} if confirm is not None else {}
            ident, destination = str(len(self._queues)), self._dialect.queue(queue)
            self._queues.append(queue)
            self.connection.stomp.subscribe(destination, ident, "client-individual", headers)

    def send(self, message: Outgoing, *, confirm: str | None) -> None:
        headers = {**self._dialect.sent, "persistent": "true", **_traits(message.traits), **message.headers}
        headers |= {"destination-type": "MULTICAST"} if is_subscription(message.queue) else {}
        headers |= {ID_HEADER: message.ident} if message.ident else {}
        headers |= {"receipt": confirm} if confirm is not None else {}
        self.connection.stomp.send(self._dialect.queue(address_of(message.queue)), message.body, headers=headers)

    def ack(self, received: Received, *, confirm: str | None) -> None:
        self.connection.stomp.ack(received.token, receipt=confirm)

    def receive(self, timeout_s: float) -> Sequence[Received | Confirmed]:
        return [item for frame in self.connection.receive(timeout_s) if (item := self._parsed(frame)) is not None]

    def _parsed(self, frame: Frame) -> Received | Confirmed | None:
        if frame.cmd == "RECEIPT":
            return Confirmed(frame.headers.get("receipt-id", ""))
        if frame.cmd != "MESSAGE":
            return None
        return Received(self._queues[int(frame.headers["subscription"])], identify(frame), frame.headers["ack"])

    def beat(self) -> None:
        self.connection.beat(every_s=BEAT_S, silent_s=SILENT_S)

    def close(self, *, politely: bool = True) -> None:
        self.connection.close(politely=politely)


def identify(frame: Frame) -> str:
    """The id of a message: from the load, else from the broker."""
    body = frame.body.decode(errors="replace") if isinstance(frame.body, bytes) else str(frame.body or "")
    return str(frame.headers.get(ID_HEADER) or ident_in(body) or frame.headers.get("message-id", "?"))


def _traits(traits: Traits) -> dict[str, str]:
    headers = {PART: traits.part, "JMSXGroupID": traits.group, "priority": URGENT if traits.urgent else ""}
    headers["AMQ_SCHEDULED_DELAY"] = str(traits.delay_ms or "")
    until_ms = round(datetime.now(UTC).timestamp() * 1000) + traits.ttl_ms
    headers["expires"] = str(until_ms) if traits.ttl_ms else ""
    return {name: value for name, value in headers.items() if value}
