"""Starts links again: how a wait that may have restarted them is undone."""

from __future__ import annotations

from dr_ctl.core.errors import BrokerError
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common import checks
from dr_ctl.topologies.mirror.access import Access
from dr_ctl.topologies.mirror.tools import MirrorTools
from dr_ctl.topologies.mirror.view import BrokerView


def start(tools: MirrorTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    del move
    stopped, away = _stopped_links(tools)
    # A broker that is away is not waited for: clients are. A link's stop and start travel together, so it is only
    # left stopped where that one request was cut in its middle.
    findings = tuple(
        checks.warning("DR-LINK-007", f"{access.site}: whether its link is started could not be seen", "Look at it.")
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
    stopped = {(view.site, view.pair) for view in views.values() if view and view.link and not view.link.started}
    return stopped, [access for access, view in views.items() if view is None]
