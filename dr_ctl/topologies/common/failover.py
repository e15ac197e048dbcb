"""What speaks against a failover, and what a lost site left behind. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from dr_ctl.core.model import Finding, Role, Severity
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.common.checks import error, warning
from dr_ctl.topologies.common.seen import Seen, Silent
from dr_ctl.topologies.common.view import Broker

V = TypeVar("V", bound=Broker)

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
