"""A look at both sites of an installation that diverts and bridges join: its units are queues."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from dr_ctl.core.model import Finding
from dr_ctl.engine.ports import UnitSeen
from dr_ctl.rpo.history.row import Row
from dr_ctl.topologies.bridges import checks
from dr_ctl.topologies.bridges.view import BrokerView
from dr_ctl.topologies.common import seen


@dataclass(frozen=True)
class BridgesSeen(seen.Seen[BrokerView]):
    """A look at both sites; an address moves with its queues."""

    @property
    def units(self) -> Sequence[UnitSeen]:
        names = sorted({flow.unit for site in self.sites for view in self.views(site) for flow in view.flows})
        brokers = {site: list(mine.values()) for site, mine in self.sites.items()}
        return [self.unit(name, brokers) for name in names]

    def findings(self) -> Sequence[Finding]:
        ways = (each for view in self._all() for each in checks.of_ways(view, self.peer(view)))
        return [*seen.Seen.findings(self), *ways, *self._paused_copies()]

    def _paused_copies(self) -> Iterator[Finding]:
        for view in self._all():
            peer = self.peer(view)
            for flow in view.flows if peer is not None else ():
                yield from checks.of_paused_copy(flow.unit, view, peer)

    def rows(self, at: datetime) -> Sequence[Row]:
        """Without dead letters and what has expired: no divert copies these, and a failover brings none of them."""
        ends = {(view.site, view.pair): _ends(view) for view in self._all()}
        rows = seen.Seen.rows(self, at)
        return [row for row in rows if row.kind != "queue" or row.name not in ends[row.site, row.pair or ""]]


def _ends(view: BrokerView) -> set[str]:
    """The queues where the broker puts what failed or expired."""
    to = {each for queue in view.queues for each in (queue.dead_letter_address, queue.expiry_address) if each}
    return {queue.name for queue in view.queues if queue.address in to and view.flow(queue.address) is None}
