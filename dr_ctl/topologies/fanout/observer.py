"""Looks at both sites of a fan-out installation, and at what tells which messages were consumed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from dr_ctl.core.clock import Clock
from dr_ctl.core.errors import BrokerError
from dr_ctl.core.patience import Patience
from dr_ctl.settings.model import Installation, Queues
from dr_ctl.topologies.common import observer
from dr_ctl.topologies.common.seen import Seen, Silent
from dr_ctl.topologies.fanout import parity
from dr_ctl.topologies.fanout.access import Access, ids_of
from dr_ctl.topologies.fanout.counting import Counted, Counters
from dr_ctl.topologies.fanout.ids import kept, listed_to_the_end
from dr_ctl.topologies.fanout.look import counters
from dr_ctl.topologies.fanout.view import BrokerView

READINGS: Final = 15  # of counters, where messages come all the time
RESTS: Final = 3
LISTED_UP_TO: Final = 1000
Reading = tuple[Sequence[Counters], Sequence[Counters]]
"""The counters of several queues at the first site, and at the second."""


class Observer(observer.Observer[BrokerView, Access]):
    def __init__(self, installation: Installation, clock: Clock, patience: Patience, documents: Path) -> None:
        self.store = ids_of(installation)
        super().__init__(installation, clock, patience, documents)

    def _access(self, installation: Installation, site: str, pair: str) -> Access:
        return Access(installation, site, pair, self.documents, self.clock)

    def _unlike(self, source: BrokerView, target: BrokerView, moved: Mapping[str, int]) -> bool:
        return source.open and bool(parity.lacking(source, target, self.queues, moved))

    def observe(self, *, least_s: float = 0.0) -> Seen[BrokerView]:
        """Look, and read the counters of queues that do not hold the same several times: what is on its way to one of
        the sites differs each time, and a message that came to one site alone does not."""
        seen = super().observe(least_s=least_s)
        if self.store is not None:
            return seen
        sites: dict[str, dict[str, BrokerView | Silent]] = {site: {**views} for site, views in seen.sites.items()}
        for way in zip(*(brokers.values() for brokers in self.brokers.values()), strict=True):
            here, there = (seen.view(access.site, access.pair) for access in way)
            if here is not None and there is not None:
                counted = self._counted(way, here, there)
                for view in (here, there):
                    sites[view.site][view.pair] = replace(view, counted=counted)
        return replace(seen, sites=sites)

    def _counted(self, way: tuple[Access, ...], here: BrokerView, there: BrokerView) -> Mapping[str, Counted]:
        names = [each.queue for each in parity.counts(here, there, Queues()) if each.source != each.target]
        try:
            now = self._read(way, here, there, names)
            if apart := [name for name, each in now.items() if not _level(way, name, each)]:
                self.clock.sleep(self.patience.apart_s)  # a message may have been on its way all that time
                now |= self._read(way, here, there, apart)
        except BrokerError:
            return {}  # it has just answered: what its counters say now the next look tells
        return {name: self._listed(way, name, each) for name, each in now.items()}

    def _read(
        self, way: tuple[Access, ...], here: BrokerView, there: BrokerView, names: Sequence[str]
    ) -> dict[str, Counted]:
        began = self.clock.monotonic()
        readings = self._readings(way, names)
        took_s = self.clock.monotonic() - began
        return {
            name: parity.counted(here, there, [(one[at], other[at]) for one, other in readings], took_s)
            for at, name in enumerate(names)
        }

    def _readings(self, way: tuple[Access, ...], names: Sequence[str]) -> list[Reading]:
        readings: list[Reading] = []

        def read(access: Access) -> Sequence[Counters]:
            return counters(access.reader(), [access.names().named.get(name) for name in names])

        while names and len(readings) < READINGS and not _rests(readings):
            if readings:
                self.clock.sleep(self.patience.poll_s)
            first, second = self.together(read, way)
            readings.append((first, second))
        return readings

    def _listed(self, way: tuple[Access, ...], name: str, now: Counted) -> Counted:
        """With the ids of both sites, where no counter tells anything and the queue is shallow enough to look at each
        message."""
        if kept(way).since(name, now.first, now.second) is not None:
            return now
        if max(at.counters.depth for at in (now.first, now.second)) > LISTED_UP_TO:
            return now
        try:
            ids = [listed_to_the_end(access, access.names().named.get(name), name).ids for access in way]
        except BrokerError:
            return now
        return now.with_ids(*ids)


def _level(way: Sequence[Access], name: str, now: Counted) -> bool:
    since = kept(way).since(name, now.first, now.second)
    return since is None or now.level(since.here, since.there)


def _rests(readings: Sequence[object]) -> bool:
    """Say whether nothing came or left between the last readings: more of them would say the same."""
    return len(readings) >= RESTS and all(each == readings[-1] for each in readings[-RESTS:])
