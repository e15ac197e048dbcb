"""What is decided for `probe`: a queue of dr-ctl's own for one message at the target. Pure."""

from __future__ import annotations

from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.calls import document, remove_document
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.view import Broker


def queue(site: str) -> str:
    """The name of dr-ctl's own queue for the probe: it contains the site that holds it."""
    return f"dr-ctl.probe.{site}"


def draft(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    del rules, step
    calls: list[Call] = []
    name = queue(move.target)
    for view in seen.views(move.target):
        calls.append(document(view, name, view.requests.probe(name), f"create {name} at {view.site}"))
        # With its consumers: the probe's own may not have been taken off yet when it has hung up.
        calls.append(remove_document(view, name, f"remove {name} at {view.site}"))
    return Draft(move.target, "one message goes in and comes out as a client's would", tuple(calls))
