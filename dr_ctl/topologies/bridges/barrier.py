"""Whether the ids of what was processed at one site are applied at the other, by counters. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from dr_ctl.topologies.bridges.view import BrokerView


@dataclass
class IdBarrier:
    """Whether each id that was noted at one site when this began is applied at the other. The buffer of the ids never
    empties while other queues work, so counters are compared: all ids go one way, in their order."""

    starts: tuple[str, str] | None = None
    shipped: int = 0
    applied: dict[str, int] = field(default_factory=dict)

    def left(self, here: BrokerView, there: BrokerView) -> int | None:
        """How many of them are not applied; None where that cannot be told. A restart of a broker begins it anew."""
        buffer = here.ids.buffer if here.ids is not None else None
        if buffer is None or not there.arrived or not buffer.counted or there.unapplied is None:
            return None
        if self.starts != (here.start, there.start):
            self.starts, self.shipped, self.applied = (here.start, there.start), buffer.added, {}
        if not (buffer.depth or there.unapplied):
            return 0
        if buffer.depth and buffer.removed < self.shipped:
            return self.shipped - buffer.removed + there.unapplied
        if not self.applied:
            self.applied = {queue.name: queue.added for queue in there.arrived}
        return sum(max(0, self.applied.get(queue.name, 0) - queue.removed) for queue in there.arrived if queue.depth)
