"""What is done for `probe`: one message in and out as a client's, and its queue removed again."""

from __future__ import annotations

from dr_ctl.core.model import Json
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.stomp_io.client import Failed, Passed
from dr_ctl.topologies.common import checks
from dr_ctl.topologies.common.drafts.probe import queue
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker


def act(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    name = queue(move.target)
    pairs = {access.pair: access for access in tools.observer.at(move.target) if access.settings.stomp is not None}
    if not pairs:
        text = f"{move.target}: the settings name no `stomp:` address, so no message was sent through it"
        return NotNeeded(text, findings=(checks.warning("DR-PROBE-001", text, "Set `stomp:`."),))
    create = [call for call in step.calls if call.unit in pairs and call.goal is Goal.WRITE]
    remove = [call for call in step.calls if call.unit in pairs and call.goal is Goal.STRIKE]
    tools.change(create, hand)
    told = [access.round_trip(name, timeout_s=tools.patience.probe_s) for access in pairs.values()]
    removed = tools.change(remove, hand)
    findings = tuple(
        checks.warning("DR-PROBE-002", f"{move.target}: {name} is left there: {each.text}", "Remove that queue.")
        for each in removed
        if not isinstance(each, Done)
    )
    for access, each in zip(pairs.values(), told, strict=True):
        if isinstance(each, Failed):
            text = f"{access.site}/{access.pair}: the probe message did not come back: {each.because}"
            return Refused(text, findings=findings)
    took: list[Json] = [round(each.took_s, 4) for each in told if isinstance(each, Passed)]
    return Done("a message went in and came out", {"round_trips_s": took}, findings)
