"""Results of asking a STOMP port to let a client in, or to carry a message there and back. A network fault is a result
too. Imports no STOMP library, because a look at a site asks no port."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Connected:
    """The broker let us in."""

    server: str
    version: str


@dataclass(frozen=True, slots=True)
class Closed:
    """Nobody listens there: the connection was refused."""

    because: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A broker answered, and said no."""

    because: str


@dataclass(frozen=True, slots=True)
class Silent:
    """Unclear: accepted without a greeting in time, reset, unreachable, or not STOMP."""

    because: str


Greeting = Connected | Closed | Refused | Silent


@dataclass(frozen=True, slots=True)
class Passed:
    """The message came back and its acknowledgement was confirmed, so the queue is clean."""

    took_s: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The message did not come back, and may be left in the queue."""

    because: str


RoundTrip = Passed | Failed
