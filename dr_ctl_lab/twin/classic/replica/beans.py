"""The management beans of a broker with the replication plugin. The plugin's queues are beans of its own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from dr_ctl_lab.twin.bean import Bean
from dr_ctl_lab.twin.classic import beans as common
from dr_ctl_lab.twin.classic import names, queues
from dr_ctl_lab.twin.classic.queues import TEXT
from dr_ctl_lab.twin.classic.replica.broker import ReplicaBroker
from dr_ctl_lab.twin.classic.replica.events import PLUGIN, Role


def beans(broker: ReplicaBroker) -> Iterator[Bean]:
    yield from (each for each in common.beans(broker) if f"destinationName={PLUGIN}" not in each.name)
    name = f"{names.server(broker.name)},service=Plugins,instanceName=ReplicationPlugin"
    yield Bean(name, partial(_plugin, broker), lambda: {f"setReplicationRole({TEXT},boolean)": broker.set_role})
    for queue in broker.queues.values():
        if queue.name.startswith(PLUGIN):
            bean = f"{name},destinationType=Queue,destinationName={queue.name}"
            yield Bean(bean, partial(queues.attributes, broker, queue), dict)


def _plugin(broker: ReplicaBroker) -> dict[str, Any]:
    source = broker.role is not Role.REPLICA
    behind = {key: _since(broker, at_ms) for key, at_ms in (("acked", broker.acked_ms), ("applied", broker.applied_ms))}
    return {
        "ReplicationRole": broker.role.shown,
        "ReplicationTps": 0,
        "TotalReplicationLag": behind["acked"] if source else None,
        "SourceWaitTime": 0 if source and behind["acked"] is not None else None,
        "ReplicationLag": None if source else behind["applied"],
        "ReplicaWaitTime": None if source or behind["applied"] is None else 0,
        "SourceReplicationFlowControl": False if source else None,
        "ReplicaReplicationFlowControl": None if source else False,
    }


def _since(broker: ReplicaBroker, at_ms: int | None) -> int | None:
    """Age of the last event that the peer has; None without an event since."""
    if at_ms is None:
        return None
    return 0 if broker.even else max(0, broker.now_ms() - at_ms)
