"""Reasons against taking a lost site in again, the messages it still holds, and whether the site is taken in. Pure."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from dr_ctl.core.model import Finding, Severity
from dr_ctl.core.printable import if_known
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.common import failover
from dr_ctl.topologies.common.findings import LINK_DOOR_CLOSED, PLUGIN_BRIDGE_AWAY
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.continuity import checks
from dr_ctl.topologies.continuity.findings import (
    BROUGHT_BACK,
    COMMANDS_WAITING,
    FLOWS_DIFFER,
    PLUGIN_BRIDGE_STOPPED,
    SAME_SITE_ID,
    STAGING_PAUSED,
)
from dr_ctl.topologies.continuity.view import ContinuitySeen

# Findings that the return itself mends.
_MENDED: Final = frozenset(
    {LINK_DOOR_CLOSED.id, PLUGIN_BRIDGE_STOPPED.id, PLUGIN_BRIDGE_AWAY.id, COMMANDS_WAITING.id, STAGING_PAUSED.id}
)
# Two sites that differ in these cannot be compared.
_ALIKE: Final = frozenset({SAME_SITE_ID.id, FLOWS_DIFFER.id})


def findings(seen: ContinuitySeen, move: Move) -> Iterator[Finding]:
    yield from failover.of_return(seen, move, checks.of_broker, _MENDED, "Set active-on-start=false in broker.xml.")
    for pair in seen.sites[move.source]:
        here, there = seen.view(move.source, pair), seen.view(move.target, pair)
        if here is not None and there is not None:
            yield from (each for each in checks.of_both(here, there) if each.id in _ALIKE)
    yield from _price(seen, move)


def _price(seen: ContinuitySeen, move: Move) -> Iterator[Finding]:
    """What the return brings, and what of it comes twice at most: said before anything is changed."""
    known = [residue for view in seen.views(move.target) if (residue := view.link.residue) is not None]
    residue = Residue.together(known)
    if len(known) < len(seen.views(move.target)) or not (residue.messages or residue.acks):
        return
    text = (
        f"{move.target} came back with {residue.messages} message(s) and {residue.acks} acknowledgement(s) for "
        f"{move.source}: at most {if_known(residue.duplicates)} of the messages come twice, those that a client of "
        f"{move.target} did without an acknowledgement"
    )
    found = BROUGHT_BACK(text, "The clients must recognise what they have done.")
    yield found if residue.duplicates else replace(found, severity=Severity.INFO)


def nothing_owed(seen: ContinuitySeen, move: Move) -> bool:
    """Say whether the target is taken in already: no staging queue or command of it is held back either."""
    views = [*seen.views(move.source), *seen.views(move.target)]
    kept = any(view.commands is not None and view.commands.out.paused for view in views)
    kept = kept or any(flow.in_mirror.paused for view in views for flow in view.flows)
    return not kept and failover.nothing_owed(seen, move)
