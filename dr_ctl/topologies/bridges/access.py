"""The way to each broker that diverts and bridges join, and a look at both sites, whose units are queues."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from dr_ctl.core.model import Finding
from dr_ctl.engine.ports import Move, UnitSeen
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.model import Installation
from dr_ctl.settings.topologies.artemis_bridges import BridgesBroker, BridgesIdStore
from dr_ctl.topologies.artemis import access
from dr_ctl.topologies.bridges import checks
from dr_ctl.topologies.bridges.look import glance, look
from dr_ctl.topologies.bridges.messages import Message, Origin, forwarded, unannounced, with_due
from dr_ctl.topologies.bridges.view import BrokerView, with_idle
from dr_ctl.topologies.common import observer, seen
from dr_ctl.topologies.common.access import READ_S
from dr_ctl.topologies.common.idstore import Store
from dr_ctl.topologies.common.seen import Seen, Silent
from dr_ctl.topologies.common.view import Config


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


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles that a fence keeps out. The addresses are found at run time: a fence is for the queues that move."""

    roles: Sequence[str]
    matches: Sequence[str] = ()


class Access(access.Access[BrokerView]):
    fenced_by_door = False

    def _config(self) -> Config:
        fence = self._installation.broker(self.site, self.pair, BridgesBroker).lasting_fence
        return replace(super()._config(), lasting=Roles(fence.roles) if fence is not None else None)

    def processed(self, queue: str, messages: Sequence[Message]) -> frozenset[Origin] | None:
        """The names of those that the id store of the site knows; None where the settings name no store. Raises
        `NotRead`."""
        settings, store = self.id_settings, self.ids
        if settings is None or store is None:
            return None
        ids = {each.id(settings.header): each.name for each in messages}
        return frozenset(ids[each] for each in store.known(queue, ids))

    @property
    def id_settings(self) -> BridgesIdStore | None:
        return self._installation.broker(self.site, self.pair, BridgesBroker).ids

    @property
    def ids(self) -> Store | None:
        """The id store of the site, if the settings name it."""
        settings = self.id_settings
        return (
            Store(self._installation.path(settings.sqlite), settings.table, settings.queue, settings.id)
            if settings is not None
            else None
        )

    def _ask(self, broker: str, timeout_s: float) -> BrokerView:
        return look(
            self.reader(), pair=self.pair, site=self.site, config=self.config, broker=broker, timeout_s=timeout_s
        )

    def glance(self, *, timeout_s: float = READ_S) -> BrokerView:
        return glance(self.reader(), self.names(), timeout_s=timeout_s)

    def open_doors(self, *, timeout_s: float) -> tuple[str, ...]:
        """The acceptors through which clients of an open queue come."""
        view = self.look(timeout_s=timeout_s)
        return tuple(door.name for door in view.doors if door.started) if view.open else ()

    def uncovered(self) -> list[str]:
        return []


Way = tuple[Access, Access]


class Observer(observer.Observer[BrokerView, Access]):
    """Looks at both sites of such an installation."""

    def observe(self, *, least_s: float = 0.0) -> Seen[BrokerView]:
        """Beside it, what clients forward with another site's origin, and when delayed messages are due. That takes a
        moment: no wait asks for it."""
        seen = super().observe(least_s=least_s)
        owed = {debt.about for debt in seen.debts}
        return replace(
            seen, sites={site: self._read(brokers, returned=site in owed) for site, brokers in seen.sites.items()}
        )

    def _read(self, brokers: Mapping[str, BrokerView | Silent], *, returned: bool) -> Mapping[str, BrokerView | Silent]:
        found = {**brokers}
        for pair, view in brokers.items():
            if isinstance(view, BrokerView):
                access = self.brokers[view.site][pair]
                reader = access.reader()
                read = replace(with_due(reader, view), forwarded=forwarded(reader, view))
                if returned:
                    header = access.id_settings.header if access.id_settings is not None else ""
                    read = replace(read, unannounced=unannounced(reader, read, access.ids, header))
                found[pair] = read
        return found

    def ways(self, move: Move) -> Sequence[Way]:
        there = self.brokers[move.target]
        return [(here, there[pair]) for pair, here in self.brokers[move.source].items()]

    def _access(self, installation: Installation, site: str, pair: str) -> Access:
        return Access(installation, site, pair)

    def _seen(self, sites: Mapping[str, Mapping[str, BrokerView | Silent]]) -> Seen[BrokerView]:
        return BridgesSeen(with_idle(sites))
