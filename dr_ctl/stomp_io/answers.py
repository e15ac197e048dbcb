"""What comes of asking a STOMP port: to be let in, or to take a message there and back. A fault of the network is an
answer too. Loads nothing that speaks STOMP: who looks at a site asks no port."""

from __future__ import annotations

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
    """It cannot be told: accepted without a greeting in time, reset, unreachable, or not STOMP."""

    because: str


Greeting = Connected | Closed | Refused | Silent


@dataclass(frozen=True, slots=True)
class Passed:
    """The message came back and its acknowledgement was confirmed; nothing of it is left."""

    took_s: float


@dataclass(frozen=True, slots=True)
class Failed:
    """It did not come back; a message may be left in the queue."""

    because: str


RoundTrip = Passed | Failed
