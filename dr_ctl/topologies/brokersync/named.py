"""The names of the checks that are this topology's own, and what each reads. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dr_ctl.core.model import some
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.classic.named import BY_CONSOLE
from dr_ctl.topologies.common.named import Named, doors


def _link(view: BrokerView) -> str:
    return f"{view.site} {', '.join(each.name for each in view.networks) or 'no network connector'}"


def _copies(view: BrokerView) -> str:
    return f"{view.site} {some([f'{name} {queue.depth} to ship' for name, queue in view.copying.items()]) or 'none'}"


def _attached(view: BrokerView) -> str:
    return f"{'' if view.attached else 'not '}connected"


BY_BROKER: Final[Sequence[Named[BrokerView]]] = (
    *BY_CONSOLE,
    Named("DR-DOOR-003", "the door of the peer's link is known", lambda view: doors(view.mirror_doors)),
    Named("DR-LINK-001", "the network connector is known", _link),
    Named("DR-LINK-004", "it is connected", _attached),
)
BY_PAIR: Final[Sequence[Named[BrokerView]]] = (
    Named("DR-SYNC-001", "the serving site copies its queues", _copies),
    Named("DR-SYNC-002", "every queue is copied", _copies),
    Named("DR-SYNC-003", "the other site copies back", _copies),
    Named(
        "DR-SYNC-004",
        "what only the waiting site has was consumed, and nobody holds it",
        lambda view: f"{view.site} {sum(view.consumed.values())} consumed since its start",
    ),
    Named("DR-SYNC-005", "nothing is left there that may come twice", _copies),
    Named(
        "DR-PARITY-001",
        "the waiting site lacks nothing but what is to be shipped",
        lambda view: f"{view.site} {sum(each.depth for each in view.business.values())} message(s)",
    ),
)
