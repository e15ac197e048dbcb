"""The way on which a replica fetches the events of its source."""

from __future__ import annotations

from dr_ctl_lab.twin.bridged_way import BridgedWay
from dr_ctl_lab.twin.classic.replica.broker import ReplicaBroker


class ReplicaWay(BridgedWay[ReplicaBroker]):
    def __init__(self, source: ReplicaBroker, target: ReplicaBroker, *, delay_s: float = 0.0) -> None:
        super().__init__(source, target, delay_s=delay_s)
        source.peer = target
