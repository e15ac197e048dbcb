"""A group is the nodes of one broker. Every reading asks all of them, and a reading, a change or a test login goes to
the node that is active then. A broker with a single process is a group of one, which counts as active without being
asked.

A passive node answers like an empty broker. Therefore every request to a group also reads the node's state.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from dr_ctl.core.errors import BrokerError, Passive, Sick, TimedOut, Unreachable
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json, Role, Severity, brief
from dr_ctl.core.notation import if_known
from dr_ctl.core.system import BackgroundTask, all_ended, in_background, system
from dr_ctl.engine.disk import private
from dr_ctl.engine.runs import write_text
from dr_ctl.jolokia.client import Answer, Read, Wire
from dr_ctl.settings import model as settings
from dr_ctl.stomp_io.address import Closed, LoginResult
from dr_ctl.topologies.common.view import Broker
from dr_ctl.topologies.topology import Node, NodeReading, NodeState


def may_take_over(states: Sequence[NodeState], left_s: float) -> bool:
    """`left_s` is how long a node may still take to become active."""
    return NodeState.ACTIVE not in states and (left_s > 0 or NodeState.PASSIVE in states)


def all_inactive(states: Sequence[NodeState]) -> bool:
    return all(state in (NodeState.REFUSES, NodeState.PASSIVE) for state in states)


def state_of(error: BrokerError, *, refuses: bool) -> NodeState:
    """Return the state of a node that did not answer. `refuses` says that its other known ports refuse."""
    if isinstance(error, Unreachable) and error.refused and refuses:
        return NodeState.REFUSES
    if isinstance(error, Passive):
        return NodeState.PASSIVE
    return NodeState.SICK if isinstance(error, Sick | TimedOut) else NodeState.UNKNOWN


class NobodyActive(Unreachable):
    """No node of a broker is active. The text names each node's state, and the time another node may take."""

    remedy = "Start one of its nodes, and look in their logs why none is active."

    def __init__(self, name: str, nodes: Sequence[NodeReading], left_s: float) -> None:
        states = [node.state for node in nodes]
        taking_over = may_take_over(states, left_s)
        left = f"within {left_s:.0f} s another one may be" if left_s else "a passive one may be at any moment"
        if left_s and not all_inactive(states):
            left = "another one may be at any moment: the time counts from when each says that it is not"
        text = f"no node of {name} is active: {', '.join(map(str, nodes))}"
        refused = all(state is NodeState.REFUSES for state in states)
        wait = "Wait until one is active, or that time is over: `dr-ctl status` says so." if taking_over else None
        super().__init__(f"{text}; {left}" if taking_over else text, refused=refused, remedy=wait)
        self.nodes, self.left_s, self.taking_over = tuple(nodes), left_s, taking_over
        self.shows_life = any(node.shows_life for node in nodes)


def unnamed_of(view: Broker, peer: Broker | None) -> tuple[Node, ...]:
    return tuple(view.unnamed) or (nodes_in_link(peer, view.site, len(view.nodes)) if peer is not None else ())


def nodes_in_link(peer: Broker, site: str, named: int) -> tuple[Node, ...]:
    """Return one unnamed node with all addresses at which the peer's link looks for this broker, if these are more than
    the `named` nodes: which address belongs to which node is unknown."""
    at = peer.link.peer_nodes
    return (Node(site, peer.pair, " or ".join(at), f"by the link of {peer.site}"),) if len(at) > max(1, named) else ()


def of_nodes(view: Broker, peer: Broker | None, severity: Severity) -> Iterator[Finding]:
    """Find what is wrong with a broker's nodes. `severity` is that of nodes which the settings do not name."""
    by_state = Counter(node.state for node in view.nodes)
    if by_state[NodeState.ACTIVE] > 1:
        yield found("DR-NODE-005", broker=view, nodes=shown(view), site=view.site)
    if nodes := unnamed_of(view, peer):
        yield found("DR-NODE-001.several", severity=severity, nodes=brief([*map(str, nodes)]), site=view.site)
    for node in (node for node in view.nodes if node.state is NodeState.PASSIVE):
        if node.in_sync is False:
            yield found("DR-NODE-006.not_in_sync", broker=view, node=node.name)
        elif node.node != view.node:
            yield found("DR-NODE-006.stranger", broker=view, node=node.name)
        elif node.version != view.version:
            yield found("DR-NODE-006.version", broker=view, node=node.name, version=node.version, active=view.version)
        elif node.pending:
            yield found("DR-NODE-006.pending", broker=view, node=node.name, count=node.pending)
    if view.nodes and peer is not None and len(peer.link.peer_nodes) == 1:
        yield found("DR-NODE-006.link", broker=view, peer=peer.site, how=peer.link.add_node_advice)


def shown(view: Broker) -> str:
    return f"{view.site} {', '.join(map(str, view.nodes)) or 'has one node'}"


