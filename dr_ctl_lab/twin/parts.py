"""A broker's acceptors and errors, and the protocols of its sessions, connections and ports."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dr_ctl_lab.twin.messages import Message, Queue


class BrokerError(Exception):
    """The error of a real broker: the Java exception's class, its text, and Jolokia's status."""

    def __init__(self, kind: str, text: str, status: int = 500) -> None:
        super().__init__(text)
        self.kind, self.text, self.status = kind, text, status


@dataclass
class Acceptor:
    name: str
    protocols: str
    opens_at_boot: bool = False
    port: int = 0
    started: bool = False


class Subscription(Protocol):
    """A client's subscription to a queue; `in_hand` are messages delivered and not acknowledged."""

    number: int
    queue: Queue
    selector: str
    since_ms: int
    in_hand: dict[int, Message]
    delivered: int
    acknowledged: int


class Session(Protocol):
    """A client's connection, as the broker sees it."""

    acceptor: str
    local_port: int
    remote: str
    ident: str
    user: str
    client: str
    since_ms: int

    def leave(self) -> None:
        """Return unacknowledged messages to their queues."""

    def cut(self) -> None:
        """Close the connection without returning messages."""

    def refuse(self, text: str) -> None:
        """Send the client an error, and end the session."""

    def subscriptions(self) -> Sequence[Subscription]: ...


class Peer(Protocol):
    """The client's end of a connection. Its methods are called with the twin's lock held."""

    remote: str
    local_port: int

    def send(self, data: bytes) -> None:
        """Send at once, or as soon as the client reads."""

    def close(self) -> None:
        """Close the connection."""


class ConnectionHandler(Protocol):
    """The broker's end of a connection. Its methods are called with the twin's lock held."""

    def read(self, data: bytes) -> None:
        """Process received bytes; empty bytes mean that the client has closed the connection."""

    def tick(self) -> None:
        """Send heart-beats and end silent connections that are due."""

    def due_s(self) -> float:
        """The time of the twin's clock at which `tick` has something to do."""


class Ports(Protocol):
    """The ports of the acceptors and of the console, and the process that owns them."""

    def open(self, name: str) -> None: ...

    def close(self, name: str) -> None: ...

    def exit(self) -> None:
        """End the process."""
