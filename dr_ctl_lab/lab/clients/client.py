"""What the lab's traffic asks of a client, whatever protocol it speaks: a connection that sends, takes messages,
acknowledges each by itself, and hears from the broker what of that is done.

A name given with a send, a subscription or an acknowledgement comes back as `Confirmed` once the broker has it. What
was not confirmed when the connection is lost is in doubt. Whatever the protocol, `ConnectionLost` says that it is gone,
and `SaidError` that the broker refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

from dr_ctl.core.machine import PartMissing

ID_HEADER: Final = "order_id"
PART: Final = "part"  # what selectors see
SUBSCRIPTION: Final = "::"
FORWARDED: Final = "to."  # MQTT has no queues: a broker of a lab forwards what is published there, and to which queue
LOGIN_S: Final = 2.0
SILENT_S: Final = 4.0  # a broker that says nothing for so long, heart-beats included, is left
WINDOW_BYTES: Final = 4096


class Speaks(Enum):
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
    """What is odd about a message."""

    part: str = ""
    group: str = ""
    delay_ms: int = 0
    lasts_ms: int = 0
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A durable message. Its body begins with its id: a client of MQTT has no other place for it."""

    ident: str
    queue: str
    body: str
    traits: Traits = Traits()
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Came:
    """A message; `token` is what acknowledges it."""

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
        """Take messages of each queue, about so many bytes of them unacknowledged."""

    def send(self, message: Outgoing, *, confirm: str | None) -> None: ...

    def ack(self, came: Came, *, confirm: str | None) -> None: ...

    def receive(self, timeout_s: float) -> Sequence[Came | Confirmed]:
        """What has come, at the latest after the time; an empty list is no end."""

    def beat(self) -> None:
        """Keep the connection."""

    def close(self, *, politely: bool = True) -> None:
        """End it; never raises."""


def address_of(queue: str) -> str:
    """Where one sends to: a subscription that several share is named ADDRESS::QUEUE."""
    return queue.partition(SUBSCRIPTION)[0]


def is_subscription(queue: str) -> bool:
    return SUBSCRIPTION in queue


def name_of(queue: str) -> str:
    """The broker's own name for where the messages lie."""
    return queue.rpartition(SUBSCRIPTION)[2]


def body_of(ident: str, size: int) -> str:
    return f"{ident}\n{'x' * size}"


def ident_in(body: str) -> str:
    """The id that a body of `body_of` begins with; empty for any other."""
    ident, line_break, _ = body.partition("\n")
    return ident if line_break else ""
