"""The names of the plugin's management beans, its queues and its only operation."""

from __future__ import annotations

from typing import Final

from dr_ctl.topologies.classic import beans

DOOR: Final = "replication"
PREFIX: Final = "ActiveMQ.Plugin.Replication"
EVENTS: Final = f"{PREFIX}.Queue"
INTERMEDIATE: Final = f"{PREFIX}.Intermediate.Queue"
SET_ROLE: Final = "setReplicationRole(java.lang.String,boolean)"
SOURCE: Final = "source"
REPLICA: Final = "replica"


def plugin(broker: str) -> str:
    return f"{beans.broker(broker)},service=Plugins,instanceName=ReplicationPlugin"


def all_queues(broker: str) -> str:
    """The plugin's queues, which are not among the broker's queues."""
    return f"{plugin(broker)},destinationType=Queue,destinationName=*"
