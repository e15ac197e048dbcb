"""Whether what was acknowledged at one site is applied at the other, by counters: under load no queue is ever empty."""

from __future__ import annotations

from dataclasses import dataclass, field

from dr_ctl.topologies.continuity.view import SiteView

Both = tuple[SiteView, SiteView]


@dataclass
class Applied:
    """Whether all that the serving site's consumers had acknowledged at the first look is applied at the returned one.

    By counters: under load neither queue is ever seen empty. First what was to be shipped then, after that what had
    arrived when it was."""

    _shipped: dict[str, int] = field(default_factory=dict)
    _arrived: dict[str, int] = field(default_factory=dict)

    def why_not(self, both: Both) -> list[str]:
        here, there = both
        found = []
        for flow in here.flows:
            other = there.flow(flow.queue)
            to = self._shipped.setdefault(flow.queue, flow.acks_bridge.acked + flow.out_acks.depth)
            if other is None or flow.acks_bridge.acked < to:
                found.append(f"{flow.out_acks.name} of {here.site} is not shipped")
            elif other.in_acks.acked < self._arrived.setdefault(flow.queue, other.in_acks.added):
                found.append(f"{other.in_acks.name} of {there.site} is not applied")
        return found
