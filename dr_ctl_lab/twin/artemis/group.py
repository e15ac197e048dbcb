"""What a broker shows of other processes beside it, as a test sets it: other nodes, and brokers of its site's cluster.

Nothing of it is simulated: a node beside the broker is an address and a policy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dr_ctl_lab.twin.parts import Acceptor

ALONE: Final = "Primary Only"


@dataclass(frozen=True, slots=True)
class Guest:
    """A connection that no client of the twin's holds: by which listener it came, its protocol, user and client id, and
    the queue that it consumes."""

    listener: str
    protocol: str
    user: str = ""
    client: str = ""
    consumes: str = ""
    remote: str = "10.9.8.7:40123"


@dataclass
class Group:
    """`policy` is the HA policy; `listener` is the acceptor that the broker's own connector names; `backup` is the
    address of a passive node's, `cluster` those of the other brokers by their node id. A console that is `passive`
    answers as a passive node's: its broker is another one."""

    policy: str = ALONE
    shares_store: bool = False
    listener: str = ""
    backup: str = ""
    cluster: dict[str, str] = field(default_factory=dict)
    passive: bool = False

    def topology(self, node: str, acceptors: Mapping[str, Acceptor]) -> list[dict[str, Any]]:
        """The rows of the listing; none where the broker is in no cluster."""
        if not self.listener:
            return []
        at = f"127.0.0.1:{acceptors[self.listener].port}"
        own = {"nodeID": node, "live": at, "primary": at, **({"backup": self.backup} if self.backup else {})}
        return [own, *({"nodeID": each, "live": at, "primary": at} for each, at in self.cluster.items())]
