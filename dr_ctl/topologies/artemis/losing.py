"""How a pair does without its lost site: the own verbs of a failover, and what speaks against it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from dr_ctl.core.model import Finding, Role, Severity
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import CUT_OFF, RunbookStep
from dr_ctl.topologies.artemis.baseline import before
from dr_ctl.topologies.artemis.checks import error, warning
from dr_ctl.topologies.artemis.debts import document, owe, pay
from dr_ctl.topologies.artemis.operations import close_door, open_door
from dr_ctl.topologies.artemis.view import Broker, Seen, Silent

V = TypeVar("V", bound=Broker)

SETTLE_S: Final = 5.0
# What would make the opened site useless or unsafe; all else can wait until the clients are served again.
_GRAVE: Final = frozenset({"DR-SITE-002", "DR-DOOR-001", "DR-DOOR-003", "DR-LINK-001", "DR-LINK-003", "DR-CONT-001"})
# True of every failover: the peer is away.
_EXPECTED: Final = frozenset({"DR-LINK-004", "DR-CONT-009"})


def findings(seen: Seen[V], move: Move, of_broker: Callable[[V], Iterable[Finding]]) -> Iterator[Finding]:
    """What speaks against opening the target without the lost site; only what is grave refuses it."""
    role = seen.roles[move.source]
    if role in (Role.SERVING, Role.SICK):
        yield error("DR-ALIVE-001", f"{move.source} is {role.value}: it may serve clients", "Fence it first.")
    for view in seen.views(move.target):
        for each in of_broker(view):
            if each.id in _EXPECTED:
                continue
            grave = each.id in _GRAVE or each.severity is not Severity.ERROR
            yield each if grave else replace(each, severity=Severity.WARNING)
    for broker in seen.sites[move.source].values():
        if isinstance(broker, Silent):
            text = f"{move.source}/{broker.pair} is {broker.role.value}: {broker.error}"
            yield warning("DR-SITE-001", text, broker.error.remedy)


def came_back_open(seen: Seen[Broker], move: Move) -> bool:
    """Say whether the returned site lets clients in beside the one that serves."""
    return seen.roles[move.source] is Role.SERVING and any(view.open for view in seen.views(move.target))


def fence(step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    """A site that is away cannot be fenced at its doors: it is owed, on the brokers that go on, unless a hook before it
    has cut the site off."""
    if seen.roles[move.source] is Role.STANDBY:
        return Draft(move.source, "its doors are closed already")
    if step.words.get(CUT_OFF):
        return Draft(move.source, "clients kept out by the hook before it")
    calls, inverse = _debt(seen, move, DebtKind.FENCE)
    return Draft(move.source, "clients cannot be shown to be kept out: the fence is owed", calls, inverse)


def quarantine(step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    """Close the door that the lost site's link uses: what it still holds must not meet live consumers."""
    del step
    calls: list[Call] = []
    inverse: list[Call] = []
    for view in seen.views(move.target):
        was = before(move, view)
        for door in view.mirror_doors:
            if door.started:
                calls.append(close_door(view, door))
            if was["mirror"].get(door.name):
                inverse.append(open_door(view, door, "it is closed"))
    written, struck = _debt(seen, move, DebtKind.QUARANTINE)
    about = f"what {move.source} still holds is kept out until it is asked for"
    return Draft(move.source, about, (*written, *calls), (*inverse, *struck))


def settle(step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    """Let the target apply what reached it, for a moment: a lost site sends nothing more."""
    del seen
    return Draft(move.target, "what has arrived is applied", limits={"within": step.limits.get("within", SETTLE_S)})


def _debt(seen: Seen[Broker], move: Move, kind: DebtKind) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
    views = seen.views(move.target)
    written = tuple(call for view in views for call in owe(view, kind, move.source, lasting=_outlasts(view)))
    struck = tuple(
        call for view in views if _new(view, kind, move) for call in pay(view, kind, move.source, "it stands there")
    )
    return written, struck


def _outlasts(view: Broker) -> bool:
    """Say whether the closed door of the link stays closed when the broker is restarted."""
    return bool(view.mirror_doors) and not any(door.opens_at_boot for door in view.mirror_doors)


def _new(view: Broker, kind: DebtKind, move: Move) -> bool:
    return document(kind, move.source, view.site) not in before(move, view)["debts"]
