"""Plans `reinstate` and `reconcile`: residue let in while nothing is delivered. Pure."""

from collections.abc import Mapping
from typing import Final

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call, in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.bridges.drafts.shipping import starts
from dr_ctl.topologies.bridges.view import BrokerView, whole
from dr_ctl.topologies.common.baseline import before
from dr_ctl.topologies.common.calls import call, close_door, open_door, pause, resume
from dr_ctl.topologies.common.drafts.quarantine import owed_again, paid
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen

HOLDS: Final = "the returned site holds something for this one"
HELD: Final = "it was paused for what came"


def draft(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    """Pause the serving site's delivery (lasting), let residue and ids in, resume, strike the debts. Messages and ids
    take two bridges: a late message may arrive before the id that says that it is done."""
    del step
    held: list[Call] = []
    let_in: list[Call] = []
    inverse: list[Call] = []
    resumed: list[Call] = []
    for view in seen.views(move.source):
        was = before(move, view)
        for queue in (each for flow in view.flows for each in view.queues_of(flow.unit)):
            closed = not view.units[queue.address]
            if closed or queue.name in was["paused"]:
                continue
            held += [] if queue.paused else [pause(view, queue, HOLDS)]
            resumed.append(resume(view, queue, None if queue.paused else HELD))
            inverse.append(resume(view, queue, "it is paused"))
        let_in += [open_door(view, door) for door in view.link.doors if not door.started]
        kept_out = [door for door in view.link.doors if not was["mirror"].get(door.name)]
        inverse += [close_door(view, door, "it is open") for door in kept_out]
        inverse += owed_again(view, move.target, move)
    for view in seen.views(move.target):
        let_in += _ways_in(view)
        inverse += _as_they_were(view, before(move, view)["acceptors"])
    let_in += starts([*seen.views(move.source), *seen.views(move.target)], whole)
    return Draft(
        move.target,
        "its residue and its ids are let in while nothing is delivered; both directions drain",
        (
            *in_part("hold", held),
            *in_part("let in", let_in),
            *in_part("deliver", resumed),
            *in_part("strikes", paid(seen, move)),
        ),
        tuple(inverse),
        rules.while_moving(move),
    )


def _ways_in(view: BrokerView) -> list[Call]:
    """The doors of a returned site: the peer's bridges use one, the processor of the ids another. The queues are
    closed, so that no client gets in."""
    return [
        call(view, Goal.LINK_UP, door.name, view.requests.open_door(door), f"open acceptor {door.name}")
        for door in (*view.link.doors, *view.doors)
        if not door.started
    ]


def _as_they_were(view: BrokerView, was: Mapping[str, bool]) -> list[Call]:
    """Put the doors back as they were when the site returned; the queues stay closed, even if the return fails."""
    return [
        call(
            view, Goal.LINK_DOWN, door.name, view.requests.close_door(door), f"close acceptor {door.name}", "it is open"
        )
        for door in (*view.link.doors, *view.doors)
        if not was.get(door.name)
    ]


def reconcile(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    del rules, step, seen
    return Draft(move.source, "whether the returned site's copies hold what is served")
