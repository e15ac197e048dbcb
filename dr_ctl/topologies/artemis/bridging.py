"""What core bridges show: the nodes of a peer, and who at a door is one of them. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from dr_ctl.topologies.common.link import AnyLink
from dr_ctl.topologies.common.view import Connection


def nodes(bridges: Iterable[Sequence[str]]) -> Sequence[str]:
    """Where bridges look for their peer, where one has several connectors: the connectors of each are given."""
    found = [f"connector {name}" for connectors in bridges if len(connectors) > 1 for name in connectors]
    return [*dict.fromkeys(found)]


def others(there: Iterable[Connection], peer: AnyLink | None) -> list[Connection]:
    """The connections that are none of the bridges: these speak CORE, all with one user, one connection each. Of one
    that has no session yet nothing is known. Connections of that user above the number of the bridges may be of the
    peer's earlier start, which a broker lists for up to a minute."""
    doing = [each for each in there if each.user]
    users = Counter(each.user for each in doing if each.protocol == "CORE")
    bridges = sum(peer.ships.values()) if peer is not None else None
    user = _nearest(users, bridges)
    return [each for each in doing if each.protocol != "CORE" or each.user != user]


def _nearest(users: Mapping[str, int], bridges: int | None) -> str | None:
    """The user with as many connections as there are bridges, or nearly; the one with the most where that is not
    known."""
    if bridges is None:
        return max(users, key=lambda user: users[user], default=None)
    return min(users, key=lambda user: abs(users[user] - bridges), default=None)
