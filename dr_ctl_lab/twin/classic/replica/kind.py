"""Twins whose sites the replication plugin joins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dr_ctl_lab.twin.classic.console import CONSOLE, settings
from dr_ctl_lab.twin.classic.replica.beans import beans
from dr_ctl_lab.twin.classic.replica.broker import DOOR, ReplicaBroker
from dr_ctl_lab.twin.classic.replica.way import ReplicaWay
from dr_ctl_lab.twin.classic.session import ClassicSession
from dr_ctl_lab.twin.kind import Kind
from dr_ctl_lab.twin.parts import Acceptor

if TYPE_CHECKING:
    from dr_ctl_lab.twin.host import Host


def _broker(peer: str, **common: Any) -> ReplicaBroker:
    del peer  # the way brings them together
    return ReplicaBroker(**common)


def _settings(host: Host) -> Mapping[str, Any]:
    port = host.broker.acceptors[DOOR].port
    return {**settings(host), "replication": f"tcp://{host.stomp[0]}:{port}"}


KIND: Final = Kind(
    topology="classic-replica",
    joined="the replication plugin joins",
    # The role opens the other doors.
    doors=(
        Acceptor("stomp", "STOMP"),
        Acceptor("openwire", "OPENWIRE"),
        Acceptor(DOOR, "OPENWIRE", opens_at_boot=True),
    ),
    broker=_broker,
    way=ReplicaWay,
    beans=beans,
    dialect=CONSOLE,
    settings=_settings,
    session=ClassicSession,
    policy=lambda broker: broker.policy,
)
