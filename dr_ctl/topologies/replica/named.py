"""The names of the checks that are this topology's own, and what each reads. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dr_ctl.settings.durations import duration
from dr_ctl.topologies.classic.named import BY_CONSOLE
from dr_ctl.topologies.common.findings import COUNTS_DIFFER, LINK_DOOR_UNKNOWN, LINK_NOT_ATTACHED
from dr_ctl.topologies.common.named import Named, doors
from dr_ctl.topologies.replica.findings import NEVER_TRIED, NO_REPLICATION_PLUGIN, NO_SOURCE_AND_REPLICA, REPLICA_BEHIND
from dr_ctl.topologies.replica.view import BrokerView


def _part(view: BrokerView) -> str | None:
    return f"{view.site} {view.plugin.part}" if view.plugin is not None else None


def _lag(view: BrokerView) -> str:
    lag_ms = view.plugin.lag_ms if view.plugin is not None else None
    return f"{view.site} {'no lag measured' if lag_ms is None else f'{duration(lag_ms / 1000)} behind'}"


BY_BROKER: Final[Sequence[Named[BrokerView]]] = (
    *BY_CONSOLE,
    Named(NEVER_TRIED, lambda _: "published names and states only"),
    Named(NO_REPLICATION_PLUGIN, _part),
    Named(LINK_DOOR_UNKNOWN, lambda view: doors(view.acceptors), "the plugin has a connector of its own"),
    Named(LINK_NOT_ATTACHED, lambda view: f"{view.link.to_ship} event(s) to ship", "a replica fetches from the source"),
)
BY_PAIR: Final[Sequence[Named[BrokerView]]] = (
    Named(NO_SOURCE_AND_REPLICA, _part),
    Named(REPLICA_BEHIND, _lag),
    Named(
        COUNTS_DIFFER,
        lambda view: f"{view.site} {sum(each.depth for each in view.business.values())} message(s)",
        "the sites differ by no more than what is under way",
    ),
)
