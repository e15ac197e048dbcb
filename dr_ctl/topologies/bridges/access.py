"""The way to each broker of an installation that diverts and bridges join."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dr_ctl.engine.ports import Move
from dr_ctl.settings.model import Installation
from dr_ctl.settings.topologies.artemis_bridges import BridgesBroker, BridgesIdStore
from dr_ctl.topologies.artemis import access
from dr_ctl.topologies.bridges.delayed import with_due
from dr_ctl.topologies.bridges.forwarded import forwarded
from dr_ctl.topologies.bridges.look import glance, look
from dr_ctl.topologies.bridges.messages import Message, Origin
from dr_ctl.topologies.bridges.seen import BridgesSeen
from dr_ctl.topologies.bridges.unannounced import unannounced
from dr_ctl.topologies.bridges.view import BrokerView, with_idle
from dr_ctl.topologies.common import observer
from dr_ctl.topologies.common.access import READ_S
from dr_ctl.topologies.common.idstore import Store
from dr_ctl.topologies.common.seen import Seen, Silent
from dr_ctl.topologies.common.view import Config


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
