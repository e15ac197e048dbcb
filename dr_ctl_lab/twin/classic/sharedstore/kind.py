"""Twins of classic-shared-store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dr_ctl_lab.twin.classic.beans import beans
from dr_ctl_lab.twin.classic.console import CONSOLE
from dr_ctl_lab.twin.classic.console import settings as classic_settings
from dr_ctl_lab.twin.classic.session import ClassicSession
from dr_ctl_lab.twin.classic.sharedstore import process
from dr_ctl_lab.twin.classic.sharedstore.broker import SharedStoreBroker
from dr_ctl_lab.twin.classic.sharedstore.direction import SharedStoreDirection
from dr_ctl_lab.twin.classic.sharedstore.store import LOCK
from dr_ctl_lab.twin.kind import Kind
from dr_ctl_lab.twin.parts import Acceptor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dr_ctl_lab.twin.host import Host


def _broker(peer: str, **common: Any) -> SharedStoreBroker:
    del peer  # there is no link
    return SharedStoreBroker(**common)


def settings(host: Host) -> Mapping[str, Any]:
    """The settings, with commands for the process: a waiting broker has no console."""
    name = host.broker.name
    commands = {"state": process.state(name), "start": process.start(name)}
    return {**classic_settings(host), "broker": name, "process": commands}


_STORE: Final[Mapping[str, Any]] = {"store": {"lock": LOCK, "lease": "1s", "keep_alive": "500ms"}}
KIND: Final = Kind(
    topology="classic-shared-store",
    joined="share one store",
    # The broker with the lock opens all listeners.
    listeners=(Acceptor("stomp", "STOMP", opens_at_boot=True), Acceptor("openwire", "OPENWIRE", opens_at_boot=True)),
    broker=_broker,
    direction=SharedStoreDirection,
    beans=beans,
    dialect=CONSOLE,
    settings=settings,
    installation=_STORE,
    session=ClassicSession,
    policy=lambda broker: broker.policy,
    one_pair=True,
)
