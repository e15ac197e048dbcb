"""A broker whose producers write to its peer too, as one look has shown it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dr_ctl.engine.debts import DebtKind
from dr_ctl.topologies.classic.broker import ClassicBroker
from dr_ctl.topologies.common import seen
from dr_ctl.topologies.common.debts import debts_of
from dr_ctl.topologies.common.view import Acceptor, Connection
from dr_ctl.topologies.fanout.counting import Counted
from dr_ctl.topologies.fanout.fence import BesideProducers
from dr_ctl.topologies.fanout.link import FanoutLink


@dataclass(frozen=True, slots=True)
class FanoutConfig:
    """Beside the settings of any broker: the connectors of its producers, the one of dr-ctl's own, the property by
    which producers name a message, whether the settings name the consumers' store of ids, and why that was not read."""

    producers: tuple[str, ...] = ()
    connector: str | None = None
    id_header: str = ""
    stored: bool = False
    unread: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerView(ClassicBroker):
    """`counted`: the counters of this broker and its peer as they were read together, of queues that do not hold the
    same at both."""

    own: FanoutConfig = field(kw_only=True)
    counted: Mapping[str, Counted] = field(default_factory=dict, kw_only=True)

    @property
    def link(self) -> FanoutLink:
        return FanoutLink(self)

    @property
    def fence(self) -> BesideProducers:
        return BesideProducers(self)

    @property
    def producers_doors(self) -> tuple[Acceptor, ...]:
        return tuple(each for each in self.acceptors if each.name in self.own.producers)

    @property
    def producers(self) -> list[Connection]:
        """The connections at the producers' connectors."""
        return [each for each in self.connections if each.protocol in self.own.producers]

    @property
    def tells_done(self) -> bool:
        """Say whether the consumers' store of ids was read."""
        return self.own.stored and self.own.unread is None

    @property
    def alone(self) -> bool:
        """True if the peer is known to lack newer messages: the peer was lost, and not taken in again."""
        return any(each.kind is DebtKind.QUARANTINE for each in debts_of(self.documents))


FanoutSeen = seen.Seen[BrokerView]
