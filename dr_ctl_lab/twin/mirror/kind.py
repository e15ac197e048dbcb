"""Twins of artemis-mirror."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dr_ctl_lab.twin.artemis.console import console, settings
from dr_ctl_lab.twin.artemis.current import passive
from dr_ctl_lab.twin.artemis.session import ArtemisSession
from dr_ctl_lab.twin.kind import Kind
from dr_ctl_lab.twin.mirror.beans import beans
from dr_ctl_lab.twin.mirror.broker import MirrorBroker
from dr_ctl_lab.twin.mirror.direction import MirrorDirection
from dr_ctl_lab.twin.mirror.outflow import Link
from dr_ctl_lab.twin.parts import Acceptor
from dr_ctl_lab.twin.security import APPS

if TYPE_CHECKING:
    from dr_ctl_lab.twin.host import Host


def _broker(peer: str, **common: Any) -> MirrorBroker:
    return MirrorBroker(link=Link(peer, 0), **common)


def _settings(host: Host) -> Mapping[str, Any]:
    return {**settings(host), "lasting_fence": {"roles": [APPS]}}


KIND: Final = Kind(
    topology="artemis-mirror",
    joined="mirror each other",
    listeners=(Acceptor("clients", "CORE,AMQP,STOMP,OPENWIRE,MQTT"), Acceptor("mirror", "AMQP", opens_at_boot=True)),
    broker=_broker,
    direction=MirrorDirection,
    beans=beans,
    dialect=console("2.4.3", "8.1", miswrites=True),
    settings=_settings,
    session=ArtemisSession,
    passive=passive,
)
