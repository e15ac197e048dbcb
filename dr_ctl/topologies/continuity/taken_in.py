"""What speaks against taking a lost site in again, what it still holds, and whether it is taken in. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from dr_ctl.core.model import Finding, Role, Severity
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.common.checks import error, warning
from dr_ctl.topologies.common.seen import Silent
from dr_ctl.topologies.continuity import checks
from dr_ctl.topologies.continuity.view import ContinuitySeen, Held

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
    held = [view.held for view in seen.views(move.target)]
    told = sum((each for each in held if each is not None), Held())
    if None in held or not (told.messages or told.acks):
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
