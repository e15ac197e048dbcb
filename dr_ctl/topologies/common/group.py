"""A group is the nodes of one broker. Every reading asks all nodes for their state, and a reading, a change or a test
login goes to the active node. The only process of a broker is not asked and counts as active.

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


def state_of(error: BrokerError, *, ports_refuse: bool) -> NodeState:
    """Return the state of a node that did not answer. `refuses` says that its other known ports refuse."""
    if isinstance(error, Unreachable) and error.refused and ports_refuse:
        return NodeState.REFUSES
    if isinstance(error, Passive):
        return NodeState.PASSIVE
    return NodeState.SICK if isinstance(error, Sick | TimedOut) else NodeState.UNKNOWN


class NobodyActive(Unreachable):
    """No node of a broker is active. The text has each node's state, and how long a takeover may still take."""

    remedy = "Start one of its nodes, and look in their logs why none is active."

    def __init__(self, name: str, nodes: Sequence[NodeReading], left_s: float) -> None:
        states = [node.state for node in nodes]
        taking_over = may_take_over(states, left_s)
        left = f"within {left_s:.0f} s another one may become active" if left_s else "a passive one may become active"
        if left_s and not all_inactive(states):
            left = "another one may become active: the time counts from when every node reports that it is not active"
        text = f"no node of {name} is active: {', '.join(map(str, nodes))}"
        refused = all(state is NodeState.REFUSES for state in states)
        wait = "Wait until a node is active, or that time is over: `dr-ctl status` shows it." if taking_over else None
        super().__init__(f"{text}; {left}" if taking_over else text, refused=refused, remedy=wait)
        self.nodes, self.left_s, self.taking_over = tuple(nodes), left_s, taking_over
        self.shows_life = any(node.shows_life for node in nodes)


def unnamed_nodes(view: Broker, peer: Broker | None) -> tuple[Node, ...]:
    return tuple(view.unnamed) or (nodes_in_link(peer, view.site, len(view.nodes)) if peer is not None else ())


def nodes_in_link(peer: Broker, site: str, named_count: int) -> tuple[Node, ...]:
    """Return one unnamed node with all addresses to which the peer's link may connect, if these are more than the nodes
    that the settings name: which address belongs to which node is unknown."""
    addresses = peer.link.peer_nodes
    if len(addresses) <= max(1, named_count):
        return ()
    return (Node(site, peer.pair, " or ".join(addresses), f"by the link of {peer.site}"),)


def node_findings(view: Broker, peer: Broker | None, severity: Severity) -> Iterator[Finding]:
    """Find faults of a broker's nodes. `severity` is that of nodes which the settings do not name."""
    by_state = Counter(node.state for node in view.nodes)
    if by_state[NodeState.ACTIVE] > 1:
        yield found("DR-NODE-005", broker=view, nodes=node_states(view), site=view.site)
    if nodes := unnamed_nodes(view, peer):
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


def node_states(view: Broker) -> str:
    return f"{view.site} {', '.join(map(str, view.nodes)) or 'has one node'}"


def obstacle_findings(
    view: Broker, severity: Severity, includes: Callable[[str], bool] = lambda _: True, *, unknown: bool = True
) -> Iterator[Finding]:
    """Report a broker's obstacles, at included addresses only; without `unknown`, only those that are certain."""
    for obstacle in view.obstacles:
        addresses, site, pair, remedy = obstacle.addresses, view.site, view.pair, obstacle.remedy
        if (obstacle.known or unknown) and (not addresses or any(map(includes, addresses))):
            key = "DR-LIMIT-001.serving" if view.role is Role.SERVING and not addresses else "DR-LIMIT-001"
            yield found(key, remedy=remedy, severity=severity, site=site, pair=pair, limit=obstacle.text)


NODE_TIMEOUT_S: Final = 2.0
"""The time limit for a node's state. While the active node answers, nothing waits for a node that was late before."""
LATE_NODE_TIMEOUT_S: Final = 0.5
START_TOLERANCE_MS: Final = 1000
START_ROUNDING_MS: Final = 10_000
_MAX_GAP_S: Final = 600.0
_RECORD_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """A node's answer: its own name for the broker, and its `reading`, still without the node's name. `began_ms` is
    when the broker started, where a process may start it again."""

    broker: str
    reading: NodeReading
    began_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """How a node's state is read in a family of brokers. `parse` parses the answer to `read` and may raise
    `BrokerError`. `name_part` makes the part of a bean's name that has the broker's name."""

    read: Read
    parse: Callable[[Answer], NodeAnswer]
    name_part: Callable[[str], str]


