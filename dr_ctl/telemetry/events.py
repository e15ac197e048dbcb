"""The events of a run, as frozen values. The engine emits them and runs the same with nobody listening."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step begins. `safe_to_stop` says whether a first Ctrl-C would still undo everything."""

    number: int
    of: int
    verb: str
    summary: str
    safe_to_stop: bool


@dataclass(frozen=True, slots=True)
class StepEnded:
    """A step ended: `outcome` is done, not needed, refused or unknown."""

    verb: str
    outcome: str
    text: str
    took_s: float


@dataclass(frozen=True, slots=True)
class WaitProgress:
    """A wait for `subject`. `rate` is per second, `left_s` the time to go, `outage_s` how long clients have been out. A
    value is None if it cannot be determined, or if clients are not out."""

    subject: str
    depth: int | None
    rate: float | None
    left_s: float | None
    why_not_moving: str | None
    outage_s: float | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for the operator that belongs to no step's end."""

    text: str


Event = StepStarted | StepEnded | WaitProgress | Notice
EventSink = Callable[[Event], None]


def nobody(event: Event) -> None:
    del event
