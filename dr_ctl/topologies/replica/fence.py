"""A fence by connectors that belong to the plugin: a replica keeps its own closed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.classic.fence import Connectors
from dr_ctl.topologies.common.view import Acceptor, Peer
from dr_ctl.topologies.replica.calls import ROLE, hands_over, takes_over

if TYPE_CHECKING:
    from dr_ctl.topologies.replica.view import BrokerView


class Part(Connectors):
    view: BrokerView

    @property
    def boots_closed(self) -> bool | None:
        """The part outlasts a restart: a replica lets nobody in, a source opens what was closed."""
        return self.view.is_replica if self.view.plugin is not None else None

    def opening(self, doors: Iterable[Acceptor], peer: Peer, when: str | None = None) -> tuple[Call, ...]:
        """A replica becomes the source, which opens its doors; the doors of a source are opened one by one."""
        listed = tuple(doors)
        if not listed or not self.view.is_replica or peer is Peer.NOT_DRAINED:
            return super().opening(listed, peer, when)
        if peer is Peer.AWAY:
            return (takes_over(self.view),)
        return (hands_over(self.view, self.view.peer),) if self.view.peer is not None else ()

    def holds(self, call: Call) -> bool | None:
        if call.thing != ROLE:
            return None
        return self.view.is_source if call.goal is Goal.OPEN else self.view.is_replica
