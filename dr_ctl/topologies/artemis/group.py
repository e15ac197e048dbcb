"""What a broker shows of other processes beside it: the nodes of which one at a time is the broker, and the brokers
that its site joins with it in a cluster."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dr_ctl.core.errors import Between, Passive
from dr_ctl.jolokia.client import Answer
from dr_ctl.jolokia.errors import BadValue, OperationFailed, PolicyRefused
from dr_ctl.jolokia.values import Fields

SERVER: Final = ("HAPolicy", "SharedStore", "Backup")
"""Read with each look at the broker; an old version lacks the first one."""
_ALONE: Final = ("Primary Only", "Live Only")


@dataclass(frozen=True, slots=True)
class Group:
    """`policy` is the broker's HA policy in its own words, None where it tells none; `at` is the address at which its
    nodes and its cluster come in, as host and port, None without any. `nodes` are the addresses of its other nodes,
    `cluster` those of the other brokers of its cluster."""

    policy: str | None = None
    shares_store: bool = False
    at: str | None = None
    nodes: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()

    @property
    def has_nodes(self) -> bool:
        """Say whether another node is there, or may be: where the policy is for several."""
        return bool(self.nodes) or (self.policy is not None and self.policy not in _ALONE)

    @property
    def replicates(self) -> bool:
        """Say whether a node keeps a copy of the store, which it gets from the active one."""
        return self.has_nodes and not self.shares_store

    @property
    def port(self) -> int | None:
        port = (self.at or "").rpartition(":")[2]
        return int(port) if port.isdecimal() else None


ALONE: Final = Group()


def read(url: str, server: Fields, node: str, topology: Answer, *, active: bool = True) -> Group:
    """Make it of the broker's attributes and of its listing of the cluster, where a console lets that be asked. Raises
    `Passive` of a node that waits, `Between` of a broker that is starting, and `BadValue`. `active`: what it says of
    that; the oldest versions say only whether it is a backup that waits."""
    rows = [] if isinstance(topology.error, OperationFailed | PolicyRefused) else _rows(topology)
    own = next((row for row in rows if row.get("nodeID") == node), {})
    found = Group(
        policy=server.optional_text("HAPolicy") if server.has("HAPolicy") else None,
        shares_store=server.flag("SharedStore"),
        at=own.get("live"),
        nodes=(own["backup"],) if own.get("backup") else (),
        cluster=tuple(sorted(row["live"] for row in rows if row is not own and row.get("live"))),
    )
    waits = server.flag("Backup")
    if active and not waits:
        return found
    if not (waits or found.has_nodes):
        raise Between(f"{url}: the broker there is not active: it is starting, or ending")
    at = tuple(filter(None, (found.at, *found.nodes)))
    where = f" ({' and '.join(at)})" if at else ""
    text = f"{url}: the node there is passive: another node of that broker{where} is active, or none is"
    raise Passive(text, at=at)


def must_be_active(url: str, known: Group, server: Fields) -> None:
    """Raise `Passive` or `Between` where the node of an earlier look is not active any more."""
    if not server.flag("Active"):
        error = Passive if known.has_nodes else Between
        raise error(f"{url}: the node there is not active any more")


def _rows(topology: Answer) -> list[Mapping[str, Any]]:
    rows = json.loads(str(topology.value()))
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadValue("the listing of the cluster is no list")
    return rows
