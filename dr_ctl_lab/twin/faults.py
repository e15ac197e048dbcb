"""Faults of a broker's management, chosen by a test or from a seed."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Self

from dr_ctl_lab.twin.jolokia import Answer, Request

FOR_EVER_S: Final = 3600.0
CHANGING_SHARE: Final = 0.7
LATEST: Final = 12  # a fault from a seed strikes one of the first requests


class FaultKind(Enum):
    """Kinds of faults, and whether the request is executed."""

    LATE = "late"  # answered after `seconds`
    ERROR = "error"  # HTTP `status`, no JSON; not executed
    RESET = "reset"  # the connection is reset; not executed
    PAGE = "page"  # a web page instead of JSON; not executed
    SILENT = "silent"  # no answer; not executed
    WRONG_VALUE = "lie"  # `attribute` is reported as `value`
    NOOP = "idle"  # an operation answers 200 and does nothing
    UNANSWERED = "unanswered"  # executed, then the connection is reset
    DIES_BEFORE = "dies before"  # the broker dies; not executed
    DIES_AFTER = "dies after"  # executed, and the broker dies before it answers
    CLOCK = "clock"  # the broker's clock jumps by `seconds`


@dataclass(frozen=True, slots=True)
class Trigger:
    """Selects requests; the first `after` matching ones pass. None matches all."""

    changing: bool | None = None
    operation: str | None = None  # the name without its signature
    bean: str | None = None  # a part of the bean's name
    after: int = 0

    def matches(self, request: Request) -> bool:
        return (
            (self.changing is None or request.changes is self.changing)
            and (self.operation is None or request.verb == self.operation)
            and (self.bean is None or self.bean in request.bean)
        )


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; with `times` None it never ends. A broker that dies starts again after `back_after_s`, where given."""

    kind: FaultKind
    trigger: Trigger = field(default_factory=Trigger)
    times: int | None = 1
    seconds: float = FOR_EVER_S
    status: int = 503
    attribute: str = ""
    value: Any = None
    back_after_s: float | None = None


class Faults:
    """The faults of one broker, in force until they are used up or cleared."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._active: list[tuple[Fault, list[int]]] = []
        for fault in faults:
            self.add(fault)

    @classmethod
    def from_seed(cls, seed: int, *, count: int = 3) -> Self:
        """A few random faults, the same for the same seed."""
        rng = random.Random(seed)  # noqa: S311 - no secret depends on it
        kinds = [item for item in FaultKind if item is not FaultKind.WRONG_VALUE]
        return cls(_by_chance(rng.choice(kinds), rng) for _ in range(count))

    def add(self, fault: Fault) -> None:
        self._active.append((fault, [fault.trigger.after, -1 if fault.times is None else fault.times]))

    def clear(self) -> None:
        self._active.clear()

    @property
    def unused(self) -> list[Fault]:
        """The faults that have not struck yet."""
        return [fault for fault, left in self._active if left[1] == (-1 if fault.times is None else fault.times)]

    def due(self, requests: Sequence[Request]) -> list[tuple[Fault, list[Request]]]:
        """The faults that strike this POST, with their requests; counts them down."""
        strikes = []
        for fault, left in list(self._active):
            struck = []
            for request in requests:
                if not fault.trigger.matches(request):
                    continue
                if left[0] > 0:
                    left[0] -= 1
                elif left[1] != 0:
                    left[1] -= 1
                    struck.append(request)
            if struck:
                strikes.append((fault, struck))
            if left[1] == 0:
                self._active.remove((fault, left))
        return strikes


def _by_chance(kind: FaultKind, rng: random.Random) -> Fault:
    # Only an operation can have no effect.
    changing = kind is FaultKind.NOOP or rng.random() < CHANGING_SHARE
    return Fault(
        kind,
        Trigger(changing=changing, after=rng.randrange(LATEST)),
        times=rng.choice((1, 1, 2)),
        seconds=rng.choice((0.05, 0.3, 1.0)),
        status=rng.choice((500, 502, 503)),
        back_after_s=rng.choice((0.1, 0.5)),
    )


def falsified(reply: Answer, fault: Fault) -> Answer:
    """The answer with the fault's attribute replaced, in a value or in its rows."""
    value = reply.get("value")
    if not isinstance(value, dict):
        return reply
    if fault.attribute in value:
        return {**reply, "value": {**value, fault.attribute: fault.value}}
    rows = {
        name: {**row, fault.attribute: fault.value} if isinstance(row, dict) and fault.attribute in row else row
        for name, row in value.items()
    }
    return {**reply, "value": rows}
