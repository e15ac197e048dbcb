"""The names of the checks that are this topology's own, and what each reads. Pure."""

from collections.abc import Sequence
from typing import Final

from dr_ctl.core.model import some
from dr_ctl.engine.findings import COUNTS_DIFFER
from dr_ctl.topologies.brokersync.findings import (
    LEFT_AT_NEW_SITE,
    NOT_COMPARED,
    NOT_COPIED_TO_STANDBY,
    NOTHING_COPIED_BACK,
    ONLY_AT_STANDBY,
    SOME_NOT_COPIED,
)
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.classic.named import BY_CONSOLE
from dr_ctl.topologies.common.findings import LINK_DOOR_UNKNOWN, LINK_NOT_ATTACHED, LINK_UNKNOWN
from dr_ctl.topologies.common.named import Named, doors


def _link(view: BrokerView) -> str:
    return f"{view.site} {', '.join(each.name for each in view.networks) or 'no network connector'}"


def _copies(view: BrokerView) -> str:
    return f"{view.site} {some([f'{name} {queue.depth} to ship' for name, queue in view.copying.items()]) or 'none'}"


def _attached(view: BrokerView) -> str:
    return f"{'' if view.link.attached else 'not '}connected"


BY_BROKER: Final[Sequence[Named[BrokerView]]] = (
    *BY_CONSOLE,
    Named(LINK_DOOR_UNKNOWN, lambda view: doors(view.link.doors)),
    Named(LINK_UNKNOWN, _link),
    Named(LINK_NOT_ATTACHED, _attached, "it is connected"),
)
BY_PAIR: Final[Sequence[Named[BrokerView]]] = (
    Named(NOT_COPIED_TO_STANDBY, _copies),
    Named(SOME_NOT_COPIED, _copies),
    Named(NOTHING_COPIED_BACK, _copies),
    Named(
        ONLY_AT_STANDBY,
        lambda view: f"{view.site} {sum(view.consumed.values())} consumed since its start",
    ),
    Named(LEFT_AT_NEW_SITE, _copies),
    Named(
        NOT_COMPARED,
        lambda view: f"{view.site} {max((each.depth for each in view.business.values()), default=0)} in one queue",
    ),
    Named(
        COUNTS_DIFFER,
        lambda view: f"{view.site} {sum(each.depth for each in view.business.values())} message(s)",
    ),
)
