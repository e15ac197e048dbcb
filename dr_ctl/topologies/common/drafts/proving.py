"""Plans the verbs that look, wait and prove: observe, check, settle, verify, probe. Pure."""

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
    greets = fences(seen, move) and any(view.greets for view in seen.views(move.source))
    return Draft("", "all checks, and a greeting by the serving site as a client gets it" if greets else "all checks")


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
        if not view.greets:
            continue
        calls.append(document(view, name, view.requests.probe(name), f"create {name} at {view.site}"))
        # With its consumers: the probe's own may not have been taken off yet when it has hung up.
        calls.append(remove_document(view, name, f"remove {name} at {view.site}"))
    return Draft(move.target, probed(seen, move), tuple(calls))


def probed(seen: Seen[Broker], move: Move) -> str:
    """What the probe does, which sends nothing where the settings name no `stomp:`."""
    if any(view.greets for view in seen.views(move.target)):
        return "one message goes in and comes out as a client's would"
    return f"no message is sent: the settings name no `stomp:` of {move.target}"


def shown_open(seen: Seen[Broker], move: Move) -> str:
    """How doors are shown to be open."""
    greets = any(view.greets for view in seen.views(move.target))
    return "proven by a client's greeting" if greets else "shown by their flag only: the settings name no `stomp:`"
