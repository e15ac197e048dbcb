"""Twins of artemis-continuity."""

from typing import Any, Final

from dr_ctl_lab.twin.artemis.console import console, settings
from dr_ctl_lab.twin.artemis.current import passive
from dr_ctl_lab.twin.artemis.session import ArtemisSession
from dr_ctl_lab.twin.bridged_direction import BridgedDirection
from dr_ctl_lab.twin.continuity.beans import beans
from dr_ctl_lab.twin.continuity.broker import ContinuityBroker
from dr_ctl_lab.twin.kind import Kind
from dr_ctl_lab.twin.parts import Acceptor


def _broker(peer: str, **common: Any) -> ContinuityBroker:
    del peer  # bridges are not named after the peer
    return ContinuityBroker(**common)


KIND: Final = Kind(
    topology="artemis-continuity",
    joined="the continuity plugin joins",
    listeners=(
        Acceptor("clients", "CORE,AMQP,STOMP,OPENWIRE,MQTT"),
        Acceptor("mirror", "CORE,AMQP", opens_at_boot=True),
    ),
    broker=_broker,
    direction=BridgedDirection,
    beans=beans,
    dialect=console("1.3.7", "7.2", forbids=True, refuses_in_json=True, backs_off=False),
    settings=settings,
    session=ArtemisSession,
    passive=passive,
    activates=True,
)
