"""What one look at a broker told whose producers write to its peer too, and what follows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from dr_ctl.engine.debts import DebtKind
from dr_ctl.rpo.history.row import Row
from dr_ctl.topologies.classic.broker import ClassicBroker
from dr_ctl.topologies.common import seen
from dr_ctl.topologies.common.debts import debts_of
from dr_ctl.topologies.common.evidence import total
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.common.view import Acceptor, Config, Connection, Queue
from dr_ctl.topologies.topology import LinkSeen, Stake


@dataclass(frozen=True, slots=True)
class FanoutConfig(Config):
    """Beside what is said of any broker: the connectors of its producers, the one of dr-ctl's own, and the property by
    which producers name a message."""

    producers: tuple[str, ...] = ()
    own: str | None = None
    id_header: str = ""


@dataclass(frozen=True, slots=True)
class BrokerView(ClassicBroker):
    """One broker as it answered."""

    config: FanoutConfig

    @property
    def producers_doors(self) -> tuple[Acceptor, ...]:
        return tuple(each for each in self.acceptors if each.name in self.config.producers)

    @property
    def producers(self) -> list[Connection]:
        """Whoever is connected where producers are."""
        return [each for each in self.connections if each.protocol in self.config.producers]

    @property
    def mirror_doors(self) -> tuple[Acceptor, ...]:
        """Nothing comes from the peer."""
        return ()

    @property
    def attached(self) -> bool | None:
        """There is no link that could be."""
        return None

    @property
    def to_ship(self) -> int | None:
        """Nothing is shipped: what a site lacks it lacks, until a return copies it."""
        return 0

    @property
    def unapplied(self) -> int | None:
        return 0

    def unsettled(self) -> Iterator[str]:
        return iter(())

    @property
    def ships(self) -> Mapping[str, bool]:
        return {}

    @property
    def captures(self) -> bool:
        """The producers themselves write to the peer as soon as it takes them."""
        return True

    @property
    def counted(self) -> Iterable[Queue]:
        """By what left them: producers go on while clients are out, and what they add lies at both sites."""
        return [replace(each, depth=0, added=0) for each in self.business.values()]

    @property
    def other_doors(self) -> tuple[Acceptor, ...]:
        """Without the producers' and dr-ctl's own."""
        mine = {*self.config.clients, *self.config.producers, self.config.own}
        return tuple(each for each in self.acceptors if each.name not in mine)

    def strangers(self) -> list[str]:
        """Clients at connectors that a fence leaves open, and consumers among the producers."""
        others = {door.name for door in self.other_doors}
        told = [f"{_named(each)} on connector {each.protocol}" for each in self.connections if each.protocol in others]
        where = {each.client: each.protocol for each in self.producers}
        taking = [each for each in self.consumers if each.queue in self.business and each.client in where]
        return told + [f"consumer of {each.queue}: {each.told} on connector {where[each.client]}" for each in taking]

    # What commands and the history take from it.

    def linked(self, before: BrokerView | None, took_s: float) -> LinkSeen:
        del before, took_s
        doors = ", ".join(f"{each.name} {'open' if each.started else 'closed'}" for each in self.producers_doors)
        told = f"producers write to both sites: {len(self.producers)} connected here ({doors or 'no connector'})"
        return LinkSeen(
            self.site, self.pair, None, None, None, None, None, None, (told,), {"producers": len(self.producers)}
        )

    @property
    def alone(self) -> bool:
        """Whether its peer is known to lack what came since: it was lost, and was not taken in again."""
        return any(each.kind is DebtKind.QUARANTINE for each in debts_of(self.documents))

    def outflow_rows(self, peer: BrokerView | None, at: datetime) -> Iterator[Row]:
        """Of a site that serves: what its peer has not, and what its peer has although it was consumed here. Beside a
        peer that was not read, or that was not taken in again, all that lies here may lie here alone; figures of both
        states never make one rate, as those of two starts of a broker do not."""
        if not self.open:
            return
        for name, queue in self.business.items():
            if not queue.counted or queue.dead_letter_address is not None:
                continue
            row = replace(queue.row(self, at), kind="mirror", delivering=0)
            if peer is None or self.alone:
                yield replace(row, start=f"{self.start} alone")
                continue
            lacks, twice = _apart(queue, peer.named.get(name))
            if lacks is not None and twice is not None:
                yield replace(row, depth=lacks, added=0, removed=0)
                yield replace(row, kind="acks", depth=twice, added=queue.removed, removed=queue.removed - twice)
                yield replace(row, kind="staged", depth=queue.depth - lacks + twice)

    def stake(self, peer: BrokerView | None) -> Stake:
        told = {
            name: _apart(queue, peer.named.get(name) if peer is not None else None)
            for name, queue in self.business.items()
            if queue.dead_letter_address is None
        }
        lost, twice = (total(each[at] for each in told.values()) for at in (0, 1))
        known = {name: (lacks, again) for name, (lacks, again) in told.items() if lacks is not None}
        return Stake(lost, twice, known if len(known) == len(told) else None)

    @property
    def residue(self) -> Residue | None:
        """Which of it was consumed elsewhere is told by ids only, as the return does."""
        depths = [each.depth for each in self.business.values() if each.dead_letter_address is None and each.counted]
        return Residue(sum(depths), 0) if self.queues else None


def _apart(here: Queue, there: Queue | None) -> tuple[int | None, int | None]:
    """By count: how many the peer has not, and how many it has that are not here any more."""
    if not here.counted or (there is not None and not there.counted):
        return None, None
    more = here.depth - (there.depth if there is not None else 0)
    return max(0, more), max(0, -more)


def _named(client: Connection) -> str:
    return f"client {client.client or '(no client id)'} from {client.remote} (user {client.user or 'none'})"


FanoutSeen = seen.Seen[BrokerView]
