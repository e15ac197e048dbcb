"""The interface of the traffic's clients, for every protocol: send, receive, acknowledge each message, get
confirmations.

A send, a subscription or an acknowledgement may have a name: `Confirmed` with that name follows once the broker has
confirmed it. Without a confirmation it is in doubt when the connection is lost. `ConnectionLost` means that the
connection is gone, `RequestRefused` that the broker refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

from dr_ctl.core.machine import PartMissing

ID_HEADER: Final = "order_id"
PART: Final = "part"  # a property for selectors
SUBSCRIPTION: Final = "::"
FORWARDED: Final = "to."  # MQTT has no queues: the brokers forward from `to.QUEUE` to the queue
LOGIN_S: Final = 2.0
SILENT_S: Final = 4.0  # a connection without data, heart-beats included, is given up after this time
WINDOW_BYTES: Final = 4096


class Proto(Enum):
    """Protocols of clients."""

    STOMP = "stomp"
    AMQP = "amqp"
    CORE = "core"
    OPENWIRE = "openwire"
    MQTT = "mqtt"


def no_compiler() -> PartMissing:
    return PartMissing(
        "there is no `javac` on the PATH, and clients of CORE and OpenWire are compiled with it",
        remedy="Install a JDK of Java 17 or later: `apt-get install openjdk-17-jdk-headless` (Debian) or "
        "`dnf install java-17-openjdk-devel` (Red Hat).",
    )


@dataclass(frozen=True, slots=True)
class Traits:
    """The special properties of a message."""

    part: str = ""
    group: str = ""
    delay_ms: int = 0
    ttl_ms: int = 0
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A durable message. The body begins with the id, because MQTT has no other place for it."""

    ident: str
    queue: str
    body: str
    traits: Traits = Traits()
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Received:
    """A received message; `token` identifies it in an acknowledgement."""

    queue: str
    ident: str
    token: Any


@dataclass(frozen=True, slots=True)
class Confirmed:
    name: str


class Client(Protocol):
    """An open connection, for one thread."""

    def subscribe(
        self, queues: Sequence[str], *, confirm: str | None = None, window_bytes: int = WINDOW_BYTES, selector: str = ""
    ) -> None:
        """Consume the queues, with about `window_bytes` unacknowledged."""

    def send(self, message: Outgoing, *, confirm: str | None) -> None: ...

    def ack(self, received: Received, *, confirm: str | None) -> None: ...

    def receive(self, timeout_s: float) -> Sequence[Received | Confirmed]:
        """Return what has arrived, after at most `timeout_s`; the list may be empty."""

    def beat(self) -> None:
        """Send a heart-beat where one is due."""

    def close(self, *, politely: bool = True) -> None:
        """Close the connection; never raises."""


def address_of(queue: str) -> str:
    """The address to send to: a shared subscription is named ADDRESS::QUEUE."""
    return queue.partition(SUBSCRIPTION)[0]


def is_subscription(queue: str) -> bool:
    return SUBSCRIPTION in queue


def name_of(queue: str) -> str:
    """The name of the queue at the broker."""
    return queue.rpartition(SUBSCRIPTION)[2]


def body_of(ident: str, size: int) -> str:
    return f"{ident}\n{'x' * size}"


def ident_in(body: str) -> str:
    """The id at the beginning of a body made by `body_of`; empty for other bodies."""
    ident, line_break, _ = body.partition("\n")
    return ident if line_break else ""
