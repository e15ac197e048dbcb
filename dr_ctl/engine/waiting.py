"""The common law of all waits for a state to be seen.

A wait looks at least once, and polls from the beginning of one reading to the beginning of the next: clients are out
meanwhile, so the time that a reading takes is part of the poll. A wait is satisfied once so many readings in a row
hold, however late that is. A reading that makes waiting hopeless ends the wait at once. When the time is over, one last
reading that began after the deadline decides: no wait is given up by an answer from before its end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from dr_ctl.engine.ports import StepContext

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Waited(Generic[T]):
    """The end of a wait: the last reading, and whether it satisfied the condition."""

    reading: T
    satisfied: bool


def until(
    context: StepContext,
    read: Callable[[], T],
    *,
    holds: Callable[[T], bool],
    within_s: float | None,
    poll_s: float,
    max_s: float = 0.0,
    stable_for: int = 1,
    hopeless: Callable[[T], bool] | None = None,
    meanwhile: Callable[[T], object] | None = None,
) -> Waited[T]:
    """Look until `holds` was true of `stable_for` looks in a row; without `within_s` only a hopeless look ends the wait
    otherwise. `meanwhile` gets each reading after which the wait goes on, to show progress or to try again. Each poll
    is twice as long as the one before, up to `max_s`."""
    began_s, in_a_row = context.monotonic(), 0
    while True:
        look_s = context.monotonic()
        snapshot = read()
        in_a_row = in_a_row + 1 if holds(snapshot) else 0
        if in_a_row >= stable_for:
            return Waited(snapshot, satisfied=True)
        late = within_s is not None and look_s >= began_s + within_s
        if late or (hopeless is not None and hopeless(snapshot)):
            return Waited(snapshot, satisfied=False)
        if meanwhile is not None:
            meanwhile(snapshot)
        until_next(context, look_s, poll_s)
        poll_s = max(poll_s, min(2 * poll_s, max_s))


def until_next(context: StepContext, began_s: float, every_s: float) -> None:
    """Wait until so long has passed since the last reading began."""
    context.wait(max(0.0, began_s + every_s - context.monotonic()))
