"""What a broker tells of itself that speaks against a move: nodes that are not named, and obstacles to clients. Pure.

Until the settings can name them, a broker with several nodes is moved by nobody: which of them is the broker changes
without a word, and opens what was closed.
"""

from collections.abc import Callable, Iterator, Sequence

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role, Severity, some
from dr_ctl.topologies.common.view import Broker
from dr_ctl.topologies.topology import Node


def nodes_of(view: Broker, peer: Broker | None) -> tuple[Node, ...]:
    return tuple(view.nodes) or (told_by(peer, view.site) if peer is not None else ())


def told_by(peer: Broker, site: str) -> tuple[Node, ...]:
    """The nodes of a broker at which its peer's link looks for it: which of them the settings name is not known."""
    at = peer.link.peer_nodes
    return (Node(site, peer.pair, " or ".join(at), f"by the link of {peer.site}"),) if at else ()


def of_nodes(view: Broker, peer: Broker | None, severity: Severity) -> Iterator[Finding]:
    if nodes := nodes_of(view, peer):
        yield found("DR-NODE-001.several", severity=severity, nodes=some([str(each) for each in nodes]), site=view.site)


def of_silent_nodes(site: str, nodes: Sequence[Node]) -> Finding:
    """Of a broker that does not answer where the settings look for it."""
    return found("DR-NODE-001.silent", severity=Severity.WARNING, site=site, nodes=some([str(each) for each in nodes]))


def of_obstacles(
    view: Broker, severity: Severity, includes: Callable[[str], bool] = lambda _: True, *, unknown: bool = True
) -> Iterator[Finding]:
    """Everything of the kind, with what a broker cannot tell yet unless `unknown` is false; of addresses, only those
    that are included."""
    for each in view.obstacles:
        if (each.known or unknown) and (not each.addresses or any(includes(name) for name in each.addresses)):
            key = "DR-LIMIT-001.serving" if view.role is Role.SERVING and not each.addresses else "DR-LIMIT-001"
            yield found(key, remedy=each.remedy, severity=severity, site=view.site, pair=view.pair, limit=each.text)
