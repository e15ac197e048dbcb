"""Twins whose sites share one store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dr_ctl_lab.twin.classic.beans import beans
from dr_ctl_lab.twin.classic.console import CONSOLE
from dr_ctl_lab.twin.classic.console import settings as of_any
from dr_ctl_lab.twin.classic.session import ClassicSession
from dr_ctl_lab.twin.classic.sharedstore import process
from dr_ctl_lab.twin.classic.sharedstore.broker import SharedStoreBroker
from dr_ctl_lab.twin.classic.sharedstore.store import LOCK
from dr_ctl_lab.twin.classic.sharedstore.way import SharedStoreWay
from dr_ctl_lab.twin.kind import Kind
from dr_ctl_lab.twin.parts import Acceptor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dr_ctl_lab.twin.host import Host


def _broker(peer: str, **common: Any) -> SharedStoreBroker:
    del peer  # the brokers meet at the store
    return SharedStoreBroker(**common)


def settings(host: Host) -> Mapping[str, Any]:
    """Settings of a broker. A waiting broker does not tell its name, so the process is asked."""
    name = host.broker.name
    words = {"state": process.state(name), "start": process.start(name)}
    return {**of_any(host), "broker": name, "process": words}


_STORE: Final[Mapping[str, Any]] = {"store": {"lock": LOCK, "lease": "1s", "keep_alive": "500ms"}}
KIND: Final = Kind(
    topology="classic-shared-store",
    joined="share one store",
    # The broker with the lock opens all listeners.
    listeners=(Acceptor("stomp", "STOMP", opens_at_boot=True), Acceptor("openwire", "OPENWIRE", opens_at_boot=True)),
    broker=_broker,
    way=SharedStoreWay,
    beans=beans,
    dialect=CONSOLE,
    settings=settings,
    installation=_STORE,
    session=ClassicSession,
    policy=lambda broker: broker.policy,
    one_pair=True,
)
