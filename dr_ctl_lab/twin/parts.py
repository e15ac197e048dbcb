"""Parts of a simulated broker: listeners, and protocols of its surroundings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dr_ctl_lab.twin.messages import Message, Queue


class BrokerSaysNo(Exception):
    """An operation failed as the real one does: the exception's class, its words, and Jolokia's status."""

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


class Holding(Protocol):
    """One subscription: on which queue, and what of it is in the client's hands."""

    number: int
    queue: Queue
    selector: str
    since_ms: int
    in_hand: dict[int, Message]
    delivered: int
    acknowledged: int


class Session(Protocol):
    """A client's connection, as far as the broker cares."""

    acceptor: str
    local_port: int
    remote: str
    ident: str
    user: str
    client: str
    since_ms: int

    def leave(self) -> None:
        """Give back what is in its hands."""

    def cut(self) -> None:
        """Close its connection, nothing more."""

    def refuse(self, text: str) -> None:
        """Tell the client why, and end."""

    def holds(self) -> Sequence[Holding]:
        """Its subscriptions."""


class Peer(Protocol):
    """The other end of a client's connection, under the twin's lock."""

    remote: str
    local_port: int

    def send(self, data: bytes) -> None:
        """Send, at once or as soon as the client takes it."""

    def close(self) -> None:
        """End the connection, nothing more."""


class Visitor(Protocol):
    """Who serves a client's connection, under the twin's lock."""

    def read(self, data: bytes) -> None:
        """Take what came; nothing where the client is gone."""

    def tick(self) -> None:
        """Do what time brings."""

    def due_s(self) -> float:
        """When time brings something, by the twin's clock."""


class Ports(Protocol):
    """What is behind the acceptors and the console."""

    def open(self, name: str) -> None: ...

    def close(self, name: str) -> None: ...

    def exit(self) -> None:
        """End the process."""
