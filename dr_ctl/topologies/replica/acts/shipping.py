"""Acts of the waits on events that the replica lacks. The replica fetches by itself: no call starts it."""

from __future__ import annotations

from typing import Final

from dr_ctl.core.model import some
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.common.acts.quiesce import lifting
from dr_ctl.topologies.common.waiting import Views, Wait
from dr_ctl.topologies.replica.access import Access
from dr_ctl.topologies.replica.drafts.shipping import LAG
from dr_ctl.topologies.replica.tools import ReplicaTools
from dr_ctl.topologies.replica.view import BrokerView

SMALL: Final = 500
UNDER_WAY: Final = "events that the replica lacks"


class Events:
    """The events of a source that its replica has not fetched; `lag_s`: how far the replica may be behind."""

    def __init__(self, here: Access, there: Access, lag_s: float | None = None) -> None:
        self.here, self.there, self._lag_s = here, there, lag_s

    def left(self, here: BrokerView, there: BrokerView) -> int | None:
        del there
        return here.link.to_ship

    def why(self, here: BrokerView, there: BrokerView) -> list[str]:
        if not here.link.attached:
            return [f"{there.site} does not fetch from {here.site}"]
        lag_ms = here.plugin.lag_ms if here.plugin is not None else None
        # Of a source that nobody sends anything the last event grows old.
        if self._lag_s is None or not here.link.to_ship or lag_ms is None or lag_ms <= self._lag_s * 1000:
            return []
        return [f"{there.site} is {duration(lag_ms / 1000)} behind"]

    def mends(self, here: BrokerView) -> list[Call]:
        del here
        return []


def catch_up(tools: ReplicaTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """While the source serves: the replica fetches, and lacks little enough that a drain takes a moment."""
    within_s, lag_s = step.limits["within"], step.limits[LAG]
    wait = Wait(tools, [Events(*way, lag_s) for way in tools.observer.ways(move)], hand, UNDER_WAY, SMALL)
    failed = wait.until(tools.patience.link_poll_s, within_s=within_s, stall_s=within_s)
    return Refused(failed.text) if failed is not None else Done(f"{wait.last} to ship", {"under_way": wait.last})


def drain(tools: ReplicaTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    with lifting(tools, move, hand) as lifted:
        wait = Wait(tools, [Events(*way) for way in tools.observer.ways(move)], hand, UNDER_WAY)
        limits = step.limits
        failed = wait.until(tools.rules.drain.poll, within_s=limits["within"], stall_s=limits["stall"], guard=_opened)
    return lifted.judged(failed or Done("the replica has every event"))


def _opened(views: Views[BrokerView]) -> str | None:
    opened = [site for (site, _), view in views.items() if isinstance(view, BrokerView) and view.open]
    return f"opened to clients during the drain: {some(opened)}" if opened else None