@dataclass(eq=False)
class Process:
    """A process of a broker, which is `node` of the settings where they name several."""

    name: str
    url: str | None
    stomp: str | None
    node: settings.Node | None = None


class InactivityRecord:
    """A file that tells the next command since when no node is active: it has the times of the first reading without an
    active node, of the first in which every node reported that it is not active, and of the last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._recorded: tuple[float, float, float] | None = None

    def seconds(self, *, all_inactive: bool) -> float:
        """Record a reading without an active node, and return how long none has been active."""
        now = system().now().timestamp()
        since, certain_since, last = self._recorded or self._read() or (now, now, now)
        if not 0 <= now - last <= _MAX_GAP_S:
            since = certain_since = now
        certain_since = certain_since if all_inactive else now
        if self._recorded is None or now - self._recorded[2] >= _RECORD_EVERY_S or not all_inactive:
            self._recorded = since, certain_since, now
            with suppress(OSError):  # without the file the next command begins to count anew
                private(self._path.parent)
                write_text(self._path, json.dumps(self._recorded))
        return now - (certain_since if all_inactive else since)

    def clear(self) -> None:
        self._recorded = None
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _read(self) -> tuple[float, float, float] | None:
        try:
            since, certain_since, last = map(float, json.loads(self._path.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return since, certain_since, last


@dataclass(eq=False)
class Group:
    """The processes of one broker. `last_active` is the node that the newest reading showed to be active. `try_login`
    logs in as a client at a process's listener; None if the settings name no listener."""

    name: str
    processes: Sequence[Process]
    connect: Callable[[Process], Wire]
    try_login: Callable[[Process, float], LoginResult | None]
    family: Family
    takeover_s: float
    inactivity: InactivityRecord
    name_file: Path | None = None

    def __post_init__(self) -> None:
        self.takeover_s = self.takeover_s if len(self.processes) > 1 else 0.0
        self.last_active: Process | None = self.processes[0] if len(self.processes) == 1 else None
        self.readings: tuple[NodeReading, ...] = ()
        self.left_s = 0.0
        # Each node may have its own name for the broker: this is the name that dr-ctl uses.
        self.broker: str | None = None
        self._answers: dict[Process, NodeAnswer] = {}
        self._began_ms: dict[Process, int] = {}
        self._wires: dict[Process, Wire] = {}
        self._tasks: dict[Process, BackgroundTask[NodeReading]] = {}

    @property
    def has_one_node(self) -> bool:
        return len(self.processes) == 1

    @property
    def current(self) -> Process:
        """The active node, or the first node while none is known to be active."""
        return self.last_active or self.processes[0]

    @property
    def activation(self) -> str:
        """Identify this activation of a node; the start of its process is added elsewhere."""
        if self.has_one_node or self.last_active is None:
            return ""
        return f"{self.last_active.name}/{self._began_ms.get(self.last_active, 0) // START_ROUNDING_MS}/"

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()

    def ask_nodes(self, active: Process | None) -> None:
        for process in self.processes:
            if process is not active and process not in self._tasks:
                self._tasks[process] = in_background(partial(self._ask, process), f"ask {process.name}")

    def collect_answers(self, active: Process | None) -> list[Process]:
        """Collect the answers, and return the active nodes; `active` is known to be one. If no node is active, wait
        once for late nodes. Raises `NobodyActive`."""
        self.ask_nodes(active)
        late_readings = {
            reading.name: reading for reading in self.readings if reading.state in (NodeState.SICK, NodeState.UNKNOWN)
        }
        awaited = [task for process, task in self._tasks.items() if active is None or process.name not in late_readings]
        all_ended(awaited, NODE_TIMEOUT_S if active is None else LATE_NODE_TIMEOUT_S)
        readings = {process: work.result() for process, work in self._tasks.items() if work.wait(0)}
        if active is not None:
            readings[active] = replace(self._answers[active].reading, name=active.name)
        self._tasks = {process: work for process, work in self._tasks.items() if process not in readings}
        self.readings = tuple(
            readings.get(process)
            or late_readings.get(process.name)
            or NodeReading(process.name, NodeState.UNKNOWN, "it has not answered yet")
            for process in self.processes
        )
        active_nodes = [process for process in readings if readings[process].state is NodeState.ACTIVE]
        active_nodes.sort(key=self.processes.index)
        if not active_nodes:
            self.last_active = None
            is_certain = all_inactive([reading.state for reading in self.readings])
            self.left_s = max(0.0, self.takeover_s - self.inactivity.seconds(all_inactive=is_certain))
            raise NobodyActive(self.name, self.readings, self.left_s)
        if self.last_active not in active_nodes:
            self.last_active = active_nodes[0]
        self.left_s = 0.0
        self.inactivity.clear()
        return active_nodes

    def active_nodes(self, *, ask_again: bool = False) -> list[Process]:
        """Return the active nodes; `ask_again` asks known ones too. Raises `NobodyActive`."""
        if self.last_active is not None and (self.has_one_node or not ask_again):
            active = [reading.name for reading in self.readings if reading.state is NodeState.ACTIVE]
            return [process for process in self.processes if process is self.last_active or process.name in active]
        return self.collect_answers(None)

    def post(self, process: Process, wire: Wire, bodies: Sequence[dict[str, Json]], timeout_s: float) -> list[Answer]:
        """Send requests to a node together with the question for its state. Raises `Passive` if it is not active."""
        if self.has_one_node:
            return wire.post(bodies, timeout_s)
        try:
            known = self._answers.get(process)
            if known is not None and known.broker != self.broker:  # that node's beans have its own name for the broker
                rename = self._bean_renamer(if_known(self.broker), known.broker)
                bodies = [{**body, "mbean": rename(str(body["mbean"]))} for body in bodies]
            node_answer, *answers = wire.post([self.family.read.body(), *bodies], timeout_s)
            node = self._parse(process, node_answer)
            if node.reading.state is not NodeState.ACTIVE:
                raise Passive(f"{if_known(process.url)}: the node {process.name} is not active any more")
        except BrokerError:
            self.last_active = None
            raise
        return self._with_known_name(node, answers)

    def _with_known_name(self, node: NodeAnswer, answers: Sequence[Answer]) -> list[Answer]:
        """Return the answers with the broker's known name in the names of beans."""
        if node.broker == self.broker:
            return [*answers]
        rename = self._bean_renamer(node.broker, if_known(self.broker))

        def renamed(value: Any) -> Any:
            if isinstance(value, dict):
                return {rename(key): part for key, part in value.items()}
            if isinstance(value, list):
                return [rename(part) if isinstance(part, str) else part for part in value]
            return value

        return [answer if answer.error is not None else Answer(None, renamed(answer.value())) for answer in answers]

    def _bean_renamer(self, old: str, new: str) -> Callable[[str], str]:
        part = re.compile(rf"(?<=[:,]){re.escape(self.family.name_part(old))}(?=,|$)")
        return lambda bean: part.sub(lambda _: self.family.name_part(new), bean)

    def _parse(self, process: Process, answer: Answer) -> NodeAnswer:
        node = self._answers[process] = self.family.parse(answer)
        self.broker = self.broker or self._known_name(node.broker)
        if node.began_ms is not None and abs(node.began_ms - self._began_ms.get(process, 0)) > START_TOLERANCE_MS:
            self._began_ms[process] = node.began_ms
        return node

    def _known_name(self, name: str) -> str:
        """Return the broker's name at the node that was read first; a file keeps it, because journals use that name."""
        if self.has_one_node or self.name_file is None:
            return name
        with suppress(OSError, UnicodeDecodeError):
            if self.name_file.exists():
                return self.name_file.read_text("utf-8") or name
            private(self.name_file.parent)
            write_text(self.name_file, name)
        return name

    def _ask(self, process: Process) -> NodeReading:
        try:
            if process not in self._wires:
                self._wires[process] = self.connect(process)
            [answer] = self._wires[process].post([self.family.read.body()], NODE_TIMEOUT_S)
            return replace(self._parse(process, answer).reading, name=process.name)
        except BrokerError as error:
            refused = isinstance(error, Unreachable) and error.refused
            login_result = self.try_login(process, NODE_TIMEOUT_S) if refused else None
            if login_result is not None and not isinstance(login_result, Closed):
                return NodeReading(process.name, NodeState.SICK, f"its console refuses, its listener does not: {error}")
            state = state_of(error, ports_refuse=True)
            return NodeReading(process.name, state, str(error), shows_life=error.shows_life)


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
        active = self._group.active_nodes()
        if not self._every and self._group.last_active is not None:
            active = [self._group.last_active]
        by_node = []
        for process in active:
            if process not in self._wires:
                self._wires[process] = self._group.connect(process)
            by_node.append(self._group.post(process, self._wires[process], bodies, timeout_s))
        by_request = zip(*by_node, strict=True)
        return [next((answer for answer in row if answer.error is not None), row[0]) for row in by_request]
