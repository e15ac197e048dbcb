"""A fence by queue: the clients' roles lose their rights at its address, or all its queues are paused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.artemis.fence import DoorsAndRoles
from dr_ctl.topologies.common.view import Acceptor

if TYPE_CHECKING:
    from dr_ctl.topologies.bridges.view import BrokerView


class Queues(DoorsAndRoles):
    view: BrokerView

    @property
    def open(self) -> bool:
        return any(self.view.units.values())

    @property
    def matches(self) -> Sequence[str]:
        return [flow.unit for flow in self.view.flows]

    @property
    def shut_out(self) -> bool:
        return bool(self.view.flows) and all(self.view.kept_out(flow.unit) for flow in self.view.flows)

    @property
    def leaves_open(self) -> tuple[Acceptor, ...]:
        """The fence is by address, whatever door a client comes through."""
        return ()

    def strangers(self) -> list[str]:
        return []

    def holds(self, call: Call) -> bool | None:
        queue = next((each for each in self.view.queues if each.bean == call.request.get("bean")), None)
        match call.goal:
            case Goal.OPEN | Goal.CLOSE if queue is not None:
                return queue.paused is (call.goal is Goal.CLOSE)
            case Goal.CUT:
                return not any(each.consumers for each in self.view.queues_of(call.thing))
        return super().holds(call)
