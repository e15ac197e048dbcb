"""Twins of classic-brokersync."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from dr_ctl_lab.twin.classic.brokersync.agent import LISTENER
from dr_ctl_lab.twin.classic.brokersync.beans import beans
from dr_ctl_lab.twin.classic.brokersync.broker import AGENT, BRIDGE, BrokerSyncBroker
from dr_ctl_lab.twin.classic.brokersync.direction import BrokerSyncDirection
from dr_ctl_lab.twin.classic.console import CONSOLE, settings, stomp
from dr_ctl_lab.twin.classic.session import ClassicSession
from dr_ctl_lab.twin.kind import Kind
from dr_ctl_lab.twin.parts import Acceptor

if TYPE_CHECKING:
    from dr_ctl_lab.twin.host import Host


def _broker(peer: str, **common: Any) -> BrokerSyncBroker:
    return BrokerSyncBroker(peer=peer, **common)


def _settings(host: Host) -> Mapping[str, Any]:
    broker = cast("BrokerSyncBroker", host.broker)  # the class of `_broker`
    login = {"username": AGENT, "password": {"file": f"{host.secret}.{AGENT}"}}
    sync = {"stomp": stomp(host, LISTENER), "connector": LISTENER, **login}
    return {**settings(host), "network": broker.network.name, "copies": broker.copies("{queue}"), "sync": sync}


KIND: Final = Kind(
    topology="classic-brokersync",
    joined="composite queues, network connectors and an agent join",
    # Real brokers open every connector at a start; a lab closes the clients' at once.
    listeners=(
        Acceptor("stomp", "STOMP"),
        Acceptor("openwire", "OPENWIRE", opens_at_boot=True),
        Acceptor(LISTENER, "STOMP", opens_at_boot=True),
    ),
    broker=_broker,
    direction=BrokerSyncDirection,
    beans=beans,
    dialect=CONSOLE,
    settings=_settings,
    session=ClassicSession,
    policy=lambda broker: broker.policy,
    roles={AGENT: AGENT, BRIDGE: BRIDGE},
)