def of_obstacles(
    view: Broker, severity: Severity, includes: Callable[[str], bool] = lambda _: True, *, unknown: bool = True
) -> Iterator[Finding]:
    """Report a broker's obstacles, at included addresses only; without `unknown`, only those that are certain."""
    for obstacle in view.obstacles:
        addresses, site, pair, remedy = obstacle.addresses, view.site, view.pair, obstacle.remedy
        if (obstacle.known or unknown) and (not addresses or any(map(includes, addresses))):
            key = "DR-LIMIT-001.serving" if view.role is Role.SERVING and not addresses else "DR-LIMIT-001"
            yield found(key, remedy=remedy, severity=severity, site=site, pair=pair, limit=obstacle.text)


SMALL_S: Final = 2.0
"""The time limit for a node's state. While the active node answers, a late node is not waited for again."""
SOON_S: Final = 0.5
SAME_MS: Final = 1000
ROUND_MS: Final = 10_000
_READ_AGAIN_S: Final = 600.0
_NOTED_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The answer of a node about itself: its own name for the broker, and its `reading`, which has no name yet.
    `began_ms` is when the broker began, where a process may begin one again."""

    broker: str
    reading: NodeReading
    began_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """How a node's state is read in a family of brokers: `question` is the read, and `itself` parses the answer and may
    raise `BrokerError`. `part` is the part of a bean's name that has the broker's name: the parts come in any order."""

    question: Read
    itself: Callable[[Answer], NodeAnswer]
    part: Callable[[str], str]


@dataclass(eq=False)
class Process:
    """A process of a broker, which is `node` of the settings where they name several."""

    name: str
    url: str | None
    stomp: str | None
    node: settings.Node | None = None


class Unserved:
    """A file that records, for the next command, since when no reading saw an active node: the first of the
    uninterrupted readings until now, and the first of those in which every node showed that it is not active."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._noted: tuple[float, float, float] | None = None

    def seconds(self, *, shown: bool) -> float:
        """Note a reading in which no node is active, and whether each has `shown` it."""
        now = system().now().timestamp()
        since, shown_since, last = self._noted or self._kept() or (now, now, now)
        if not 0 <= now - last <= _READ_AGAIN_S:
            since = shown_since = now
        shown_since = shown_since if shown else now
        if self._noted is None or now - self._noted[2] >= _NOTED_EVERY_S or not shown:
            self._noted = since, shown_since, now
            with suppress(OSError):  # without the file the next command begins to count anew
                private(self._path.parent)
                write_text(self._path, json.dumps(self._noted))
        return now - (shown_since if shown else since)

    def over(self) -> None:
        self._noted = None
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _kept(self) -> tuple[float, float, float] | None:
        try:
            since, shown_since, last = map(float, json.loads(self._path.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return since, shown_since, last


@dataclass(eq=False)
class Group:
    """The processes of one broker. `last` is the one that was active when it was asked last. `opened` opens a way to a
    process, and `try_login` tries its listener as a client, and returns None where the settings name none."""

    name: str
    processes: Sequence[Process]
    opened: Callable[[Process], Wire]
    try_login: Callable[[Process, float], LoginResult | None]
    family: Family
    takeover_s: float
    unserved: Unserved
    named: Path | None = None

    def __post_init__(self) -> None:
        self.takeover_s = self.takeover_s if len(self.processes) > 1 else 0.0
        self.last: Process | None = self.processes[0] if len(self.processes) == 1 else None
        self.readings: tuple[NodeReading, ...] = ()
        self.left_s = 0.0
        # Each node may have its own name for the broker: this is the name by which the broker is known here.
        self.broker: str | None = None
        self._own: dict[Process, NodeAnswer] = {}
        self._began_ms: dict[Process, int] = {}
        self._wires: dict[Process, Wire] = {}
        self._asked: dict[Process, BackgroundTask[NodeReading]] = {}

    @property
    def has_one_node(self) -> bool:
        return len(self.processes) == 1

    @property
    def current(self) -> Process:
        """The active node, or the first while none is known to be."""
        return self.last or self.processes[0]

    @property
    def activation(self) -> str:
        """Identify this activation of a node; the start of its process is added elsewhere."""
        if self.has_one_node or self.last is None:
            return ""
        return f"{self.last.name}/{self._began_ms.get(self.last, 0) // ROUND_MS}/"

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()

    def begin(self, active: Process | None) -> None:
        for process in self.processes:
            if process is not active and process not in self._asked:
                self._asked[process] = in_background(partial(self._ask, process), f"ask {process.name}")

    def end(self, active: Process | None) -> list[Process]:
        """Take the answers, and return the active nodes; `active` is already known to be one. If no node is active, a
        late node is waited for once. Raises `NobodyActive`."""
        self.begin(active)
        late = {
            reading.name: reading for reading in self.readings if reading.state in (NodeState.SICK, NodeState.UNKNOWN)
        }
        hurried = [work for process, work in self._asked.items() if active is None or process.name not in late]
        all_ended(hurried, SMALL_S if active is None else SOON_S)
        readings = {process: work.result() for process, work in self._asked.items() if work.wait(0)}
        if active is not None:
            readings[active] = replace(self._own[active].reading, name=active.name)
        self._asked = {process: work for process, work in self._asked.items() if process not in readings}
        self.readings = tuple(
            readings.get(process)
            or late.get(process.name)
            or NodeReading(process.name, NodeState.UNKNOWN, "it has not answered yet")
            for process in self.processes
        )
        turns = [process for process in readings if readings[process].state is NodeState.ACTIVE]
        turns.sort(key=self.processes.index)
        if not turns:
            self.last = None
            shown = all_inactive([reading.state for reading in self.readings])
            self.left_s = max(0.0, self.takeover_s - self.unserved.seconds(shown=shown))
            raise NobodyActive(self.name, self.readings, self.left_s)
        if self.last not in turns:
            self.last = turns[0]
        self.left_s = 0.0
        self.unserved.over()
        return turns

    def found(self, *, ask_again: bool = False) -> list[Process]:
        """Return the active nodes; with `ask_again`, known ones are asked too. Raises `NobodyActive`."""
        if self.last is not None and (self.has_one_node or not ask_again):
            active = [reading.name for reading in self.readings if reading.state is NodeState.ACTIVE]
            return [process for process in self.processes if process is self.last or process.name in active]
        return self.end(None)

    def post(self, process: Process, wire: Wire, bodies: Sequence[dict[str, Json]], timeout_s: float) -> list[Answer]:
        """Ask that node, as long as it is active; raise `Passive` where it is not."""
        if self.has_one_node:
            return wire.post(bodies, timeout_s)
        try:
            known = self._own.get(process)
            if known is not None and known.broker != self.broker:  # the beans have that node's name for the broker
                named = self._renaming(if_known(self.broker), known.broker)
                bodies = [{**body, "mbean": named(str(body["mbean"]))} for body in bodies]
            itself, *answers = wire.post([self.family.question.body(), *bodies], timeout_s)
            own = self._noted(process, itself)
            if own.reading.state is not NodeState.ACTIVE:
                raise Passive(f"{if_known(process.url)}: the node {process.name} is not active any more")
        except BrokerError:
            self.last = None
            raise
        return self._as_known(own, answers)

    def _as_known(self, own: NodeAnswer, answers: Sequence[Answer]) -> list[Answer]:
        """Return the answers with the broker's known name in the names of beans."""
        if own.broker == self.broker:
            return [*answers]
        named = self._renaming(own.broker, if_known(self.broker))

        def renamed(value: Any) -> Any:
            if isinstance(value, dict):
                return {named(key): part for key, part in value.items()}
            if isinstance(value, list):
                return [named(part) if isinstance(part, str) else part for part in value]
            return value

        return [answer if answer.error is not None else Answer(None, renamed(answer.value())) for answer in answers]

    def _renaming(self, old: str, new: str) -> Callable[[str], str]:
        part = re.compile(rf"(?<=[:,]){re.escape(self.family.part(old))}(?=,|$)")
        return lambda bean: part.sub(lambda _: self.family.part(new), bean)

    def _noted(self, process: Process, answer: Answer) -> NodeAnswer:
        own = self._own[process] = self.family.itself(answer)
        self.broker = self.broker or self._known_as(own.broker)
        if own.began_ms is not None and abs(own.began_ms - self._began_ms.get(process, 0)) > SAME_MS:
            self._began_ms[process] = own.began_ms
        return own

    def _known_as(self, name: str) -> str:
        """Return the broker's name at the node that was seen first; a file keeps it, because journals use that name."""
        if self.has_one_node or self.named is None:
            return name
        with suppress(OSError, UnicodeDecodeError):
            if self.named.exists():
                return self.named.read_text("utf-8") or name
            private(self.named.parent)
            write_text(self.named, name)
        return name

    def _ask(self, process: Process) -> NodeReading:
        try:
            if process not in self._wires:
                self._wires[process] = self.opened(process)
            [answer] = self._wires[process].post([self.family.question.body()], SMALL_S)
            return replace(self._noted(process, answer).reading, name=process.name)
        except BrokerError as error:
            refused = isinstance(error, Unreachable) and error.refused
            login_result = self.try_login(process, SMALL_S) if refused else None
            if login_result is not None and not isinstance(login_result, Closed):
                return NodeReading(process.name, NodeState.SICK, f"its console refuses, its listener does not: {error}")
            return NodeReading(process.name, state_of(error, refuses=True), str(error), shows_life=error.shows_life)


class GroupWire:
    """A connection to the active node, or to `every` active node for changes that must reach all of them."""

    def __init__(self, group: Group, *, every: bool = False) -> None:
        self._group, self._every = group, every
        self._wires: dict[Process, Wire] = {}

    @property
    def url(self) -> str:
        return self._group.current.url or ""

    @property
    def activation(self) -> str:
        return self._group.activation

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()

    def post(self, bodies: Sequence[dict[str, Json]], timeout_s: float) -> list[Answer]:
        """Return the answers; of several nodes, the first error for each request. Raises `BrokerError`."""
        active = self._group.found()
        if not self._every and self._group.last is not None:
            active = [self._group.last]
        several = []
        for process in active:
            if process not in self._wires:
                self._wires[process] = self._group.opened(process)
            several.append(self._group.post(process, self._wires[process], bodies, timeout_s))
        by_request = zip(*several, strict=True)
        return [next((answer for answer in row if answer.error is not None), row[0]) for row in by_request]
