"""Faults of a broker's management, on request or from a seed: kind of fault, request, and number of times."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Self

from dr_ctl_lab.twin.jolokia import Answer, Request

FOR_EVER_S: Final = 3600.0
CHANGING_SHARE: Final = 0.7
LATEST: Final = 12  # the request that a fault from a seed strikes at the latest


class FaultKind(Enum):
    """Kinds of fault, and whether the request is done nevertheless."""

    LATE = "late"  # answered after `seconds`
    ERROR = "error"  # HTTP `status`, no JSON; not done
    RESET = "reset"  # the connection is reset; not done
    PAGE = "page"  # a web page instead of JSON; not done
    SILENT = "silent"  # no answer; not done
    LIE = "lie"  # `attribute` is reported as `value`
    IDLE = "idle"  # an operation says 200 and does nothing
    UNANSWERED = "unanswered"  # done, then the connection is reset
    DIES_BEFORE = "dies before"  # the broker dies; not done
    DIES_AFTER = "dies after"  # done, and the broker dies before it answers
    CLOCK = "clock"  # the broker's clock jumps by `seconds`


@dataclass(frozen=True, slots=True)
class When:
    """Selects requests; `after` matching ones pass first. A None matches all."""

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
    """One fault; `times` None is for ever. A broker that dies is back after `back_after_s`, where that is given."""

    kind: FaultKind
    when: When = field(default_factory=When)
    times: int | None = 1
    seconds: float = FOR_EVER_S
    status: int = 503
    attribute: str = ""
    value: Any = None
    back_after_s: float | None = None


class Faults:
    """The faults of one broker, in force until they are used up or cleared."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._armed: list[tuple[Fault, list[int]]] = []
        for fault in faults:
            self.add(fault)

    @classmethod
    def from_seed(cls, seed: int, *, count: int = 3) -> Self:
        """A few faults that a careful tool survives, equal for equal seeds."""
        chance = random.Random(seed)  # noqa: S311 - no secret depends on it
        kinds = [item for item in FaultKind if item is not FaultKind.LIE]
        return cls(_by_chance(chance.choice(kinds), chance) for _ in range(count))

    def add(self, fault: Fault) -> None:
        self._armed.append((fault, [fault.when.after, -1 if fault.times is None else fault.times]))

    def clear(self) -> None:
        self._armed.clear()

    @property
    def untried(self) -> list[Fault]:
        """Those that have not struck yet."""
        return [fault for fault, left in self._armed if left[1] == (-1 if fault.times is None else fault.times)]

    def due(self, requests: Sequence[Request]) -> list[tuple[Fault, list[Request]]]:
        """The faults that strike this POST, with their requests; counts them down."""
        items = []
        for fault, left in list(self._armed):
            struck = []
            for request in requests:
                if not fault.when.matches(request):
                    continue
                if left[0] > 0:
                    left[0] -= 1
                elif left[1] != 0:
                    left[1] -= 1
                    struck.append(request)
            if struck:
                items.append((fault, struck))
            if left[1] == 0:
                self._armed.remove((fault, left))
        return items


def _by_chance(kind: FaultKind, chance: random.Random) -> Fault:
    # Only an operation can say that it did what it did not.
    changing = kind is FaultKind.IDLE or chance.random() < CHANGING_SHARE
    return Fault(
        kind,
        When(changing=changing, after=chance.randrange(LATEST)),
        times=chance.choice((1, 1, 2)),
        seconds=chance.choice((0.05, 0.3, 1.0)),
        status=chance.choice((500, 502, 503)),
        back_after_s=chance.choice((0.1, 0.5)),
    )


def falsified(reply: Answer, fault: Fault) -> Answer:
    """An answer with one attribute reported as it is not, wherever it stands."""
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
