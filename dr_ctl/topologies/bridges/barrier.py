"""Says by counters whether ids and messages that were under way at a moment have arrived since. Pure."""

from dataclasses import dataclass, field

from dr_ctl.topologies.bridges.view import BrokerView, Chosen


@dataclass
class IdBarrier:
    """Whether each id that was noted at one site when this began is applied at the other. The buffer of the ids never
    empties while other queues work, therefore the barrier compares counters: ids go one way, in their order."""

    starts: tuple[str, str] | None = None
    shipped: int = 0
    applied: dict[str, int] = field(default_factory=dict)

    def left(self, here: BrokerView, there: BrokerView) -> int | None:
        """How many of these ids are not applied, or None if not known. A broker's restart starts the barrier anew."""
        buffer = here.ids.buffer if here.ids is not None else None
        if buffer is None or not there.arrived or not buffer.counted or there.link.unapplied is None:
            return None
        if self.starts != (here.start, there.start):
            self.starts, self.shipped, self.applied = (here.start, there.start), buffer.added, {}
        if not (buffer.depth or there.link.unapplied):
            return 0
        if buffer.depth and buffer.removed < self.shipped:
            return self.shipped - buffer.removed + there.link.unapplied
        if not self.applied:
            self.applied = {queue.name: queue.added for queue in there.arrived}
        return sum(max(0, self.applied.get(queue.name, 0) - queue.removed) for queue in there.arrived if queue.depth)


@dataclass
class MessageBarrier:
    """Whether each message that lay in a buffer when this began is shipped; messages that clients send meanwhile do not
    count."""

    start: str | None = None
    added: dict[str, int] = field(default_factory=dict)

    def left(self, here: BrokerView, chosen: Chosen) -> int | None:
        """How many of these messages are not shipped; returns None where the counters do not tell."""
        buffers = {flow.unit: flow.buffer for flow in here.flows if chosen(flow.unit)}
        if self.start != here.start:
            self.start, self.added = here.start, {}
        total = 0
        for unit, buffer in buffers.items():
            if buffer is None or not buffer.counted:
                return None
            noted = self.added.setdefault(unit, buffer.added)
            total += max(0, min(buffer.depth, noted - buffer.removed))
        return total
