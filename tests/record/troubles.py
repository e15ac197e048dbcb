"""Faults of a run: at any of its calls or readings, and the death of its process around any request."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dr_ctl_lab.twin.faults import Fault, FaultKind, Trigger
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, FANOUT, MIRROR, SHARED_STORE

# Faults at each call, and faults at one call in the middle.
_EACH: Final = (FaultKind.UNANSWERED, FaultKind.ERROR)
_SOME: Final = (FaultKind.SILENT, FaultKind.RESET, FaultKind.PAGE, FaultKind.NOOP)
_LOOKS: Final = (0, 3, 8, 16, 30)
_NOT_READ: Final = (FaultKind.SILENT, FaultKind.ERROR, FaultKind.PAGE)
_OPEN: Final = (("Started", True), ("Started", False))
_CLASSIC: Final = (
    *(*_OPEN, ("QueueSize", 0), ("Paused", False), ("Paused", True), ("InFlightCount", 0)),
    *(("ConsumerCount", 0), ("EnqueueCount", 0)),
)
_LIES: Final[dict[str, Sequence[tuple[str, Any]]]] = {
    MIRROR: (*_OPEN, ("MessageCount", 0), ("PendingMirrorAcks", 0), ("Paused", False)),
    CONTINUITY: (
        *(*_OPEN, ("MessageCount", 0), ("Paused", False), ("ConsumerCount", 0), ("SiteActivated", True)),
        *(("SiteActivated", False), ("Delivering", True), ("Delivering", False)),
    ),
    BRIDGES: (
        *(*_OPEN, ("MessageCount", 0), ("Paused", False), ("Paused", True), ("ConsumerCount", 0)),
        *(("Connected", True), ("MessagesAdded", 0), ("RolesAsJSON", "[]")),
    ),
    BROKERSYNC: (*_CLASSIC, ("RemoteBrokerName", None)),
    FANOUT: (*_CLASSIC, ("DequeueCount", 0)),
    SHARED_STORE: (*_CLASSIC, ("Slave", True), ("Slave", False)),
}


@dataclass(frozen=True, slots=True)
class Change:
    """A changing call: its site, operation, and number among all calls."""

    site: str
    verb: str
    call: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault with its description; `number` is that of a call without the fault, or of a reading."""

    words: str
    number: int
    site: str = ""
    fault: Fault | None = None
    dies: tuple[int | None, bool] = (None, False)
    """The number of the changing request at which the process dies, and whether it dies after it."""

    def __str__(self) -> str:
        return f"{self.words}: {self.number}"


def faults_at_calls(changes: Sequence[Change]) -> Iterator[Trouble]:
    """A fault at one call; a refusal lasts for all further calls of the same operation."""
    at_site, of_verb = Counter[str](), Counter[tuple[str, str]]()
    middle = changes[len(changes) // 2] if changes else None
    for change in changes:
        trigger = Trigger(changing=True, after=at_site[change.site])
        for kind in (*_EACH, *(_SOME if change is middle else ())):
            yield Trouble(f"{kind.value} at call", change.call, change.site, Fault(kind, trigger))
        refused = Trigger(operation=change.verb, after=of_verb[change.site, change.verb], changing=True)
        yield Trouble("refused from call", change.call, change.site, Fault(FaultKind.ERROR, refused, times=None))
        at_site[change.site] += 1
        of_verb[change.site, change.verb] += 1


def faults_at_readings(topology: str, sites: Sequence[str]) -> Iterator[Trouble]:
    for site in sites:
        for number, (attribute, value) in enumerate(_LIES[topology]):
            after = _LOOKS[number % len(_LOOKS)]
            fault = Fault(FaultKind.WRONG_VALUE, Trigger(changing=False, after=after), attribute=attribute, value=value)
            yield Trouble(f"{site} reports {attribute} {value} at look", after, site, fault)
        for number, kind in enumerate(_NOT_READ):
            for after in _LOOKS[number::2]:
                fault = Fault(kind, Trigger(changing=False, after=after))
                yield Trouble(f"{kind.value} of {site} at look", after, site, fault)


def deaths(requests: Sequence[tuple[int, int]]) -> Iterator[Trouble]:
    """A death before and after each request, once for each number of calls."""
    seen = set()
    for at, calls in enumerate(requests, 1):
        for after, number in zip((False, True), calls, strict=True):
            trouble = Trouble("killed after call" if after else "killed before call", number, dies=(at, after))
            if str(trouble) not in seen:
                seen.add(str(trouble))
                yield trouble
