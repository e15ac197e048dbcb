"""What is decided for `reconcile`: where what lies only at the returned site is moved. Pure."""

from __future__ import annotations

from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.operations import MOVE, request
from dr_ctl.topologies.artemis.papers import CREATE_QUEUE
from dr_ctl.topologies.common.calls import call
from dr_ctl.topologies.common.names import quarantine_queue
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.mirror import parity
from dr_ctl.topologies.mirror.view import MirrorSeen


def draft(rules: Rules, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
    """Compare both sites once all of it has arrived; take out what lies only at the returned one."""
    del rules, step
    calls: list[Call] = []
    for view in seen.views(move.target):
        name = quarantine_queue(view.site, "…")
        when = f"messages lie only at {view.site} for longer than anything explains"
        server, up_to = beans.server(view.broker), parity.ORIGINS_UP_TO
        created, moved = (request(server, operation, (name,)) for operation in (CREATE_QUEUE, MOVE))
        calls.append(call(view, Goal.WRITE, name, created, f"create {name}", when, len(view.business)))
        calls.append(call(view, Goal.MOVE, ALL, moved, f"move each of them to {name}", when, up_to))
    return Draft(move.source, "what was recovered, came twice, is left over at one side", tuple(calls))
