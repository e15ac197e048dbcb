"""Waits on what is under way between the sites: buffers to be empty, ids to be applied. Stopped bridges are started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, some
from dr_ctl.engine.outcome import Refused
from dr_ctl.engine.ports import Hand
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.bridges.access import Access
from dr_ctl.topologies.bridges.barrier import IdBarrier, MessageBarrier
from dr_ctl.topologies.bridges.drafts.shipping import starts
from dr_ctl.topologies.bridges.tools import BridgesTools
from dr_ctl.topologies.bridges.view import BrokerView, Chosen
from dr_ctl.topologies.common.evidence import evidence, total

UNDER_WAY: Final = "messages and processed ids under way between the sites"
AT_MOST: Final = 3


class Direction:
    """What is under way from one site to the other, of some units: messages until the buffers are empty, or, with a
    barrier, until those are shipped that lay there when it began; ids until all that were noted are applied."""

    def __init__(
        self, here: Access, there: Access, chosen: Chosen, ids: IdBarrier, messages: MessageBarrier | None = None
    ) -> None:
        self.here, self.there, self.chosen = here, there, chosen
        self._ids, self._messages = ids, messages

    def left(self, here: BrokerView, there: BrokerView) -> int | None:
        if self._messages is not None:
            return total((self._messages.left(here, self.chosen), self._ids.left(here, there)))
        flows = [flow.to_ship for flow in here.flows if self.chosen(flow.unit)]
        return total((*flows, self._ids.left(here, there)))

    def why(self, here: BrokerView, there: BrokerView) -> list[str]:
        """What keeps it from ending."""
        carrying = here.carrying_among(self.chosen)
        found = [f"the bridge of {flow.unit} at {here.site} is not connected" for flow in carrying if not flow.attached]
        if not any(queue.consumers for queue in there.arrived):
            found.append(f"nothing applies the ids that arrive at {there.site}")
        return found


Views = dict[tuple[str, str], BrokerView | BrokerError]


class Wait:
    """A wait for several directions at once. `small` is how much may be left."""

    def __init__(self, tools: BridgesTools, directions: Sequence[Direction], hand: Hand, small: int = 0) -> None:
        self._tools, self._directions, self._hand, self._small = tools, directions, hand, small
        self.began = self._moved_at = hand.monotonic()
        self.started = 0
        self.first: int | None = None
        self.last: int | None = None

    def until(
        self,
        poll_s: float,
        *,
        within_s: float | None,
        stall_s: float,
        guard: Callable[[Views], str | None] | None = None,
        calms: int = 2,
    ) -> Refused | None:
        """Poll until no more is left than is small, so often in a row; None when so. `guard` says why it makes no sense
        to go on."""
        calm = 0
        while True:
            views = self._look()
            left, why = self._told(views)
            if guard is not None and (broken := guard(views)) is not None:
                return Refused(broken)
            self._note(left)
            calm = calm + 1 if left is not None and left <= self._small and not why else 0
            self._hand.waiting(UNDER_WAY, left, next(iter(why), None))
            self._sample(views)
            if calm >= calms:
                return None
            if (late := self._late(left, why, within_s, stall_s)) is not None:
                return late
            self._mend(views)
            self._hand.wait(poll_s)

    def _look(self) -> Views:
        def ask(access: Access) -> BrokerView | BrokerError:
            try:
                return access.look()
            except BrokerError as error:
                return error

        every = list(
            {(each.site, each.pair): each for way in self._directions for each in (way.here, way.there)}.values()
        )
        told = self._tools.observer.together(ask, every)
        return {(access.site, access.pair): each for access, each in zip(every, told, strict=True)}

    def _told(self, views: Views) -> tuple[int | None, list[str]]:
        left: list[int | None] = []
        why: list[str] = []
        for way in self._directions:
            here, there = views[way.here.site, way.here.pair], views[way.there.site, way.there.pair]
            if isinstance(here, BrokerView) and isinstance(there, BrokerView):
                left.append(way.left(here, there))
                why += way.why(here, there)
            else:
                left.append(None)
                why += [str(each) for each in (here, there) if isinstance(each, BrokerError)]
        return total(left), list(dict.fromkeys(why))

    def _note(self, left: int | None) -> None:
        if left is not None and left != self.last:
            self._moved_at = self._hand.monotonic()
            self.first = left if self.first is None else self.first
            self.last = left

    def _late(self, left: int | None, why: Sequence[str], within_s: float | None, stall_s: float) -> Refused | None:
        took, still = self._hand.monotonic() - self.began, self._hand.monotonic() - self._moved_at
        if (within_s is None or took <= within_s) and still <= stall_s:
            return None
        told = f"{left if left is not None else 'an unknown number'} under way"
        reason = some(why) or (f"nothing moved for {duration(still)}" if still > stall_s else "they move too slowly")
        return Refused(f"not drained after {duration(took)}: {told}; {reason}", code=ExitCode.DRAIN_TIMEOUT)

    def _mend(self, views: Views) -> None:
        """Start bridges that are stopped. One that is not connected tries by itself."""
        for way in self._directions:
            here = views[way.here.site, way.here.pair]
            if not isinstance(here, BrokerView):
                continue
            calls = [call for call in starts([here], way.chosen) if not here.holds(call)]
            if calls and self.started < AT_MOST:
                self.started += 1
                self._hand.notice(f"{way.here.site}: {len(calls)} bridge(s) stopped: starting")
                self._tools.change(calls, self._hand)

    def _sample(self, views: Views) -> None:
        self._hand.sample(evidence((site, each) for (site, _), each in views.items()))
