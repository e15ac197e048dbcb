"""How an installation that the plugin joins takes a lost site in again: what it still holds, let in by itself. Pure.

The order is the point. Messages of the lost site come in first, while what is staged is not delivered, then its
acknowledgements, which remove what was done there. Let in together, acknowledgements overtake their messages, and the
copies are delivered. The plugin starts its deliveries by itself when the other site talks to it: so the queues that
they deliver from are paused as well, which it leaves alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from dr_ctl.core.model import Finding, Role, Severity
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.plan import Call, in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.jolokia import beans
from dr_ctl.topologies.artemis.baseline import before
from dr_ctl.topologies.artemis.checks import error, warning
from dr_ctl.topologies.artemis.debts import document, owe_again, pay
from dr_ctl.topologies.artemis.operations import START, STOP, call, close_door, open_door, pause, request, resume
from dr_ctl.topologies.artemis.papers import CREATE_FILTERED
from dr_ctl.topologies.artemis.view import Broker, Silent, quarantine_queue
from dr_ctl.topologies.continuity import checks, conserving
from dr_ctl.topologies.continuity.view import Bridge, ContinuitySeen, Held, SiteView

REMOVE_ALL: Final = "removeAllMessages()"
# What the return itself puts right.
_MENDED: Final = frozenset({"DR-DOOR-004", "DR-CONT-008", "DR-CONT-009", "DR-CONT-010", "DR-CONT-015"})
# Of two sites that differ in these nothing could be compared.
_ALIKE: Final = frozenset({"DR-CONT-004", "DR-CONT-005"})


def findings(seen: ContinuitySeen, move: Move) -> Iterator[Finding]:
    """What speaks against taking the target in beside the serving source."""
    for site in (move.source, move.target):
        for broker in seen.sites[site].values():
            if isinstance(broker, Silent):
                text = f"{site}/{broker.pair} is {broker.role.value}: {broker.error}"
                yield error("DR-SITE-001", text, broker.error.remedy)
            else:
                yield from (each for each in checks.of_broker(broker) if each.id not in _MENDED)
    if seen.roles[move.target] is Role.SERVING and seen.roles[move.source] is Role.SERVING:
        text = f"{move.target} came back open: it is fenced at once, before anything else"
        yield warning("DR-RETURN-001", text, "Set active-on-start=false in broker.xml.")
    for pair in seen.sites[move.source]:
        here, there = seen.view(move.source, pair), seen.view(move.target, pair)
        if here is not None and there is not None:
            yield from (each for each in checks.of_both(here, there) if each.id in _ALIKE)
    yield from _price(seen, move)


def _price(seen: ContinuitySeen, move: Move) -> Iterator[Finding]:
    """What the return brings, and what of it comes twice at most: said before anything is changed."""
    views = seen.views(move.target)
    told = sum((view.held for view in views), Held())
    if not views or not (told.messages or told.acks):
        return
    text = (
        f"{move.target} came back with {told.messages} message(s) and {told.acks} acknowledgement(s) for "
        f"{move.source}: at most {told.twice} of the messages come twice, those that a client of {move.target} did "
        "without an acknowledgement"
    )
    found = warning("DR-RETURN-005", text, "The clients must recognise what they have done.")
    yield found if told.twice else replace(found, severity=Severity.INFO)


def nothing_owed(seen: ContinuitySeen, move: Move) -> bool:
    """Say whether the target is taken in already: nothing is owed, all bridges ship, nothing of it is under way."""
    views = [*seen.views(move.source), *seen.views(move.target)]
    owed = any(move.target in (debt.about, debt.kept_at) for debt in seen.debts)
    ship = all(view.attached and all(door.started for door in view.mirror_doors) for view in views)
    kept = any(view.commands is not None and view.commands.out.paused for view in views)
    kept = kept or any(flow.in_mirror.paused for view in views for flow in view.flows)
    arrived = all(view.to_ship == 0 for view in seen.views(move.target))
    applied = all(view.unapplied == 0 for view in seen.views(move.source))
    return not owed and ship and not kept and arrived and applied and seen.roles[move.target] is Role.STANDBY


def residue(step: RunbookStep, seen: ContinuitySeen, move: Move) -> Draft:
    """Count what the returned site still holds for the other; an open one is closed first."""
    del step
    came_back_open = seen.roles[move.source] is Role.SERVING
    views = seen.views(move.target) if came_back_open else []
    calls = tuple(each for view in views for each in view.closing(door for door in view.doors if door.started))
    return Draft(move.target, "what it still holds is counted; if it is open, it is closed first", calls)


def reinstate(step: RunbookStep, seen: ContinuitySeen, move: Move, timeout_s: float) -> Draft:
    """Hold what is staged at the serving site; remove the commands of the outage; messages in, then acknowledgements;
    deliver again; strike the debts."""
    del step
    calls: list[Call] = []
    inverse: list[Call] = []
    struck: list[Call] = []
    returned = seen.views(move.target)
    for view in seen.views(move.source):
        was = before(move, view)
        # Stopped first: what a bridge has taken could not be removed from a queue that is only paused.
        calls += in_part("hold", (stop(view, flow.target_bridge) for flow in view.flows))
        calls += in_part("hold", (pause(view, flow.in_mirror) for flow in view.flows))
        calls += _without_commands(view)
        calls += in_part("doors", (open_door(view, door) for door in view.mirror_doors if not door.started))
        # Closed first: nothing more comes in that would be delivered with what is held.
        kept_out = [door for door in view.mirror_doors if not was["mirror"].get(door.name)]
        inverse += [close_door(view, door, "it is open") for door in kept_out]
        inverse += _removing(view, move)
        inverse += in_part("deliver", (resume(view, flow.in_mirror, "it is paused") for flow in view.flows))
        again = "deliver again by"
        inverse += in_part("deliver", (start(view, flow.target_bridge, again, "it is stopped") for flow in view.flows))
        struck += _struck(view, move.target)
        inverse += [
            owe_again(view, kind, move.target)
            for kind in DebtKind
            if document(kind, move.target, view.site) in was["debts"]
        ]
    for view in returned:
        calls += in_part("hold acks", (stop(view, flow.acks_bridge) for flow in view.flows))
        calls += _without_commands(view)
        calls += in_part("doors", (open_door(view, door) for door in view.mirror_doors if not door.started))
        calls += in_part("ship acks", (start(view, flow.acks_bridge, "ship by") for flow in view.flows))
        inverse += [start(view, flow.acks_bridge, "ship by", "it is stopped") for flow in view.flows]
        struck += _struck(view, move.source)
    for view in seen.views(move.source):
        calls += _removing(view, move)
        calls += in_part("deliver", (resume(view, flow.in_mirror) for flow in view.flows))
        calls += in_part("deliver", (start(view, flow.target_bridge, "deliver again by") for flow in view.flows))
        if view.commands is not None and view.commands.out.paused:
            calls += in_part("talk", [resume(view, view.commands.out)])
    return Draft(
        move.target,
        "its messages are let in, then its acknowledgements; only what was never done is delivered",
        calls=(*calls, *in_part("strikes", struck)),
        inverse=tuple(inverse),
        limits={"within": timeout_s},
    )


def start(view: SiteView, bridge: Bridge, about: str, when: str | None = None) -> Call:
    return call(view, Goal.LINK_UP, bridge.name, request(bridge.bean, START), f"{about} {bridge.name}", when)


def stop(view: SiteView, bridge: Bridge) -> Call:
    return call(view, Goal.LINK_DOWN, bridge.name, request(bridge.bean, STOP), f"hold {bridge.name}")


def _removing(view: SiteView, move: Move) -> list[Call]:
    """What may be removed of what is staged, as a plan says it before anything was compared."""
    when = f"it was acknowledged at {move.target}, or lies at {view.site} twice"
    return [conserving.may_remove(view, flow.in_mirror, when) for flow in view.flows]


def _without_commands(view: SiteView) -> list[Call]:
    """What the plugin wanted to say during the outage: obeyed now, it could leave both sites inactive."""
    if view.commands is None or not view.commands.out.depth:
        return []
    out = view.commands.out
    text = f"remove the commands of the outage from {out.name}"
    return in_part("forget", [call(view, Goal.REMOVE, out.name, request(out.bean, REMOVE_ALL), text)])


def _struck(view: Broker, about: str) -> list[Call]:
    kinds = [kind for kind in DebtKind if document(kind, about, view.site) in view.documents]
    return [each for kind in kinds for each in pay(view, kind, about)]


def reconcile(step: RunbookStep, seen: ContinuitySeen, move: Move, timeout_s: float) -> Draft:
    """Compare both sites once all of it has arrived; take out what lies only at the returned one."""
    del step
    calls: list[Call] = []
    for view in seen.views(move.target):
        when = f"messages lie only at {view.site}: it did them, or they were done at {move.source}"
        name = quarantine_queue(view.site, "…")
        most = len(view.flows)
        server = beans.server(view.broker)
        created, moved = request(server, CREATE_FILTERED, (name,)), request(server, conserving.MOVE_ALL, ("…", name))
        calls.append(call(view, Goal.WRITE, name, created, f"create {name}", when, most))
        calls.append(call(view, Goal.MOVE, ALL, moved, f"move to {name}", when, most))
    about = "what was recovered, what comes twice, what is left over at one side"
    return Draft(move.source, about, tuple(calls), limits={"within": timeout_s})
