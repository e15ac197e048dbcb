"""Twins of artemis-bridges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dr_ctl_lab.twin.artemis.console import console, settings
from dr_ctl_lab.twin.artemis.current import passive
from dr_ctl_lab.twin.artemis.session import ArtemisSession
from dr_ctl_lab.twin.bridges.beans import beans
from dr_ctl_lab.twin.bridges.broker import BridgesBroker
from dr_ctl_lab.twin.bridges.direction import BridgesDirection
from dr_ctl_lab.twin.bridges.layout import AGENT, BRIDGE, CLIENTS, ID_HEADER
from dr_ctl_lab.twin.bridges.processor import LISTENER
from dr_ctl_lab.twin.kind import Kind
from dr_ctl_lab.twin.parts import Acceptor

if TYPE_CHECKING:
    from dr_ctl_lab.twin.host import Host


def _broker(peer: str, **common: Any) -> BridgesBroker:
    return BridgesBroker(peer=peer, **common)


def _settings(host: Host) -> Mapping[str, Any]:
    ids = {"sqlite": f"ids/{host.broker.name}.sqlite", "header": ID_HEADER}
    return {**settings(host, link="bridge"), "lasting_fence": {"roles": [CLIENTS]}, "ids": ids}


KIND: Final = Kind(
    topology="artemis-bridges",
    joined="diverts and bridges join",
    listeners=(
        Acceptor("clients", "CORE,AMQP,STOMP"),
        Acceptor("bridge", "CORE", opens_at_boot=True),
        Acceptor(LISTENER, "STOMP", opens_at_boot=True),
    ),
    broker=_broker,
    direction=BridgesDirection,
    beans=beans,
    dialect=console("2.4.3", "8.1", miswrites=True),
    settings=_settings,
    session=ArtemisSession,
    passive=passive,
    roles={user: user for user in (CLIENTS, BRIDGE, AGENT)},
)
