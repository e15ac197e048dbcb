"""Waits on bridges until buffers are empty and ids applied. Stopped bridges are started."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Hand
from dr_ctl.topologies.bridges.access import Access
from dr_ctl.topologies.bridges.barrier import IdBarrier, MessageBarrier
from dr_ctl.topologies.bridges.drafts.shipping import starts
from dr_ctl.topologies.bridges.tools import BridgesTools
from dr_ctl.topologies.bridges.view import BrokerView, Chosen
from dr_ctl.topologies.common import waiting
from dr_ctl.topologies.common.evidence import total

UNDER_WAY: Final = "messages and processed ids under way between the sites"


class Direction:
    """Messages and ids of some units under way from one site to the other. Messages count until the buffers are empty;
    with a barrier, only messages that lay there at its start count. Ids count until all noted ones are applied.
    `accepted`: how many delayed messages of a unit may come later."""

    def __init__(
        self,
        here: Access,
        there: Access,
        chosen: Chosen,
        ids: IdBarrier,
        messages: MessageBarrier | None = None,
        *,
        accepted: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.here, self.there, self.chosen = here, there, chosen
        self._ids, self._messages, self._accepted = ids, messages, accepted

    def left(self, here: BrokerView, there: BrokerView) -> int | None:
        if self._messages is not None:
            return total((self._messages.left(here, self.chosen), self._ids.left(here, there)))
        flows = [flow.to_ship_now(self._accepted) for flow in here.flows if self.chosen(flow.unit)]
        return total((*flows, self._ids.left(here, there)))

    def why(self, here: BrokerView, there: BrokerView) -> list[str]:
        carrying = here.carrying_among(self.chosen)
        found = [f"the bridge of {flow.unit} at {here.site} is not connected" for flow in carrying if not flow.attached]
        if not any(queue.consumers for queue in there.arrived):
            found.append(f"nothing applies the ids that arrive at {there.site}")
        return found

    def mends(self, here: BrokerView) -> list[Call]:
        """Start stopped bridges; a bridge that is not connected is left to its own retries."""
        return [call for call in starts([here], self.chosen) if not here.holds(call)]


Views = waiting.Views[BrokerView]


def wait(tools: BridgesTools, directions: Sequence[Direction], hand: Hand, small: int = 0) -> waiting.Wait[BrokerView]:
    """A wait for several directions at once. `small` is how much may be left."""
    return waiting.Wait(tools, directions, hand, UNDER_WAY, small)
