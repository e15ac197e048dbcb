"""The way to each broker of a pair with the replication plugin; a replica is made the source through its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from dr_ctl.core.clock import Clock
from dr_ctl.core.errors import BrokerError, Unreachable
from dr_ctl.engine.outcome import Outcome
from dr_ctl.engine.plan import Call
from dr_ctl.settings.model import Installation
from dr_ctl.settings.topologies.classic_replica import ClassicReplica, ReplicaBroker
from dr_ctl.stomp_io.address import takes_connections
from dr_ctl.topologies.classic import access
from dr_ctl.topologies.common import access as common
from dr_ctl.topologies.common import observer
from dr_ctl.topologies.common.access import READ_S, Channel
from dr_ctl.topologies.common.seen import Seen, Silent
from dr_ctl.topologies.replica import parity
from dr_ctl.topologies.replica.calls import THROUGH
from dr_ctl.topologies.replica.look import glance, look
from dr_ctl.topologies.replica.seen import ReplicaSeen, Shut
from dr_ctl.topologies.replica.view import BrokerView, Peer, ReplicaConfig

T = TypeVar("T")
Asked = common.Access[BrokerView]
Views = Mapping[tuple[str, str], BrokerView | Silent]
Sites = Mapping[str, Mapping[str, BrokerView | Silent]]


class Access(access.Access[BrokerView]):
    def __init__(
        self,
        installation: Installation,
        site: str,
        pair: str,
        documents: Path,
        clock: Clock,
        at: Callable[[str, str], Access],
    ) -> None:
        """`at` finds the way to any broker, by site and pair."""
        super().__init__(installation, site, pair, documents, clock)
        self.own = ReplicaConfig(installation.of(ClassicReplica).lag)
        self._at = at
        self._replication = installation.broker(site, pair, ReplicaBroker).replication

    def _ask(self, broker: str, timeout_s: float) -> BrokerView:
        return look(
            self.reader(),
            self.document_files,
            pair=self.pair,
            site=self.site,
            config=self.config,
            own=self.own,
            broker=broker,
            timeout_s=timeout_s,
        )

    def glance(self, *, timeout_s: float = READ_S) -> BrokerView:
        return glance(self.reader(), self.names(), timeout_s=timeout_s)

    def lives(self, *, timeout_s: float) -> bool | None:
        """Knock at the door that a replica has open, if the settings name it."""
        if self._replication is None:
            return None
        parts = urlsplit(self._replication)
        return takes_connections(str(parts.hostname), int(parts.port or 0), timeout_s=timeout_s)

    def hung_up(self, error: BrokerError) -> bool:
        """Say whether a connection that has served before was ended: whether its console takes another one is not
        known, and one that has just become a replica may have closed it."""
        return isinstance(error, Unreachable) and not error.refused and self._last is not None

    def channel(self) -> Channels:
        return Channels(self.site, lambda site: self._at(site, self.pair).own_channel())

    def own_channel(self) -> Channel:
        return super().channel()


class Channels:
    """Implements `common.access.Channel`: changes of one broker, some of them made by asking the other."""

    def __init__(self, site: str, open_: Callable[[str], Channel]) -> None:
        self._site, self._open_ = site, open_
        self._open: dict[str, Channel] = {}

    def send(self, calls: Sequence[Call]) -> list[Outcome]:
        return [outcome for call in calls for outcome in self._through(call).send([call])]

    def _through(self, call: Call) -> Channel:
        site = str(call.request.get(THROUGH, self._site))
        if site not in self._open:
            self._open[site] = self._open_(site)
        return self._open[site]

    def close(self) -> None:
        for channel in self._open.values():
            channel.close()


Way = tuple[Access, Access]


class Observer(observer.Observer[BrokerView, Access]):
    """Looks at both sites of such an installation."""

    def _access(self, installation: Installation, site: str, pair: str) -> Access:
        def at(where: str, which: str) -> Access:
            return self.brokers[where][which]

        return Access(installation, site, pair, self.documents, self.clock, at)

    def _seen(self, sites: Sites) -> ReplicaSeen:
        """Add to every view the name of its peer, which is asked to hand over."""
        peers = {(view.site, view.pair): Peer(view.site, view.broker) for view in _answering(sites)}
        return ReplicaSeen(
            {
                site: {pair: _beside(view, peers, sites) for pair, view in brokers.items()}
                for site, brokers in sites.items()
            }
        )

    def _unlike(self, source: BrokerView, target: BrokerView, moved: Mapping[str, int]) -> bool:
        return source.open and bool(parity.unexplained(source, target, self.queues, moved))

    def _puzzling(self, seen: Seen[BrokerView]) -> bool:
        """A broker that has just become a replica connects in a moment."""
        brokers = (each for site in seen.sites.values() for each in site.values())
        return super()._puzzling(seen) or any(isinstance(each, Shut) and not each.fetches for each in brokers)

    def _answer(self, access: Asked, look: Callable[[], T]) -> T | Silent:
        answer, mine = super()._answer(access, look), self.brokers[access.site][access.pair]
        if isinstance(answer, Silent) and mine.hung_up(answer.error):
            answer = super()._answer(access, look)
        if not isinstance(answer, Silent) or not answer.ports_refuse:
            return answer
        lives = mine.lives(timeout_s=self.patience.knock_s)
        if lives is None:
            return replace(answer, ports_refuse=False)
        return Shut(answer.pair, answer.site, answer.error) if lives else answer

    def _alive_if_seen(self, access: Asked, views: Views) -> BrokerView | Silent:
        view = super()._alive_if_seen(access, views)
        peers = [each for (site, pair), each in views.items() if site != view.site and pair == view.pair]
        if isinstance(view, Shut) and any(not isinstance(each, Silent) and each.link.attached for each in peers):
            return replace(view, fetches=True)
        return view


def _answering(sites: Sites) -> list[BrokerView]:
    return [each for brokers in sites.values() for each in brokers.values() if not isinstance(each, Silent)]


def _beside(view: BrokerView | Silent, peers: Mapping[tuple[str, str], Peer], sites: Sites) -> BrokerView | Silent:
    if isinstance(view, Silent):
        return view
    other = next(site for site in sites if site != view.site)
    return replace(view, peer=peers.get((other, view.pair)))
