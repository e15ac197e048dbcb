"""The contract of a topology: the values and protocols that a command needs. A value that was not read is None, never
zero or False."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Generic, Literal, Protocol, Self, TypeVar

from typing_extensions import TypedDict

from dr_ctl.core.document import HIDDEN, derived, key
from dr_ctl.core.errors import BrokerError, UsageError
from dr_ctl.core.model import Finding, Json, Role, total

FenceStrength = Literal["now", "lasting"]


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that keeps clients from working at a broker whose listeners are open: everywhere, or at these addresses
    only. `known` is False if the broker does not report it yet: no move goes there, and no monitor wakes anybody."""

    text: str
    remedy: str
    addresses: tuple[str, ...] = ()
    known: bool = True


class NodeState(Enum):
    ACTIVE = "active"
    PASSIVE = "passive"
    REFUSES = "refuses"  # each of its known ports refuses: it is dead, or passive without ports
    SICK = "sick"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class NodeReading:
    """A process of a broker as one reading has shown it, and the reason. `node` is the id that all nodes of one broker
    share; `in_sync` is for a node with a copy of the store, else None. `pending` counts a mirror's acknowledgements
    that are not applied. `shows_life` says that its management answered, so that something runs there."""

    name: str
    state: NodeState
    why: str = field(default="", metadata=key(blank=True))
    node: str = field(default="", metadata=HIDDEN)
    version: str = field(default="", metadata=HIDDEN)
    in_sync: bool | None = None
    pending: int = field(default=0, metadata=HIDDEN)
    shows_life: bool = field(default=False, metadata=HIDDEN)

    def __str__(self) -> str:
        named = f"{self.name} {'is ' if self.state is not NodeState.REFUSES else ''}{self.state.value}"
        return f"{named} ({self.why})" if self.state in (NodeState.SICK, NodeState.UNKNOWN) else named


@dataclass(frozen=True, slots=True)
class Node:
    """A process of a broker that the settings do not name. `at` is its address, empty if unknown; `shown_by` is the
    evidence for it."""

    site: str
    pair: str
    at: str
    shown_by: str

    def __str__(self) -> str:
        return f"{self.site}/{self.pair} has another node{f' at {self.at}' if self.at else ''} ({self.shown_by})"


@dataclass(frozen=True, slots=True)
class BrokerSnapshot:
    """A broker of a site, whatever its kind. Where `silent` has an error, no other value was read.

    `listeners` are the clients' listeners by name, and whether each is open; `kept_out` says that a lasting fence keeps
    clients out, `serves_no_role` that it leaves no role a right to send or consume; `depths` are the messages in each
    business queue, `paused` the queues whose dispatch is stopped; `disk_used` is the used share of its disk. `clients`
    counts connections at the clients' listeners, `traffic` is messages added and consumed a second, known after two
    readings. `nodes` are those of a broker that has several."""

    site: str
    pair: str
    role: Role
    silent: BrokerError | None = None
    start: str | None = None
    listeners: Mapping[str, bool] = field(default_factory=dict)
    kept_out: bool = False
    serves_no_role: bool = False
    depths: Mapping[str, int | None] = field(default_factory=dict)
    paused: tuple[str, ...] = ()
    to_ship: int | None = None
    disk_used: float | None = None
    obstacles: tuple[Obstacle, ...] = ()
    clients: int | None = None
    traffic: tuple[float, float] | None = None
    nodes: tuple[NodeReading, ...] = ()

    @property
    def is_split(self) -> bool:
        return sum(node.state is NodeState.ACTIVE for node in self.nodes) > 1


class LinkFigures(TypedDict, total=False):
    """A topology's own figures of a link; null: not known."""

    last_attached: str | None
    loss_risk: int | None
    duplicate_risk: int | None
    recovery_point_s: float | None
    recovery_time_s: float | None
    queues: dict[str, int | None]
    ids_to_ship: int | None
    producers: int
    held: bool | None
    holder: str | None
    lease_s: float | None
    process: bool | None


@dataclass(frozen=True, slots=True)
class LinkSnapshot:
    """The link that ships from one broker to its peer. `rate` is messages a second, known after two readings; `outflow`
    the messages still to ship, `unapplied` the peer's acknowledgements that have arrived here. `lines` are for people,
    `more` are the topology's own figures for `data.links`. `without_acks`: no acknowledgement is in the outflow."""

    site: str = field(metadata=key("from"))
    pair: str
    name: str | None
    started: bool | None
    attached: bool | None
    outflow: int | None
    unapplied: int | None = field(metadata=HIDDEN)
    rate: float | None = field(metadata=key(digits=1, description="by how many a second the outflow shrinks"))
    lines: tuple[str, ...] = field(metadata=HIDDEN)
    more: Mapping[str, Json] = field(default_factory=dict, metadata=key(flat=LinkFigures))
    without_acks: bool = field(default=False, metadata=HIDDEN)

    @derived
    def drain_s(self) -> float | None:
        return drain_s(self.outflow, self.rate)

    @derived
    def pending_acks(self) -> int | None:
        return self.unapplied


