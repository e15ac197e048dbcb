"""How a mirrored pair takes a lost site in again: its residue counted, kept from live consumers, let in. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dr_ctl.core.model import Finding, Role
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.plan import Call, in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.jolokia import beans
from dr_ctl.topologies.artemis import lasting
from dr_ctl.topologies.artemis.baseline import before
from dr_ctl.topologies.artemis.checks import error, warning
from dr_ctl.topologies.artemis.debts import document, owe_again, pay
from dr_ctl.topologies.artemis.losing import came_back_open
from dr_ctl.topologies.artemis.operations import MOVE, call, close_door, open_door, pause_lasting, request, resume
from dr_ctl.topologies.artemis.papers import CREATE_QUEUE
from dr_ctl.topologies.artemis.view import quarantine_queue
from dr_ctl.topologies.mirror import checks, parity
from dr_ctl.topologies.mirror.operations import start_link
from dr_ctl.topologies.mirror.view import BrokerView, MirrorSeen

# What the return itself puts right.
_MENDED: Final = frozenset({"DR-DOOR-004", "DR-LINK-003", "DR-LINK-004"})


def findings(seen: MirrorSeen, move: Move) -> Iterator[Finding]:
    """What speaks against taking the target in beside the serving source."""
    for site in (move.source, move.target):
        for broker in seen.sites[site].values():
            if not isinstance(broker, BrokerView):
                yield error(
                    "DR-SITE-001", f"{site}/{broker.pair} is {broker.role.value}: {broker.error}", broker.error.remedy
                )
                continue
            yield from (each for each in checks.of_broker(broker) if each.id not in _MENDED)
    if seen.roles[move.target] is Role.SERVING and seen.roles[move.source] is Role.SERVING:
        text = f"{move.target} came back open: it is fenced at once, before anything else"
        yield warning("DR-RETURN-001", text, "Let its client acceptors boot closed: autoStart=false.")


def nothing_owed(seen: MirrorSeen, move: Move) -> bool:
    """Say whether the target is taken in already: nothing is owed, both links ship, and nothing of it is under way."""
    owed = any(move.target in (debt.about, debt.kept_at) for debt in seen.debts)
    ship = all(view.attached and all(door.started for door in view.mirror_doors) for view in _both(seen, move))
    arrived = all(view.outflow is not None and view.outflow.depth == 0 for view in seen.views(move.target)) and all(
        view.pending_acks == 0 for view in seen.views(move.source)
    )
    return not owed and ship and arrived and seen.roles[move.target] is Role.STANDBY


def _both(seen: MirrorSeen, move: Move) -> list[BrokerView]:
    return [*seen.views(move.source), *seen.views(move.target)]


def residue(step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
    """Count what the returned site still holds for the other; an open one is closed first."""
    del step
    views = seen.views(move.target) if came_back_open(seen, move) else []
    about = "what it still holds is counted; if it is open, it is closed first"
    return Draft(move.target, about, tuple(lasting.fence(views)))


def reinstate(step: RunbookStep, seen: MirrorSeen, move: Move, timeout_s: float) -> Draft:
    """Pause the serving site's delivery (lasting: a restart must not let residue meet consumers), let the residue in,
    resume, strike the debts."""
    del step
    held: list[Call] = []
    let_in: list[Call] = []
    inverse: list[Call] = []
    resumed: list[Call] = []
    struck: list[Call] = []
    for view in seen.views(move.source):
        was = before(move, view)
        # All of them, whatever the settings narrow: one that goes on delivering would meet the residue.
        for queue in view.business.values():
            if not queue.paused:
                held.append(pause_lasting(view, queue))
            if queue.name not in was["paused"]:
                resumed.append(resume(view, queue))
                inverse.append(resume(view, queue, "it is paused"))
        let_in += _doors(view)
        kept_out = [door for door in view.mirror_doors if not was["mirror"].get(door.name)]
        inverse += [close_door(view, door, "it is open") for door in kept_out]
        struck += _struck(view, move.target)
        inverse += [
            owe_again(view, kind, move.target)
            for kind in DebtKind
            if document(kind, move.target, view.site) in was["debts"]
        ]
    for view in seen.views(move.target):
        # Where both sites were lost in turn, the one that returns still keeps the other out.
        let_in += _doors(view)
        struck += _struck(view, move.source)
        if view.link is not None and not view.link.started:
            let_in.append(start_link(view, view.link))
    return Draft(
        move.target,
        "its residue is let in while nothing is delivered; both directions drain",
        calls=(
            *in_part("hold", held),
            *in_part("let in", let_in),
            *in_part("deliver", resumed),
            *in_part("strikes", struck),
        ),
        inverse=tuple(inverse),
        limits={"within": timeout_s},
    )


def _doors(view: BrokerView) -> list[Call]:
    """Open the door of the link where it is closed."""
    return [open_door(view, door) for door in view.mirror_doors if not door.started]


def _struck(view: BrokerView, about: str) -> list[Call]:
    kinds = [kind for kind in DebtKind if document(kind, about, view.site) in view.documents]
    return [each for kind in kinds for each in pay(view, kind, about)]


def reconcile(step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
    """Compare both sites once all of it has arrived; take out what lies only at the returned one."""
    del step
    calls: list[Call] = []
    for view in seen.views(move.target):
        name = quarantine_queue(view.site, "…")
        when = f"messages lie only at {view.site} for longer than anything explains"
        server, up_to = beans.server(view.broker), parity.ORIGINS_UP_TO
        created, moved = (request(server, operation, (name,)) for operation in (CREATE_QUEUE, MOVE))
        calls.append(call(view, Goal.WRITE, name, created, f"create {name}", when, len(view.business)))
        calls.append(call(view, Goal.MOVE, ALL, moved, f"move each of them to {name}", when, up_to))
    return Draft(move.source, "what was recovered, came twice, is left over at one side", tuple(calls))
