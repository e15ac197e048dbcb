"""What speaks against taking a lost site in again, and whether it is taken in. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dr_ctl.core.model import Finding, Role
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.common.checks import error, warning
from dr_ctl.topologies.mirror import checks
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