def drain_s(depth: int | None, rate: float | None) -> float | None:
    if depth == 0:
        return 0.0
    return round(depth / rate, 2) if depth is not None and rate is not None and rate > 0 else None


@dataclass(frozen=True, slots=True)
class Stake:
    """The exposure to a loss of a closed broker that answered: messages lost with it, possible duplicates without it;
    by queue (lost, duplicates) if known."""

    lost: int | None
    duplicates: int | None
    queues: Mapping[str, tuple[int, int | None]] | None

    @classmethod
    def of(cls, queues: Mapping[str, tuple[int | None, int | None]]) -> Self:
        lost, duplicates = (total(stake[number] for stake in queues.values()) for number in (0, 1))
        known = {name: (count, again) for name, (count, again) in queues.items() if count is not None}
        return cls(lost, duplicates, known if len(known) == len(queues) else None)


class PartState(Enum):
    RUNNING = "running"
    STOPPED = "stopped"
    BETWEEN = "neither"  # starting, suspended, or stopped with work in hand


@dataclass(frozen=True, slots=True)
class WorkloadSnapshot:
    """A program that works on the messages of a site and moves with the service. `parts` are started and stopped by
    name: a workload has one part, or one for every route. `silent` says why nothing was read, `refuses` that its
    address refuses connections. A workload that is `alone` runs only while its site serves without the other."""

    site: str
    name: str
    kind: str
    singleton: bool
    parts: Mapping[str, PartState] = field(default_factory=dict)
    detail: str = field(default="", metadata=key(blank=True))
    silent: str | None = None
    alone: bool = field(default=False, metadata=HIDDEN)
    refuses: bool = field(default=False, metadata=HIDDEN)

    @property
    def runs(self) -> bool | None:
        """Say whether any part may run; return None if no part was read."""
        if self.silent is not None:
            return None
        return any(part is not PartState.STOPPED for part in self.parts.values())

    @derived
    def state(self) -> str:
        if self.silent is not None:
            return "not read"
        states = {part.value for part in self.parts.values()}
        return states.pop() if len(states) == 1 else "running in part"

    def line(self, role: Role) -> str:
        """Describe its state, and when it will run. `role` is its site's."""
        words = [self.state, self.detail, "singleton" if self.singleton else "", self.silent or ""]
        waits = f"; starts when {self.site} serves" if role is not Role.SERVING else ""
        when = f"; runs only while {self.site} serves without the other site" if self.alone else waits
        return f"{self.name}: {', '.join(filter(None, words))}{when if self.runs is False else ''}"


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """The state of a queue from which an agent deletes consumed copies. `waiting` copies are to be deleted.
    `unconfirmed` copies are of messages announced as consumed, without a counter that confirms it. `absent` copies were
    found at neither site. `vanished` messages left the serving site otherwise than by a client: the agent ignores
    announcements of that queue until a person permits them. `unproven` copies are at the standby, and nothing shows
    that their messages were consumed. `unheard` messages left the queue without an announcement. `complete` says
    whether the last comparison of both sites saw every message, `why_not` why none did."""

    pair: str
    name: str
    deleted: int = 0
    waiting: int = 0
    unconfirmed: int = 0
    absent: int = 0
    vanished: int = 0
    unproven: int = 0
    unheard: int = 0
    compared: datetime | None = None
    complete: bool | None = field(default=None, metadata=key("whole"))
    why_not: str = field(default="", metadata=key(blank=True))


@dataclass(frozen=True, slots=True)
class Progress:
    """The result of a step of such an agent. `over` says why the agent ends, `silent` why a site could not be read, by
    site. `remembers` is for the next agent."""

    queues: Sequence[QueueProgress] = ()
    over: str | None = field(default=None, metadata=HIDDEN)
    silent: Mapping[str, str] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    remembers: Mapping[str, Json] = field(default_factory=dict)

    @property
    def vanished(self) -> int:
        return sum(queue.vanished for queue in self.queues)


class Cleaner(Protocol):
    """Deletes at the standby the copies of what clients of the serving site have consumed. For one thread."""

    def step(self, held: Callable[[], str | None]) -> Progress:
        """Work for a moment. `held` is called before each deletion and returns the reason why none is permitted; the
        agent follows what clients consume in any case."""

    def go_on(self) -> None:
        """Count vanished messages as consumed, as a person permits, and compare both sites."""

    def close(self) -> None: ...


class NoCleaner(UsageError):
    remedy = "Only Classic brokers that copy to each other (`classic-brokersync`) need one."

    def __init__(self) -> None:
        super().__init__("sync: with this topology nothing has to be deleted at the standby")


@dataclass(frozen=True, slots=True)
class Unproven:
    """Copies of one queue without evidence that they are consumed; `why_not` says why the evidence is unknown."""

    pair: str
    name: str
    ids: Sequence[str]
    why_not: str | None = None


S_co = TypeVar("S_co", covariant=True)


@dataclass(frozen=True, slots=True)
class TimedReading(Generic[S_co]):
    """A reading of a monitor or a watch. The last broker in time answered `took_s` after the questions were sent, and
    `ago_s` before the reading ended."""

    snapshot: S_co
    ago_s: float
    took_s: float
