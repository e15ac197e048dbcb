"""The names of the checks that are this topology's own, and what each reads. Pure."""

from collections.abc import Sequence
from typing import Final

from dr_ctl.engine.findings import COUNTS_DIFFER
from dr_ctl.topologies.classic.named import BY_CONSOLE
from dr_ctl.topologies.common.named import Named, doors
from dr_ctl.topologies.fanout.findings import (
    NO_OWN_CONNECTOR,
    ONE_SIDED_SENDS,
    POSSIBLE_DUPLICATES,
    PRODUCERS_DOOR_CLOSED,
    STORE_NOT_READ,
)
from dr_ctl.topologies.fanout.view import BrokerView

BY_BROKER: Final[Sequence[Named[BrokerView]]] = (
    *BY_CONSOLE,
    Named(PRODUCERS_DOOR_CLOSED, lambda view: doors(view.producers_doors)),
    Named(STORE_NOT_READ, lambda view: "it was read" if view.tells_done else "none is named"),
    Named(NO_OWN_CONNECTOR, lambda view: view.own.connector or "no connector of dr-ctl's own"),
)
BY_PAIR: Final[Sequence[Named[BrokerView]]] = (
    Named(ONE_SIDED_SENDS, lambda view: f"{view.site} {len(view.producers)} producer(s)"),
    Named(
        COUNTS_DIFFER,
        lambda view: f"{view.site} {sum(each.depth for each in view.business.values())} message(s)",
        "the waiting site holds no fewer than the serving one",
    ),
    Named(POSSIBLE_DUPLICATES, lambda view: "by the store of ids" if view.own.stored else "by counters"),
)
