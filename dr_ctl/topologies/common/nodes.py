"""What a broker's nodes make of it, and what speaks against a move: nodes that nobody named or that lag behind, and
obstacles to clients. Pure."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto

from dr_ctl.core.errors import BrokerError, Passive, Sick, TimedOut, Unreachable
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role, Severity, some
from dr_ctl.topologies.common.view import Broker
from dr_ctl.topologies.topology import Node, NodeReading, NodeState


class Standing(Enum):
    """A broker by its nodes."""

    ACTIVE = auto()
    TAKING_OVER = auto()
    DOWN = auto()
    SPLIT = auto()
    UNKNOWN = auto()


def standing(states: Sequence[NodeState], left_s: float) -> Standing:
    """`left_s`: how long it may still take until a node is active again. Nothing but the refusal of every node, and the
    end of that time, shows that a broker is down."""
    active = states.count(NodeState.ACTIVE)
    if active:
        return Standing.ACTIVE if active == 1 else Standing.SPLIT
    if left_s > 0 or NodeState.PASSIVE in states:
        return Standing.TAKING_OVER
    return Standing.DOWN if all(each is NodeState.REFUSES for each in states) else Standing.UNKNOWN


def is_told(states: Sequence[NodeState]) -> bool:
    """Say whether each node shows that it is not active."""
    return all(each in (NodeState.REFUSES, NodeState.PASSIVE) for each in states)


def state_of(error: BrokerError, *, refuses: bool) -> NodeState:
    """The state of a node that did not answer as asked. `refuses`: so does every other port of it that is known."""
    if isinstance(error, Unreachable) and error.refused and refuses:
        return NodeState.REFUSES
    if isinstance(error, Passive):
        return NodeState.PASSIVE
    return NodeState.SICK if isinstance(error, Sick | TimedOut) else NodeState.UNKNOWN


class NobodyActive(Unreachable):
    """No node of a broker is active: each is said with what it shows, and how long another one may take to be."""

    remedy = "Start one of its nodes, and look in their logs why none is active."

    def __init__(self, name: str, nodes: Sequence[NodeReading], left_s: float) -> None:
        states = [node.state for node in nodes]
        taking_over = standing(states, left_s) is Standing.TAKING_OVER
        left = f"within {left_s:.0f} s another one may be" if left_s else "a passive one may be at any moment"
        if left_s and not is_told(states):
            left = "another one may be at any moment: the time counts from when each says that it is not"
        text = f"no node of {name} is active: {', '.join(map(str, nodes))}"
        refused = all(each is NodeState.REFUSES for each in states)
        wait = "Wait until one is active, or that time is over: `dr-ctl status` says so." if taking_over else None
        super().__init__(f"{text}; {left}" if taking_over else text, refused=refused, remedy=wait)
        self.nodes, self.left_s, self.taking_over = tuple(nodes), left_s, taking_over
        self.shows_life = any(node.shows_life for node in nodes)


def unnamed_of(view: Broker, peer: Broker | None) -> tuple[Node, ...]:
    return tuple(view.unnamed) or (told_by(peer, view.site, len(view.nodes)) if peer is not None else ())


def told_by(peer: Broker, site: str, named: int) -> tuple[Node, ...]:
    """The nodes of a broker at which its peer's link looks for it, where they are more than the settings have `named`:
    which of them these are is not known."""
    at = peer.link.peer_nodes
    return (Node(site, peer.pair, " or ".join(at), f"by the link of {peer.site}"),) if len(at) > max(1, named) else ()


def of_nodes(view: Broker, peer: Broker | None, severity: Severity) -> Iterator[Finding]:
    """`severity` is of nodes that the settings do not name."""
    broker, by_state = f"{view.site}/{view.pair}", Counter(node.state for node in view.nodes)
    if by_state[NodeState.ACTIVE] > 1:
        yield found("DR-NODE-005", broker=broker, nodes=shown(view), site=view.site)
    if nodes := unnamed_of(view, peer):
        yield found("DR-NODE-001.several", severity=severity, nodes=some([str(node) for node in nodes]), site=view.site)
    for node in view.nodes:
        if node.state is NodeState.PASSIVE and node.in_sync is False:
            yield found("DR-NODE-006.not_in_sync", broker=broker, node=node.name)
        elif node.state is NodeState.PASSIVE and node.node != view.node:
            yield found("DR-NODE-006.stranger", broker=broker, node=node.name)
        elif node.state is NodeState.PASSIVE and node.version != view.version:
            yield found("DR-NODE-006.version", broker=broker, node=node.name, version=node.version, active=view.version)
    if view.nodes and peer is not None and len(peer.link.peer_nodes) == 1:
        yield found("DR-NODE-006.link", broker=broker, peer=peer.site, how=peer.link.adds_node)


def shown(view: Broker) -> str:
    return f"{view.site} {', '.join(map(str, view.nodes)) or 'has one node'}"


def of_silent_nodes(site: str, nodes: Sequence[Node]) -> Finding:
    """Of a broker that does not answer where the settings look for it."""
    return found("DR-NODE-001.silent", severity=Severity.WARNING, site=site, nodes=some([str(node) for node in nodes]))


def of_obstacles(
    view: Broker, severity: Severity, includes: Callable[[str], bool] = lambda _: True, *, unknown: bool = True
) -> Iterator[Finding]:
    """Everything of the kind, with what a broker cannot tell yet unless `unknown` is false; of addresses, only those
    that are included."""
    for obstacle in view.obstacles:
        if (obstacle.known or unknown) and (
            not obstacle.addresses or any(includes(name) for name in obstacle.addresses)
        ):
            key = "DR-LIMIT-001.serving" if view.role is Role.SERVING and not obstacle.addresses else "DR-LIMIT-001"
            yield found(
                key, remedy=obstacle.remedy, severity=severity, site=view.site, pair=view.pair, limit=obstacle.text
            )
