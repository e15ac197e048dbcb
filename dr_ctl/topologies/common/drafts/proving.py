"""Plans the verbs that look, wait and prove: observe, check, settle, verify, probe. Pure."""

from __future__ import annotations

from dr_ctl.core.model import Role
from dr_ctl.engine.operations import DRAIN, FAILOVER, REINSTATE
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common import receipts
from dr_ctl.topologies.common.calls import document, remove_document
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.view import Broker


def observe(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    del rules, step, seen, move
    return Draft("", "look at both sites")


def check(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    del rules, step
    greets = ", and a greeting by the serving site as a client gets it" if fences(seen, move) else ""
    return Draft("", f"all checks{greets}")


def fences(seen: Seen[Broker], move: Move) -> bool:
    """Say whether clients of a serving site will be fenced out: a greeting before and after proves the fence."""
    return move.ask.operation not in (FAILOVER, REINSTATE) and seen.roles[move.source] is Role.SERVING


def settle(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    """For a moment only: a lost site sends nothing more."""
    del seen
    limits = {"within": step.limits.get("within", rules.patience.settle_s)}
    return Draft(move.target, "what has arrived is applied", limits=limits)


def verify(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    del step
    limits = {"within": rules.within(move), "stable": float(rules.drain.stable)}
    about, calls = "the whole gate, stable; both sites hold the same", list[Call]()
    if move.ask.operation == DRAIN:
        about += "; then the receipt"
        calls = [call for view in seen.views(move.target) for call in receipts.write(view, None, receipts.HOLDS)]
    return Draft(move.target, about, tuple(calls), limits=limits)


def probe_queue(site: str) -> str:
    """The name of dr-ctl's own queue for the probe: the name contains the site that holds the queue."""
    return f"dr-ctl.probe.{site}"


def probe(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    del rules, step
    calls: list[Call] = []
    name = probe_queue(move.target)
    for view in seen.views(move.target):
        calls.append(document(view, name, view.requests.probe(name), f"create {name} at {view.site}"))
        # With its consumers: the probe's own may not have been taken off yet when it has hung up.
        calls.append(remove_document(view, name, f"remove {name} at {view.site}"))
    return Draft(move.target, "one message goes in and comes out as a client's would", tuple(calls))
