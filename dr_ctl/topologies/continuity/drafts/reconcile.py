"""What is decided for `reconcile`: where what lies only at the returned site is moved. Pure."""

from __future__ import annotations

from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.operations import request
from dr_ctl.topologies.artemis.papers import CREATE_FILTERED
from dr_ctl.topologies.common.calls import call
from dr_ctl.topologies.common.names import quarantine_queue
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.continuity import copies
from dr_ctl.topologies.continuity.view import ContinuitySeen


def draft(rules: Rules, step: RunbookStep, seen: ContinuitySeen, move: Move) -> Draft:
    """Compare both sites once all of it has arrived; take out what lies only at the returned one."""
    del step
    calls: list[Call] = []
    for view in seen.views(move.target):
        when = f"messages lie only at {view.site}: it did them, or they were done at {move.source}"
        name = quarantine_queue(view.site, "…")
        most = len(view.flows)
        server = beans.server(view.broker)
        created, moved = request(server, CREATE_FILTERED, (name,)), request(server, copies.MOVE_ALL, ("…", name))
        calls.append(call(view, Goal.WRITE, name, created, f"create {name}", when, most))
        calls.append(call(view, Goal.MOVE, ALL, moved, f"move to {name}", when, most))
    about = "what was recovered, what comes twice, what is left over at one side"
    return Draft(move.source, about, tuple(calls), limits={"within": rules.within(move)})
