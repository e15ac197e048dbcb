"""Acts of the waits on links, `catch-up` and `drain`, and of a restart; a link is left started."""

from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode
from dr_ctl.core.printable import if_known
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.engine.waiting import until
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.common.acts.quiesce import lifting
from dr_ctl.topologies.common.evidence import said
from dr_ctl.topologies.common.findings import LINK_DID_NOT_ATTACH, LINK_NOT_READ_IN_UNDO
from dr_ctl.topologies.mirror.access import Access, Way
from dr_ctl.topologies.mirror.links import UNDER_WAY, Flows, PairWait, flows, until_all, why_not_moving
from dr_ctl.topologies.mirror.look import Flow
from dr_ctl.topologies.mirror.tools import MirrorTools
from dr_ctl.topologies.mirror.view import BrokerView

SMALL: Final = 500
CALM: Final = 2


def catch_up(tools: MirrorTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Wait, while the source serves, until both links are attached and a drain would take a moment."""
    within_s = step.limits["within"]
    waits = [_Small(way, tools, hand, within_s) for way in tools.observer.ways(move)]
    failed = until_all(tools, waits, hand, UNDER_WAY, tools.patience.link_poll_s) if waits else None
    if failed is not None:
        return failed
    left, restarts = sum(each.last or 0 for each in waits), sum(each.mender.restarts for each in waits)
    return Done(f"{left} event(s) under way", {"under_way": left, "restarts": restarts})


class _Small(PairWait):
    """Until little is under way; at the latest then it must have become less."""

    def __init__(self, way: Way, tools: MirrorTools, hand: Hand, within_s: float) -> None:
        super().__init__(way, tools, hand)
        self._within_s = within_s

    def ended(self, now: Flows, hand: Hand) -> Outcome | None:
        attached = all(isinstance(flow, Flow) and flow.attached for flow in now.values())
        total = self.left(now)
        if attached and total is not None and total <= SMALL:
            return Done("little is under way")
        if hand.monotonic() - self.began <= self._within_s:
            return None
        if total is None or not attached:
            return Refused(f"not caught up: {if_known(self.why(now, hand))}")
        if self.first is not None and total >= self.first:
            return Refused(f"the outflow grows while clients work: {self.first} event(s), then {total}")
        return Done("less and less is under way")


def drain(tools: MirrorTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Lift the pauses and wait, side by side, until nothing is under way in either direction."""
    with lifting(tools, move, hand) as lifted:
        waits = [_Empty(way, tools, hand, step) for way in tools.observer.ways(move)]
        failed = until_all(tools, waits, hand, UNDER_WAY, tools.rules.drain.poll) if waits else None
    done = Done("nothing is under way", {"restarts": sum(each.mender.restarts for each in waits)})
    return lifted.judged(failed or done)


class _Empty(PairWait):
    """Until nothing is under way in either direction, several polls in a row."""

    def __init__(self, way: Way, tools: MirrorTools, hand: Hand, step: PlannedStep) -> None:
        super().__init__(way, tools, hand)
        self._limits = step.limits
        self._calm = 0

    def ended(self, now: Flows, hand: Hand) -> Outcome | None:
        if opened := [site for site, flow in now.items() if isinstance(flow, Flow) and flow.doors_open]:
            return Refused(f"{opened[0]} was opened to clients during the drain")
        empty = all(isinstance(flow, Flow) and flow.attached and flow.empty for flow in now.values())
        self._calm = self._calm + 1 if empty else 0
        if self._calm >= CALM:
            return Done("nothing is under way")
        why, took = self.why(now, hand), hand.monotonic() - self.began
        left = f"{said(self.last)} event(s) under way"
        if took > self._limits["within"]:
            reason = why or "they move too slowly"
            return Refused(f"not drained after {duration(took)}: {left}; {reason}", code=ExitCode.DRAIN_TIMEOUT)
        if self.stalled_s(hand) > self._limits["stall"]:
            text = f"nothing moved for {duration(self._limits['stall'])}: {left}; {why or 'nothing says why'}"
            return Refused(text, code=ExitCode.DRAIN_TIMEOUT)
        return None


def restart(tools: MirrorTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Whether it attached is looked at, not what the call answered."""
    tools.change(step.calls, hand)  # in one request, so no call comes between and leaves the link stopped
    brokers, about = tools.observer.at(move.source), f"the link of {move.source} attaches"
    waited = until(
        hand,
        lambda: {f"{site}/{pair}": flow for (site, pair), flow in flows(tools, brokers).items()},
        holds=lambda now: not _away(now),
        within_s=step.limits["within"],
        poll_s=tools.patience.link_poll_s,
        meanwhile=lambda now: hand.waiting(about, len(_away(now)), why_not_moving(now)),
    )
    if waited.held:
        return Done(f"the link of {move.source} is attached")
    text = f"the link of {', '.join(_away(waited.look))} did not attach within {duration(step.limits['within'])}"
    remedy = f"Look at what stands between the sites, and at the acceptor for links at {move.target}."
    return Refused(text, findings=(LINK_DID_NOT_ATTACH(f"{text}: {if_known(why_not_moving(waited.look))}", remedy),))


def _away(now: Flows) -> list[str]:
    return [name for name, flow in now.items() if not (isinstance(flow, Flow) and flow.attached)]


def start(tools: MirrorTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    del move
    stopped, away = _stopped_links(tools)
    # A broker that is away is not waited for: clients are. A link's stop and start travel together, so it is only
    # left stopped where that one request was cut in its middle.
    findings = tuple(
        LINK_NOT_READ_IN_UNDO(
            f"{access.site}: whether its link is started could not be seen",
            f"`dr-ctl status` shows it once {access.site} answers; `dr-ctl link restart {access.site}` starts it.",
        )
        for access in away
    )
    calls = [call for call in step.inverse if (call.site, call.unit) in stopped]
    if not calls:
        return NotNeeded("no link was seen stopped", findings=findings)
    tools.change(calls, hand)
    if left := _stopped_links(tools)[0] & {(call.site, call.unit) for call in calls}:
        return Refused(f"the link of {', '.join(site for site, _ in sorted(left))} is not started")
    return Done("links started", findings=findings)


def _stopped_links(tools: MirrorTools) -> tuple[set[tuple[str, str]], list[Access]]:
    """The brokers whose link is not started, and those that did not answer."""

    def look(access: Access) -> BrokerView | None:
        try:
            return access.look()
        except BrokerError:
            return None

    every = tools.observer.all()
    views = dict(zip(every, tools.observer.together(look, every), strict=True))
    stopped = {
        (view.site, view.pair)
        for view in views.values()
        if view and view.broker_connection and not view.broker_connection.started
    }
    return stopped, [access for access, view in views.items() if view is None]
