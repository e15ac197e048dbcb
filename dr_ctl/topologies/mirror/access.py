"""The way to each broker of a mirrored installation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dr_ctl.engine.ports import Move
from dr_ctl.jolokia.client import Answer, Read
from dr_ctl.jolokia.values import Fields
from dr_ctl.settings.model import Installation
from dr_ctl.settings.topologies.artemis_mirror import MirrorBroker
from dr_ctl.topologies.artemis import access, beans
from dr_ctl.topologies.common import observer
from dr_ctl.topologies.common.view import Config
from dr_ctl.topologies.mirror import parity
from dr_ctl.topologies.mirror.look import Flow, look, look_at_flow
from dr_ctl.topologies.mirror.view import BrokerView, MirrorSeen


class Access(access.Access[BrokerView]):
    """One mirrored broker."""

    def _config(self) -> Config:
        told = self._installation.broker(self.site, self.pair, MirrorBroker)
        return replace(super()._config(), link=told.link, lasting=told.lasting_fence)

    def _ask(self, broker: str, timeout_s: float) -> BrokerView:
        return look(
            self.reader(), pair=self.pair, site=self.site, config=self.config, broker=broker, timeout_s=timeout_s
        )

    def flow(self, *, timeout_s: float) -> Flow:
        return look_at_flow(self.reader(), self.names(), timeout_s=timeout_s)

    def open_doors(self, *, timeout_s: float) -> tuple[str, ...]:
        return self.flow(timeout_s=timeout_s).doors_open

    @staticmethod
    def clock(broker: str) -> Read:
        return Read(beans.server(broker), ("CurrentTimeMillis",))

    @staticmethod
    def clock_ms(answer: Answer) -> int:
        return Fields("the broker's clock", answer.value()).number("CurrentTimeMillis")


Way = tuple[Access, Access]


class Observer(observer.Observer[BrokerView]):
    """Looks at both sites of a mirrored installation."""

    brokers: Mapping[str, Mapping[str, Access]]

    def at(self, site: str) -> Sequence[Access]:
        return list(self.brokers[site].values())

    def all(self) -> Sequence[Access]:
        return [access for brokers in self.brokers.values() for access in brokers.values()]

    def ways(self, move: Move) -> Sequence[Way]:
        there = self.brokers[move.target]
        return [(here, there[pair]) for pair, here in self.brokers[move.source].items() if not move.leaves(pair)]

    def flows_at(self, site: str, *, timeout_s: float) -> dict[Access, Flow]:
        """The gate's numbers of every broker of one site; raises `BrokerError` where one does not answer."""
        accesses = self.at(site)
        told = self.together(lambda access: access.flow(timeout_s=timeout_s), accesses)
        return dict(zip(accesses, told, strict=True))

    def unapplied_at(self, site: str, *, timeout_s: float) -> int:
        return sum(flow.pending_acks for flow in self.flows_at(site, timeout_s=timeout_s).values())

    def _access(self, installation: Installation, site: str, pair: str) -> Access:
        return Access(installation, site, pair)

    def _differ(self, seen: MirrorSeen, pair: str) -> bool:
        here, there = (seen.view(site, pair) for site in seen.sites)
        if here is None or there is None:
            return False
        return bool(parity.unexplained(here, there, self.queues, seen.moved.get(pair, {})))
