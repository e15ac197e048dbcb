"""The way to an Artemis broker, for looks and for changes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dr_ctl.engine.lease import Store
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Done, Outcome, Refused
from dr_ctl.jolokia.client import Answer, Changer, Read, Wire
from dr_ctl.jolokia.values import Fields
from dr_ctl.settings.artemis import ArtemisBroker
from dr_ctl.settings.model import Installation
from dr_ctl.stomp_io.address import parse_address
from dr_ctl.topologies.artemis import beans, look
from dr_ctl.topologies.artemis.broker import B_co
from dr_ctl.topologies.artemis.documents import Documents
from dr_ctl.topologies.common.access import CHANGE_S, READ_S
from dr_ctl.topologies.common.view import Config
from dr_ctl.topologies.console.access import ConsoleAccess
from dr_ctl.topologies.console.requests import change


class Access(ConsoleAccess[B_co]):
    def __init__(self, installation: Installation, site: str, pair: str) -> None:
        self._settings, self._peer = installation.broker(site, pair, ArtemisBroker), installation.other(site)
        super().__init__(installation, site, pair, self._settings)
        self._broker = self._settings.broker

    def _config(self) -> Config:
        """Read the settings that all such brokers have; a topology adds its own."""
        stomp = self._settings.stomp
        greets_at = parse_address(stomp).port if stomp is not None else None
        return Config(self._settings.clients, self._settings.link_listeners, None, greets_at=greets_at, peer=self._peer)

    def store(self) -> Store:
        return Documents(self)

    @abstractmethod
    def _ask(self, broker: str, timeout_s: float) -> B_co:
        """Ask that broker for everything."""

    @staticmethod
    def clock(broker: str) -> Read:
        """The read that gives the broker's own time."""
        return Read(beans.server(broker), ("CurrentTimeMillis",))

    @staticmethod
    def clock_ms(answer: Answer) -> int:
        """The broker's time out of that, in milliseconds since 1970."""
        return Fields("the broker's clock", answer.value()).number("CurrentTimeMillis")

    def _look(self, timeout_s: float) -> B_co:
        if self._broker is None:
            self._broker = look.find_broker(self.reader(), timeout_s=timeout_s)
        return self._ask(self._broker, timeout_s)

    def whole(self, *, timeout_s: float = READ_S) -> B_co:
        view = self.aged(timeout_s=timeout_s)
        at_addresses = look.limits_of_addresses(self.reader(), view, timeout_s=timeout_s)
        return replace(view, obstacles=(*view.obstacles, *at_addresses))

    def dispatch(self) -> Mapping[str, tuple[int, bool]]:
        return look.dispatch(self.reader(), self.names())

    def uncovered(self) -> list[str]:
        return look.uncovered(self.reader(), self.names())

    def _jolokia(self) -> str:
        return self._settings.jolokia

    def channel(self) -> Channel:
        return Channel(self.wire())


class Channel:
    """Implements `common.access.Channel` over one connection."""

    def __init__(self, wire: Wire) -> None:
        self._wire, self._changer = wire, Changer(wire)

    def send(self, calls: Sequence[Call]) -> list[Outcome]:
        return [
            _outcome(answer) for answer in self._changer.change([change(call) for call in calls], timeout_s=CHANGE_S)
        ]

    def close(self) -> None:
        self._wire.close()


def _outcome(answer: Answer) -> Outcome:
    return Done("answered") if answer.error is None else Refused(str(answer.error))
