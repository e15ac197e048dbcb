"""Sites' roles, findings and exit codes, which every layer uses."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, Flag, IntEnum, auto
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dr_ctl.core.document import HIDDEN, key

if TYPE_CHECKING:
    Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]
else:
    Json = Any  # values cannot be checked against a recursive alias


K = TypeVar("K")
V = TypeVar("V")


class Role(Enum):
    """The role of a site as observed at each reading, never remembered."""

    SERVING = "serving"  # clients can connect and are served
    STANDBY = "standby"  # up, clients kept out
    DOWN = "down"  # proven not to run
    SICK = "sick"  # lives and may still serve, but cannot be managed
    UNKNOWN = "unknown"  # no answer


class Severity(Enum):
    """How much a finding matters: an error refuses the operation, a warning and a note never do."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


MARKS: Final = {Severity.ERROR: "!!", Severity.WARNING: " !", Severity.INFO: "  "}
"""The mark before a finding on the screen, which works without colours."""


class RefusalScope(Flag):
    """The requests that an error refuses although a site is lost, or the request is a single step."""

    NONE = 0
    FAILOVER = auto()
    SINGLE_STEP = auto()
    RESTART = auto()
    EXPECTED_WHEN_LOST = auto()  # every loss of a site brings the error: a failover does not report it
    FENCING = auto()  # a single fence is refused
    WHERE_IT_SERVES = auto()  # a target that serves already is reported with the error as a warning


class Health(Enum):
    """The answers of `check`, in the order of its exit codes for monitoring systems."""

    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"
    UNKNOWN = "unknown"

    @property
    def code(self) -> int:
        return [*Health].index(self)

    @property
    def rank(self) -> int:
        """The rank of an answer: a certain fault is worse than a broker that could not be read."""
        return (Health.OK, Health.WARNING, Health.UNKNOWN, Health.CRITICAL).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact worth a person's attention, with a remedy. `more` are further lines. `page` is the answer of `check` to
    the finding, None if a monitor must not wake anybody, and `always` keeps that answer during a maintenance. If
    `duplicates` is not zero, the finding passes if a person accepts so many."""

    id: str
    severity: Severity
    text: str = field(metadata=key(of="whole"))
    remedy: str = ""
    more: Sequence[str] = field(default=(), metadata=HIDDEN)
    weighs: RefusalScope = field(default=RefusalScope.NONE, compare=False, metadata=HIDDEN)
    page: Health | None = field(default=None, compare=False, metadata=key("health", optional=True))
    always: bool = field(default=False, compare=False, metadata=HIDDEN)
    duplicates: int = field(default=0, compare=False, metadata=HIDDEN)

    @property
    def whole(self) -> str:
        return "\n".join((self.text, *self.more))


class ExitCode(IntEnum):
    """The contract with scripts; the envelope's `outcome` is the lower-case word."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    MISSING = 3
    PRECHECK_FAILED = 10
    LOSS_REFUSED = 11
    SERVING_SITE_ALIVE = 12
    LOCKED = 13
    DECLINED = 14
    REVERTED = 20
    INCOMPLETE = 21
    UNKNOWN = 22
    STRANDED = 23
    DRAIN_TIMEOUT = 24
    WARNINGS = 30
    INTERRUPTED = 130
    TERMINATED = 143

    @property
    def outcome(self) -> str:
        """The word of the JSON envelope; SIGINT and SIGTERM are called `interrupted`."""
        return "interrupted" if self is ExitCode.TERMINATED else self.name.lower()


_NAMED = 5


def total(figures: Iterable[int | None]) -> int | None:
    """Add up figures; a figure that is not known makes the sum unknown."""
    listed = list(figures)
    return None if None in listed else sum(figure or 0 for figure in listed)


def by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Put the values of each key together, keys and values in the order in which they come."""
    values: dict[K, list[V]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return values


def brief(items: Sequence[str]) -> str:
    more = f" and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return "; ".join(items[:_NAMED]) + more
