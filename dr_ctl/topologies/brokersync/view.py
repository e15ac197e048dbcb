"""A broker of a BrokerSync pair as one look has shown it, with its copy queues and its network connector."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dr_ctl.topologies.brokersync.link import SyncLink
from dr_ctl.topologies.classic.broker import ClassicBroker, Network
from dr_ctl.topologies.common import seen
from dr_ctl.topologies.common.view import Queue

QUEUE = "{queue}"
AGENT = "dr-ctl-sync-"  # how the client ids of the agent begin


@dataclass(frozen=True, slots=True)
class SyncConfig:
    """Beside the settings of any broker: how its copy queues and those of its peer are named, and by which connector
    the agent comes."""

    copies: str = QUEUE
    arrives: str = QUEUE
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerView(ClassicBroker):
    """A broker as it answered. `copying` gives by a queue's name the queue that holds its copies until they are
    shipped. `consumed` counts messages of a queue that clients consumed here since the start and whose copies are not
    deleted yet. `held` says who lets no copy be deleted."""

    own: SyncConfig = field(kw_only=True)
    copying: Mapping[str, Queue] = field(default_factory=dict, kw_only=True)
    consumed: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    held: str | None = field(default=None, kw_only=True)

    @property
    def link(self) -> SyncLink:
        return SyncLink(self)

    def arrives_by(self, queue: str) -> str:
        """The name by which the peer's copies of a queue arrive."""
        return self.own.arrives.replace(QUEUE, queue)

    @property
    def network(self) -> Network | None:
        """The network connector to the peer, as set or the only one."""
        if self.config.link is not None:
            return next((each for each in self.networks if each.name == self.config.link), None)
        return self.networks[0] if len(self.networks) == 1 else None

    def why_kept(self, queue: str, copies: int) -> str | None:
        """Say why so many copies without a message here may not be removed at the peer, or None if they may."""
        if self.held is not None:
            return f"nothing may be deleted: held by {self.held}"
        if (consumed := self.consumed.get(queue, 0)) < copies:
            return f"clients of {self.site} consumed at most {consumed} since its broker started"
        return None


SyncSeen = seen.Seen[BrokerView]
